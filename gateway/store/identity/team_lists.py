"""Lists teams a page at a time, by state, without reading all of an organisation's."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace
from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select

from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.identity.teams import Team, members_of, team_of
from gateway.store.pages import START, Order, Part, part_behind
from gateway.store.schema.tables import virtual_keys, workspaces


STATES: Final = ("active", "unowned", "keyless", "archived")
_W, _K = workspaces.c, virtual_keys.c
_BY_NAME: Final = Order((_W.name,))
_LIVING_FIRST: Final = Order(
    (case((_W.archived_us.is_not(None), 1), else_=0).label("is_archived"), _W.name)
)


class TeamLists:
    """Lists the teams in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def page(
        self, organisation: str, state: str, first: int, limit: int, after: str = ""
    ) -> Part[Team]:
        """Teams in one of STATES, or in any if it is empty: by name, archived ones last.

        `after` is the key of the last one before them.
        """
        query = select(workspaces).where(_W.organisation == organisation)
        if state:
            query = query.where(self._state() == state)
        place = (first, after)
        async with self._database.reading() as connection:
            part = await part_behind(connection, query, _LIVING_FIRST, place, limit, team_of)
            belongs = await members_of(connection, organisation, [e.name for e in part.rows])
        rows = (replace(each, members=belongs.get(each.name, ())) for each in part.rows)
        return part.of(rows)

    async def found(self, organisation: str, words: Sequence[str], limit: int) -> Part[Team]:
        """Teams whose name or title holds each word; without their members."""
        named = [
            or_(_W.name.icontains(word, autoescape=True), _W.title.icontains(word, autoescape=True))
            for word in words
        ]
        query = select(workspaces).where(_W.organisation == organisation, *named)
        async with self._database.reading() as connection:
            return await part_behind(connection, query, _BY_NAME, START, limit, team_of)

    async def states(self, organisation: str) -> Counter[str]:
        """How many teams there are in each of STATES."""
        state = self._state().label("state")
        query = select(state, func.count()).where(_W.organisation == organisation).group_by(state)
        async with self._database.reading() as connection:
            return Counter({name: int(count) for name, count in await connection.execute(query)})

    def _state(self) -> ColumnElement[str]:
        """The most telling of STATES."""
        is_live = and_(
            _K.revoked_us.is_(None),
            or_(_K.expires_us.is_(None), _K.expires_us > self._clock.utc_us()),
        )
        has_key = exists().where(
            _K.organisation == _W.organisation, _K.workspace == _W.name, is_live
        )
        return case(
            (_W.archived_us.is_not(None), "archived"),
            (~has_key, "keyless"),
            (_W.owner != "", "active"),
            else_="unowned",
        )
