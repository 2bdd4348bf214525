"""Answers a passage: again, where policy lets a kept answer be given, else through the cascade.

The journey around it stays whole: who asks was authenticated, inspected, decided on, reserved for
and written down before, and the outcome says that no upstream was asked.
"""

from collections.abc import Awaitable

from msgspec import Struct

from gateway.attempts import AttemptLog
from gateway.cascading import Cascade
from gateway.clock import Clock
from gateway.dispatch import Answered, LiveStream
from gateway.kept_streams import NotedStream, RepeatedStream
from gateway.metrics import Metrics
from gateway.passage import Passage
from gateway.response_cache import (
    KeptReply,
    ResponseCache,
    Wishes,
    candidate_for,
    keeps_for_s,
    key_of,
    wishes_of,
)
from gateway.types import Candidate, Completion, StreamEvent


HEADER = "x-gatewright-cache"
WITHHELD = "content_filter"
"""A stop reason that makes no answer: to give it again would make a mishap last."""


class _Place(Struct, frozen=True):
    """Where the answer to a passage would lie, for how long, and what its caller asks for."""

    organisation: str
    key: bytes
    keeps_s: int
    wishes: Wishes


class CachingAnswers:
    """The cache before the cascade; holds both."""

    def __init__(
        self, cascade: Cascade, cache: ResponseCache, clock: Clock, metrics: Metrics
    ) -> None:
        self._cascade = cascade
        self._cache = cache
        self._clock = clock
        self._metrics = metrics

    def complete(self, passage: Passage, log: AttemptLog) -> Awaitable[Answered]:
        """A whole answer. Raises GatewrightError as the cascade does."""
        keeps_s = keeps_for_s(passage)
        return self._complete(passage, log, keeps_s) if keeps_s else self._ask(passage, log)

    def open_stream(
        self, passage: Passage, log: AttemptLog
    ) -> Awaitable[LiveStream | NotedStream | RepeatedStream]:
        """A stream; close it. Raises GatewrightError as the cascade does."""
        keeps_s = keeps_for_s(passage)
        return self._stream(passage, log, keeps_s) if keeps_s else self._open(passage, log)

    async def _complete(self, passage: Passage, log: AttemptLog, keeps_s: int) -> Answered:
        place = _place(passage, keeps_s)
        candidate, reply = self._find(passage, log, place)
        if reply is not None and reply.completion is not None and candidate is not None:
            return Answered(candidate, reply.source, reply.completion, reply.dropped)
        answered = await self._ask(passage, log)
        if place.wishes.may_keep and answered.completion.stop_reason != WITHHELD:
            self._keep(passage, place, answered, completion=answered.completion)
        return answered

    async def _stream(
        self, passage: Passage, log: AttemptLog, keeps_s: int
    ) -> LiveStream | NotedStream | RepeatedStream:
        place = _place(passage, keeps_s)
        candidate, reply = self._find(passage, log, place)
        if reply is not None and candidate is not None:
            return RepeatedStream(candidate, reply)
        live = await self._open(passage, log)
        if not place.wishes.may_keep:
            return live

        def keep(events: tuple[StreamEvent, ...]) -> None:
            self._keep(passage, place, live, events=events)

        return NotedStream(live, self._cache.reply_bytes_max, keep)

    def _ask(self, passage: Passage, log: AttemptLog) -> Awaitable[Answered]:
        return self._cascade.complete(passage.sent, passage.ruling.plan, log, passage.rewriting)

    def _open(self, passage: Passage, log: AttemptLog) -> Awaitable[LiveStream]:
        return self._cascade.open_stream(passage.sent, passage.ruling.plan, log, passage.rewriting)

    def _find(
        self, passage: Passage, log: AttemptLog, place: _Place
    ) -> tuple[Candidate | None, KeptReply | None]:
        """A kept answer whose target may answer today, and what the caller and the record hear."""
        now_s = self._clock.monotonic_s()
        oldest_s = now_s - min(place.keeps_s, place.wishes.age_s_max)
        reply = self._cache.find(place.organisation, place.key, oldest_s)
        candidate = None if reply is None else candidate_for(passage, reply)
        if reply is None or candidate is None:
            self._metrics.count_cache("miss")
            log.told = {HEADER: "miss"}
            return None, None
        self._metrics.count_cache("hit")
        age_s = str(int(now_s - reply.kept_s))
        log.told = {HEADER: "hit", "age": age_s}
        log.repeats = {"cache": "hit", "cache_of": reply.request_id, "cache_age_s": age_s}
        return candidate, reply

    def _keep(
        self,
        passage: Passage,
        place: _Place,
        answer: Answered | LiveStream,
        *,
        completion: Completion | None = None,
        events: tuple[StreamEvent, ...] = (),
    ) -> None:
        reply = KeptReply(
            answer.candidate.target,
            answer.source,
            answer.dropped,
            passage.request.request_id,
            self._clock.monotonic_s(),
            completion,
            events,
        )
        kept = self._cache.keep(place.organisation, place.key, reply)
        self._metrics.count_cache("kept" if kept else "too_long")


def _place(passage: Passage, keeps_s: int) -> _Place:
    return _Place(
        passage.principal.organisation,
        key_of(passage),
        keeps_s,
        wishes_of(passage.arrival.headers),
    )
