"""The journey of a token count: like a request's, but its target counts instead of answering.

It goes through the same key, rates, inspection, decision, veil and record, so that a counting
endpoint never receives what must not be sent as a question. Where the target that would answer
cannot count, or fails to, our own estimate takes its place, flagged. It costs nothing.
"""

import asyncio
from collections.abc import Mapping

from msgspec import structs

from gateway.dialects.counted import count_of
from gateway.dispatch.attempts import HTTP_ERROR_MIN, AttemptLog, RunningAttempt
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.refusals import refusal_of
from gateway.errors import GatewrightError, UpstreamFailed, UpstreamRefused
from gateway.heads import answer_headers
from gateway.intake import Stages
from gateway.money.calibration import Calibration
from gateway.passage import Passage
from gateway.pipeline import Pipeline, WholeAnswer
from gateway.ports import Ledger, Provider, UpstreamCall
from gateway.types import Completion, Reservation, Settlement, Target, Usage


COUNT_S = 10.0
"""Callers who ask for a count wait for it before their real request; an estimate is immediate."""
BROKEN = 2
"""The place that `TargetHealth.place` gives a target that has failed too often lately."""


class Unpaid:
    """A ledger for what costs nothing: says what is left, and reserves nothing."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def reserve(
        self,
        accounts: tuple[str, ...],
        amount_microusd: int,
        lease_s: float = 0.0,
        admitted_us: int | None = None,
    ) -> Reservation:
        """Reserve on no account: a caller without budget left may still count."""
        del lease_s, admitted_us
        del accounts, amount_microusd
        return await self._ledger.reserve((), 0)

    def settle(self, reservation: Reservation, cost_microusd: int) -> Settlement:
        return self._ledger.settle(reservation, cost_microusd)

    def release(self, reservation: Reservation) -> Settlement:
        return self._ledger.release(reservation)

    async def left_now_microusd(self, accounts: tuple[str, ...]) -> int | None:
        """As last known: counting writes nothing, and works without a database."""
        return self._ledger.left_microusd(accounts)

    def left_microusd(self, accounts: tuple[str, ...]) -> int | None:
        return self._ledger.left_microusd(accounts)

    def limits_end_users(self, organisation: str) -> bool:
        return self._ledger.limits_end_users(organisation)


class Counting(Pipeline):
    """Counts what a `Pipeline` of the same parts would answer."""

    def __init__(
        self,
        stages: Stages,
        *,
        providers: Mapping[str, Provider],
        calibration: Calibration,
    ) -> None:
        super().__init__(structs.replace(stages, ledger=Unpaid(stages.ledger)))
        self._clock = stages.clock
        self._providers = providers
        self._calibration = calibration
        self._health = TargetHealth()
        """Only for counting endpoints: they and the breakers for answers are independent."""

    async def _complete(self, passage: Passage) -> WholeAnswer:
        target, attempts = passage.ruling.plan.candidates[0].target, AttemptLog()
        try:
            counted = await self._asked(passage, target, attempts)
        except GatewrightError as error:
            await self._conclusion.failed(passage, attempts, error)
            raise
        except BaseException as error:
            await asyncio.shield(self._break_off(passage, attempts, error))
            raise
        usage = Usage() if counted is None else counted.usage
        source = None if counted is None else target
        concluded = await self._conclusion.counted(passage, attempts, source, usage)
        headers = answer_headers(passage, source, passage.request.dropped, concluded)
        if counted is None:
            headers["x-gatewright-usage"] = "estimated"
            counted = count_of(self._calibration.estimate(passage.sent, target))
        dialect = passage.arrival.dialect
        return WholeAnswer(dialect.encode_reply(counted, dialect.name, passage.request), headers)

    async def _asked(
        self, passage: Passage, target: Target, attempts: AttemptLog
    ) -> Completion | None:
        """The target's own count; None where it does not count, or fails to.

        Asked once and never again: an estimate is there for whoever would have to wait.

        Raises:
            UpstreamRefused: the request is one that it would refuse to answer, too.
        """
        provider, now_s = self._providers[target.provider], self._clock.monotonic_s()
        dialect = provider.speaks(passage.sent, target)
        if (
            not provider.counts_tokens
            or dialect != passage.sent.dialect
            or self._health.place(target.name, now_s, target.provider) == BROKEN
        ):
            return None
        attempt = RunningAttempt(target, attempts, self._health, self._clock)
        try:
            counted = await self._counted(passage, provider, target, attempt)
        except UpstreamRefused as error:
            attempt.end(error)
            if error.is_callers_fault:
                raise
            return None
        except UpstreamFailed as error:
            attempt.end(error)
            return None
        except BaseException as error:
            attempt.end(error)
            raise
        attempt.end(None)
        return counted

    async def _counted(
        self, passage: Passage, provider: Provider, target: Target, attempt: RunningAttempt
    ) -> Completion:
        request, plan, dialect = passage.sent, passage.ruling.plan, passage.arrival.dialect
        call = UpstreamCall(
            target=target,
            body=dialect.encode_request(request, target, 0).body,
            stream=False,
            request_id=request.request_id,
            clearance=plan.clearance,
            deadline_s=min(plan.deadline_s, COUNT_S),
            dialect=dialect.name,
            version=request.version,
            betas=request.betas,
            tenant=plan.tenant,
            data_class=plan.data_class,
            is_count=True,
        )
        reply = await provider.open(call)
        try:
            attempt.heard(reply.status, reply.upstream_ids)
            raw = await reply.read()
            if reply.status >= HTTP_ERROR_MIN:
                raise refusal_of(request, dialect, reply.status, raw, reply.retry_after_s)
            return dialect.decode_reply(raw)
        finally:
            await reply.close()
