"""What a stream that did not end owes, and what its upstream said of why."""

import msgspec
import pytest

from gateway.clock import StoppedClock
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.attempts import AttemptLog, RunningAttempt
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.live_stream import LiveStream
from gateway.errors import GatewrightError, StreamBroken, UpstreamRefused, UpstreamUnpaid
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from gateway.types import Candidate, Usage
from tests.conformance.told_answers import event
from tests.gateway.providers.samples import HOME, make_target


pytestmark = pytest.mark.anyio

READ = 70
USAGE = {"input_tokens": 9, "output_tokens": 1}
START = event("message_start", message={"id": "msg_1", "model": "m", "usage": USAGE})
BLOCK = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
WORDS = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Hello, you."})
ERROR = event("error", error={"type": "overloaded_error", "message": "too much to do"})


class Streamed:
    """One stream of these reads, and the attempt that it is of."""

    def __init__(self, *pieces: bytes) -> None:
        self.log = AttemptLog()
        target, clock = make_target(), StoppedClock()
        attempt = RunningAttempt(target, self.log, TargetHealth(), clock, read_tokens=lambda: READ)
        attempt.leaves()
        attempt.heard(200)
        reply = ScriptedUpstreamReply(ScriptedProvider("p", HOME), ScriptedReply(pieces=pieces))
        decoder = DIALECTS["anthropic_messages"].stream_decoder()
        candidate = Candidate(target, 9, 1)
        self.live = LiveStream(candidate, "anthropic_messages", reply, decoder, attempt)

    async def broken(self) -> StreamBroken:
        """The error with which it ends."""
        with pytest.raises(StreamBroken) as broken:
            await self._read_on()
        await self.live.close(broken.value)
        return broken.value

    async def _read_on(self) -> None:
        await self.live.hold_until_content()
        while await self.live.next_batch():
            pass

    @property
    def owed(self) -> Usage | None:
        (bill,) = self.log.bills()
        return bill.usage


async def test_a_stream_that_ends_before_its_first_event_owes_what_was_read() -> None:
    stream = Streamed(b": hello\n\n")
    await stream.broken()
    assert stream.owed == Usage(input_tokens=READ, estimated=True)


async def test_a_stream_that_only_says_why_not_is_a_refusal_and_owes_nothing() -> None:
    stream = Streamed(ERROR)
    await stream.broken()
    assert stream.owed is None


@pytest.mark.parametrize("pieces", [(START, ERROR), (START + ERROR,), (START + BLOCK + ERROR,)])
async def test_what_was_counted_before_a_refusal_is_owed_in_whichever_read_it_came(
    pieces: tuple[bytes, ...],
) -> None:
    stream = Streamed(*pieces)
    await stream.broken()
    assert stream.owed is not None
    assert stream.owed.input_tokens == USAGE["input_tokens"]


@pytest.mark.parametrize("is_one_read", [False, True])
async def test_an_error_behind_words_is_told_after_them_and_judged_by_what_it_says(
    is_one_read: bool,
) -> None:
    reads = (START + BLOCK + WORDS + ERROR,) if is_one_read else (START, BLOCK, WORDS, ERROR)
    stream = Streamed(*reads)
    judged: list[bytes] = []

    def unpaid(said: bytes) -> GatewrightError:
        judged.append(said)
        return UpstreamUnpaid("", upstream_status=402)

    stream.live.refusal = unpaid
    await stream.live.hold_until_content()
    tally = stream.live.uncounted()
    stream.live.counted_by(tally)
    events = await stream.live.next_batch()
    tally.add(events)
    assert "Hello, you." in [delta.text for each in events for delta in each.deltas]
    broken = await stream.broken()
    assert isinstance(broken.refusal, UpstreamRefused)
    (error,) = judged
    assert msgspec.json.decode(error)["error"]["type"] == "overloaded_error"
    assert stream.owed is not None
    assert stream.owed.output_tokens > 1
