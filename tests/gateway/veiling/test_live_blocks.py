"""A stream whose blocks wait for each other goes on to its end, or breaks where it broke."""

import pytest

from gateway.clock import StoppedClock
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.attempts import AttemptLog, RunningAttempt
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.live_stream import LiveStream
from gateway.errors import StreamBroken
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from gateway.types import Candidate, StreamEvent
from tests.gateway.providers.samples import HOME, make_target
from tests.gateway.veiling.answers_in_blocks import in_messages, told
from tests.gateway.veiling.test_output_scan import VALUES, event, output_scan


pytestmark = pytest.mark.anyio

CARD = VALUES["CREDIT_CARD"]
RAW = in_messages([[f"It is {CARD[:9]}"], [f"{CARD[9:]} , he said."]])
SHOWN = ["It is [REDACTED:CREDIT_CARD]", " , he said."]
ENDS = next(at for at, each in enumerate(RAW) if b"content_block_stop" in each)
BROKEN = event("error", error={"type": "overloaded_error"})


def live(*pieces: bytes) -> LiveStream:
    target = make_target()
    attempt = RunningAttempt(target, AttemptLog(), TargetHealth(), StoppedClock())
    reply = ScriptedUpstreamReply(ScriptedProvider("p", HOME), ScriptedReply(pieces=pieces))
    decoder = DIALECTS["anthropic_messages"].stream_decoder()
    candidate = Candidate(target, 9, 1)
    return LiveStream(candidate, "anthropic_messages", reply, decoder, attempt, output_scan())


async def read(stream: LiveStream) -> list[StreamEvent]:
    seen: list[StreamEvent] = []
    while events := await stream.next_batch():
        seen += events
    return seen


async def test_a_stream_goes_on_behind_a_block_whose_end_waits() -> None:
    events = await read(live(*RAW))
    assert events[-1].is_terminal
    assert told(events, 2) == SHOWN


async def test_it_goes_on_where_its_reader_only_listens() -> None:
    stream, seen = live(*RAW), []

    def take(events: list[StreamEvent]) -> bool:
        assert events
        seen.extend(events)
        return False

    await stream.flow(take)
    assert told([*seen, *await read(stream)], 2) == SHOWN


@pytest.mark.parametrize("words", [b"", event("content_block_stop", index=0)])
async def test_a_stream_that_breaks_off_while_a_block_waits_is_broken(words: bytes) -> None:
    beginning = RAW[:ENDS]
    for pieces in (
        [*beginning, RAW[ENDS], BROKEN],
        [*beginning, RAW[ENDS]],
        [*beginning, RAW[ENDS], RAW[ENDS + 1], words + RAW[ENDS + 3] + BROKEN],
    ):
        with pytest.raises(StreamBroken):
            await read(live(*pieces))
