"""Gathers the data of the cost pages from precomputed sums; reads only, and bounded."""

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from admin.costs.accounts import is_of, told_of
from admin.costs.burning import BurnDay, burn, exhausted_on
from admin.costs.comparing import days_before, traffic_of
from admin.costs.dear_hours import DearHour, DearHourReader
from admin.costs.prices import priced_targets
from admin.costs.unanswered import GROUPS_WITH_NONE, Unanswered, unanswered_of
from admin.costs.unusual import UnusualDay, UnusualReader
from admin.keys.lines import Spending
from admin.keys.reader import KeyReader
from admin.services import Services
from gateway.clock import SECOND_US
from gateway.errors import RequestInvalid
from gateway.money import costs as arithmetic
from gateway.store.money.alerts import AlertTable, SentAlert
from gateway.store.policies.names import PolicyNames
from gateway.store.traffic.figures import GroupOrder, Sums
from gateway.types import Target


GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "team": ("workspace",),
    "project": ("project",),
    "app": ("workspace", "project"),
    "key": ("key_id",),
    "model": ("target",),
    "route": ("jurisdiction",),
    "provider": ("provider",),
    "policy": ("policy_digest",),
    "day": ("day",),
}
"""Words for groups, and the dimensions that they are; an app is a project with its team before it,
because teams may use the same name."""
SORTS: Final[dict[str, GroupOrder]] = {"cost": "cost", "growth": "growth", "requests": "requests"}
"""What the largest of groups stand first by."""
GROUPS_SHOWN: Final = 100
"""So many lines make a page: a file holds all of them."""
GROUPS_MAX: Final = 1_000_000
DAYS_MAX: Final = 400
BASIS_DAYS: Final = 62
"""Of so many days a forecast learns what a day of the week costs."""
ROLLUP_BATCHES: Final = 4
ALERTS_MAX: Final = 10


class Question(Struct, frozen=True):
    """Which days, and by what."""

    since: date
    until: date
    by: str = "team"
    first: int = 0
    """How many groups to leave out of the page."""
    sort: str = ""
    """Of `SORTS`; empty for the dearest first, and days in their order."""

    @property
    def order(self) -> GroupOrder:
        """What groups stand by: the days of a question are compared with none before."""
        if self.by == "day":
            return "requests" if self.sort == "requests" else "cost" if self.sort else "group"
        return SORTS.get(self.sort, "cost")


class Group(Struct, frozen=True):
    """One line of the table."""

    value: str
    label: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost_microusd: int
    share: float
    """Of the cost of all groups."""
    before_microusd: int | None = None
    """What it cost on as many days just before; None where that is not compared."""
    traffic: str = ""
    """The filter that finds its requests; empty where none does."""


class Unpriced(Struct, frozen=True):
    """A model that has a price, or is not known to be free, and whose answers cost nothing."""

    target: str
    requests: int


class CostSummary(Struct, frozen=True):
    """What the first page of cost says."""

    question: Question
    time_zone: str
    behind: int
    """Records that are not added up yet."""
    before: tuple[date, date]
    """The days that groups are compared with."""
    total: Group
    groups: tuple[Group, ...]
    """GROUPS_SHOWN of them, from `first` of the question on, in its order."""
    count: int
    """Of all groups."""
    forecast: arithmetic.Forecast
    limit: Spending | None
    """The organisation's own, for a month."""
    exhausted_on: str
    """The day on which that limit is expected to be used up; empty if not within the month."""
    burn: tuple[BurnDay, ...]
    savings: arithmetic.Savings | None
    unpriced: tuple[Unpriced, ...]
    tight: tuple[Spending, ...]
    """Limits of which four fifths are used."""
    alerts: tuple[SentAlert, ...]
    titles: dict[str, str]
    """What people call the accounts of these two."""
    unusual: tuple[UnusualDay, ...] = ()
    """Days of the question that cost a group far more than its weekday does, newest first."""
    unusual_hours: tuple[DearHour, ...] = ()
    """Hours of the question that cost a team or a key far more than usual, newest first."""
    unanswered: Unanswered = Unanswered()
    """How the requests ended that stand in the group without a name."""


