"""Gathers what the pages of batches show, and cancels or deletes for whoever is signed in."""

from collections.abc import Sequence
from typing import Final, TypeVar

from litestar.exceptions import NotFoundException
from msgspec import Struct

from admin.costs.limits import ChangedMeanwhile
from admin.services import Services
from gateway.access import Person
from gateway.store.batching.lists import BatchLists, BatchRow, FileRow, LineRow
from gateway.store.evidence.sink import AuditQuery


RECORDS_MAX: Final = 5_000
"""Records that are looked at for the lines of one batch."""
SHOWN_MAX: Final = 200
_Found = TypeVar("_Found")


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
    """Whether every record of its time was looked at; otherwise it cost at least so much."""


class BatchLine(Struct, frozen=True):
    """A batch in a list, with what it cost so far."""

    batch: BatchRow
    cost_microusd: int
    is_all: bool
    """Whether every record of its time was looked at; otherwise it cost at least so much."""


class BatchDesk:
    """Batches and files of one organisation at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.lists = BatchLists(services.database, services.clock)

    async def batch(self, organisation: str, batch_id: str) -> BatchRow:
        return _there(await self.lists.batch(organisation, batch_id))

    async def file(self, organisation: str, file_id: str) -> FileRow:
        found = await self.lists.files(organisation)
        return _there(next((each for each in found if each.id == file_id), None))

    async def detail(self, organisation: str, batch_id: str) -> BatchDetail:
        """Raises NotFoundException."""
        batch = await self.batch(organisation, batch_id)
        query = AuditQuery(
            organisation=organisation,
            stage="outcome",
            key_id=batch.key_id,
            since_us=batch.created_us,
            until_us=(batch.ended_us or self._services.clock.utc_us()) + 1,
        )
        sent, looked_at, cost_microusd = [], 0, 0
        async for row in self._services.records.records(query):
            looked_at += 1
            if looked_at > RECORDS_MAX:
                break
            record = row.projected.record
            if record.detail.get("batch") != batch.id:
                continue
            cost_microusd += record.cost_microusd
            line = int(record.detail.get("line", "0"))
            sent.append(
                Sent(line, record.request_id, record.status, record.target, record.cost_microusd)
            )
        sent.sort(key=lambda each: each.line)
        return BatchDetail(
            batch=batch,
            lines=tuple(await self.lists.lines(batch_id)),
            sent=tuple(sent[:SHOWN_MAX]),
            cost_microusd=cost_microusd,
            is_all=looked_at <= RECORDS_MAX,
        )

    async def with_costs(self, organisation: str, rows: Sequence[BatchRow]) -> list[BatchLine]:
        """What each of these batches cost, from the records of their keys.

        RECORDS_MAX of them are looked at in all: batches whose keys asked for more than that cost
        at least what was found.
        """
        costs, cut, left = dict.fromkeys((row.id for row in rows), 0), set[str](), RECORDS_MAX
        now_us = self._services.clock.utc_us()
        for key_id in dict.fromkeys(row.key_id for row in rows):
            own = [row for row in rows if row.key_id == key_id]
            query = AuditQuery(
                organisation=organisation,
                stage="outcome",
                key_id=key_id,
                since_us=min(row.created_us for row in own),
                until_us=max(row.ended_us or now_us for row in own) + 1,
            )
            async for found in self._services.records.records(query):
                if not left:
                    cut.add(key_id)
                    break
                left -= 1
                record = found.projected.record
                if (batch_id := record.detail.get("batch")) in costs:
                    costs[batch_id] += record.cost_microusd
        return [BatchLine(row, costs[row.id], row.key_id not in cut) for row in rows]

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
