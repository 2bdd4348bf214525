"""Gathers the data of the team pages: keys, money, members and deeds; bounded reads."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from litestar.exceptions import NotFoundException
from msgspec import Struct

from admin.costs.reader import CostReader
from admin.keys.lines import KeyLine, Spending
from admin.keys.reader import ROLLUP_BATCHES, KeyReader
from admin.queries import PAGE_ROWS
from admin.services import Services
from gateway.money.rates import RateLimit
from gateway.oversight.access import EVERYWHERE, Role
from gateway.oversight.deeds import OPERATORS
from gateway.oversight.searching import parse
from gateway.store.identity.key_lists import KeySearch, PlaceKeys
from gateway.store.identity.team_lists import TeamLists
from gateway.store.identity.teams import Team, TeamStore
from gateway.store.pages import Part
from gateway.store.traffic.conditions import Search, Source
from gateway.store.traffic.figures import Sums
from gateway.store.traffic.lists import Row


KEYS_SHOWN: Final = 50
DEEDS_LOOKED_AT: Final = 500
DEEDS_SHOWN: Final = 20


class TeamLine(Struct, frozen=True):
    """One team with what its keys did this month."""

    team: Team
    state: str
    """Of STATES, the one that says most."""
    keys: int
    live_keys: int
    requests: int
    spent_microusd: int
    """This month, in the organisation's time zone, by whichever keys were in it."""
    last_us: int
    """When one of its keys last asked; 0 for never."""
    spendings: tuple[Spending, ...]
    """Its limits, with what is used of each."""


class Member(Struct, frozen=True):
    """Somebody who belongs to a team, and what they may do in the organisation without it."""

    name: str
    title: str
    is_disabled: bool
    roles: tuple[Role, ...]


class TeamDeed(Struct, frozen=True):
    """What somebody did to a team."""

    utc_us: int
    sequence: int
    actor: str
    action: str
    error: str
    subject: str
    """Who was added or removed, or another title; empty for other deeds."""


class TeamDetail(Struct, frozen=True):
    """All that a team's page shows."""

    line: TeamLine
    keys: tuple[KeyLine, ...]
    """The newest, live ones first."""
    projects: tuple[str, ...]
    members: tuple[Member, ...]
    rate: RateLimit | None
    deeds: tuple[TeamDeed, ...]