class CostReader:
    """Of one organisation at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._keys = KeyReader(services)
        self._alerts = AlertTable(services.database, services.clock)
        self._unusual = UnusualReader(services)
        self._hours = DearHourReader(services)

    async def today(self, organisation: str) -> tuple[date, ZoneInfo]:
        """The day it is for an organisation."""
        zone = ZoneInfo(await self._services.spending.zone_of(organisation))
        now_s = self._services.clock.utc_us() // SECOND_US
        return datetime.fromtimestamp(now_s, UTC).astimezone(zone).date(), zone

    async def groups(self, organisation: str, question: Question) -> list[Group]:
        """In the question's order, with what was recorded until now as far as a page has it.

        Raises:
            RequestInvalid: there is no such group, or the days are none.
        """
        check(question)
        await self._services.rollup.catch_up(ROLLUP_BATCHES)
        found, _, _ = await self._page(organisation, question, GROUPS_MAX)
        return found

    async def _page(
        self, organisation: str, question: Question, limit: int, zone: ZoneInfo | None = None
    ) -> tuple[list[Group], int, Group]:
        """Groups from the question's first on, how many there are, and the sum of all.

        With the zone of its days each is compared with what it was before.
        """
        check(question)
        rows, count, total = await self._services.figures.dearest(
            organisation,
            _words((question.since, question.until)),
            self._dimensions(question.by),
            (question.first, limit),
            order=question.order,
            before=_words(days_before(question.since, question.until)),
        )
        names = await self._names(organisation, question.by, [row.group for row in rows])
        whole = total.cost_microusd
        groups, every = [_group(row, names, whole) for row in rows], _group(total, {}, whole)
        if zone is None:
            return groups, count, every
        values = [tuple(map(str, row.group)) for row in rows]
        pairs = list(zip(groups, values, strict=True))
        compared = await self._compared(organisation, question, pairs, zone)
        before = await self._before(organisation, question, (), [()])
        return compared, count, replace(every, before_microusd=before.get((), 0))

    async def _compared(
        self,
        organisation: str,
        question: Question,
        groups: Sequence[tuple[Group, tuple[str, ...]]],
        zone: ZoneInfo,
    ) -> list[Group]:
        """The same with what each cost before, and where its requests are."""
        by, days = self._dimensions(question.by), (question.since, question.until)
        before: dict[tuple[str, ...], int] = {}
        is_compared = question.by != "day"
        if is_compared and groups:
            before = await self._before(organisation, question, by, [each for _, each in groups])
        return [
            replace(
                group,
                before_microusd=before.get(values, 0) if is_compared else None,
                traffic=traffic_of(by, values, days, zone),
            )
            for group, values in groups
        ]

    async def _before(
        self,
        organisation: str,
        question: Question,
        by: Sequence[str],
        groups: Sequence[tuple[str, ...]],
    ) -> dict[tuple[str, ...], int]:
        days = _words(days_before(question.since, question.until))
        return await self._services.figures.costs_of(organisation, days, by, groups)

    async def summary(self, organisation: str, question: Question) -> CostSummary:
        """Raises RequestInvalid like `groups`."""
        check(question)
        services = self._services
        behind = await services.rollup.catch_up(ROLLUP_BATCHES)
        today, zone = await self.today(organisation)
        groups, count, total = await self._page(organisation, question, GROUPS_SHOWN, zone)
        if question.first >= count:
            question = replace(question, first=0)
        days = await self._days(organisation, today - timedelta(days=BASIS_DAYS), today)
        spendings = await self._spendings(organisation)
        limit = next(
            (s for s in spendings if (s.account, s.window) == (f"org:{organisation}", "month")),
            None,
        )
        targets = await priced_targets(services)
        period = (str(question.since), str(question.until))
        by_target = await services.figures.by_day(organisation, *period, ["target"])
        tight = tuple(s for s in spendings if s.share >= 0.8)  # noqa: PLR2004 - four fifths
        alerts = await self._sent(organisation)
        left = max(limit.left_microusd + limit.held_microusd, 0) if limit else None
        return CostSummary(
            question=question,
            time_zone=str(zone),
            behind=behind,
            before=days_before(question.since, question.until),
            total=total,
            groups=tuple(groups),
            count=count,
            forecast=arithmetic.forecast(days, today),
            limit=limit,
            exhausted_on=exhausted_on(days, today, left),
            burn=tuple(burn(days, today, zone)),
            savings=_savings(by_target, targets),
            unpriced=tuple(_unpriced(by_target, {t.name: t for t in targets})),
            tight=tight,
            alerts=tuple(alerts),
            titles=await self._titles(
                organisation, [s.account for s in tight] + [a.account for a in alerts]
            ),
            unusual=await self._unusual.found(organisation, question.since, question.until, zone),
            unusual_hours=await self._hours.found(
                organisation, question.since, question.until, zone
            ),
            unanswered=await self._unanswered(organisation, question, groups),
        )

    async def _unanswered(
        self, organisation: str, question: Question, groups: Sequence[Group]
    ) -> Unanswered:
        if question.by not in GROUPS_WITH_NONE or all(group.value for group in groups):
            return Unanswered()
        days = _words((question.since, question.until))
        by = GROUPS[question.by]
        return unanswered_of(await self._services.figures.by_day(organisation, *days, by))

    async def own_keys(self, organisation: str, accounts: Collection[str]) -> frozenset[str]:
        """The organisation's own among the keys that accounts are named after."""
        named = [account.removeprefix("key:") for account in accounts if account[:4] == "key:"]
        return frozenset(await self._services.key_names.names(organisation, named))

    def _dimensions(self, by: str) -> tuple[str, ...]:
        """A label that engines share with managed APIs does not say the route by itself."""
        if by == "route" and self._services.homes.shared:
            return (*GROUPS[by], "provider")
        return GROUPS[by]

    async def _names(
        self, organisation: str, by: str, groups: Sequence[Sequence[str]]
    ) -> dict[str, str]:
        """What people call groups whose value is an id or a digest; of routes the word."""
        values = [value_of(group) for group in groups]
        if by == "route":
            # Without a provider the label tells alone.
            places = [self._services.homes.place_of(group[0], group[-1]) for group in groups]
            return dict(zip(values, places, strict=True))
        if by == "key":
            return await self._services.key_names.names(organisation, values)
        if by == "policy":
            return await PolicyNames(self._services.database).names(values)
        return {}

    async def _titles(self, organisation: str, accounts: Sequence[str]) -> dict[str, str]:
        ids = [each.removeprefix("key:") for each in accounts if each.startswith("key:")]
        names = await self._services.key_names.names(organisation, ids)
        return {each: told_of(each, names.get(each.removeprefix("key:"), "")) for each in accounts}

    async def _days(self, organisation: str, since: date, until: date) -> dict[date, int]:
        rows = await self._services.figures.by_day(organisation, str(since), str(until), ["day"])
        return {date.fromisoformat(row.group[0]): row.cost_microusd for row in rows}

    async def _spendings(self, organisation: str) -> list[Spending]:
        found = await self._keys.spendings()
        own = await self.own_keys(organisation, found)
        return [
            each
            for account, all_of in found.items()
            if is_of(account, organisation, own)
            for each in all_of
        ]

    async def _sent(self, organisation: str) -> list[SentAlert]:
        newest = await self._alerts.newest(20 * ALERTS_MAX)
        own = await self.own_keys(organisation, [each.account for each in newest])
        return [each for each in newest if is_of(each.account, organisation, own)][:ALERTS_MAX]


