"""Ends a request: settles its cost and makes its outcome durable, the same way for every ending.

Whatever happened before, a passage is concluded exactly once: its reservation is settled or
released, its outcome is on disk, and only then may the caller see the end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from msgspec import Struct, structs

from gateway.answers.traits import UNUSUAL
from gateway.clock import Clock
from gateway.dispatch.attempts import AttemptLog
from gateway.errors import ClientGone, GatewrightError, WorkerStopped
from gateway.metrics import Metrics
from gateway.money.bills import Bill, as_asked, charged
from gateway.money.calibration import Calibration
from gateway.money.catalogue import cost
from gateway.money.rates import LocalRates, Rates
from gateway.passage import Arrival, Passage
from gateway.ports import AuditLog, Ledger
from gateway.price import TIERS_ASKED
from gateway.recording import evidence
from gateway.recording.aftermath import Aftermath, Unsound, sound
from gateway.recording.evidence import Ending, Loss
from gateway.recording.floods import Floods
from gateway.rollout.trials import Trials
from gateway.rollout.versions import PolicySet
from gateway.routing.warmth import COLD, Warm, Warmth
from gateway.types import (
    Attempt,
    AuditRecord,
    ChatRequest,
    Inspection,
    Principal,
    Receipt,
    Target,
    Usage,
)


Blacken = Callable[[ChatRequest, str, bytes], Awaitable[bytes]]
"""Request, organisation and the answer's JSON → what the log keeps of the answer."""
_UNANSWERED = {ClientGone.code: ClientGone.status, WorkerStopped.code: WorkerStopped.status}
"""Statuses of requests that ended before anything came, without a defect of ours."""


class Concluded(Struct, frozen=True):
    """What the caller is told at the end."""

    cost_microusd: int
    receipt: Receipt


class Conclusion:
    """Ends requests; holds the ledger and the audit log."""

    def __init__(
        self,
        ledger: Ledger,
        audit: AuditLog,
        clock: Clock,
        metrics: Metrics,
        rates: Rates | None = None,
        trials: Trials | None = None,
        *,
        calibration: Calibration | None = None,
        blacken: Blacken | None = None,
    ) -> None:
        """`blacken` reduces an answer to what may be kept; without it nothing is kept."""
        self.aftermath = Aftermath(metrics, trials or Trials())
        self._ledger = ledger
        self._rates = rates or LocalRates(clock)
        self._calibration = calibration
        self._blacken = blacken or _nothing_of
        self._audit = audit
        self.floods = Floods(audit, clock)
        self._clock = clock
        self._warmth = Warmth()

    def warm(self, policies: PolicySet, principal: Principal, request: ChatRequest) -> Warm:
        """Where the conversation is cached, if a policy asks for that."""
        if not policies.stays_warm:
            return COLD
        return self._warmth.find(principal, request, self._clock.monotonic_s())

    def answered(
        self,
        passage: Passage,
        attempts: AttemptLog,
        target: Target,
        usage: Usage,
        content: bytes,
        dropped: tuple[str, ...],
        *,
        stop_reason: str = "",
        unsound: Unsound = sound,
    ) -> Coroutine[Any, Any, Concluded]:
        """A complete answer is ready, or a stream reached its terminal event.

        `stop_reason` is why it stopped; `unsound` gives the checks that the answer fails.
        """
        stop_reason = stop_reason if stop_reason in UNUSUAL else ""
        if attempts.repeats:
            ending = _repeated(attempts, target, usage, dropped, stop_reason)
            return self._conclude(passage, ending, content)
        if self._calibration is not None:
            self._calibration.observe(passage.request, target, usage)
        if passage.arrival.snapshot.policies.stays_warm:
            now_s = self._clock.monotonic_s()
            self._warmth.answered(passage.principal, passage.request, target.name, usage, now_s)
        paid, cost_microusd = _paid(passage, attempts, usage)
        ending = Ending(
            status="ok",
            http_status=200,
            target=target,
            attempts=paid,
            cascade=attempts.cascade,
            usage=_estimated(passage, Bill(target, usage)) if usage.estimated else usage,
            cost_microusd=cost_microusd,
            extra=attempts.extra,
            dropped=dropped,
            stop_reason=stop_reason,
        )
        return self._conclude(passage, ending, content, unsound)

    async def counted(
        self, passage: Passage, attempts: AttemptLog, target: Target | None, usage: Usage
    ) -> Concluded:
        """A token count was asked for: `target` gave it, or our estimate where that is None."""
        if target is not None and self._calibration is not None:
            self._calibration.observe(passage.sent, target, usage)
        ending = Ending(
            status="ok",
            http_status=200,
            target=target,
            attempts=attempts.as_tuple(),
            usage=None,
            cost_microusd=0,
            counted="estimate" if target is None else "upstream",
        )
        return await self._conclude(passage, ending, b"")

    async def failed(
        self, passage: Passage, attempts: AttemptLog, error: GatewrightError
    ) -> Concluded:
        """No target gave an answer; the attempts may have to be paid all the same."""
        paid, cost_microusd = _paid(passage, attempts)
        bill = attempts.main_bill()
        ending = Ending(
            status="failed",
            http_status=error.http_status,
            target=bill.target if bill is not None else None,
            attempts=paid,
            cascade=attempts.cascade,
            usage=_estimated(passage, bill) if bill is not None else None,
            cost_microusd=cost_microusd,
            error=error.code,
            extra=attempts.extra,
        )
        return await self._conclude(passage, ending, b"")

    async def broken_off(
        self,
        passage: Passage,
        attempts: AttemptLog,
        content: bytes,
        error_code: str,
    ) -> Concluded:
        """The upstream broke its stream, or the caller left: what came so far is charged."""
        paid, cost_microusd = _paid(passage, attempts)
        bill = attempts.main_bill()
        first = passage.ruling.plan.candidates[0].target
        has_left = error_code == ClientGone.code
        unanswered = _UNANSWERED.get(error_code, GatewrightError.status)
        ending = Ending(
            status="cancelled" if has_left else "incomplete",
            http_status=200 if content else unanswered,
            target=bill.target if bill is not None else first,
            attempts=paid,
            cascade=attempts.cascade,
            usage=_estimated(passage, bill) if bill is not None else None,
            cost_microusd=cost_microusd,
            error=error_code,
            extra=attempts.extra,
        )
        return await self._conclude(passage, ending, content)

    async def refused(
        self,
        arrival: Arrival,
        principal: Principal | None,
        request: ChatRequest | None,
        inspection: Inspection | None,
        error: GatewrightError,
    ) -> Receipt | None:
        """The request was not let through; None if it is part of a flood and has no own record."""
        duration_us = arrival.lasted_us(self._clock.utc_us())
        record = evidence.refusal(
            arrival,
            principal,
            request,
            inspection,
            error,
            utc_us=self._clock.utc_us(),
            duration_us=duration_us,
        )
        if arrival.errand is not None:
            # A line of a batch is never part of a flood: a batch has a limited number of lines.
            self.aftermath.refused(record, duration_us)
            return await self._audit.append(record)
        receipt = await self.floods.note(record)
        self.aftermath.refused(record, duration_us, is_on_record=receipt is not None)
        return receipt

    async def lost(
        self, arrival: Arrival, principal: Principal, loss: Loss, error: GatewrightError
    ) -> Receipt:
        """Record a request that was let through, but of which too little is known to end it.

        The caller of this books what the loss says that it costs.
        """
        now_us = self._clock.utc_us()
        record = evidence.lost(arrival, principal, loss, error, utc_us=now_us)
        self.aftermath.lost(record)
        self._require_lease(arrival)
        return await self._audit.append(record)

    def _require_lease(self, arrival: Arrival) -> None:
        """The last check before an outcome is written: may this worker still write it?"""
        errand = arrival.errand
        if errand is not None and errand.check_end is not None:
            errand.check_end()

    async def _conclude(
        self,
        passage: Passage,
        ending: Ending,
        content: bytes,
        unsound: Unsound = sound,
    ) -> Concluded:
        cost_microusd = ending.cost_microusd
        errand = passage.arrival.errand
        if errand is None or errand.book is None:
            self._ledger.settle(passage.reservation, cost_microusd)
        else:
            self._ledger.release(passage.reservation)
            await errand.book(cost_microusd)
        usage = ending.usage
        self._rates.release(
            passage.permit, usage.input_tokens + usage.output_tokens if usage else 0
        )
        now_us = self._clock.utc_us()
        duration_us = passage.arrival.lasted_us(now_us)
        record = evidence.outcome(passage, ending, utc_us=now_us, duration_us=duration_us)
        self.aftermath.ended(passage, ending, duration_us, unsound)
        self._require_lease(passage.arrival)
        if content and passage.ruling.plan.audit_content == "redacted":
            # If the caller leaves meanwhile, there must be an outcome all the same.
            receipt = await asyncio.shield(self._record_less(passage, record, content))
        else:
            keep = content if passage.ruling.plan.audit_content == "encrypted" else b""
            receipt = await self._audit.append(record, keep or None)
        return Concluded(cost_microusd, receipt)

    async def _record_less(self, passage: Passage, record: AuditRecord, content: bytes) -> Receipt:
        """Record the outcome of an answer that is kept only as far as it can be redacted."""
        organisation = passage.principal.organisation
        keep = await self._blacken(passage.request, organisation, content)
        return await self._audit.append(record, keep or None)


