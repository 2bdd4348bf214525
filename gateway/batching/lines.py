"""The journey of a batch's line: that of any request, for the key that made the batch.

The key's place, labels and scope are read again when the line is sent, not when the batch was made.
Rates, inspection, policy, budgets and the audit log are the same as ever, except that its service
tier is `batch`, whatever it asks for: other requests go first.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.admission.bounds import check_values
from gateway.batches import UNREADABLE, Batch, Line, LineEnd
from gateway.batching.outages import Outages
from gateway.batching.parking import Remnant, Ticket, resumed, ticket_of
from gateway.batching.pipeline import BatchPipeline
from gateway.clock import Clock
from gateway.errors import (
    AuditUnavailable,
    BudgetExhausted,
    Exhausted,
    FeatureUnsupported,
    GatewrightError,
    NoTargetConfigured,
    NotReady,
    PoolBusy,
    Unauthenticated,
    Unavailable,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamUnpaid,
)
from gateway.parcels import VendorResult
from gateway.passage import Arrival, Errand, Passage
from gateway.pipeline import WholeAnswer
from gateway.ports import Dialect
from gateway.recording.evidence import Loss
from gateway.snapshot import SnapshotKeeper
from gateway.types import AuditRecord, Principal, Reservation


FULL_STATUSES = frozenset({429, 503, 529})
"""Statuses of upstreams that are overloaded."""
SERVER_ERROR_MIN = 500
FAILURES_MAX = 3
"""How often a line may fail at its upstream before it ends with the error."""
_UNREADABLE = GatewrightError(UNREADABLE)


class Later(Struct, frozen=True):
    """A line that could not be answered now."""

    after_s: float | None
    """The wait that the refusal asks for; None if it names none."""
    is_full: bool
    """Whether the line itself is fine: then it waits as often as necessary."""
    end: LineEnd
    """How it ends if it is not tried again."""
    is_alone: bool = False
    """Whether its batch's other lines continue meanwhile, since they are answered elsewhere."""


class Parked(Struct, frozen=True):
    """A line that will be handed to a vendor with others; its intent is on record."""

    passage: Passage
    ticket: Ticket


class LineJourneys:
    """Sends lines on their journeys, and says how each ended."""

    def __init__(
        self,
        pipeline: BatchPipeline,
        snapshots: SnapshotKeeper,
        clock: Clock,
        dialects: Mapping[str, Dialect],
        values_max: int,
    ) -> None:
        """`dialects` are by endpoint; `values_max` limits keys and list elements in one body."""
        self._pipeline = pipeline
        self._snapshots = snapshots
        self._clock = clock
        self._dialects = dialects
        self._values_max = values_max
        self._outages = Outages(clock)

    async def send(
        self,
        batch: Batch,
        line: Line,
        request_id: str,
        *,
        is_first_try: bool = False,
        check_lease: Callable[[], None] | None = None,
        tell_answered: Callable[[], None] | None = None,
    ) -> LineEnd | Later | Parked:
        """The answer or the error of one line, or that it has to wait.

        It may be parked only at its first try. `check_lease` and `tell_answered` belong to its
        errand.
        """
        dialect, passage = self._dialects[batch.endpoint], None

        async def read_body() -> bytes:
            if line.is_damaged:
                raise GatewrightError(UNREADABLE)
            check_whole(line.body, self._values_max)
            return line.body

        try:
            until_us = batch.expires_us if is_first_try else 0
            errand = Errand(
                *(batch.batch_id, line.number, batch.key_id, until_us),
                check_lease=check_lease,
                tell_answered=tell_answered,
            )
            arrival = self._arrival(batch, errand, request_id, self._clock.utc_us())
            passage = await self._pipeline.intake.let_through(arrival, read_body)
            waiting = self._pipeline.parked(passage)
            if waiting is not None:
                return Parked(waiting, ticket_of(waiting, self._pipeline.dialect_of(waiting)))
            answer = await self._pipeline.complete(passage)
        except GatewrightError as error:
            later = later_of(error, end := _errored(dialect, error, request_id))
            return self._weighed(batch, passage, error, later, is_first_try=is_first_try) or end
        self._outages.went_well(batch.batch_id, _first_target(passage))
        return _succeeded(answer, request_id)

    def _weighed(
        self,
        batch: Batch,
        passage: Passage | None,
        error: GatewrightError,
        later: Later | None,
        *,
        is_first_try: bool,
    ) -> Later | None:
        """A failure that is the upstream's fault and not the line's does not use up a try."""
        if passage is None:
            return later
        place = batch.batch_id, _first_target(passage)
        if later is None and isinstance(error, UpstreamRefused):
            self._outages.went_well(*place)
        elif later is not None and not later.is_full:
            is_out = self._outages.is_out(*place, is_first_try=is_first_try)
            is_alone = is_out and not self._outages.is_all_out(batch.batch_id)
            return structs.replace(later, is_full=is_out, is_alone=is_alone)
        return later

    def resume(
        self,
        batch: Batch,
        line: Line,
        ticket: Ticket,
        reservation: Reservation,
        errand: Errand,
    ) -> Passage:
        """The passage of a line that was parked, perhaps in another process."""
        arrival = self._arrival(batch, errand, ticket.request_id, ticket.arrived_us)
        return resumed(ticket, arrival, line.body, reservation)

    async def deliver(
        self,
        passage: Passage,
        ticket: Ticket,
        result: VendorResult,
        record: AuditRecord | None = None,
    ) -> LineEnd | Later:
        """The end of a line by a vendor's answer; `record` is its outcome, if there is one already.

        Raises:
            AuditUnavailable, NotReady: it is to be delivered again.
        """
        try:
            if record is None:
                answer = await self._pipeline.deliver(passage, ticket.dialect, result)
            else:
                answer = await self._pipeline.delivered(passage, ticket.dialect, result, record)
        except (AuditUnavailable, NotReady):
            # Nothing is on record yet, and the vendor's answer is still there.
            raise
        except GatewrightError as error:
            end = _errored(passage.arrival.dialect, error, ticket.request_id)
            if self._pipeline.is_mendable(passage, ticket.dialect, error):
                return Later(None, is_full=False, end=end)
            return later_of(error, end) or end
        return _succeeded(answer, ticket.request_id)

    async def undelivered(self, passage: Passage, error: GatewrightError) -> None:
        """Record that a vendor never came to this line; nothing is charged."""
        await self._pipeline.undelivered(passage, error)

    async def lost(
        self,
        batch: Batch,
        errand: Errand,
        remnant: Remnant,
        loss: Loss | None,
        error: GatewrightError = _UNREADABLE,
    ) -> LineEnd:
        """The end of a line whose ticket this version cannot read, or that ended by `error`.

        `loss` is what to record about it; None if that was done.

        Raises:
            AuditUnavailable, NotReady: it is to be ended again.
        """
        arrived_us = remnant.arrived_us or self._clock.utc_us()
        arrival = self._arrival(batch, errand, remnant.request_id, arrived_us)
        if loss is not None:
            principal = Principal(batch.key_id, "", *batch.project, (), None, accounts=())
            await self._pipeline.lost(arrival, principal, loss, error)
        return _errored(arrival.dialect, error, remnant.request_id)

    def _arrival(self, batch: Batch, errand: Errand, request_id: str, arrived_us: int) -> Arrival:
        return Arrival(
            request_id=request_id,
            endpoint=batch.endpoint,
            dialect=self._dialects[batch.endpoint],
            headers=list(batch.told.headers),
            arrived_us=arrived_us,
            snapshot=self._snapshots.current(),
            errand=errand,
        )

    def crashed(self, batch: Batch, request_id: str) -> Later:
        """The result of a line at which the gateway itself failed."""
        error = GatewrightError("The gateway failed to serve this request.")
        end = _errored(self._dialects[batch.endpoint], error, request_id)
        return Later(None, is_full=False, end=end)


