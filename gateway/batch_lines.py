"""The journey of a line of a batch: that of any request, for the key that made the batch.

The key's place, labels and scope are read again when the line is sent, not when the batch was made.
What it meets (rates, inspection, policy, budgets, the audit log) is the same as ever, but that its
service tier is `batch` whatever it asks for: others go first.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.batches import Batch, Line, LineEnd
from gateway.clock import Clock
from gateway.errors import (
    BudgetExhausted,
    Exhausted,
    FeatureUnsupported,
    GatewrightError,
    PoolBusy,
    Unauthenticated,
    Unavailable,
    UpstreamFailed,
    UpstreamRefused,
)
from gateway.passage import Arrival, Errand
from gateway.pings import Write
from gateway.pipeline import Pipeline, StreamedAnswer
from gateway.ports import Dialect
from gateway.snapshot import SnapshotKeeper
from gateway.types import Principal


TIER_PREFIX = "tier:"
BATCH_TIER = "tier:batch"
KEY_OVER = "The key that made this batch is not valid any more."
FULL_STATUSES = frozenset({429, 503, 529})
"""What upstreams answer when they have no room."""
SERVER_ERROR_MIN = 500
FAILURES_MAX = 3
"""How often a line may fail at its upstream before that is its end."""


class Later(Struct, frozen=True):
    """A line that could not be answered now."""

    after_s: float | None
    """What whoever refused it asks for; None where that says nothing."""
    is_full: bool
    """Whether nothing is wrong with it: it waits, as often as it has to."""
    end: LineEnd
    """What it ends with where it is not to be tried again."""


class BatchPipeline(Pipeline):
    """A `Pipeline` for lines: who asks is known by the batch, and no header is believed."""

    def _identify(self, arrival: Arrival) -> Principal:
        errand = arrival.errand
        record = arrival.snapshot.keys.records.get(errand.key_id) if errand is not None else None
        if record is None or not record.is_live(arrival.arrived_us):
            raise Unauthenticated(KEY_OVER)
        principal = record.principal
        labels = [each for each in principal.labels if not each.startswith(TIER_PREFIX)]
        return structs.replace(principal, labels=(*labels, BATCH_TIER))


class LineJourneys:
    """Sends lines on their way, and says what became of them."""

    def __init__(
        self,
        pipeline: Pipeline,
        snapshots: SnapshotKeeper,
        clock: Clock,
        dialects: Mapping[str, Dialect],
    ) -> None:
        """`pipeline` is a `BatchPipeline`; `dialects` are by endpoint."""
        self._pipeline = pipeline
        self._snapshots = snapshots
        self._clock = clock
        self._dialects = dialects

    async def send(self, batch: Batch, line: Line, request_id: str) -> LineEnd | Later:
        """The answer or the error of one line, or that it has to wait."""
        dialect = self._dialects[batch.endpoint]

        async def read_body() -> bytes:
            check_whole(line.body)
            return line.body

        try:
            arrival = Arrival(
                request_id=request_id,
                endpoint=batch.endpoint,
                dialect=dialect,
                headers=list(batch.told.headers),
                arrived_us=self._clock.utc_us(),
                snapshot=self._snapshots.current(),
                errand=Errand(batch.batch_id, line.number, batch.key_id),
            )
            answer = await self._pipeline.serve(arrival, read_body, _never)
        except GatewrightError as error:
            status, body = dialect.encode_error(error, request_id)
            end = LineEnd("errored", status, request_id, body)
            return later_of(error, end) or end
        if isinstance(answer, StreamedAnswer):
            raise TypeError("a line asked for no stream and got one")
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

    def crashed(self, batch: Batch, request_id: str) -> Later:
        """What becomes of a line at which we failed."""
        error = GatewrightError("The gateway failed to serve this request.")
        status, body = self._dialects[batch.endpoint].encode_error(error, request_id)
        return Later(None, is_full=False, end=LineEnd("errored", status, request_id, body))


class _Peek(Struct):
    stream: Any = None


_PEEK = msgspec.json.Decoder(_Peek)


def check_whole(body: bytes) -> None:
    """Refuse a line that asks for a stream: nobody is there to read one.

    What cannot be read here is refused by the dialect, in its own words.

    Raises:
        FeatureUnsupported
    """
    try:
        asked = _PEEK.decode(body).stream
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if asked:
        raise FeatureUnsupported("A line of a batch is answered whole: leave `stream` out.")


def _never(_: Mapping[str, str]) -> Write:
    raise TypeError("a line of a batch has nobody to stream to")


def later_of(error: GatewrightError, end: LineEnd) -> Later | None:
    """None where the error is the line's end.

    An unknown key waits a moment: this worker may not have heard of it yet, and if it was revoked
    the batch is stopped by what the database says.
    """
    if isinstance(error, BudgetExhausted):
        return None
    if isinstance(error, Exhausted | Unavailable | PoolBusy | Unauthenticated):
        return Later(error.retry_after_s, is_full=True, end=end)
    if isinstance(error, UpstreamRefused):
        if error.upstream_status in FULL_STATUSES:
            return Later(error.retry_after_s, is_full=True, end=end)
        return None if error.http_status < SERVER_ERROR_MIN else Later(None, is_full=False, end=end)
    return Later(None, is_full=False, end=end) if isinstance(error, UpstreamFailed) else None