def check(question: Question) -> None:
    """Raises RequestInvalid when a question makes no sense."""
    if question.by not in GROUPS:
        raise RequestInvalid(f"group by {', '.join(GROUPS)}", parameter="by")
    days = (question.until - question.since).days
    if not 0 <= days <= DAYS_MAX:
        raise RequestInvalid(f"from one day to {DAYS_MAX} days", parameter="until")


def value_of(group: Sequence[object]) -> str:
    """One text of a group: of several dimensions the path, empty where all of them are."""
    return "/".join(map(str, group)).strip("/")


def _group(row: arithmetic.CostRow, names: dict[str, str], whole: int) -> Group:
    value = value_of(row.group)
    return Group(
        value,
        names.get(value, value),
        row.requests,
        row.input_tokens,
        row.output_tokens,
        row.cost_microusd,
        row.cost_microusd / whole if whole else 0.0,
    )


def _savings(rows: Sequence[Sums], targets: Sequence[Target]) -> arithmetic.Savings | None:
    """Against the dearest frontier model; None where no model has a price."""
    try:
        baseline = arithmetic.dearest(targets)
    except RequestInvalid:
        return None
    compared = [
        arithmetic.CostRow(r.group, r.requests, r.input_tokens, r.output_tokens, r.cost_microusd)
        for r in rows
    ]
    return arithmetic.savings(compared, targets, baseline)


def _unpriced(rows: Sequence[Sums], targets: dict[str, Target]) -> list[Unpriced]:
    found = []
    for row in rows:
        target = targets.get(row.group[0])
        is_free = target is not None and not target.price.output_microusd_per_mtok
        if row.unpriced and row.group[0] and not is_free:
            found.append(Unpriced(row.group[0], row.unpriced))
    return found


def _words(days: tuple[date, date]) -> tuple[str, str]:
    return str(days[0]), str(days[1])
