"""Notes what each attempt found of late arrivals before destroying it, so that no count is lost.

It is noted by name: after a crash the next attempt finds some of it again, and nobody could tell
any more that the rest was there. Each thing counts once, whichever attempt destroyed it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Self

import msgspec
from msgspec import Struct, structs
from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.engine import Database
from gateway.store.erasure.attempts import Attempt, ErasureAttempts
from gateway.store.erasure.kept_holdings import Holding, Holdings
from gateway.store.schema.custody import erasure_attempts


_A = erasure_attempts.c
_ALL: Final = 0
"""Stands for the beginning of a note that sums up all finished attempts."""
COUNTED: Final = ("batches", "lines", "files", "file_lines")


class Arrived(Struct, frozen=True):
    """What arrived late, by name."""

    lines: Mapping[str, frozenset[int]] = {}
    """Lines that were kept with each batch that loses any, or is removed completely."""
    files: Mapping[str, int] = {}
    """How many lines of each file had to go; 0 if all of it goes."""

    @classmethod
    def of(cls, found: Holding, there: Mapping[str, frozenset[int]]) -> Self:
        """`there` are the lines that are still kept with their batch."""
        return cls(there, {file.file_id: len(numbers) for file, numbers in found.files})

    def joined(self, other: Self) -> Self:
        """What either has. The larger number of a file counts: its lines move when some go."""
        lines = {
            name: self.lines.get(name, frozenset()) | other.lines.get(name, frozenset())
            for name in [*self.lines, *other.lines]
        }
        files = {
            name: max(self.files.get(name, 0), other.files.get(name, 0))
            for name in [*self.files, *other.files]
        }
        return type(self)(lines, files)

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers for a certificate."""
        lines, file_lines = sum(map(len, self.lines.values())), sum(self.files.values())
        each = len(self.lines), lines, len(self.files), file_lines
        return dict(zip(COUNTED, each, strict=True))


class _Noted(Attempt, frozen=True):
    """A row of `erasure_attempts`; without `arrived` it belongs to the approval itself."""

    arrived: Arrived | None = None
    is_counted: bool = False
    """Whether the certificate includes these numbers already."""


class LateNotes:
    """The notes on all cases in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._attempts = ErasureAttempts(database)

    async def note(
        self, case_id: str, by: str, claimed_us: int, kept: Holdings, arrived: Arrived
    ) -> None:
        """Note what will be erased, before it goes, by whoever has claimed the case.

        Raises:
            CustodyRefused: another process has the case by now, or a hold was set: reading took its
                time.
        """
        noted = _Noted(by, claimed_us, (), kept, arrived=arrived)
        await self._attempts.note(case_id, noted)

    async def counted(self, case_id: str) -> dict[str, int]:
        """What was noted but is not in the certificate yet: by how much its numbers grow."""
        async with self._database.reading() as connection:
            every = [note for _, note in await _notes(connection, case_id)]
        before, now = _all([each for each in every if each.is_counted]), _all(every)
        return {name: now.numbers[name] - before.numbers[name] for name in COUNTED}

    async def settle(self, connection: AsyncConnection, case_id: str, *, is_over: bool) -> None:
        """Replace notes that the certificate includes by one, or by none if the case is over."""
        found = await _notes(connection, case_id)
        times, every = [noted_us for noted_us, _ in found], [note for _, note in found]
        mine = (_A.case_id == case_id) & _A.begun_us.in_(times)
        await connection.execute(delete(erasure_attempts).where(mine))
        if every and not is_over:
            one = structs.replace(every[-1], begun_us=_ALL, arrived=_all(every), is_counted=True)
            said = msgspec.json.encode(one).decode()
            values = {"case_id": case_id, "begun_us": one.begun_us, "found": said}
            await connection.execute(insert(erasure_attempts).values(values))


async def _notes(connection: AsyncConnection, case_id: str) -> list[tuple[int, _Noted]]:
    """Each note with the key of its row."""
    query = select(_A.begun_us, _A.found).where(_A.case_id == case_id).order_by(_A.begun_us)
    rows = (await connection.execute(query)).all()
    found = [(noted_us, msgspec.json.decode(said, type=_Noted)) for noted_us, said in rows]
    return [(noted_us, note) for noted_us, note in found if note.arrived is not None]


def _all(notes: Sequence[_Noted]) -> Arrived:
    found = Arrived()
    for each in notes:
        found = found.joined(each.arrived or Arrived())
    return found
