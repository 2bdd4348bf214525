"""The first half of a line's journey: the batch says who asks, and some lines may wait.

The headers of a line are not believed; a line that a vendor's own batch API will answer is let
through like any other.
"""

from collections.abc import Callable

from msgspec import structs

from gateway.batching.parking import GRACE_S, deferred, may_wait
from gateway.clock import SECOND_US
from gateway.errors import FeatureUnsupported, Unauthenticated
from gateway.intake import Intake, Stages
from gateway.passage import Arrival
from gateway.routing.planning import Ruling
from gateway.types import ChatRequest, DialectName, Principal


TIER_PREFIX = "tier:"
BATCH_TIER = "tier:batch"
KEY_OVER = "The key that made this batch is not valid any more."
SECONDS_LEFT_MIN = 900.0
"""A line with less time left is sent at once: a vendor would hardly get to it."""

TakesParcels = Callable[[str, DialectName], bool]
"""Whether a provider's own batch API may be used for bodies of this dialect."""


class LineIntake(Intake):
    """An `Intake` for requests whose callers do not wait."""

    def __init__(self, stages: Stages, takes_parcels: TakesParcels) -> None:
        super().__init__(stages)
        self._takes_parcels = takes_parcels

    def identify(self, arrival: Arrival) -> Principal:
        errand = arrival.errand
        keys = arrival.snapshot.keys
        record = None if errand is None else keys.live(errand.key_id, arrival.arrived_us)
        if record is None:
            raise Unauthenticated(KEY_OVER)
        principal = record.principal
        labels = [each for each in principal.labels if not each.startswith(TIER_PREFIX)]
        return structs.replace(principal, labels=(*labels, BATCH_TIER))

    async def identify_otherwise(self, arrival: Arrival, refusal: Unauthenticated) -> Principal:
        del arrival
        raise refusal

    def defer(
        self, arrival: Arrival, principal: Principal, request: ChatRequest, ruling: Ruling
    ) -> tuple[Arrival, Ruling]:
        errand = arrival.errand
        if errand is None or errand.waits_until_us == 0:
            return arrival, ruling
        left_s = (errand.waits_until_us - self.clock.utc_us()) / SECOND_US
        if left_s < SECONDS_LEFT_MIN or not may_wait(request, principal, ruling, arrival):
            return arrival, ruling
        try:
            dialect, body = self.dispatcher.first_body(request, ruling.plan)
        except FeatureUnsupported:
            # The walk continues with the next candidate, or reports that there is none.
            return arrival, ruling
        if not self._takes_parcels(ruling.plan.candidates[0].target.provider, dialect):
            return arrival, ruling
        return deferred(arrival, errand, request, ruling, body, left_s + GRACE_S)
