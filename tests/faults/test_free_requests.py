"""An upstream's token counts and model may be missing, wrong or absurd: nothing is free."""

from typing import Any

import msgspec
import pytest

from gateway.types import AuditRecord
from tests.faults.envelopes import STYLES, Caller, Reply, Style, ask
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, Upstreams
from tests.upstreams import Answer, events_of, reply_of


pytestmark = pytest.mark.anyio

LONG = "A hundred words would be about this long. " * 12
MISSING: Any = object()
COUNTS: dict[str, Any] = {
    "missing": MISSING,
    "null": None,
    "empty": {},
    "zero": (0, 0),
    "no input": (0, 90),
    "no output": (12, 0),
    "negative": (-12, -90),
    "one negative": (12, -90),
    "fraction": (1.5, 2.5),
    "not a number": ("NaN", "NaN"),
    "text": ("12", "90"),
    "a list": [1, 2],
}
NAMES = {
    GPT_TARGET: ("prompt_tokens", "completion_tokens"),
    CLAUDE_TARGET: ("input_tokens", "output_tokens"),
}
targets = pytest.mark.parametrize("target", [CLAUDE_TARGET, GPT_TARGET])
both = pytest.mark.parametrize("style", STYLES)


def usage(target: str, counts: Any) -> Any:
    if not isinstance(counts, tuple):
        return counts
    return dict(zip(NAMES[target], counts, strict=True))


def without_quotes(raw: bytes) -> bytes:
    """NaN is no JSON, and some servers write it."""
    return raw.replace(b'"NaN"', b"NaN")


def whole(target: str, counts: Any) -> Answer:
    dialect = "anthropic_messages" if target == CLAUDE_TARGET else "openai_chat"
    tree = reply_of(Answer(text=LONG), "another-model-than-asked", dialect)
    tree["usage"] = usage(target, counts)
    if counts is MISSING:
        del tree["usage"]
    return Answer(body=without_quotes(msgspec.json.encode(tree)))


def streamed(target: str, counts: Any) -> Answer:
    """The same in every event that has a usage."""
    dialect = "anthropic_messages" if target == CLAUDE_TARGET else "openai_chat"
    asked = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
    events = []
    for event in events_of(Answer(text=LONG), asked, dialect):
        head, mark, data = event.partition(b"data: ")
        if not data.startswith(b"{"):
            events.append(event)
            continue
        tree = msgspec.json.decode(data)
        for place in (tree, tree.get("message", {})):
            if "usage" in place:
                place["usage"] = usage(target, counts)
                if counts is MISSING:
                    del place["usage"]
        events.append(without_quotes(head + mark + msgspec.json.encode(tree)) + b"\n\n")
    return Answer(events=tuple(events))


async def outcome_of(caller: Caller, reply: Reply) -> AuditRecord:
    records = await caller.gateway.records(reply.request_id)
    return records[-1]


def check_charged(outcome: AuditRecord) -> None:
    """Either it was taken for what it is and charged, or it was refused as no answer at all."""
    if outcome.status == "failed":
        assert outcome.error == "upstream_malformed"
        return
    assert outcome.usage is not None
    assert outcome.usage.input_tokens > 0
    assert outcome.usage.output_tokens > 0
    assert outcome.cost_microusd > 0


@both
@targets
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
async def test_an_answer_is_charged_whatever_its_upstream_counted(
    caller: Caller, upstreams: Upstreams, style: Style, target: str, counts: Any
) -> None:
    caller.gateway.plane._health.breakers._states.clear()
    upstream = upstreams.anthropic if target == CLAUDE_TARGET else upstreams.openai
    upstream.answer(whole(target, counts))

    reply = await caller.post(style, ask(style, model=target))

    outcome = await outcome_of(caller, reply)
    check_charged(outcome)
    assert (reply.status, outcome.status) in {(200, "ok"), (502, "failed")}
    if reply.status == 200:
        assert outcome.target == target, "what it calls itself does not change the price"
        assert reply.headers["x-gatewright-usage"] == "estimated"


@both
@targets
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
async def test_a_stream_is_charged_whatever_its_upstream_counted(
    caller: Caller, upstreams: Upstreams, style: Style, target: str, counts: Any
) -> None:
    caller.gateway.plane._health.breakers._states.clear()
    upstream = upstreams.anthropic if target == CLAUDE_TARGET else upstreams.openai
    upstream.answer(streamed(target, counts))

    reply = await caller.post(style, ask(style, model=target, stream=True))

    outcome = await outcome_of(caller, reply)
    assert outcome.stage == "outcome"
    check_charged(outcome)
