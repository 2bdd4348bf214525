"""Answers that were cut or refused: their records say so, and those of complete answers do not."""

import pytest

from tests.faults.envelopes import Caller, Style, ask, only_outcome
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio
TARGETS = {"openai": GPT_TARGET, "anthropic": CLAUDE_TARGET}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("style", "stop", "recorded"),
    [
        ("openai", "length", "length"),
        ("openai", "content_filter", "content_filter"),
        ("openai", "stop", None),
        ("anthropic", "max_tokens", "length"),
        ("anthropic", "refusal", "content_filter"),
        ("anthropic", "end_turn", None),
    ],
)
async def test_a_record_says_why_an_answer_is_not_whole(
    style: Style,
    stop: str,
    recorded: str | None,
    stream: bool,
    gateway: RunningGateway,
    upstreams: Upstreams,
    caller: Caller,
) -> None:
    upstream = upstreams.openai if style == "openai" else upstreams.anthropic
    upstream.answer(Answer(text="Only the beginning of", stop=stop))

    reply = await caller.post(style, ask(style, stream=stream, model=TARGETS[style]))

    assert reply.status == 200
    outcome = await only_outcome(gateway, reply.request_id, "ok", "")
    assert outcome.detail.get("stop_reason") == recorded
