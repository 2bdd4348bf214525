"""What waits for somebody, for the first page: approvals, reviews, sinks, limits and keys."""

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from admin.compliance.incident_room import incidents_due
from admin.costs.accounts import told_of
from admin.costs.dear_hours import DearHourReader
from admin.costs.prices import priced_targets
from admin.costs.unusual import UnusualReader, foremost
from admin.keys.lines import spending_of
from admin.second_person import refused_raise, refused_retirement, refused_widening
from admin.services import Services
from gateway.actors import same_person
from gateway.clock import DAY_US, WEEK_US
from gateway.drift.anomalies import EXCESS_MIN_MICROUSD
from gateway.oversight.access import Permission, Person, allows
from gateway.oversight.workers import standing
from gateway.store.attention import Attention
from gateway.store.custody.reveal_reports import RevealReports
from gateway.store.custody.reviews import ReviewStore
from gateway.store.identity.key_lists import EXPIRING_US
from gateway.store.identity.key_scopes import KeyScopes
from gateway.store.money.price_proposals import PriceProposals
from gateway.store.money.raises import BudgetRaises
from gateway.store.policies.schedules import ScheduleTable
from gateway.store.traffic.drifts import DriftTable
from gateway.store.workers import WorkerTable


MONTH_US: Final = 30 * 86_400_000_000
WAITING_MAX: Final = 20
TIGHT: Final = 0.8
WATCHED_MAX: Final = 8
"""Of so many organisations at most, the dearest, days are compared."""
HOURS_MAX: Final = 6
_ROLLED_OUT_BY: Final = {
    "schedule": (Permission.POLICIES_PUBLISH,),
    "withdrawn": (Permission.POLICIES_EDIT, Permission.POLICIES_PUBLISH),
    "approved": (Permission.POLICIES_PUBLISH,),
}
SINK_LATE_US: Final = 5 * 60 * 1_000_000


class Need(Struct, frozen=True):
    """Something that waits for somebody; `kind` says which sentence it is."""

    kind: str
    organisation: str
    subject: str
    count: int
    at_us: int = 0
    share: float = 0.0
    said: str = ""
    """Of a drift: what moved. Of a replica: what is wrong with it. Of a budget: whose it is."""
    usual_microusd: int = 0
    bound_microusd: int = 0
    """Of a dear hour: what it usually costs, and from where on it is unusual."""
    level: str = ""
    """Of a version of a policy, which `count` numbers: whose. Empty is the installation's own."""


