"""Gathers data for the batch pages, and cancels or deletes on behalf of the signed-in person."""

from collections.abc import Sequence
from typing import Final, TypeVar

from litestar.exceptions import NotFoundException
from msgspec import Struct

from admin.queries import PAGE_ROWS
from admin.services import Services
from gateway.errors import ChangedMeanwhile
from gateway.oversight.access import Person
from gateway.store.batching.lists import LISTED_MAX, BatchLists, BatchRow, FileRow, LineRow
from gateway.store.evidence.sink import AuditQuery
from gateway.store.pages import Part
from gateway.types import AuditRecord


RECORDS_MAX: Final = 5_000
"""Records that are looked at for batches from before there were sums of what each cost."""
SHOWN_MAX: Final = 200
ROLLUP_BATCHES: Final = 2
STATE: Final = "state:"
_Found = TypeVar("_Found")
_LOST: Final = AuditRecord("outcome", "", "", 0)
"""In place of a record whose bytes are damaged, or gone with their segment."""


class Sent(Struct, frozen=True):
    """A line that was sent, as the log has it."""

    line: int
    request_id: str
    status: str
    target: str
    cost_microusd: int


class BatchDetail(Struct, frozen=True):
    """One batch, its lines, and what they cost."""

    batch: BatchRow
    lines: tuple[LineRow, ...]
    sent: tuple[Sent, ...]
    """Of its lines that were sent, the first; a line that was tried again stands there again."""
    cost_microusd: int
    is_all: bool
    """Whether that is all; otherwise it cost at least so much, as not every record is added up."""


class BatchLine(Struct, frozen=True):
    """A batch in a list, with what it cost so far."""

    batch: BatchRow
    cost_microusd: int
    is_all: bool
    """Whether that is all; of a batch from before there were such sums it may be a part."""


class Found(Struct, frozen=True):
    """What a filter finds of batches."""

    part: Part[BatchRow]
    names: dict[str, str]
    """Of keys, by their ids."""
    looked_at: int
    """Words look through the newest LISTED_MAX of a state."""
    among: int
    """So many there are of it."""


