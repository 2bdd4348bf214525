"""Even an unforeseen error is told in the caller's dialect, recorded, and leaves nothing held."""

from typing import Any

import pytest

from gateway.money.budgets import BudgetKey
from tests.faults.envelopes import STYLES, Caller, Style, ask, check_error
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("style", STYLES)
whole_and_streamed = pytest.mark.parametrize("stream", [False, True])
ACCOUNT = "org:acme"
LIMIT_MICROUSD = 10**9

ENCODING = "gateway.dialects.anthropic_messages.dialect.AnthropicMessages.encode_request"
BEFORE_THE_INTENT = (
    "gateway.intake.authenticate",
    "gateway.intake.planning.check_model",
    "gateway.intake.planning.gather",
    "gateway.intake.evidence.intent",
)
AFTER_IT = (
    "gateway.dispatch.walking.Walk._in_order",
    "gateway.dispatch.attempts.RunningAttempt.heard",
    ENCODING,
)
IN_THE_ANSWER = {
    False: ("gateway.dialects.anthropic_messages.dialect.AnthropicMessages.encode_reply",),
    True: (
        "gateway.relay.Tally.add",
        "gateway.dialects.anthropic_messages.stream_out.MessagePassThrough.encode",
    ),
}


def crash(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("at /etc/passwd in SELECT secret FROM nowhere")


@pytest.fixture(scope="module", autouse=True)
async def _limited(shared_gateway: RunningGateway) -> None:
    await shared_gateway.limit(ACCOUNT, LIMIT_MICROUSD)


@both
@whole_and_streamed
@pytest.mark.parametrize("place", [*BEFORE_THE_INTENT, *AFTER_IT])
async def test_a_crash_before_the_answer_is_an_error_on_record(
    caller: Caller,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    style: Style,
    stream: bool,
    place: str,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(place, crash)
        reply = await caller.post(style, ask(style, model=CLAUDE_TARGET, stream=stream))

    check_error(reply, style, "internal_error")
    records = await caller.gateway.records(reply.request_id)
    # What has to be converted is converted before anything is reserved or written down.
    is_early = place in BEFORE_THE_INTENT or (place == ENCODING and style == "openai")
    stages = ["outcome"] if is_early else ["intent", "outcome"]
    assert [record.stage for record in records] == stages
    assert records[-1].error == "internal_error"
    assert records[-1].http_status == reply.status == 500
    assert records[-1].status == ("refused" if is_early else "incomplete")
    assert reserved(caller.gateway) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_crash_in_the_answer_is_on_record_and_never_looks_whole(
    caller: Caller, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    for place in IN_THE_ANSWER[stream]:
        with monkeypatch.context() as patched:
            patched.setattr(place, crash)
            body = ask("anthropic", model=CLAUDE_TARGET, stream=stream)
            reply = await caller.post("anthropic", body)

        assert b"message_stop" not in reply.body
        check_error(reply, "anthropic", "internal_error")
        records = await caller.gateway.records(reply.request_id)
        assert [record.stage for record in records] == ["intent", "outcome"], place
        assert (records[-1].status, records[-1].error) == ("incomplete", "internal_error")
        assert reserved(caller.gateway) == 0


def reserved(gateway: RunningGateway) -> int:
    """What reservations still hold on the account."""
    return gateway.plane._ledger._held.by_key[BudgetKey(ACCOUNT, "total")].reserved


async def test_service_goes_on_after_crashes(caller: Caller, upstreams: Upstreams) -> None:
    for style in STYLES:
        assert (await caller.post(style, ask(style, model=CLAUDE_TARGET))).status == 200