class NeedReader:
    """For one person: what they may see, and do something about."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._attention = Attention(services.database)
        self._proposals = PriceProposals(services.database, services.clock)
        self._unusual = UnusualReader(services)
        self._hours = DearHourReader(services)

    async def read(
        self, person: Person, visible: Collection[str] | None, now_us: int
    ) -> list[Need]:
        found = [
            *await self._approvals(person, visible, now_us),
            *await self._erasures(person, now_us),
            *await self._widenings(person, now_us),
            *await self._raises(person, now_us),
            *await self._retirements(person),
            *await self._incidents(person, visible),
            *await self._reviews(person, visible),
            *await self._reveal_reports(person, visible, now_us),
            *await self._versions(person, visible, now_us),
            *await self._drifts(visible),
            *await self._replicas(person, now_us),
            *await self._late_sinks(person, now_us),
            *await self._limits_and_keys(visible, now_us),
            *await self._unpriced(visible, now_us),
            *await self._dear_hours(person, visible, now_us),
            *await self._dear_days(person, visible, now_us),
        ]
        return found[:WAITING_MAX]

    async def _approvals(
        self, person: Person, visible: Collection[str] | None, now_us: int
    ) -> list[Need]:
        found = []
        for draft in await self._attention.drafts(now_us - MONTH_US, WAITING_MAX):
            organisation = organisation_of(draft.level)
            is_theirs = allows(person, Permission.POLICIES_APPROVE, organisation or None)
            is_own = same_person(draft.author, person.name)
            if not is_own and is_theirs and is_visible(organisation, visible):
                found.append(
                    _of_version("draft", draft.level, draft.author, draft.number, draft.created_us)
                )
        if allows(person, Permission.PRICES_APPROVE):
            found += [
                Need("prices", "", each.proposed_by, each.file, each.proposed_us)
                for each in (await self._proposals.waiting()).rows
                if not same_person(each.proposed_by, person.name)
            ]
        for asked in await self._attention.reveals(now_us - MONTH_US, WAITING_MAX):
            is_theirs = allows(person, Permission.CONTENT_APPROVE_REVEAL, asked.organisation)
            if is_theirs and not same_person(asked.asked_by, person.name):
                found.append(Need("reveal", asked.organisation, asked.asked_by, 1, asked.asked_us))
        return found

    async def _erasures(self, person: Person, now_us: int) -> list[Need]:
        """Those that others asked for and that they may agree to."""
        return [
            Need("erasure", each.organisation, each.asked_by, 1, each.asked_us)
            for each in await self._attention.erasures(now_us - MONTH_US, WAITING_MAX)
            if not same_person(each.asked_by, person.name)
            and allows(person, Permission.CONTENT_APPROVE_ERASURE, each.organisation)
        ]

    async def _widenings(self, person: Person, now_us: int) -> list[Need]:
        """Keys that may do more once they agree to it; `said` is the key's name."""
        scopes = KeyScopes(self._services.database, self._services.clock)
        return [
            Need(
                "widening",
                each.organisation,
                each.proposed_by,
                1,
                each.proposed_us,
                said=each.key_name,
            )
            for each in await scopes.waiting_anywhere(now_us - MONTH_US, WAITING_MAX)
            if not refused_widening(person, each)
        ]

    async def _raises(self, person: Person, now_us: int) -> list[Need]:
        """Larger limits that others ask them for, and what was decided of those they asked for.

        `said` is whose the limit is, `count` the limit, and of a decision `level` what it was.
        """
        raises = BudgetRaises(self._services.database, self._services.clock)
        waiting = await raises.waiting_anywhere(now_us - MONTH_US, WAITING_MAX)
        decided = await raises.decided_since(now_us - WEEK_US, person.name)
        told = [
            ("raise", each, each.asked_by) for each in waiting if not refused_raise(person, each)
        ]
        told += [
            ("raised", each, each.decided_by)
            for each in decided
            if allows(person, Permission.BUDGETS_READ, each.organisation)
        ]
        return [
            Need(
                *(kind, each.organisation, by, each.wanted_microusd, each.asked_us),
                said=await self._whose(each.organisation, each.account),
                level=each.state,
            )
            for kind, each, by in told
        ]

    async def _retirements(self, person: Person) -> list[Need]:
        """Lost workers whose names others want retired; `count` is what would be ended."""
        return [
            Need(
                "retirement",
                "",
                each.asked_by,
                each.shown.requests + each.shown.lines,
                each.asked_us,
                said=each.worker,
            )
            for each in (await self._services.lost_workers.cases.waiting()).rows
            if not refused_retirement(person, each)
        ]

    async def _incidents(self, person: Person, visible: Collection[str] | None) -> list[Need]:
        """Open ones that they lead; `count` is how many reports are due by now."""
        found = await incidents_due(self._services, person, visible)
        return [Need("incident", *each) for each in found]

    async def _reviews(self, person: Person, visible: Collection[str] | None) -> list[Need]:
        """Those due that they may sign; `count` is how many whole periods were missed."""
        services = self._services
        now_us = services.clock.utc_us()
        return [
            Need(
                "review",
                review.organisation,
                review.name,
                review.missed(now_us),
                review.due_us,
            )
            for review in await ReviewStore(services.database, services.clock).due(visible)
            if allows(person, Permission.REVIEWS_SIGN, review.organisation)
        ]

    async def _reveal_reports(
        self, person: Person, visible: Collection[str] | None, now_us: int
    ) -> list[Need]:
        """Weekly reports with something in them, for a week; `count` is how often it was read."""
        reports = RevealReports(self._services.database, self._services.clock)
        return [
            Need("reported", each.organisation, str(each.asked), each.readings, each.since_us)
            for each in await reports.since(now_us - WEEK_US, visible)
            if allows(person, Permission.AUDIT_READ, each.organisation)
        ]

    async def _versions(
        self, person: Person, visible: Collection[str] | None, now_us: int
    ) -> list[Need]:
        """Approved versions that act nowhere: each with what ended its last rollout, if it had one.

        Of trials that ended by themselves in the last week who writes policies is told as well.
        """
        table = ScheduleTable(self._services.database, self._services.clock)
        told = [
            _of_version("schedule", each.level, each.said, each.number, each.ended_us)
            for each in await table.open(now_us - MONTH_US)
            if each.state == "refused"
        ]
        told += [
            _of_version("withdrawn", each.level, each.reason, each.number, each.utc_us)
            for each in await self._attention.withdrawn(now_us - WEEK_US, WAITING_MAX)
        ]
        known = {(each.level, each.count) for each in told}
        told += [
            _of_version("approved", each.level, each.author, each.number, each.created_us)
            for each in await self._attention.approved(now_us - MONTH_US, WAITING_MAX)
            if (each.level, each.number) not in known
        ]
        return [
            each
            for each in told
            if is_visible(each.organisation, visible)
            and any(
                allows(person, permission, each.organisation or None)
                for permission in _ROLLED_OUT_BY[each.kind]
            )
        ]

    async def _drifts(self, visible: Collection[str] | None) -> list[Need]:
        """Profiles that drift; `count` says whether something was promised of one."""
        table = DriftTable(self._services.database, self._services.clock)
        return [
            Need(
                each.kind,
                each.organisation,
                each.scope,
                int(bool(each.guarantee)),
                each.began_us,
                said=each.said,
            )
            for each in await table.open(visible, WAITING_MAX)
        ]

    async def _replicas(self, person: Person, now_us: int) -> list[Need]:
        """Members of pools that became slow or answer otherwise; each once, whoever saw it."""
        if not allows(person, Permission.SYSTEM_READ):
            return []
        found: dict[tuple[str, str], Need] = {}
        for worker in await WorkerTable(self._services.database).all():
            members = () if standing(worker, now_us) == "lost" else worker.members
            for each in members:
                place = (each.provider, each.member)
                if each.differs:
                    found[place] = Need("replica", "", each.member, 1, said="answers otherwise")
                elif each.state == "slow" and place not in found:
                    found[place] = Need("replica", "", each.member, 1, 0, each.weight, "slow")
        return list(found.values())

    async def _late_sinks(self, person: Person, now_us: int) -> list[Need]:
        if not allows(person, Permission.SYSTEM_READ):
            return []
        sinks = self._services.settings.sinks
        return [
            Need("sink", each.organisation, each.sink, each.records, each.oldest_us)
            for each in await self._attention.delays(sinks, WAITING_MAX)
            if now_us - each.oldest_us > SINK_LATE_US
        ]

    async def _limits_and_keys(self, visible: Collection[str] | None, now_us: int) -> list[Need]:
        spendings = map(spending_of, await self._services.budgets.budgets())
        tight = [each for each in spendings if each.share >= TIGHT]
        named = [each.account.removeprefix("key:") for each in tight]
        homes = await self._services.key_names.homes(named)
        found = []
        for each in tight:
            organisation = organisation_of(each.account)
            if each.account.startswith("key:"):
                organisation = homes.get(each.account.removeprefix("key:"), "")
            if organisation and is_visible(organisation, visible):
                found.append(await self._tight(organisation, each.account, each.share))
        found.sort(key=lambda need: -need.share)
        expiring = await self._services.key_names.expiring(now_us, now_us + EXPIRING_US)
        return found + [
            Need("keys", name, "", count, first_us)
            for name, (count, first_us) in expiring.items()
            if is_visible(name, visible)
        ]

    async def _tight(self, organisation: str, account: str, share: float) -> Need:
        said = await self._whose(organisation, account)
        return Need("budget", organisation, account, 1, share=share, said=said)

    async def _whose(self, organisation: str, account: str) -> str:
        key_id = account.removeprefix("key:")
        names = await self._services.key_names.names(organisation, (key_id,))
        return told_of(account, names.get(key_id, ""))

    async def _dear_hours(
        self, person: Person, visible: Collection[str] | None, now_us: int
    ) -> list[Need]:
        """Hours of the last day that cost a team or a key unusually much; `count` is the cost."""
        return [
            Need(
                "hour",
                each.organisation,
                f"{each.kind} {each.label}",
                each.cost_microusd,
                each.hour_us,
                each.times,
                usual_microusd=each.usual_microusd,
                bound_microusd=each.bound_microusd,
            )
            for each in await self._hours.fresh(visible, now_us - DAY_US, HOURS_MAX)
            if allows(person, Permission.COSTS_READ, each.organisation)
        ]

    async def _dear_days(
        self, person: Person, visible: Collection[str] | None, now_us: int
    ) -> list[Need]:
        """Yesterday or today cost unusually much; of one organisation what says most of why."""
        since_us = now_us - 2 * DAY_US
        rows = await self._services.figures.by_hour(visible, since_us, ["organisation"])
        dear = [row for row in rows if row.cost_microusd >= EXCESS_MIN_MICROUSD]
        found = []
        for row in sorted(dear, key=lambda row: -row.cost_microusd)[:WATCHED_MAX]:
            name = row.group[0]
            if not allows(person, Permission.COSTS_READ, name):
                continue
            every = await self._unusual.fresh(name)
            most = foremost(every)
            if most is not None:
                whose = "" if most.kind == "organisation" else f"{most.kind} {most.label}: "
                at_us = most.start_s * 1_000_000
                found.append(
                    Need("dear", name, f"{whose}{most.words}", len(every), at_us, most.times)
                )
        return found

    async def _unpriced(self, visible: Collection[str] | None, now_us: int) -> list[Need]:
        free = {
            target.name
            for target in await priced_targets(self._services)
            if not target.price.output_microusd_per_mtok
        }
        since_us = now_us - DAY_US
        rows = await self._services.figures.by_hour(visible, since_us, ["organisation", "target"])
        return [
            Need("unpriced", row.group[0], row.group[1], row.unpriced)
            for row in rows
            if row.unpriced and row.group[1] and row.group[1] not in free
        ]


def _of_version(kind: str, level: str, subject: str, number: int, at_us: int) -> Need:
    return Need(kind, organisation_of(level), subject, number, at_us, level=level)


def is_visible(organisation: str, visible: Collection[str] | None) -> bool:
    """What concerns the whole installation (no organisation) everybody is shown."""
    return visible is None or not organisation or organisation in visible


def organisation_of(account: str) -> str:
    """The organisation in the name of an account or a level; a key's name holds none."""
    kind, _, path = account.partition(":")
    return "" if kind == "key" else path.partition("/")[0]