def errand_of(
    batch: Batch,
    line: Line,
    vendor_batch: str,
    check_end: Callable[[], None] | None,
    vendor_files: tuple[str, ...] = (),
) -> Errand:
    """The second half of a parked line's errand; see `Errand.check_end`."""
    return Errand(
        batch.batch_id,
        line.number,
        batch.key_id,
        is_parked=True,
        vendor_batch=vendor_batch,
        vendor_files=vendor_files,
        check_end=check_end,
    )


def _errored(dialect: Dialect, error: GatewrightError, request_id: str) -> LineEnd:
    status, body = dialect.encode_error(error, request_id)
    return LineEnd("errored", status, request_id, body)


def _first_target(passage: Passage) -> str:
    return passage.ruling.plan.candidates[0].target.name


def _succeeded(answer: WholeAnswer, request_id: str) -> LineEnd:
    headers = answer.headers
    return LineEnd(
        "succeeded",
        200,
        request_id,
        answer.body,
        target=headers.get("x-gatewright-target", ""),
        decision=headers.get("x-gatewright-decision", ""),
        receipt=headers.get("x-gatewright-receipt", ""),
        cost_microusd=int(headers.get("x-gatewright-cost-microusd", "0")),
    )


class _Peek(Struct):
    stream: Any = None


_PEEK = msgspec.json.Decoder(_Peek)


def check_whole(body: bytes, values_max: int) -> None:
    """Refuse a line that holds too much, or asks for a stream, which nobody would read.

    A body that cannot be read here is refused by the dialect, in its own words.

    Raises:
        FeatureUnsupported, RequestInvalid
    """
    check_values(body, values_max)
    try:
        asked = _PEEK.decode(body).stream
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if asked:
        raise FeatureUnsupported("A line of a batch is answered whole: leave `stream` out.")


def later_of(error: GatewrightError, end: LineEnd) -> Later | None:
    """When to try the line again; None if the error ends it.

    An unknown key waits a moment: this worker may not have heard of it yet, and if it was revoked
    the batch is stopped by what the database says.
    """
    if isinstance(error, BudgetExhausted) and error.is_held:
        # Once its batch's other lines are paid, most of what was set aside for them is free again.
        return Later(None, is_full=True, end=end)
    if isinstance(error, BudgetExhausted | NoTargetConfigured):
        return None
    if isinstance(error, Exhausted | Unavailable | PoolBusy | Unauthenticated | UpstreamUnpaid):
        return Later(error.retry_after_s, is_full=True, end=end)
    if isinstance(error, UpstreamRefused):
        if error.upstream_status in FULL_STATUSES:
            return Later(error.retry_after_s, is_full=True, end=end)
        return None if error.http_status < SERVER_ERROR_MIN else Later(None, is_full=False, end=end)
    return Later(None, is_full=False, end=end) if isinstance(error, UpstreamFailed) else None
