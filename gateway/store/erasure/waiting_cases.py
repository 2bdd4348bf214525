"""Erasure cases that were carried out but wait for content still arriving or for a folder.

Most cases are complete and have long certificates. The conditions here repeat those of the partial
indexes that hold the other cases, so they must be written the same way: with literal values and no
bound parameters.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, literal_column, select

from gateway.store.engine import Database
from gateway.store.schema.custody import erasure_cases


_C = erasure_cases.c
AT_ONCE: Final = 500
IS_DONE: Final[ColumnElement[bool]] = literal_column("(erasure_cases.state = 'done')")
IS_UNREACHED: Final = IS_DONE & literal_column("(erasure_cases.reached_us = 0)")
"""Carried out, but not known to have reached every folder."""
WAITS_FOR_MORE: Final = IS_DONE & literal_column(
    '(erasure_cases.certificate LIKE \'%"kept_arriving":["%\')'
)
"""The case was carried out, but something had not arrived yet."""


class WaitingCases:
    """The waiting cases in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ids(self) -> Sequence[str]:
        """Ids of the cases, longest waiting first."""
        query = select(_C.id).where(WAITS_FOR_MORE).order_by(_C.closed_us, _C.id)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalars().all()
