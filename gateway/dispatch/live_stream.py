"""Reads an upstream's stream from first content to end: in batches, counted, closed once."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.dispatch.attempts import RunningAttempt
from gateway.dispatch.long_answers import LOOKED_AT_BYTES_MAX, LongAnswers
from gateway.dispatch.refusals import SAID_BYTES_MAX
from gateway.errors import GatewrightError, StreamBroken, UpstreamTimeout
from gateway.ports import StreamDecoder, UpstreamReply
from gateway.tally import Tally
from gateway.types import CUT_SHORT, Candidate, Delta, DialectName, StreamEvent, Usage
from gateway.veiling.rewriting import AnswerRewriter


Refusal = Callable[[bytes], GatewrightError | None]
"""Converts an upstream's error JSON to an error, as far as it can be read."""
Take = Callable[[list[StreamEvent]], bool]
TakePlain = Callable[[list[str], bytes], bool]
"""Takes the events' words, one for each, and their bytes; returns whether that is enough."""

TOLD_REST_S: Final = 2.0
"""How long a stream may take to signal its end once everything else has come."""
HELD_EVENTS_MAX = 64
HELD_BYTES_MAX = 256 * 1024
_CUT = StreamEvent(b"", (Delta("error", CUT_SHORT),))


class LiveStream:
    """A stream whose first content has arrived; must be closed."""

    def __init__(
        self,
        candidate: Candidate,
        source: DialectName,
        reply: UpstreamReply,
        decoder: StreamDecoder,
        attempt: RunningAttempt,
        rewriting: AnswerRewriter | None = None,
        *,
        explaining: set[str] | None = None,
        lines: LongAnswers | None = None,
    ) -> None:
        """`lines` are the threads in which long events are read; without them it has its own.

        `explaining` are targets whose streams have said why they stopped; this may add its own.

        Programs between a model and us end a stream cleanly even if it broke behind them; but some
        servers never say why they stopped.
        """
        self.candidate = candidate
        self._explaining = set() if explaining is None else explaining
        self._lift = rewriting.lifted() if rewriting is not None else None
        self.source = source
        self.dropped: tuple[str, ...] = ()
        self._reply = reply
        self._decoder = decoder
        self._chunks = reply.chunks()
        self._held: list[StreamEvent] = []
        self._ended = False
        self._lines = LongAnswers() if lines is None else lines
        self._unlifted: list[StreamEvent] = []
        """Events that have arrived and would take too long to process on the loop."""
        self._is_due = False
        """Whether nothing more flows: it has ended or broken, or events have to be lifted."""
        self._rests_until_s: float | None = None
        """Until when, by the loop's time, a stream that has sent everything else may signal its
        end."""
        self._has_rested = False
        """Whether that time is over."""
        self._broken: StreamBroken | None = None
        """An upstream's error that came in one read with content before it."""
        self._attempt = attempt
        self._counted: Tally | None = None
        """Counts nothing until a tally is given."""
        self._was_refused = False
        self.refusal: Refusal | None = None
        """Reads errors that come inside the stream."""
        self._last_count: Usage | None = None
        """The count that came with an error: what was generated until then."""
        self.unannounced = b""
        """The beginning of a reply that is not announced as a stream: it may be an error."""
        attempt.counted = self._owed

    @property
    def attempt(self) -> int:
        """Its attempt's number."""
        return self._attempt.number

    def counted_by(self, tally: Tally) -> None:
        """Let the new reader's tally count from now on, so that nothing is counted twice."""
        self._counted = tally

    def uncounted(self) -> Tally:
        """A new tally for its words, still empty."""
        return Tally(
            0,
            vendor=self.candidate.target.vendor,
            is_silent=self.candidate.output_tokens_cap == 0,
            believe=self._attempt.believe,
        )

    def _owed(self) -> Usage | None:
        """What its upstream charges for what it sent: all that was read, passed on or not."""
        last = self._last_count
        counted = () if last is None else (StreamEvent(b"", (Delta("usage", usage=last),)),)
        before = self.uncounted() if self._counted is None else self._counted
        tally = before.and_then([*self._held, *counted])
        if self._was_refused and tally.is_empty:
            return None
        tokens = 0 if tally.knows_input else self._attempt.read_tokens()
        is_whole = self._ended or last is not None
        return tally.usage(tokens) if is_whole else tally.usage_so_far(tokens)

    async def hold_until_content(self) -> None:
        """Read until there is something to show, so that an error before it can fall back.

        Bounded: an upstream that only ever sends greetings is let through.
        """
        held_bytes = 0
        while not self._ended:
            events = await self._read()
            self._held += events
            if any(event.has_content for event in events):
                return
            held_bytes += sum(len(event.raw) for event in events)
            if len(self._held) >= HELD_EVENTS_MAX or held_bytes >= HELD_BYTES_MAX:
                return

    async def next_batch(self) -> list[StreamEvent]:
        """The events of the next network read; empty after the terminal event.

        It has one coroutine per level: a chain of generators was resumed for every token.

        Raises:
            StreamBroken: the upstream ended, cut or reported an error before the terminal event.
            UpstreamFailed: the connection broke, stalled or sent something else.
        """
        if self._held:
            held, self._held = self._held, []
            return held
        try:
            if self._unlifted:
                events, self._unlifted = self._unlifted, []
                self._is_due = self._ended or self._broken is not None
                if lifted := await self._looked(events):
                    return lifted
            if self._ended:
                self._attempt.end(None)
                return []
            return await self._read()
        except GatewrightError as error:
            self._attempt.end(error)
            raise

    async def flow(self, take: Take, take_plain: TakePlain | None = None) -> None:
        """Pass events to `take` as they arrive, until it has enough or the stream is over.

        `take_plain` gets events that contain only words, as words. `next_batch` continues from
        there, and raises what went wrong. Raises like it.
        """
        if self._held or self._is_due:
            return

        def read(data: bytes) -> bool:
            events = self._lifted(self._checked(self._decoder.feed(data)))
            has_enough = bool(events) and take(events)
            return has_enough or self._is_due

        flowing: Callable[[bytes], bool] = read
        if take_plain is not None and self._lift is None:
            flowing = _plain_first(self._decoder.plain_words, take_plain, read)
        try:
            await self._reply.flow(flowing)
        except GatewrightError as error:
            self._attempt.end(error)
            raise

    async def _read(self) -> list[StreamEvent]:
        """At least one event, or an error."""
        if self._broken is not None:
            raise self._broken
        while (data := await self._arriving()) is not None:
            if not self._reply.is_event_stream and len(self.unannounced) <= SAID_BYTES_MAX:
                self.unannounced += data
            if events := await self._looked(self._checked(self._decoder.feed(data))):
                return events
            if self._broken is not None:
                raise self._broken
        last = self._decoder.conclude() if self._has_rested else self._decoder.close()
        events = await self._looked(self._checked(last))
        if not self._ended and not events:
            raise StreamBroken("The upstream's stream ended before its terminal event.")
        return events

    async def _arriving(self) -> bytes | None:
        """The next read; None at the end, and if only the signal of the end is missing.

        Some servers say why an answer stopped and what it counts, and then neither `[DONE]` nor
        anything else: they are not waited for as long as a model that thinks.
        """
        if not self._decoder.is_told:
            return await anext(self._chunks, None)
        if self._rests_until_s is None:
            self._rests_until_s = asyncio.get_running_loop().time() + TOLD_REST_S
        try:
            async with asyncio.timeout_at(self._rests_until_s):
                return await anext(self._chunks, None)
        except (TimeoutError, UpstreamTimeout):
            self._has_rested = True
            return None

    def _lifted(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """Events as the caller sees them; some are held back until their fate is clear."""
        if self._lift is None or not events:
            return events
        if _bytes_of(events) <= LOOKED_AT_BYTES_MAX:
            return self._lift.events(events)
        self._unlifted, self._is_due = events, True
        return []

    async def _looked(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """The same, but able to wait for long events."""
        if self._lift is None or not events:
            return events
        length_bytes = _bytes_of(events)
        if length_bytes <= LOOKED_AT_BYTES_MAX:
            return self._lift.events(events)
        work = partial(self._lift.events, events)
        return await self._lines.look(self.candidate.target.name, length_bytes, work)

    def put_back(self, events: list[StreamEvent]) -> None:
        """Put events back that were read, to be read again; nothing was shown yet."""
        self._held = events
        self._counted = None

    def _checked(self, events: list[StreamEvent]) -> list[StreamEvent]:
        """The events, up to an error among them; it is raised at once unless content came first."""
        for place, found in enumerate(events):
            event = self._ending(found) if found.is_terminal else found
            if event.is_terminal:
                self._ended = self._is_due = True
            elif not event.has_content and _is_error(event):
                broken = self._broken_by(event)
                if not any(before.has_content for before in events[:place]):
                    self._was_refused = True
                    self._held += events[:place]
                    raise broken
                self._broken, self._is_due = broken, True
                return events[:place]
        self._is_due |= self._decoder.is_told
        return events

    def _broken_by(self, event: StreamEvent) -> StreamBroken:
        self._last_count = next((d.usage for d in event.deltas if d.usage is not None), None)
        broken = StreamBroken(_said_of(event))
        if event.said and self.refusal is not None:
            broken.refusal = self.refusal(event.said)
        return broken

    def _ending(self, event: StreamEvent) -> StreamEvent:
        """A terminal event, or an error if its target usually says why it stops and now did not."""
        name = self.candidate.target.name
        if not event.is_unexplained:
            self._explaining.add(name)
        elif name in self._explaining:
            return _CUT
        return event

    async def close(self, cause: BaseException | None = None) -> None:
        """Give the upstream up; if it still sends, because of `cause`, or the caller has left."""
        self._attempt.end(cause or asyncio.CancelledError())
        await self._reply.close()


def _plain_first(
    plain_words: Callable[[bytes], list[str] | None],
    take_plain: TakePlain,
    read: Callable[[bytes], bool],
) -> Callable[[bytes], bool]:
    """The fast path for nearly every read of a stream, without what the others need."""

    def read_plain(data: bytes) -> bool:
        words = plain_words(data)
        return read(data) if words is None else take_plain(words, data)

    return read_plain


def _said_of(event: StreamEvent) -> str:
    if any(delta.text == CUT_SHORT for delta in event.deltas):
        return "The upstream's stream ended before its answers had."
    return "The upstream reported an error inside its stream."


def _bytes_of(events: list[StreamEvent]) -> int:
    return sum(len(event.raw) for event in events)


def _is_error(event: StreamEvent) -> bool:
    return any(delta.kind == "error" for delta in event.deltas)