async def _nothing_of(_request: ChatRequest, _organisation: str, _answer: bytes) -> bytes:
    return b""


def _repeated(
    attempts: AttemptLog, target: Target, usage: Usage, dropped: tuple[str, ...], stop_reason: str
) -> Ending:
    """An answer came from the response cache: nobody was asked, so nothing is charged."""
    saved = str(cost(target.price, usage))
    return Ending(
        status="ok",
        http_status=200,
        target=target,
        attempts=(),
        usage=None,
        cost_microusd=0,
        dropped=dropped,
        repeats={**attempts.repeats, "cache_saved_microusd": saved},
        stop_reason=stop_reason,
    )


def _paid(
    passage: Passage, attempts: AttemptLog, of_answer: Usage | None = None
) -> tuple[tuple[Attempt, ...], int]:
    """The attempts of a request, each with its cost, and the cost of all."""
    bills = attempts.bills(of_answer)
    if passage.arrival.errand is not None:
        bills = [_at_its_price(passage, bill) for bill in bills]
    if not TIERS_ASKED.isdisjoint(passage.request.tree):
        bills = [as_asked(bill, passage.request.tree) for bill in bills]
    costs = charged(bills, passage.ruling.plan.worst_cost_microusd)
    paid = tuple(
        [
            structs.replace(attempt, cost_microusd=each, estimated=bill.is_estimated)
            for attempt, bill, each in zip(attempts.as_tuple(), bills, costs, strict=True)
        ]
    )
    return paid, sum(costs)


def _at_its_price(passage: Passage, bill: Bill) -> Bill:
    return structs.replace(bill, is_batch=passage.has_batch_price(bill.target))


def _estimated(passage: Passage, bill: Bill) -> Usage | None:
    """An estimate as it is recorded, with the tier in which it is charged."""
    return as_asked(_at_its_price(passage, bill), passage.request.tree).usage
