"""Gathers the overview: precomputed sums, a bounded sample of outcomes, and what waits."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec import Struct

from admin.keys.lines import Spending, spending_of
from admin.overview.credentials import SealedNames, problem_of
from admin.overview.health import LATELY_US, Part, down_of, provider_parts
from admin.overview.needs import WAITING_MAX, Need, NeedReader, is_visible, organisation_of
from admin.services import Services
from gateway.clock import HOUR_US
from gateway.oversight.access import Person
from gateway.oversight.homes import IN_HOUSE, MANAGED
from gateway.oversight.workers import standing
from gateway.rollout.versions import PolicyEvent
from gateway.store.attention import Attention
from gateway.store.evidence.sink import AuditQuery
from gateway.store.revisions import current
from gateway.store.traffic.figures import Sums
from gateway.store.workers import WorkerTable
from gateway.types import AuditRecord


HOURS: Final = 72
DAY_HOURS: Final = 24
SAMPLE: Final = 240
"""So many outcomes at most are looked into for how providers do."""
ACTIVE_MAX: Final = 8
RECENT_MAX: Final = 10
ROLLUP_BATCHES: Final = 2


class Figure(Struct, frozen=True):
    """One figure of the last 24 hours beside the 24 before, and each hour of it."""

    value: float
    before: float
    hours: tuple[float, ...]


class Hour(Struct, frozen=True):
    """Requests of one hour by route, and what was changed in it."""

    start_us: int
    in_house: int
    managed: int
    refused: int
    unanswered: int
    """Not refused, and no model answered: it failed, or its caller left before."""
    changes: tuple[PolicyEvent, ...] = ()


class Recent(Struct, frozen=True):
    """One outcome, without its content."""

    organisation: str
    request_id: str
    utc_us: int
    model_requested: str
    target: str
    route: str
    data_class: str
    findings: tuple[tuple[str, int], ...]
    status: str
    http_status: int
    cost_microusd: int
    duration_us: int


class Overview(Struct, frozen=True):
    """All that the first page shows."""

    now_us: int
    since_us: int
    """Where the last 24 hours begin: they are the running one and the 23 full ones before it."""
    behind: int
    """Records that are not added up yet."""
    parts: tuple[Part, ...]
    requests: Figure
    cost: Figure
    sovereign: Figure
    """Share of what was answered that was answered in-house."""
    found: Figure
    """Requests in which personal data or secrets were found."""
    refused: int
    budget: Spending | None
    """All monthly limits of these organisations together."""
    needs: tuple[Need, ...]
    hours: tuple[Hour, ...]
    changes: tuple[PolicyEvent, ...]
    recent: tuple[Recent, ...]


_COUNTED_AS: Final = {IN_HOUSE: "in_house", MANAGED: "managed", "": "unanswered"}


class OverviewReader:
    """For one person: what they may see of all organisations."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._attention = Attention(services.database)
        self._needs = NeedReader(services)
        self._sealed = SealedNames(services)
        self._workers = WorkerTable(services.database)

    async def read(self, person: Person, visible: frozenset[str] | None) -> Overview:
        """What may be seen of these organisations; None is everything.

        Raises:
            NotReady: the database does not answer.
        """
        services = self._services
        now_us = services.clock.utc_us()
        behind = await services.rollup.catch_up(ROLLUP_BATCHES)
        this_hour = now_us // HOUR_US * HOUR_US
        since_us = this_hour - (HOURS - 1) * HOUR_US
        by = ["hour_us", "jurisdiction", "provider"]
        rows = await services.figures.by_hour(visible, since_us, by)
        changes = await self._changes(visible, since_us)
        day = [this_hour - back * HOUR_US for back in reversed(range(2 * DAY_HOURS))]
        sample = await self.sample(visible, now_us)
        return Overview(
            now_us=now_us,
            since_us=day[DAY_HOURS],
            behind=behind,
            parts=tuple(await self._parts(sample, now_us)),
            requests=_figure(rows, day, lambda sums: sum(s.requests for s in sums)),
            cost=_figure(rows, day, lambda sums: sum(s.cost_microusd for s in sums)),
            sovereign=_figure(rows, day, self._share),
            found=_figure(rows, day, lambda sums: sum(s.found for s in sums)),
            refused=sum(row.refused for row in rows if row.group[0] >= day[DAY_HOURS]),
            budget=_together(await self._spendings(visible)),
            needs=tuple(await self._needs.read(person, visible, now_us)),
            hours=tuple(self._hours(rows, changes, since_us)),
            changes=tuple(changes),
            recent=tuple(map(self._recent, sample[:RECENT_MAX])),
        )

    def _route_of(self, record: AuditRecord) -> str:
        """in-house, managed or refused; empty where no model answered."""
        homes = self._services.homes
        return homes.route_of(record.status, record.jurisdiction, record.provider)

    def _routes(self, rows: Sequence[Sums]) -> dict[str, int]:
        """Requests by route, of sums by hour, jurisdiction and provider."""
        found = dict.fromkeys(("in_house", "managed", "refused", "unanswered"), 0)
        for row in rows:
            place = self._services.homes.place_of(row.group[1], row.group[2])
            found[_COUNTED_AS[place]] += row.requests - row.refused
            found["refused"] += row.refused
        return found

    def _share(self, sums: Sequence[Sums]) -> float:
        routes = self._routes(sums)
        answered = routes["in_house"] + routes["managed"]
        return routes["in_house"] / answered if answered else 0.0

    async def sample(self, visible: Collection[str] | None, now_us: int) -> list[AuditRecord]:
        """The newest outcomes of the busiest organisations, newest first."""
        since_us = now_us - (HOURS + 1) * HOUR_US
        rows = await self._services.figures.by_hour(visible, since_us, ["organisation"])
        active = [row.group[0] for row in sorted(rows, key=lambda row: -row.last_us)]
        names = active[:ACTIVE_MAX] or sorted(visible or ())[:ACTIVE_MAX]
        if not names:
            names = sorted(await self._services.people.organisations())[:ACTIVE_MAX]
        found: list[AuditRecord] = []
        for name in names:
            query = AuditQuery(organisation=name, stage="outcome")
            newest = await self._services.records.newest(query, SAMPLE // len(names))
            found += [row.projected.record for row in newest]
        return sorted(found, key=lambda record: -record.utc_us)

    async def _parts(self, sample: Sequence[AuditRecord], now_us: int) -> list[Part]:
        settings = self._services.settings
        started = time.perf_counter()
        await current(self._services.database)
        took_us = round((time.perf_counter() - started) * 1_000_000)
        last_us = sample[0].utc_us if sample else 0
        is_lately = now_us - last_us < LATELY_US
        gateway = Part(
            "data plane",
            "gateway",
            "serves" if is_lately else "quiet",
            "good" if is_lately else "idle",
            last_us=last_us,
        )
        kind = self._services.database.kind
        database = Part(kind, "database", "answers", "good", p95_us=took_us, last_us=now_us)
        lately = [record for record in sample if now_us - record.utc_us < LATELY_US]
        targets = {name: target.provider for name, target in settings.targets.items()}
        reports = await self._workers.all()
        down = down_of([each for each in reports if standing(each, now_us) != "lost"])
        providers = provider_parts(lately, await self._providers(), targets, down)
        return [gateway, database, *providers]

    async def _providers(self) -> dict[str, tuple[str, str]]:
        settings, sealed = self._services.settings, await self._sealed.read()
        found = {}
        for name, provider in settings.providers.items():
            kind = "engine" if provider.is_in_house else "provider"
            found[name] = (kind, problem_of(settings, name, sealed))
        return found

    async def _changes(self, visible: Collection[str] | None, since_us: int) -> list[PolicyEvent]:
        found = await self._attention.changes(since_us, WAITING_MAX)
        return [each for each in found if is_visible(organisation_of(each.level), visible)]

    def _hours(
        self, rows: Sequence[Sums], changes: Sequence[PolicyEvent], since_us: int
    ) -> list[Hour]:
        counted: dict[int, list[Sums]] = {}
        for row in rows:
            counted.setdefault(row.group[0], []).append(row)
        starts = [since_us + number * HOUR_US for number in range(HOURS)]
        return [
            Hour(
                start_us=start,
                **self._routes(counted.get(start, ())),
                changes=tuple(each for each in changes if start <= each.utc_us < start + HOUR_US),
            )
            for start in starts
        ]

    async def _spendings(self, visible: Collection[str] | None) -> list[Spending]:
        budgets = await self._services.budgets.budgets()
        return [
            spending_of(each)
            for each in budgets
            if each.limit.account.startswith("org:")
            and each.limit.window == "month"
            and is_visible(each.limit.account.removeprefix("org:"), visible)
        ]

    def _recent(self, record: AuditRecord) -> Recent:
        return Recent(
            organisation=record.organisation,
            request_id=record.request_id,
            utc_us=record.utc_us,
            model_requested=record.model_requested,
            target=record.target,
            route=self._route_of(record),
            data_class=record.data_class,
            findings=tuple(sorted(record.findings.items())),
            status=record.status,
            http_status=record.http_status,
            cost_microusd=record.cost_microusd,
            duration_us=record.duration_us,
        )


def _figure(
    rows: Sequence[Sums], hours: Sequence[int], of: Callable[[Sequence[Sums]], float]
) -> Figure:
    """A figure of the last 24 of 48 hours; `of` makes it of any of their rows."""
    by_hour: dict[int, list[Sums]] = {}
    for row in rows:
        by_hour.setdefault(row.group[0], []).append(row)
    first, last = hours[:DAY_HOURS], hours[DAY_HOURS:]

    def over(some: Sequence[int]) -> float:
        return of([row for hour in some for row in by_hour.get(hour, ())])

    return Figure(over(last), over(first), tuple(of(by_hour.get(hour, [])) for hour in last))


def _together(spendings: Sequence[Spending]) -> Spending | None:
    if not spendings:
        return None
    return Spending(
        "",
        "month",
        sum(each.limit_microusd for each in spendings),
        sum(each.used_microusd for each in spendings),
        sum(each.held_microusd for each in spendings),
    )
