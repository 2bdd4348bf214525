"""Turns a plan and a request into an answer, complete or streamed; the gateway owns every retry.

The walk from candidate to candidate is in `walking`, a stream that has begun is in `live_stream`.
Nothing here knows a vendor, money or the audit log: the result is an answer, or the error of the
last attempt.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

from msgspec import Struct, structs

from gateway.admission.bounds import answers_of
from gateway.admission.hosted_tools import offers_hosted_tools
from gateway.clock import Clock
from gateway.dispatch.attempts import NO_ANSWER, AttemptLog, Extra, RunningAttempt
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.hedging import HEDGE
from gateway.dispatch.live_stream import LiveStream
from gateway.dispatch.long_answers import LongAnswers
from gateway.dispatch.refusals import BAD_GATEWAY, refusal_of, retold, status_said
from gateway.dispatch.retrying import RetryBudget
from gateway.dispatch.walking import Ground, Walk, paid_from
from gateway.errors import (
    FeatureUnsupported,
    GatewrightError,
    StreamBroken,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamUnpaid,
)
from gateway.money.catalogue import PARAMETER_FIELDS
from gateway.pacing.turns import Turns
from gateway.ports import Dialect, Provider, UpstreamBody, UpstreamReply
from gateway.price import TIERS_ASKED
from gateway.tally import read_tokens, tokens_of, usage_of, with_estimates
from gateway.types import (
    Candidate,
    ChatRequest,
    Completion,
    DialectName,
    Plan,
    Translation,
    Usage,
)
from gateway.veiling.rewriting import AnswerRewriter


class Answered(Struct, frozen=True):
    """A complete answer and who gave it."""

    candidate: Candidate
    source: DialectName
    completion: Completion
    dropped: tuple[str, ...]
    attempt: int = NO_ANSWER
    usage: Usage | None = None
    """What is owed for it, counted or estimated; None if no target was asked for it now."""


class Dispatcher:
    """Turns a plan into an answer, with the given providers and dialects."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        dialects: Mapping[DialectName, Dialect],
        health: TargetHealth,
        clock: Clock,
        budget: RetryBudget | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._providers = providers
        self._dialects = dialects
        self.long_answers = LongAnswers()
        self._explaining: set[str] = set()
        self._ground = Ground(
            providers,
            self._dialect_of,
            health,
            budget or RetryBudget(),
            clock,
            self._encode,
            turns or Turns(),
            {},
        )

    def prepare(self, request: ChatRequest, plan: Plan, translation: Translation) -> Plan:
        """The plan without leading candidates that cannot do what the caller asks.

        Conversion happens now, once: before money is reserved or anything is recorded. The body is
        kept for the attempt.

        Leading candidates that would be asked for less, because a tool that only another vendor
        runs is left out or a tool call cannot be enforced there, are moved behind all others.

        Raises:
            FeatureUnsupported: no candidate can be asked; says what the first one lacks.
        """
        if translation != plan.translation:
            plan = structs.replace(plan, translation=translation)
        refusal: FeatureUnsupported | None = None
        less: list[Candidate] = []
        for index, candidate in enumerate(plan.candidates):
            dialect = self._dialect_of(request, candidate)
            if dialect.name == request.dialect and not _may_be_refused(request):
                return self._from(plan, index, candidate, less)
            try:
                body = self._encode(dialect, request, candidate, plan)
            except FeatureUnsupported as error:
                refusal = refusal or error
                continue
            asked = structs.replace(candidate, body=body.body, dropped=body.dropped)
            if not body.is_less:
                return self._from(plan, index, asked, less)
            less.append(asked)
        if less:
            return structs.replace(plan, candidates=tuple(less))
        raise refusal or FeatureUnsupported("No target is left.")

    def first_body(self, request: ChatRequest, plan: Plan) -> tuple[DialectName, UpstreamBody]:
        """The request as the plan's first candidate would get it; raises FeatureUnsupported."""
        candidate = plan.candidates[0]
        dialect = self._dialect_of(request, candidate)
        return dialect.name, self._encode(dialect, request, candidate, plan)

    def _dialect_of(self, request: ChatRequest, candidate: Candidate) -> Dialect:
        provider = self._providers[candidate.target.provider]
        return self._dialects[provider.speaks(request, candidate.target)]

    @staticmethod
    def _from(plan: Plan, index: int, candidate: Candidate, less: list[Candidate]) -> Plan:
        if index == 0 and candidate is plan.candidates[0]:
            return plan
        rest = plan.candidates[index + 1 :]
        return structs.replace(plan, candidates=(candidate, *rest, *less))

    @staticmethod
    def _encode(
        dialect: Dialect, request: ChatRequest, candidate: Candidate, plan: Plan
    ) -> UpstreamBody:
        if candidate.body:
            return UpstreamBody(candidate.body, candidate.dropped)
        body = dialect.encode_request(request, candidate.target, candidate.output_tokens_cap)
        if body.dropped and plan.translation == "strict":
            names = ", ".join(body.dropped)
            raise FeatureUnsupported(
                f"The target has no word for: {names}. This key refuses to leave things out.",
                parameter=body.dropped[0],
            )
        return body

    def fallback(self, log: AttemptLog, error: GatewrightError) -> Extra | None:
        """An extra call in place of one that failed; None if the retry budget has none left."""
        return paid_from(self._ground.budget, log, Extra("fallback", log.last_target, error.code))

    async def _read(
        self,
        raw: bytes,
        dialect: Dialect,
        rewriting: AnswerRewriter | None,
        candidate: Candidate,
    ) -> Completion:
        if self.long_answers.is_long(raw, rewriting):
            return await self.long_answers.read(dialect, raw, rewriting, candidate.target.name)
        return dialect.decode_reply(raw if rewriting is None else rewriting.unveiled(raw))

    async def complete(
        self,
        request: ChatRequest,
        plan: Plan,
        log: AttemptLog,
        rewriting: AnswerRewriter | None = None,
        *,
        beyond: Extra | None = None,
    ) -> Answered:
        """A complete answer from the first candidate that gives one.

        `beyond` says why, if others were asked for this request before.
        """

        async def receive(
            candidate: Candidate, dialect: Dialect, reply: UpstreamReply, attempt: RunningAttempt
        ) -> Answered:
            attempt.counted = partial(_of_body, reply, request, candidate)
            raw, vendor = await reply.read(), candidate.target.vendor
            try:
                completion = await self._read(raw, dialect, rewriting, candidate)
            except UpstreamFailed as error:
                if isinstance(error.counted, Usage):
                    told = attempt.believe(error.counted)
                    attempt.counted = partial(_as_counted, told, request, vendor)
                    raise
                refused = _refusal_in(raw, request, dialect, reply)
                if refused is None:
                    raise
                attempt.counted = _nothing
                raise refused from None
            attempt.counted = partial(usage_of, completion, request, vendor, attempt.believe)
            await reply.close()
            owed = attempt.end(None)
            return Answered(candidate, dialect.name, completion, (), attempt.number, owed)

        async def give_up(_: Answered) -> None:
            """The answer came too late; it holds nothing that must be released."""

        walk = Walk(self._ground, request, plan, log, receive, give_up, beyond=beyond)
        try:
            answer, dropped = await walk.first_answer()
        except UpstreamRefused as error:
            raise retold(error, rewriting) from None
        log.answer = answer.attempt
        return structs.replace(answer, dropped=dropped) if dropped else answer

    async def open_stream(
        self,
        request: ChatRequest,
        plan: Plan,
        log: AttemptLog,
        rewriting: AnswerRewriter | None = None,
        *,
        beyond: Extra | None = None,
    ) -> LiveStream:
        """A stream from the first candidate whose content began to arrive; must be closed.

        `beyond` as in `complete`.
        """

        async def receive(
            candidate: Candidate, dialect: Dialect, reply: UpstreamReply, attempt: RunningAttempt
        ) -> LiveStream:
            live = LiveStream(
                candidate,
                dialect.name,
                reply,
                dialect.stream_decoder(answers_of(request)),
                attempt,
                rewriting,
                explaining=self._explaining,
                lines=self.long_answers,
            )
            live.refusal = partial(_known_refusal_in, request=request, dialect=dialect, reply=reply)
            try:
                await live.hold_until_content()
            except StreamBroken as error:
                if error.refusal is not None:
                    raise error.refusal from None
                refused = _refusal_in(live.unannounced, request, dialect, reply)
                if refused is None:
                    raise
                attempt.counted = _nothing
                raise refused from None
            attempt.spoke()
            return live

        async def give_up(live: LiveStream) -> None:
            await live.close(asyncio.CancelledError(HEDGE))

        walk = Walk(self._ground, request, plan, log, receive, give_up, beyond=beyond)
        try:
            live, dropped = await walk.first_answer()
        except UpstreamRefused as error:
            raise retold(error, rewriting) from None
        log.answer = live.attempt
        live.dropped = dropped
        return live