class TeamReader:
    """Teams of one organisation at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._keys = KeyReader(services)
        self._costs = CostReader(services)
        self._traffic = services.traffic
        self.store = TeamStore(services.database, services.clock)
        self.lists = TeamLists(services.database, services.clock)

    async def listed(self, organisation: str) -> list[TeamLine]:
        """All of them by name, those in use first."""
        teams = await self.store.teams(organisation)
        lines = await self._lines(organisation, teams)
        return sorted(lines, key=lambda line: (line.state == "archived", line.team.name))

    async def page(
        self, organisation: str, state: str, first: int, limit: int = PAGE_ROWS, after: str = ""
    ) -> Part[TeamLine]:
        """Some of those in a state, or of all where it is empty, in the same order."""
        part = await self.lists.page(organisation, state, first, limit, after)
        names = [team.name for team in part.rows]
        lines = await self._lines(organisation, part.rows, names)
        return part.of(lines)

    async def team(self, organisation: str, name: str) -> Team:
        """Raises NotFoundException where there is none."""
        found = await self.store.team(organisation, name)
        if found is None:
            raise NotFoundException
        return found

    async def line(self, organisation: str, name: str) -> TeamLine:
        """Raises NotFoundException where there is none."""
        team = await self.team(organisation, name)
        return (await self._lines(organisation, [team], [name]))[0]

    async def _lines(
        self, organisation: str, teams: Sequence[Team], names: Sequence[str] | None = None
    ) -> list[TeamLine]:
        """`names` are these teams' where they are few; None where they may be all there are."""
        services = self._services
        await services.rollup.catch_up(ROLLUP_BATCHES)
        places: dict[str, list[PlaceKeys]] = {}
        for place in await self._keys.lists.places(organisation, names):
            places.setdefault(place.workspace, []).append(place)
        asked = await services.figures.last_asked(organisation)
        sums = await self._sums(organisation)
        accounts = [f"ws:{organisation}/{team.name}" for team in teams]
        spendings = await self._keys.spendings_of(accounts)
        return [
            _line(
                team,
                places.get(team.name, ()),
                sums.get(team.name, Sums()),
                asked.get(team.name, 0),
                spendings.get(account, ()),
            )
            for team, account in zip(teams, accounts, strict=True)
        ]

    async def detail(self, organisation: str, name: str) -> TeamDetail:
        """Raises NotFoundException where there is none."""
        line = await self.line(organisation, name)
        ours = (("workspace", name),)
        live = await self._keys.page(
            organisation, KeySearch(fields=(*ours, ("state", "live"))), 0, KEYS_SHOWN
        )
        every = await self._keys.page(organisation, KeySearch(fields=ours), 0, KEYS_SHOWN)
        over = [key for key in every.keys if not key.is_live]
        places = await self._services.keys.places(organisation)
        account = f"ws:{organisation}/{name}"
        rates = (each for each in await self._services.rates.all() if each.account == account)
        return TeamDetail(
            line=line,
            keys=(*live.keys, *over)[:KEYS_SHOWN],
            projects=tuple(place.project for place in places if place.workspace == name),
            members=await self._members(line.team),
            rate=next(rates, None),
            deeds=await self._deeds(organisation, name),
        )

    async def _sums(self, organisation: str) -> dict[str, Sums]:
        today, _ = await self._costs.today(organisation)
        days = (str(today.replace(day=1)), str(today))
        rows = await self._services.figures.by_day(organisation, *days, ["workspace"])
        return {row.group[0]: row for row in rows}

    async def _members(self, team: Team) -> tuple[Member, ...]:
        if not team.members:
            return ()
        places = (EVERYWHERE, team.organisation)
        return tuple(
            Member(
                person.name,
                person.title,
                person.is_disabled,
                tuple(sorted({g.role for g in person.grants if g.organisation in places})),
            )
            for person in await self._services.people_lists.named(team.members)
        )

    async def _deeds(self, organisation: str, name: str) -> tuple[TeamDeed, ...]:
        """The newest on this team, among so many of the newest on any."""
        source = Source(OPERATORS, "admin", organisation)
        now_us = self._services.clock.utc_us()
        search = Search(source, parse("action:team.*"), now_us)
        page = await self._traffic.page(search, limit=DEEDS_LOOKED_AT)
        numbers = [row.sequence for row in page.rows]
        records = await self._services.records.numbered(OPERATORS, numbers) if numbers else []
        details = {
            each.sequence: each.projected.record.detail
            for each in records
            if each.projected.raw_json
        }
        found = [_deed(row, details.get(row.sequence, {}), name) for row in page.rows]
        return tuple(deed for deed in found if deed is not None)[:DEEDS_SHOWN]


def _line(
    team: Team,
    places: Sequence[PlaceKeys],
    sums: Sums,
    last_us: int,
    spendings: Sequence[Spending],
) -> TeamLine:
    live = sum(place.live for place in places)
    return TeamLine(
        team=team,
        state=_state(team, live),
        keys=sum(place.keys for place in places),
        live_keys=live,
        requests=sums.requests,
        spent_microusd=sums.cost_microusd,
        last_us=last_us,
        spendings=tuple(spendings),
    )


def _state(team: Team, live_keys: int) -> str:
    if team.archived_us is not None:
        return "archived"
    if not live_keys:
        return "keyless"
    return "active" if team.owner else "unowned"


def _deed(row: Row, detail: Mapping[str, str], name: str) -> TeamDeed | None:
    """None where it was done to another team; a record of another shape names none."""
    try:
        after: Any = msgspec.json.decode(detail.get("after", "null"))
    except msgspec.DecodeError:
        return None
    if not isinstance(after, dict) or after.get("team") != name:
        return None
    said = after.get("person") or after.get("title") or ""
    return TeamDeed(row.utc_us, row.sequence, row.actor, row.action, row.error, str(said))
