"""Cascades: a cheap target answers, a gate judges it, and a poor answer is asked for one tier up.

Both answers are paid for and recorded. Nothing of the cheap one is shown before the gate has
decided: a stream is held back until it is complete. If the dearer tier does not answer, the cheap
answer counts. Now and then an answer that passed is asked for again one tier up: such pairs are the
labels that thresholds are checked with, and their odds are recorded.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Protocol

from msgspec import Struct, structs

from classifiers.calibration.learning import choose
from classifiers.complexity.answers import agreement, final_answer
from gateway.clock import Clock
from gateway.dispatch.attempts import CASCADE, AttemptLog, Extra
from gateway.dispatch.dispatcher import Answered, Dispatcher
from gateway.dispatch.live_stream import LiveStream
from gateway.errors import (
    FeatureUnsupported,
    GatewrightError,
    NoTargetAvailable,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.types import ChatRequest, Plan, StreamEvent
from gateway.veiling.rewriting import AnswerRewriter
from policies.facts import tier_rank


HELD_BYTES_MAX = 4 * 1024 * 1024
"""A cheap answer longer than this is not waited for: the request goes one tier up."""
LEAST_S = 1.0
"""With less time left than this the next tier is not asked: it would be paid but not answer."""
_SALT = "cascade"
_PPM = 1_000_000
_FAILED = (UpstreamFailed, NoTargetAvailable, FeatureUnsupported)


class Judge(Protocol):
    """Judges the answers of cheap models."""

    async def doubt(
        self, request: ChatRequest, organisation: str, answer: str, *, calls_tools: bool
    ) -> float:
        """The probability, 0 to 1, that this answer is not good enough."""
        ...


class _Cheap(Struct, frozen=True):
    """What the cheap tier answered, as far as the gate reads it."""

    text: str
    calls_tools: bool
    is_whole: bool = True


class _Asked(Struct, frozen=True):
    """A streamed request whose cheap answer is waiting."""

    request: ChatRequest
    plan: Plan
    dear_leg: Plan
    log: AttemptLog
    rewriting: AnswerRewriter | None
    began_s: float


class _Verdict(Struct, frozen=True):
    """The gate's judgement, and the odds with which it was followed."""

    score: float
    escalates: bool
    propensity: float | None
    """None for streams: their answers do not make a pair."""
    explored: bool = False

    def note(self, end: str, cheap_target: str, agreed: float | None = None) -> dict[str, str]:
        """The verdict for the record: names and numbers, no word of an answer."""
        note = {
            "cascade": end,
            "cascade_cheap": cheap_target,
            "cascade_score_ppm": str(round(self.score * _PPM)),
        }
        if self.propensity is not None:
            note["cascade_propensity_ppm"] = str(round(self.propensity * _PPM))
        if self.explored:
            note["cascade_explored"] = "yes"
        if agreed is not None:
            note["cascade_agreement_ppm"] = str(round(agreed * _PPM))
        return note

    def beyond(self, cheap_target: str, *, is_whole: bool = True) -> Extra:
        """The attempt one tier up."""
        reason = "explored" if self.explored else "doubted" if is_whole else "too_long"
        return Extra("cascade", cheap_target, reason)


def legs(plan: Plan) -> tuple[Plan, Plan] | None:
    """The candidates of the first one's tier, and those of higher tiers; None without a cascade."""
    if plan.cascade_above is None:
        return None
    first = tier_rank(plan.candidates[0].target.tier)
    ranks = [(tier_rank(each.target.tier), each) for each in plan.candidates]
    cheap = tuple(each for rank, each in ranks if rank == first)
    dearer = tuple(each for rank, each in ranks if rank > first)
    if not dearer:
        return None
    return structs.replace(plan, candidates=cheap), structs.replace(plan, candidates=dearer)


