"""The paths of model calls: which dialect each speaks, and the doors that stand at them."""

from collections.abc import Mapping
from functools import partial

from gateway.api.door import Door, Load, bounds_of
from gateway.clock import Clock
from gateway.configuration.settings import Limits
from gateway.counting import Counting
from gateway.dialects.anthropic_messages.counting import AnthropicTokenCount
from gateway.dialects.openai_responses.counting import OpenAITokenCount
from gateway.dialects.registry import DIALECTS
from gateway.metrics import Metrics
from gateway.pacing.turns import Turns
from gateway.pipeline import Pipeline
from gateway.ports import Dialect
from gateway.snapshot import SnapshotKeeper
from gateway.types import DialectName


ENDPOINTS: Mapping[str, DialectName] = {
    "/v1/chat/completions": "openai_chat",
    "/v1/messages": "anthropic_messages",
    "/v1/responses": "openai_responses",
    "/v1/embeddings": "openai_embeddings",
    "/v1/completions": "openai_completions",
}
APART = "/v1/responses"
COUNTS: Mapping[str, Dialect] = {
    "/v1/messages/count_tokens": AnthropicTokenCount(),
    "/v1/responses/input_tokens": OpenAITokenCount(),
}


def make_doors(
    answering: Pipeline,
    counting: Counting,
    apart: Pipeline,
    *,
    snapshots: SnapshotKeeper,
    clock: Clock,
    metrics: Metrics,
    limits: Limits,
    turns: Turns,
) -> list[Door]:
    """One door for each path; a worker's doors share its room and its load.

    `apart` serves responses, which may be made in the background: others need not pay for it.
    """
    make_door = partial(
        Door,
        snapshots=snapshots,
        clock=clock,
        metrics=metrics,
        bounds=bounds_of(limits),
        load=Load(limits.concurrent_requests_max, metrics, turns),
    )
    pipelines = {APART: apart}
    return [
        *(
            make_door(path, DIALECTS[name], pipeline=pipelines.get(path, answering))
            for path, name in ENDPOINTS.items()
        ),
        *(make_door(path, dialect, pipeline=counting) for path, dialect in COUNTS.items()),
    ]
