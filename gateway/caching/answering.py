"""Answers a passage: from a kept answer where policy allows it, otherwise through the cascade.

The journey around it is complete: the request was authenticated, inspected, decided on, reserved
for and recorded before, and the outcome says that no upstream was asked. Equal requests that come
while one is under way wait for it (`joining`), each on a journey of its own.
"""

from collections.abc import Awaitable
from contextlib import ExitStack

from msgspec import Struct, structs

from gateway.answers.checks import is_unenforced, unmet_format
from gateway.caching.joining import ROUNDS_MAX, Lead, Name
from gateway.caching.kept_streams import Keep, NotedStream, RepeatedStream
from gateway.caching.likeness import Question, Vector, question_of
from gateway.caching.response_cache import (
    CLOCKS_APART_US,
    KeptReply,
    Leave,
    ResponseCache,
    Wishes,
    candidate_for,
    key_of,
    leave_for,
    start_of,
    wishes_of,
)
from gateway.caching.vectors import Vectors
from gateway.clock import Clock
from gateway.dispatch.attempts import AttemptLog
from gateway.dispatch.cascading import Cascade
from gateway.dispatch.dispatcher import Answered
from gateway.dispatch.live_stream import LiveStream
from gateway.metrics import Metrics
from gateway.passage import Passage
from gateway.types import Candidate, Completion, StreamEvent


HEADER = "x-gatewright-cache"
PERCENT = 100
PPM = 1_000_000
MS_PER_S = 1_000


class _Place(Struct, frozen=True):
    """The place of a passage's answer in the cache, and what may be done with it."""

    organisation: str
    key: bytes
    leave: Leave
    wishes: Wishes
    question: Question | None = None
    vector: Vector | None = None


class _Found(Struct, frozen=True):
    candidate: Candidate
    reply: KeptReply


class _Looked(Struct, frozen=True):
    """The result of looking for an answer."""

    passage: Passage
    """The passage from here on: with less time left if it waited."""
    place: _Place
    found: _Found | None
    lead: Lead | None
    """What others wait for, if the answer has to be asked for."""


class _Joined(Struct, frozen=True):
    """The result of waiting for equal requests."""

    passage: Passage
    found: _Found | None = None
    note: dict[str, str] = {}
    """What the record says of it."""
    lead: Lead | None = None


