"""Notes on a hold beyond its row: who declined its release and why, and what was erased before.

Declined releases are recorded in the log of deeds alone, so a limited number of its newest entries
is searched.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, structs

from admin.services import Services
from gateway.oversight.deeds import OPERATORS
from gateway.oversight.searching import parse
from gateway.store.custody.orders import Hold
from gateway.store.erasure.cases import ErasureCases
from gateway.store.traffic.conditions import Search, Source


LOOKED_AT: Final = 200
"""The newest declined releases of an organisation: an old one may be beyond them."""


class HoldNote(Struct, frozen=True):
    """Of one hold; empty and 0 where there is nothing to tell."""

    declined_by: str = ""
    declined_us: int = 0
    why: str = ""
    erased_us: int = 0
    """When content that it covers was last erased before it was set."""


class HoldNotes:
    """Of one organisation at a time; raises NotReady."""

    def __init__(self, services: Services, cases: ErasureCases) -> None:
        self._services = services
        self._cases = cases
        self._traffic = services.traffic

    async def of(self, organisation: str, holds: Sequence[Hold]) -> dict[str, HoldNote]:
        """By the holds' ids, of all that are given."""
        if not holds:
            return {}
        declined = await self._declined(organisation)
        erased = await self._cases.erased(organisation, [each.subject for each in holds])
        return {
            each.id: structs.replace(
                declined.get(each.id, HoldNote()),
                erased_us=max((at for at in erased[each.subject] if at <= each.set_us), default=0),
            )
            for each in holds
        }

    async def _declined(self, organisation: str) -> dict[str, HoldNote]:
        """The newest of each hold; whoever took their own request back said nothing."""
        source = Source(OPERATORS, "admin", organisation)
        found = parse("action:hold.release_declined")
        search = Search(source, found, self._services.clock.utc_us())
        page = await self._traffic.page(search, limit=LOOKED_AT)
        numbers = [row.sequence for row in page.rows]
        records = await self._services.records.numbered(OPERATORS, numbers) if numbers else []
        details = {
            each.sequence: each.projected.record.detail
            for each in records
            if each.projected.raw_json
        }
        notes: dict[str, HoldNote] = {}
        for row in page.rows:
            detail = details.get(row.sequence, {})
            why = "" if row.error else detail.get("comment", "")
            note = HoldNote(row.actor, row.utc_us, why) if why else HoldNote()
            notes.setdefault(detail.get("hold", ""), note)
        return notes