class Cascade:
    """Answers a request by its plan; without a cascade the dispatcher does it alone."""

    def __init__(
        self, dispatcher: Dispatcher, judge: Judge, clock: Clock, exploration: float = 0.0
    ) -> None:
        self._dispatcher = dispatcher
        self._judge = judge
        self._clock = clock
        self._exploration = exploration

    def complete(
        self,
        request: ChatRequest,
        plan: Plan,
        log: AttemptLog,
        rewriting: AnswerRewriter | None = None,
    ) -> Awaitable[Answered]:
        """A complete answer, from the cheap tier if that is good enough.

        Raises:
            GatewrightError: as the dispatcher does, when no tier answers.
        """
        split = legs(plan)
        if split is None:
            return self._dispatcher.complete(request, plan, log, rewriting)
        return self._complete(request, plan, log, rewriting, split)

    async def _complete(
        self,
        request: ChatRequest,
        plan: Plan,
        log: AttemptLog,
        rewriting: AnswerRewriter | None,
        split: tuple[Plan, Plan],
    ) -> Answered:
        cheap_leg, dear_leg = split
        began_s = self._clock.monotonic_s()
        try:
            cheap = await self._dispatcher.complete(request, cheap_leg, log, rewriting)
        except _FAILED as error:
            rest, extra = self._fallback(error, dear_leg, began_s, log)
            log.cascade = {"cascade": "cheap_failed"}
            return await self._dispatcher.complete(request, rest, log, rewriting, beyond=extra)
        done, target = cheap.completion, cheap.candidate.target
        seen = _Cheap(done.text, bool(done.tool_calls))
        verdict = await self._verdict(request, plan, seen)
        if not verdict.escalates:
            log.cascade = verdict.note("kept", target.name)
            return cheap
        try:
            rest = self._rest(dear_leg, began_s)
            extra = verdict.beyond(target.name)
            dear = await self._dispatcher.complete(request, rest, log, rewriting, beyond=extra)
        except _FAILED:
            log.cascade = verdict.note("escalation_failed", target.name)
            return cheap
        agreed = agreement(final_answer(done.text), final_answer(dear.completion.text))
        log.cascade = verdict.note("escalated", target.name, agreed)
        return dear

    async def open_stream(
        self,
        request: ChatRequest,
        plan: Plan,
        log: AttemptLog,
        rewriting: AnswerRewriter | None = None,
    ) -> LiveStream:
        """A stream; one from the cheap tier has already been read to its end.

        Raises:
            GatewrightError: as the dispatcher does, when no tier answers.
        """
        split = legs(plan)
        if split is None:
            return await self._dispatcher.open_stream(request, plan, log, rewriting)
        cheap_leg, dear_leg = split
        began_s = self._clock.monotonic_s()
        async with AsyncExitStack() as closing:
            try:
                cheap = await self._dispatcher.open_stream(request, cheap_leg, log, rewriting)
                closing.push_async_callback(cheap.close)
                seen = await _held(cheap)
            except _FAILED as error:
                rest, extra = self._fallback(error, dear_leg, began_s, log)
                log.cascade = {"cascade": "cheap_failed"}
                return await self._dispatcher.open_stream(
                    request, rest, log, rewriting, beyond=extra
                )
            asked = _Asked(request, plan, dear_leg, log, rewriting, began_s)
            live = await self._kept_or_dearer(asked, cheap, seen)
            if live is cheap:
                closing.pop_all()
            return live

    async def _kept_or_dearer(self, asked: _Asked, cheap: LiveStream, seen: _Cheap) -> LiveStream:
        target, log = cheap.candidate.target, asked.log
        verdict = await self._verdict(asked.request, asked.plan, seen)
        if not verdict.escalates:
            log.cascade = verdict.note("kept", target.name)
            return cheap
        if not seen.is_whole:
            # It cannot be shown any more, and every token that it goes on with would be paid.
            await cheap.close(asyncio.CancelledError(CASCADE))
        try:
            rest = self._rest(asked.dear_leg, asked.began_s)
            extra = verdict.beyond(target.name, is_whole=seen.is_whole)
            dear = await self._dispatcher.open_stream(
                asked.request, rest, log, asked.rewriting, beyond=extra
            )
        except _FAILED:
            if not seen.is_whole:
                raise
            log.cascade = verdict.note("escalation_failed", target.name)
            return cheap
        log.cascade = verdict.note("escalated", target.name)
        return dear

    async def _verdict(self, request: ChatRequest, plan: Plan, seen: _Cheap) -> _Verdict:
        if not seen.is_whole:
            return _Verdict(1.0, escalates=True, propensity=None)
        score = await self._judge.doubt(
            request, plan.tenant, seen.text, calls_tools=seen.calls_tools
        )
        doubted = score > (plan.cascade_above or 0.0)
        if request.stream:
            return _Verdict(score, escalates=doubted, propensity=None)
        if doubted:
            # Then both answers exist anyway; to show one that is doubted would harm the caller.
            return _Verdict(score, escalates=True, propensity=1.0)
        choice = choose(
            prefers_cheap=True,
            exploration=self._exploration,
            request_id=request.request_id,
            salt=_SALT,
        )
        return _Verdict(score, not choice.cheap, choice.propensity, choice.explored)

    def _fallback(
        self, error: GatewrightError, leg: Plan, began_s: float, log: AttemptLog
    ) -> tuple[Plan, Extra]:
        """The leg in place of one that failed: an extra attempt like any other.

        Raises the error if that attempt may not be made, or is of no use.
        """
        _unless_callers(error)
        try:
            rest = self._rest(leg, began_s)
        except UpstreamTimeout:
            raise error from None
        extra = self._dispatcher.fallback(log, error)
        if extra is None:
            raise error
        return rest, extra

    def _rest(self, leg: Plan, began_s: float) -> Plan:
        """The leg with the time that is left; raises UpstreamTimeout if that is too little."""
        left_s = leg.deadline_s - (self._clock.monotonic_s() - began_s)
        if left_s < LEAST_S:
            raise UpstreamTimeout("No permitted target answered in time.")
        return structs.replace(leg, deadline_s=left_s)


async def _held(live: LiveStream) -> _Cheap:
    """Read a stream to its end and put it back; incomplete if it is too long to be held.

    Raises:
        UpstreamFailed: it broke.
    """
    events: list[StreamEvent] = []
    tally = live.uncounted()
    live.counted_by(tally)
    held_bytes = 0
    while batch := await live.next_batch():
        events += batch
        tally.add(batch)
        held_bytes += sum(len(event.raw) for event in batch)
        if held_bytes > HELD_BYTES_MAX:
            return _Cheap("", calls_tools=False, is_whole=False)
    live.put_back(events)
    deltas = [delta for event in events for delta in event.deltas]
    return _Cheap(
        "".join(delta.text for delta in deltas if delta.kind == "text"),
        any(delta.kind in {"tool_start", "text_tool_start"} for delta in deltas),
    )


def _unless_callers(error: GatewrightError) -> None:
    """Raise a fault of the caller's: one tier up it would be the same."""
    if isinstance(error, UpstreamRefused) and error.is_callers_fault:
        raise error
