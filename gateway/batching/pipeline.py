"""A `Pipeline` for lines of batches: the second half of a journey may begin much later.

For a line that a vendor's own batch API answers, it begins when that answer is there.
"""

from functools import partial

from msgspec import structs

from gateway.admission.answer_bounds import SHORT_BYTES_MAX
from gateway.admission.plausible_counts import believing
from gateway.batching.intake import LineIntake
from gateway.batching.unanswered import MAY_COST
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.attempts import AttemptLog, end_code
from gateway.dispatch.dispatcher import Answered
from gateway.dispatch.refusals import refusal_of
from gateway.errors import GatewrightError, UpstreamFailed
from gateway.intake import Stages
from gateway.money.bills import Bill
from gateway.money.rates import NO_LIMITS
from gateway.parcels import VendorResult
from gateway.passage import Arrival, Passage
from gateway.pipeline import Pipeline, WholeAnswer
from gateway.recording.evidence import Loss
from gateway.tally import read_tokens, tokens_of
from gateway.types import Attempt, AuditRecord, DialectName, Principal, Usage


SERVED_AS = "batch"


class BatchPipeline(Pipeline):
    """A `Pipeline` without waiting callers: a line continues at once, or when it is delivered."""

    def __init__(self, stages: Stages, intake: LineIntake) -> None:
        super().__init__(stages, intake)
        self._rates = stages.rates
        self._clock = stages.clock

    def parked(self, passage: Passage) -> Passage | None:
        """A passage whose answer will come later; meanwhile it blocks no other from beginning.

        None if it continues now.
        """
        errand = passage.arrival.errand
        if errand is None or not errand.is_parked:
            return None
        self._rates.release(passage.permit, passage.permit.tokens)
        return structs.replace(passage, permit=NO_LIMITS)

    def dialect_of(self, passage: Passage) -> DialectName:
        """The dialect of a parked line's body."""
        return self._dispatcher.first_body(passage.sent, passage.ruling.plan)[0]

    async def complete(self, passage: Passage) -> WholeAnswer:
        """The second half of a journey that continues at once."""
        errand = passage.arrival.errand
        attempts = AttemptLog()
        attempts.check_lease = errand.check_lease if errand is not None else None

        async def answer() -> Answered:
            try:
                return await self._answers.complete(passage, attempts)
            finally:
                if errand is not None and errand.tell_answered is not None:
                    errand.tell_answered()

        return await self._end(passage, attempts, answer)

    async def deliver(
        self, passage: Passage, dialect: DialectName, result: VendorResult
    ) -> WholeAnswer:
        """The second half, with the vendor's result; raises GatewrightError, recorded."""
        attempts = AttemptLog()

        async def read() -> Answered:
            number = attempts.answer = attempts.begin()
            try:
                answered = await self._read(passage, dialect, result)
            except GatewrightError as error:
                attempt = self._attempt(
                    passage, result.status, end_code(error), result.upstream_ids
                )
                attempts.add(number, attempt, _unread(passage, result, error))
                raise
            bill = Bill(answered.candidate.target, answered.completion.usage)
            attempt = self._attempt(passage, result.status, "", result.upstream_ids)
            attempts.add(number, attempt, bill)
            return answered

        return await self._end(passage, attempts, read)

    async def delivered(
        self, passage: Passage, dialect: DialectName, result: VendorResult, record: AuditRecord
    ) -> WholeAnswer:
        """The same for a line whose outcome is on record already; raises GatewrightError."""
        answered = await self._read(passage, dialect, result)
        if len(result.body) > SHORT_BYTES_MAX:
            upstream, encode = answered.candidate.target.name, partial(self._encoded, passage)
            lines = self._dispatcher.long_answers
            _, body = await lines.encode(upstream, partial(encode, answered))
        else:
            _, body = self._encoded(passage, answered)
        headers = {
            "x-gatewright-target": record.target,
            "x-gatewright-decision": record.decision,
            "x-gatewright-cost-microusd": str(record.cost_microusd),
        }
        return WholeAnswer(body, headers)

    @staticmethod
    def is_mendable(passage: Passage, dialect: DialectName, error: GatewrightError) -> bool:
        """Whether a live call could leave out the part that the vendor refused."""
        body = passage.ruling.plan.candidates[0].body
        return DIALECTS[dialect].mend_request(body, error) is not None

    async def undelivered(self, passage: Passage, error: GatewrightError) -> None:
        """Record that the vendor never got to this line, at no cost.

        If nobody knows whether it did, it costs what a call without an answer does.
        """
        attempts = AttemptLog()
        target, usage = passage.ruling.plan.candidates[0].target, None
        if error in MAY_COST:
            read = read_tokens(passage.request, target.vendor)
            usage = Usage(read, estimated=True, service_tier=SERVED_AS)
        bill = Bill(target, usage)
        attempts.add(attempts.begin(), self._attempt(passage, 0, error.code), bill)
        await self._conclusion.failed(passage, attempts, error)

    async def lost(
        self, arrival: Arrival, principal: Principal, loss: Loss, error: GatewrightError
    ) -> None:
        """Record the outcome of a line whose second half is impossible."""
        await self._conclusion.lost(arrival, principal, loss, error)

    async def _read(self, passage: Passage, name: DialectName, result: VendorResult) -> Answered:
        """The vendor's result; raises GatewrightError. A long answer is read off the loop."""
        dialect, candidate = DIALECTS[name], passage.ruling.plan.candidates[0]
        if result.kind == "refused":
            raise refusal_of(passage.sent, dialect, result.status, result.body, None)
        if len(result.body) > SHORT_BYTES_MAX:
            lines, upstream = self._dispatcher.long_answers, candidate.target.name
            completion = await lines.read(dialect, result.body, None, upstream)
        else:
            completion = dialect.decode_reply(result.body)
        usage = structs.replace(completion.usage, service_tier=SERVED_AS)
        completion = structs.replace(completion, usage=usage)
        return Answered(candidate, name, completion, candidate.dropped)

    def _attempt(
        self, passage: Passage, status: int, error: str, upstream_ids: tuple[str, ...] = ()
    ) -> Attempt:
        target = passage.ruling.plan.candidates[0].target
        waited_us = passage.arrival.lasted_us(self._clock.utc_us())
        return Attempt(target.name, status, error, waited_us, waited_us, upstream_ids=upstream_ids)


def _unread(passage: Passage, result: VendorResult, error: GatewrightError) -> Bill:
    """A refused line costs nothing; an unreadable answer has an estimated cost.

    One that was given up costs what was counted.
    """
    candidate = passage.ruling.plan.candidates[0]
    if result.kind == "refused":
        return Bill(candidate.target, None)
    if isinstance(error, UpstreamFailed) and isinstance(error.counted, Usage):
        told = believing(passage.request, candidate)(error.counted)
        return Bill(candidate.target, structs.replace(told, service_tier=SERVED_AS))
    output_tokens = min(tokens_of(len(result.body)), candidate.output_tokens_cap)
    usage = Usage(
        read_tokens(passage.request, candidate.target.vendor),
        output_tokens,
        estimated=True,
        service_tier=SERVED_AS,
    )
    return Bill(candidate.target, usage)
