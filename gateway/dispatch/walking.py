"""Walks a plan: one attempt per candidate until one answers, never outside what the plan permits.

The layers, outside in: `first_answer → _pass → _try | race → _attempt → _ask`. Every attempt after
a request's first is paid from the retry budget; once content has reached the caller, nothing is
tried again. What the attempts show about the targets goes into their health.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct, structs

from gateway.admission.plausible_counts import believing
from gateway.clock import Clock
from gateway.dispatch.accounts import is_of_account
from gateway.dispatch.attempts import (
    HTTP_ERROR_MIN,
    AttemptLog,
    Beyond,
    Extra,
    RunningAttempt,
)
from gateway.dispatch.breaker import judge
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.hedging import race
from gateway.dispatch.refusals import refusal_of
from gateway.dispatch.retrying import RetryBudget, backoff_s
from gateway.errors import (
    FeatureUnsupported,
    GatewrightError,
    NoTargetAvailable,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnpaid,
    UpstreamUnreachable,
)
from gateway.pacing.turns import Turns
from gateway.ports import Dialect, Provider, UpstreamBody, UpstreamCall, UpstreamReply
from gateway.tally import read_tokens
from gateway.types import Candidate, ChatRequest, Plan
from policies.facts import SERVICE_TIERS


PASSES_MAX = 2
MENDS_MAX = 4
LATE = "late"
"""Why a second target is asked beside the first."""
BUSY_RETRY_S: Mapping[str, float] = dict(zip(SERVICE_TIERS, (1.0, 2.0, 10.0), strict=True))
"""Lower service tiers are asked to come back later."""

Answer = TypeVar("Answer")
Receive = Callable[[Candidate, Dialect, UpstreamReply, RunningAttempt], Awaitable[Answer]]
GiveUp = Callable[[Answer], Awaitable[None]]
Encode = Callable[[Dialect, ChatRequest, Candidate, Plan], UpstreamBody]


class Ground(Struct, frozen=True):
    """What all walks of a worker share."""

    providers: Mapping[str, Provider]
    dialect_of: Callable[[ChatRequest, Candidate], Dialect]
    health: TargetHealth
    budget: RetryBudget
    clock: Clock
    encode: Encode
    turns: Turns
    unread: dict[str, dict[str, UpstreamRefused]]
    """By target and field: refusals of parts that nobody misses, which are not sent again."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Walk(Generic[Answer]):
    """One request on its way through its plan."""

    def __init__(
        self,
        ground: Ground,
        request: ChatRequest,
        plan: Plan,
        log: AttemptLog,
        receive: Receive[Answer],
        give_up: GiveUp[Answer],
        *,
        beyond: Extra | None = None,
    ) -> None:
        """`beyond` says why others are asked, if another walk began this request."""
        self._ground = ground
        self._beyond = beyond
        self._request = request
        self._plan = plan
        self._log = log
        self._receive = receive
        self._give_up = give_up
        self._deadline_s = ground.clock.monotonic_s() + plan.deadline_s
        self._hedges = 0

    async def first_answer(self) -> tuple[Answer, tuple[str, ...]]:
        """The answer of the first candidate that gives one, and what was left out of its request.

        Raises:
            NoTargetAvailable: no permitted target can be reached, or all of them are full.
            UpstreamFailed, FeatureUnsupported: what the last attempt said.
        """
        extra = self._beyond
        if extra is None:
            self._ground.budget.earn(self._ground.clock.monotonic_s())
        failure: GatewrightError | None = None
        for tries in range(PASSES_MAX):
            order = self._in_order()
            if not order:
                self._unless_made(extra)
                raise self._busy()
            try:
                return await self._pass(order, extra)
            except (UpstreamFailed, FeatureUnsupported) as error:
                failure = error
            wait_s = self._wait_s(failure, tries)
            if wait_s is None or tries + 1 >= PASSES_MAX:
                break
            extra = self._paid("retry", self._log.last_target, failure.code)
            if extra is None:
                break
            await self._ground.sleep(wait_s)
        raise self._exhausted(failure)

    def _in_order(self) -> list[Candidate]:
        """Candidates with room, in the plan's order; broken or slow ones come last."""
        health, plan = self._ground.health, self._plan
        candidates = [
            each for each in plan.candidates if health.has_room(each.target.name, plan.service_tier)
        ]
        if len(candidates) > 1:
            now_s = self._ground.clock.monotonic_s()
            candidates.sort(
                key=lambda each: health.place(each.target.name, now_s, each.target.provider)
            )
            # Before anybody else looks who comes first.
            health.asks(candidates[0].target.name, now_s)
        return candidates

    async def _pass(
        self, order: list[Candidate], extra: Extra | None
    ) -> tuple[Answer, tuple[str, ...]]:
        """Try one candidate after the other, the first two perhaps at once."""
        failure: UpstreamFailed | FeatureUnsupported | None = None
        why = ("", "")
        hedge_s = self._plan.hedge_after_s
        if hedge_s is not None and len(order) > 1:
            hedges = self._hedges
            try:
                return await self._hedged(order, hedge_s, extra)
            except (UpstreamFailed, FeatureUnsupported) as error:
                failure = _unless_callers(error)
                asked = 2 if self._hedges > hedges else 1
                why, order = (order[asked - 1].target.name, failure.code), order[asked:]
                order = self._still_to_ask(order, failure)
        while order:
            if failure is not None:
                extra = None if self._is_over() else self._paid("fallback", *why)
                if extra is None:
                    break
            candidate, *order = order
            try:
                return await self._try(candidate, extra)
            except (UpstreamFailed, FeatureUnsupported) as error:
                self._unless_made(extra)
                last = _unless_callers(error)
                why = (candidate.target.name, last.code)
                order = self._still_to_ask(order, last)
                if failure is None or not isinstance(last, UpstreamUnpaid):
                    # Who said before that it is only busy is worth asking again.
                    failure = last
        assert failure is not None  # Every candidate answered or failed.
        raise failure

    def _still_to_ask(self, order: list[Candidate], failure: GatewrightError) -> list[Candidate]:
        """The candidates left; after an account was refused, those of paused accounts come last."""
        if not is_of_account(failure):
            return order
        accounts, now_s = self._ground.health.accounts, self._ground.clock.monotonic_s()
        return sorted(order, key=lambda each: accounts.is_paused(each.target.provider, now_s))

    async def _hedged(
        self, order: list[Candidate], after_s: float, extra: Extra | None
    ) -> tuple[Answer, tuple[str, ...]]:
        first, second = order[:2]
        hedge: Extra | None = None

        def may_start() -> bool:
            nonlocal hedge
            hedge = self._paid("hedge", first.target.name, LATE)
            self._hedges += hedge is not None
            return hedge is not None

        async def give_up(answer: tuple[Answer, tuple[str, ...]]) -> None:
            await self._give_up(answer[0])

        return await race(
            lambda: self._try(first, extra),
            lambda: self._try(second, hedge),
            *(after_s, may_start, give_up),
        )

    async def _try(
        self, candidate: Candidate, extra: Extra | None
    ) -> tuple[Answer, tuple[str, ...]]:
        """An attempt, and a second one if the connection broke before any header.

        Such a connection may have been stale; if the upstream had begun to answer, it may have
        done, and billed, the work.
        """
        try:
            return await self._attempt(candidate, extra)
        except UpstreamUnreachable as error:
            name = candidate.target.name
            if self._log.last_status_of(name) or self._is_over():
                raise
            again = self._paid("retry", name, error.code)
            if again is None:
                raise
        await self._ground.sleep(backoff_s(0, None, self._ground.budget.rules))
        return await self._attempt(candidate, again)

    async def _attempt(
        self, candidate: Candidate, extra: Extra | None
    ) -> tuple[Answer, tuple[str, ...]]:
        """One candidate's answer; if it refuses a part that can go, the rest is asked again."""
        ground, name = self._ground, candidate.target.name
        dialect = ground.dialect_of(self._request, candidate)
        upstream = ground.encode(dialect, self._request, candidate, self._plan)
        if ground.unread:
            for known in ground.unread.get(name, {}).values():
                if mended := dialect.mend_request(upstream.body, known):
                    upstream = UpstreamBody(mended.body, upstream.dropped)
        await ground.turns
        refused: dict[str, UpstreamRefused] = {}
        for _ in range(MENDS_MAX):
            try:
                answer = await self._ask(candidate, dialect, upstream, extra)
                break
            except UpstreamRefused as error:
                mended = self._mended(dialect, upstream, error)
                extra = None if mended is None else self._paid("mend", name, error.code)
                if mended is None or extra is None:
                    raise
                if mended.dropped == upstream.dropped:
                    refused[error.upstream_parameter or error.upstream_code] = _alone(error)
            upstream = mended
        else:
            answer = await self._ask(candidate, dialect, upstream, extra)
        if refused:
            self._learn(name, refused)
        return answer, upstream.dropped

    def _learn(self, target: str, refused: dict[str, UpstreamRefused]) -> None:
        """Note what a target answered without; the latest refusal counts most, and comes last."""
        unread = self._ground.unread.setdefault(target, {})
        for field, error in refused.items():
            unread.pop(field, None)
            unread[field] = error

    async def _ask(
        self, candidate: Candidate, dialect: Dialect, upstream: UpstreamBody, extra: Extra | None
    ) -> Answer:
        """One upstream call, from bytes to an answer; whatever happens, it is logged."""
        ground, request, plan = self._ground, self._request, self._plan
        target = candidate.target
        provider = ground.providers[target.provider]
        is_same = dialect.name == request.dialect
        attempt = RunningAttempt(
            target,
            self._log,
            ground.health,
            ground.clock,
            read_tokens=partial(read_tokens, request, target.vendor),
            believe=believing(request, candidate),
        )
        if extra is not None:
            self._log.extra += (extra,)
        call = UpstreamCall(
            target=target,
            body=upstream.body,
            stream=request.stream,
            request_id=request.request_id,
            clearance=plan.clearance,
            deadline_s=max(self._deadline_s - attempt.started_s, 0.001),
            dialect=dialect.name,
            version=request.version if is_same else "",
            betas=request.betas if is_same else (),
            tenant=plan.tenant,
            data_class=plan.data_class,
            service_tier=plan.service_tier,
            leaves=attempt.leaves,
        )
        reply: UpstreamReply | None = None
        try:
            reply = await provider.open(call)
            attempt.heard(reply.status, reply.upstream_ids)
            if reply.status >= HTTP_ERROR_MIN:
                raw = await reply.read()
                refused = refusal_of(request, dialect, reply.status, raw, reply.retry_after_s)
                refused.rate_limits = reply.rate_limits
                raise refused
            return await self._receive(candidate, dialect, reply, attempt)
        except BaseException as error:
            attempt.end(error)
            if reply is not None:
                await reply.close()
            raise

    def _mended(
        self, dialect: Dialect, upstream: UpstreamBody, error: UpstreamRefused
    ) -> UpstreamBody | None:
        """The request as it may be sent once more; None if it may not."""
        mended = dialect.mend_request(upstream.body, error)
        if mended is None or self._is_over():
            return None
        if mended.dropped and self._plan.translation == "strict":
            return None
        return UpstreamBody(mended.body, (*upstream.dropped, *mended.dropped))

    def _paid(self, kind: Beyond, target: str, reason: str) -> Extra | None:
        """One more attempt because of this target; noted when it begins.

        None if the retry budget has none left: that is noted at once.
        """
        return paid_from(self._ground.budget, self._log, Extra(kind, target, reason))

    def _unless_made(self, extra: Extra | None) -> None:
        """Give back the payment for an attempt that never began; a cascade's leg is not paid."""
        if extra is None or extra.kind == "cascade":
            return
        if not any(each is extra for each in self._log.extra):
            self._ground.budget.give_back()

    def _is_over(self) -> bool:
        return self._ground.clock.monotonic_s() >= self._deadline_s

    def _wait_s(self, failure: GatewrightError, tries: int) -> float | None:
        """How long to wait before another pass; None if that is not worth it."""
        if judge(failure) != "throttled" or failure.retry_after_s is None:
            return None
        rules = self._ground.budget.rules
        wait_s = backoff_s(tries, failure.retry_after_s, rules)
        left_s = self._deadline_s - self._ground.clock.monotonic_s()
        return wait_s if failure.retry_after_s <= rules.wait_s_max and wait_s < left_s else None

    def _busy(self) -> NoTargetAvailable:
        tier = self._plan.service_tier
        return NoTargetAvailable(
            f"Every permitted target is busy for the service tier {tier}.",
            retry_after_s=BUSY_RETRY_S.get(tier, 1.0),
        )

    def _exhausted(self, failure: GatewrightError | None) -> GatewrightError:
        """What the caller is told when no candidate answered."""
        if isinstance(failure, UpstreamUnreachable) or failure is None:
            names = ", ".join(each.target.name for each in self._plan.candidates)
            reason = self._plan.decision_reason
            return NoTargetAvailable(
                f"No permitted target can be reached now (tried: {names}). "
                f"The decision was: {reason}",
                retry_after_s=2.0,
            )
        if isinstance(failure, UpstreamTimeout):
            return UpstreamTimeout("No permitted target answered in time.")
        return failure


def paid_from(budget: RetryBudget, log: AttemptLog, extra: Extra) -> Extra | None:
    """The attempt if the budget pays for it; otherwise None, and it is noted as withheld."""
    if budget.spend():
        return extra
    log.extra += (structs.replace(extra, was_made=False),)
    return None


def _unless_callers(
    error: UpstreamFailed | FeatureUnsupported,
) -> UpstreamFailed | FeatureUnsupported:
    """A failure that another target may not have; a mistake of the caller's is raised at once."""
    if isinstance(error, UpstreamRefused) and error.is_callers_fault:
        raise error
    return error


def _alone(error: UpstreamRefused) -> UpstreamRefused:
    """The same refusal without the request that it ended."""
    return UpstreamRefused(
        "",
        upstream_status=error.upstream_status,
        upstream_code=error.upstream_code,
        upstream_parameter=error.upstream_parameter,
    )
