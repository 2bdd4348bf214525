"""Saved views: a named filter of one person, for one page of one organisation."""

from typing import Final

from msgspec import Struct
from sqlalchemy import ColumnElement, delete, func, select

from gateway.clock import Clock
from gateway.errors import RequestInvalid
from gateway.store.engine import Database
from gateway.store.schema.tables import saved_views
from gateway.store.speech import insert_into


NAME_CHARS_MAX: Final = 80
VIEWS_MAX: Final = 50
"""For one person in one room of one organisation."""


class SavedView(Struct, frozen=True):
    """A name and the filter behind it."""

    name: str
    filter: str
    created_us: int


class ViewStore:
    """The views of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def views(self, person: str, organisation: str, room: str) -> list[SavedView]:
        """Views by name; raises NotReady."""
        query = select(saved_views.c.name, saved_views.c.filter, saved_views.c.created_us)
        query = query.where(*_of(person, organisation, room)).order_by(saved_views.c.name)
        async with self._database.reading() as connection:
            return [SavedView(*row) for row in (await connection.execute(query)).all()]

    async def keep(
        self,
        person: str,
        organisation: str,
        room: str,
        name: str,
        filter_text: str,
        *,
        replaces: bool = True,
    ) -> None:
        """Save a view; one of the same name is replaced, or prevents it.

        Raises:
            RequestInvalid: the name is not possible, there are too many, or one is in the way.
            NotReady: the database does not answer.
        """
        if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
            reason = f"a name has 1 to {NAME_CHARS_MAX} printable characters"
            raise RequestInvalid(reason, parameter="name")
        of = _of(person, organisation, room)
        async with self._database.writing() as connection:
            gone = delete(saved_views).where(*of, saved_views.c.name == name)
            if (await connection.execute(gone)).rowcount and not replaces:
                raise RequestInvalid("another view has this name by now", parameter="name")
            count = await connection.scalar(
                select(func.count()).select_from(saved_views).where(*of)
            )
            if (count or 0) >= VIEWS_MAX:
                reason = f"there are {VIEWS_MAX} views here already; drop one first"
                raise RequestInvalid(reason, parameter="name")
            key = {"person": person, "organisation": organisation, "room": room, "name": name}
            kept = {"filter": filter_text, "created_us": self._clock.utc_us()}
            first = insert_into(self._database.kind, saved_views).values(**key, **kept)
            # The same form may have been sent twice.
            await connection.execute(
                first.on_conflict_do_update(index_elements=list(key), set_=kept)
            )

    async def drop(self, person: str, organisation: str, room: str, name: str) -> SavedView | None:
        """Delete a view and return it; a missing one is no error. Raises NotReady."""
        where = (*_of(person, organisation, room), saved_views.c.name == name)
        columns = saved_views.c.name, saved_views.c.filter, saved_views.c.created_us
        async with self._database.writing() as connection:
            row = (await connection.execute(select(*columns).where(*where))).one_or_none()
            await connection.execute(delete(saved_views).where(*where))
        return None if row is None else SavedView(*row)


def _of(person: str, organisation: str, room: str) -> tuple[ColumnElement[bool], ...]:
    columns = saved_views.c
    return columns.person == person, columns.organisation == organisation, columns.room == room