def _refusal_in(
    raw: bytes, request: ChatRequest, dialect: Dialect, reply: UpstreamReply
) -> GatewrightError | None:
    """The refusal that came in place of an answer; None if there is none."""
    if not (status := status_said(raw)):
        return None
    status, told = reply.told(status, raw)
    return refusal_of(request, dialect, status, told, None)


def _known_refusal_in(
    raw: bytes, request: ChatRequest, dialect: Dialect, reply: UpstreamReply
) -> GatewrightError | None:
    """The same in a stream; an error without any detail does not count."""
    refused = _refusal_in(raw, request, dialect, reply)
    says_nothing = isinstance(refused, UpstreamRefused) and refused.upstream_status == BAD_GATEWAY
    return refused if isinstance(refused, UpstreamUnpaid) or not says_nothing else None


def _nothing() -> None:
    """What is owed for a refusal."""


def _as_counted(told: Usage, request: ChatRequest, vendor: str) -> Usage:
    """What an answer costs that was given up, but counted."""
    return with_estimates(told, 0 if told.input_tokens else read_tokens(request, vendor))


def _of_body(reply: UpstreamReply, request: ChatRequest, candidate: Candidate) -> Usage:
    """What an answer costs that began and cannot be read: as much as its body may hold."""
    output_tokens = min(tokens_of(reply.body_bytes), candidate.output_tokens_cap)
    input_tokens = read_tokens(request, candidate.target.vendor)
    return Usage(input_tokens, output_tokens, estimated=True)


def _may_be_refused(request: ChatRequest) -> bool:
    """Whether even a target of the caller's own dialect may refuse what is asked."""
    tree = request.tree
    is_plain = TIERS_ASKED.isdisjoint(tree)
    if request.wants_json_schema or bool(request.dropped) or not is_plain:
        return True
    return offers_hosted_tools(request) or not PARAMETER_FIELDS.isdisjoint(tree)