class BatchDesk:
    """Batches and files of one organisation at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.lists = BatchLists(services.database, services.clock)

    async def batch(self, organisation: str, batch_id: str) -> BatchRow:
        return _there(await self.lists.batch(organisation, batch_id))

    async def file(self, organisation: str, file_id: str) -> FileRow:
        return _there(await self.lists.file(organisation, file_id))

    async def detail(self, organisation: str, batch_id: str) -> BatchDetail:
        """Raises NotFoundException."""
        batch = await self.batch(organisation, batch_id)
        (line,) = await self.with_costs(organisation, [batch])
        return BatchDetail(
            batch=batch,
            lines=tuple(await self.lists.lines(batch_id)),
            sent=await self._sent(batch, organisation),
            cost_microusd=line.cost_microusd,
            is_all=line.is_all,
        )

    async def found(self, organisation: str, text: str, first: int, after: str = "") -> Found:
        """Some of the batches that a filter finds; words look through the newest of its state."""
        words = text.lower().split()
        states = [word.removeprefix(STATE) for word in words if word.startswith(STATE)]
        if len(words) == len(states) <= 1:
            part = await self.lists.page(organisation, "".join(states), first, PAGE_ROWS, after)
            return Found(part, await self._names(organisation, part.rows), part.count, part.count)
        rows = await self.lists.page(organisation, states[0] if states else "", 0, LISTED_MAX)
        names = await self._names(organisation, rows.rows)
        found = matching(rows.rows, text, names)
        first = first if first < len(found) else 0
        part = Part(tuple(found[first : first + PAGE_ROWS]), len(found), first)
        return Found(part, names, len(rows.rows), rows.count)

    async def _names(self, organisation: str, rows: Sequence[BatchRow]) -> dict[str, str]:
        return await self._services.key_names.names(organisation, {row.key_id for row in rows})

    async def lines(self, organisation: str) -> list[BatchLine]:
        """The newest, with what each cost."""
        return await self.with_costs(organisation, await self.lists.batches(organisation))

    async def page(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[BatchLine]:
        """Some of all of them, in the same order."""
        part = await self.lists.page(organisation, "", first, limit, after)
        return part.of(await self.with_costs(organisation, part.rows))

    async def with_costs(self, organisation: str, rows: Sequence[BatchRow]) -> list[BatchLine]:
        """What each of these batches cost, as it is added up while their lines end."""
        summed = [row.id for row in rows if row.is_cost_kept]
        behind = await self._services.rollup.catch_up(ROLLUP_BATCHES) if summed else 0
        costs = await self.lists.costs(organisation, summed) if summed else {}
        earlier = [row for row in rows if not row.is_cost_kept]
        cut = await self._look_through(organisation, earlier, costs) if earlier else set()
        cut.update(summed if behind else ())
        return [BatchLine(row, costs.get(row.id, 0), row.id not in cut) for row in rows]

    async def _sent(self, batch: BatchRow, organisation: str) -> tuple[Sent, ...]:
        """Of its lines that were sent, those that ended first."""
        query, most = (
            AuditQuery(organisation=organisation, stage="outcome", batch=batch.id),
            SHOWN_MAX,
        )
        if not batch.is_cost_kept:
            query, most = self._of_key(organisation, [batch]), RECORDS_MAX
        sent: list[Sent] = []
        looked_at = 0
        async for row in self._services.records.records(query):
            looked_at += 1
            record = row.projected.record if row.projected.raw_json else _LOST
            if record.detail.get("batch") == batch.id:
                line = int(record.detail.get("line", "0"))
                said = (record.request_id, record.status, record.target, record.cost_microusd)
                sent.append(Sent(line, *said))
            if len(sent) == SHOWN_MAX or looked_at == most:
                break
        return tuple(sorted(sent, key=lambda each: each.line))

    async def _look_through(
        self, organisation: str, rows: Sequence[BatchRow], costs: dict[str, int]
    ) -> set[str]:
        """Add up what earlier batches cost, from the records of their keys: RECORDS_MAX in all.

        Batches whose keys asked for more than that cost at least what was found: these are given.
        """
        cut, left = set[str](), RECORDS_MAX
        costs |= dict.fromkeys((row.id for row in rows), 0)
        for key_id in dict.fromkeys(row.key_id for row in rows):
            own = [row for row in rows if row.key_id == key_id]
            async for found in self._services.records.records(self._of_key(organisation, own)):
                if not left:
                    cut.update(row.id for row in own)
                    break
                left -= 1
                record = found.projected.record if found.projected.raw_json else _LOST
                if (batch_id := record.detail.get("batch")) in costs:
                    costs[batch_id] += record.cost_microusd
        return cut

    def _of_key(self, organisation: str, rows: Sequence[BatchRow]) -> AuditQuery:
        """What the key of these batches asked for in their time."""
        now_us = self._services.clock.utc_us()
        return AuditQuery(
            organisation=organisation,
            stage="outcome",
            key_id=rows[0].key_id,
            since_us=min(row.created_us for row in rows),
            until_us=max(row.ended_us or now_us for row in rows) + 1,
        )

    async def cancel(self, person: Person, organisation: str, batch_id: str) -> None:
        """Raises NotFoundException, or ChangedMeanwhile where it is over or being ended."""
        batch = await self.batch(organisation, batch_id)
        if not batch.is_open:
            raise ChangedMeanwhile(f"a batch that is {batch.state} cannot be cancelled")
        before = {"batch": batch.id, "state": batch.state, "waiting": batch.waiting}
        before["running"] = batch.running
        async with self._services.deeds.doing(
            person.name, "batch.cancelled", organisation, before=before
        ):
            if not await self.lists.cancel(organisation, batch_id):
                raise ChangedMeanwhile("it ended meanwhile")

    async def forget_file(self, person: Person, organisation: str, file_id: str) -> None:
        """Raises NotFoundException, or ChangedMeanwhile where somebody was faster."""
        file = await self.file(organisation, file_id)
        before = {"file": file.id, "project": f"{file.workspace}/{file.project}"}
        before["size_bytes"] = str(file.size_bytes)
        async with self._services.deeds.doing(
            person.name, "file.deleted", organisation, before=before
        ):
            if not await self.lists.forget_file(organisation, file_id):
                raise ChangedMeanwhile("somebody deleted it meanwhile")


def matching(rows: Sequence[BatchRow], text: str, names: dict[str, str]) -> list[BatchRow]:
    """Rows in which every word stands; `state:`, `key:` and `project:` are of one field."""
    return [row for row in rows if all(_has(row, word, names) for word in text.lower().split())]


def _has(row: BatchRow, word: str, names: dict[str, str]) -> bool:
    field, _, value = word.partition(":")
    if value and field in ("state", "key", "project"):
        own = {"state": row.state, "key": row.key_id.lower(), "project": row.project.lower()}
        return own[field] == value
    name = names.get(row.key_id, "")
    said = (row.id, row.state, row.endpoint, row.workspace, row.project, row.key_id, name)
    return any(word in each.lower() for each in said)


def _there(found: _Found | None) -> _Found:
    if found is None:
        raise NotFoundException
    return found
