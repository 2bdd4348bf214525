"""Finds what was made of files and batches during their erasure, apart from later requests.

Reading everything takes minutes. Meanwhile a batch may be made of a file, or finished into one.
"""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace
from sqlalchemy import ColumnElement, or_, select

from gateway.store.batching.leads import FINISHED, TAKEN_IN
from gateway.store.engine import Database
from gateway.store.erasure.kept_holdings import Holding
from gateway.store.schema.batches import batch_lines, batches


_B = batches.c
_MOVING = (*TAKEN_IN, *FINISHED)


class MadeOf:
    """Looks in one database for what was made of erased files and batches."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def is_moving(self, names: Collection[str]) -> bool:
        """Whether one of these batches, or a batch of these files, is being moved now."""
        query = select(_B.id).where(_made_of(names), _B.state.in_(_MOVING)).limit(1)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).first() is not None

    async def part(self, found: Holding, names: Collection[str]) -> Holding:
        """What was found of things with these names, and of what was made of them; no answers.

        `arriving` is restricted likewise, and includes files of which their batches were made:
        these tell whose results are.
        """
        named = frozenset(names)
        columns = (_B.id, _B.output_file_id, _B.error_file_id, _B.input_file_id)
        ended = or_(_B.output_file_id.in_(named), _B.error_file_id.in_(named))
        async with self._database.reading() as connection:
            query = select(*columns).where(or_(_made_of(named), ended))
            rows = (await connection.execute(query)).all()
        made = [row for row in rows if not named.isdisjoint((row.id, row.input_file_id))]
        those = {*named, *(each for row in made for each in row[:-1])}
        unseen = found.arriving & {*those, *(row.input_file_id for row in rows)}
        lines = {name: numbers for name, numbers in found.lines.items() if name in those}
        files = [each for each in found.files if each[0].file_id in those]
        numbers = replace(
            found.numbers,
            batches=len(lines),
            lines=sum(map(len, (await self.there(lines)).values())),
            files=len(files),
            file_lines=sum(len(each) for _, each in files),
            answers=0,
            conversations=0,
        )
        found = replace(found, lines=lines, files=files, answers=[], numbers=numbers)
        return replace(found, arriving=unseen)

    async def since(self, organisation: str, looked: Holding, left: Holding) -> frozenset[str]:
        """Names of what was made of `looked` before it was destroyed: in `left`, or being moved.

        A batch took its lines from a file, or put them into one; of a batch that is gone, only the
        file of its results may exist.
        """
        files = {file.file_id for file, _ in looked.files}
        results = {file.file_id for file, _ in left.files if file.purpose == "batch_output"}
        columns = (_B.id, _B.state, _B.input_file_id, _B.output_file_id, _B.error_file_id)
        query = select(*columns).where(_B.organisation == organisation)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        made = set[str]()
        for row in rows:
            its = {row.output_file_id, row.error_file_id}
            is_new = row.id in left.lines and row.id not in looked.lines
            is_left = is_new or row.state in _MOVING or not results.isdisjoint(its)
            if is_left and (row.id in looked.lines or row.input_file_id in files):
                made.add(row.id)
            results -= its
        return frozenset(made | results)

    async def there(self, lines: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
        """Those of these lines that are still kept with their batch; all of them if none are named.

        A batch with none of them is left out, unless all of it is asked for.
        """
        found = dict[str, frozenset[int]]()
        for batch_id, numbers in lines.items():
            query = select(batch_lines.c.number).where(batch_lines.c.batch_id == batch_id)
            async with self._database.reading() as connection:
                kept = frozenset((await connection.execute(query)).scalars())
            if not numbers or not kept.isdisjoint(numbers):
                found[batch_id] = kept.intersection(numbers) if numbers else kept
        return found


def _made_of(names: Collection[str]) -> ColumnElement[Any]:
    """Batches with these names, or made of a file with one."""
    return or_(_B.id.in_(names), _B.input_file_id.in_(names))