class CachingAnswers:
    """The cache before the cascade; holds both."""

    def __init__(
        self,
        cascade: Cascade,
        cache: ResponseCache,
        vectors: Vectors,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._cascade = cascade
        self._cache = cache
        self._vectors = vectors
        self._clock = clock
        self._metrics = metrics
        self._shared = cache.shared
        self._leads = cache.leads

    def complete(self, passage: Passage, log: AttemptLog) -> Awaitable[Answered]:
        """A complete answer. Raises GatewrightError as the cascade does."""
        leave = leave_for(passage)
        if not leave.keeps_s:
            return self._ask(passage, log)
        return self._complete(passage, log, leave)

    def open_stream(
        self, passage: Passage, log: AttemptLog
    ) -> Awaitable[LiveStream | NotedStream | RepeatedStream]:
        """A stream; close it. Raises GatewrightError as the cascade does."""
        leave = leave_for(passage)
        if not leave.keeps_s:
            return self._open(passage, log)
        return self._stream(passage, log, leave)

    async def _complete(self, passage: Passage, log: AttemptLog, leave: Leave) -> Answered:
        with ExitStack() as leading:
            looked = await self._look(passage, log, leave, leading)
            passage, place, found = looked.passage, looked.place, looked.found
            if found is not None and found.reply.completion is not None:
                reply = found.reply
                return Answered(
                    found.candidate, reply.source, found.reply.completion, reply.dropped
                )
            answered = await self._ask(passage, log)
            if looked.lead is not None:
                looked.lead.is_answered = True
            completion = answered.completion
            if place.wishes.may_keep and completion.is_repeatable:
                self._keep(passage, place, answered, completion.text, completion=completion)
            return answered

    async def _stream(
        self, passage: Passage, log: AttemptLog, leave: Leave
    ) -> LiveStream | NotedStream | RepeatedStream:
        with ExitStack() as leading:
            looked = await self._look(passage, log, leave, leading)
            passage, place, found = looked.passage, looked.place, looked.found
            if found is not None:
                return RepeatedStream(found.candidate, found.reply)
            live = await self._open(passage, log)
            if not place.wishes.may_keep:
                return live

            def keep(events: tuple[StreamEvent, ...]) -> None:
                # The text of most answers need not be checked.
                said = _said_in(events) if is_unenforced(live.dropped) else ""
                self._keep(passage, place, live, said, events=events)

            return self._noted(live, keep, looked.lead, leading.pop_all())

    def _noted(
        self, live: LiveStream, keep: Keep, lead: Lead | None, leading: ExitStack
    ) -> NotedStream:
        def over(*, is_answered: bool) -> None:
            if lead is not None:
                lead.end(is_answered=is_answered)
            leading.close()

        noted = NotedStream(live, self._cache.reply_bytes_max, keep, self._clock.monotonic_s, over)
        if lead is not None:
            lead.held_up_s = noted.held_up_s
        return noted

    def _ask(self, passage: Passage, log: AttemptLog) -> Awaitable[Answered]:
        return self._cascade.complete(passage.sent, passage.ruling.plan, log, passage.rewriting)

    def _open(self, passage: Passage, log: AttemptLog) -> Awaitable[LiveStream]:
        return self._cascade.open_stream(passage.sent, passage.ruling.plan, log, passage.rewriting)

    async def _look(
        self, passage: Passage, log: AttemptLog, leave: Leave, leading: ExitStack
    ) -> _Looked:
        """The answer's place in the cache, and a kept answer if one may be given again.

        If it has to be asked for, others may wait for it until `leading` is closed.
        """
        start = start_of(passage)
        place = _Place(
            passage.principal.organisation,
            key_of(start, passage.request.raw),
            leave,
            wishes_of(passage.arrival.headers),
        )
        joined = _Joined(passage, self._find(passage, place, place.key))
        if joined.found is None:
            joined = await self._joined(passage, place, leading)
        passage, lead, note = joined.passage, joined.lead, {"cache": "hit", **joined.note}
        found = joined.found or await self._fetched(passage, place)
        if found is not None:
            return _Looked(passage, place, self._told(log, found, "hit", note), lead)
        if leave.like_percent and passage.request.purpose == "answer":
            place = await self._compared(passage, place, start)
            near = self._nearest(passage, place)
            if near is not None:
                found, cosine = near
                told = f"like; cosine={cosine:.4f}"
                note |= {"cache": "like", "cache_cosine_ppm": str(round(cosine * PPM))}
                return _Looked(passage, place, self._told(log, found, told, note), lead)
        self._metrics.count_cache("miss")
        log.told = {HEADER: "miss"}
        return _Looked(passage, place, None, lead)

    async def _joined(self, passage: Passage, place: _Place, leading: ExitStack) -> _Joined:
        """Wait for equal requests that are under way; if there are none, be the one that asks.

        The passage is returned with the time that is left.
        """
        plan, wishes, began_s = passage.ruling.plan, place.wishes, self._clock.monotonic_s()
        name = Name(place.key, plan.decision_digest, plan.service_tier)
        most_s, waited_s, rounds = self._leads.within_s(plan.deadline_s), 0.0, 0
        found: _Found | None = None
        while (lead := self._leads.found(name, began_s + waited_s)) is not None:
            if wishes.age_s_max <= 0 or rounds == ROUNDS_MAX or waited_s >= most_s:
                break
            await lead.over(most_s - waited_s)
            rounds, waited_s = rounds + 1, self._clock.monotonic_s() - began_s
            found = self._find(passage, place, place.key)
            if found is not None or lead.is_answered:
                break
        own: Lead | None = None
        if lead is None and wishes.may_keep:
            own = self._leads.begin(name, began_s + waited_s)
            leading.callback(own.end)
        if not rounds:
            return _Joined(passage, lead=own)
        left = structs.replace(plan, deadline_s=plan.deadline_s - waited_s)
        passage = structs.replace(passage, ruling=structs.replace(passage.ruling, plan=left))
        self._metrics.count_cache("in_vain" if found is None else "joined")
        note = {} if found is None else {"cache_waited_ms": str(round(waited_s * MS_PER_S))}
        return _Joined(passage, found, note, own)

    async def _compared(self, passage: Passage, place: _Place, start: bytes) -> _Place:
        """The place together with the question and its vector, if there are any."""
        question = question_of(passage.request.tree, start)
        if question is None:
            return place
        vector = await self._vectors.vector(passage, question.text)
        return structs.replace(place, question=question, vector=vector)

    def _nearest(self, passage: Passage, place: _Place) -> tuple[_Found, float] | None:
        if place.question is None or place.vector is None:
            return None
        for cosine, key in self._cache.likenesses.nearest(place.question, place.vector):
            if cosine * PERCENT < place.leave.like_percent:
                break
            if (found := self._find(passage, place, key)) is not None:
                return found, cosine
        return None

    def _find(self, passage: Passage, place: _Place, key: bytes) -> _Found | None:
        """A kept answer that is young enough, from a target that may still answer."""
        age_s = min(place.leave.keeps_s, place.wishes.age_s_max)
        reply = self._cache.find(place.organisation, key, self._clock.monotonic_s() - age_s)
        candidate = None if reply is None else candidate_for(passage, reply)
        return None if reply is None or candidate is None else _Found(candidate, reply)

    async def _fetched(self, passage: Passage, place: _Place) -> _Found | None:
        """The same from the cache that workers share; from then on it is in this one too."""
        if self._shared is None or place.wishes.age_s_max < 0:
            return None
        reply = await self._shared.find(place.organisation, place.key)
        if reply is None:
            return None
        if self._cache.is_erased(place.organisation, reply.asked_us, CLOCKS_APART_US):
            return None
        known = self._cache.find(place.organisation, place.key, float("-inf"))
        if known is None or known.kept_s < reply.kept_s:
            self._cache.keep(place.organisation, place.key, reply)
        found = self._find(passage, place, place.key)
        if found is not None:
            self._metrics.count_cache("shared")
        return found

    def _told(self, log: AttemptLog, found: _Found, told: str, note: dict[str, str]) -> _Found:
        """Tell the caller and the record about it."""
        age_s = str(int(self._clock.monotonic_s() - found.reply.kept_s))
        log.told = {HEADER: told, "age": age_s}
        log.repeats = {**note, "cache_of": found.reply.request_id, "cache_age_s": age_s}
        self._metrics.count_cache(note["cache"])
        return found

    def _keep(
        self,
        passage: Passage,
        place: _Place,
        answer: Answered | LiveStream,
        said: str,
        *,
        completion: Completion | None = None,
        events: tuple[StreamEvent, ...] = (),
    ) -> None:
        asked_us = passage.arrival.arrived_us
        if self._cache.is_erased(place.organisation, asked_us):
            return
        if unmet_format(passage, answer.dropped, said):
            # A caller who asks again because of that would get the same answer again.
            return
        reply = KeptReply(
            answer.candidate.target,
            answer.source,
            answer.dropped,
            passage.request.request_id,
            self._clock.monotonic_s(),
            completion,
            events,
            asked_us,
            place.leave.keeps_s,
        )
        kept = self._cache.keep(place.organisation, place.key, reply)
        self._metrics.count_cache("kept" if kept else "too_long")
        if kept and self._shared is not None:
            self._shared.keep(place.organisation, place.key, reply, place.leave.keeps_s)
        if kept and place.question is not None and place.vector is not None:
            self._cache.likenesses.keep(place.question, place.vector, place.key)


def _said_in(events: tuple[StreamEvent, ...]) -> str:
    """The text of a streamed answer."""
    deltas = (delta for event in events for delta in event.deltas)
    return "".join(delta.text for delta in deltas if delta.kind == "text")
