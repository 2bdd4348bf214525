"""Finds out how each duty of an organisation stands, from this installation; nothing is assumed.

Everything is read once, then judged in one place (`judging`), so that no two lines disagree.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from admin.compliance.duties import DUTIES, PLACES, Duty
from admin.compliance.judging import Due, Known, Prices, Standing, standing_of
from admin.compliance.office import Office
from admin.services import Services
from gateway.actors import same_person
from gateway.audit.disk import Disk
from gateway.audit.proving.exported import CheckpointFiles
from gateway.errors import RequestInvalid
from gateway.obligations import REGIMES, TITLES
from gateway.oversight.access import Permission, Person
from gateway.oversight.deeds import OPERATORS
from gateway.rollout.versions import State
from gateway.secrets.credentials import master_key
from gateway.store.custody.incidents import Incident, IncidentStore, Running
from gateway.store.custody.regimes import RegimeChoice, RegimeTable, checked
from gateway.store.custody.reviews import ReviewStore
from gateway.store.evidence.deliveries import Deliveries
from gateway.store.evidence.sink import AuditQuery
from gateway.store.money.price_proposals import PriceProposals
from gateway.store.policies.documents import PolicyStore
from gateway.store.retention.keeping import retention_of
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from gateway.store.traffic.drifts import DriftTable


CHOICES_SHOWN: Final = 10
DRIFTS_MAX: Final = 100
DECIDING: Final[tuple[State, ...]] = ("live", "canary")


class Line(Struct, frozen=True):
    """A duty, and how it stands."""

    duty: Duty
    standing: Standing
    evidence: str
    """The screen that shows it; empty for what is not to be shown here."""


class Part(Struct, frozen=True):
    """One rule with its duties."""

    regime: str
    title: str
    lines: tuple[Line, ...]
    counts: Mapping[str, int]
    """Lines by their state."""


class Checklist(Struct, frozen=True):
    """All that an organisation is to be able to show, and how it stands."""

    organisation: str
    read_us: int
    choice: RegimeChoice
    parts: tuple[Part, ...]
    choices: tuple[RegimeChoice, ...] = ()
    """Earlier ones too, the newest first."""


class RegimeOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Which rules hold from now on; `seen` is the place of the choice that was read before."""

    regimes: tuple[str, ...]
    reason: str
    seen: int


class ChecklistRoom:
    """Of one organisation at a time."""

    def __init__(self, services: Services, office: Office) -> None:
        self._services = services
        self._office = office
        database, clock = services.database, services.clock
        self.regimes = RegimeTable(database, services.settings.obligations, clock)
        self._incidents = IncidentStore(database, clock)
        self._reviews = ReviewStore(database, clock)
        self._policies = PolicyStore(database, clock)
        self._proposals = PriceProposals(database, clock)
        self._drifts = DriftTable(database, clock)
        self._deliveries = Deliveries(database, clock)
        self._sealed = SealedSecretTable(database, master_key(services.settings), clock)

    async def read(self, organisation: str) -> Checklist:
        """The duties of the rules that hold, with how each stands now."""
        choice = await self.regimes.standing(organisation)
        known = await self._known(organisation)
        parts = tuple(_part(name, organisation, known) for name in choice.names)
        choices = tuple(await self.regimes.choices(organisation, CHOICES_SHOWN))
        return Checklist(organisation, known.now_us, choice, parts, choices)

    async def choose(self, person: Person, organisation: str, order: RegimeOrder) -> RegimeChoice:
        """Let other rules hold.

        Raises:
            RequestInvalid: a rule is none, no reason is given, or the same rules hold already.
            ChangedMeanwhile: somebody else chose since the page was read.
        """
        regimes = checked(order.regimes, " ".join(order.reason.split()))
        before = await self.regimes.standing(organisation)
        if before.place and regimes == before.regimes:
            raise RequestInvalid("these rules already apply", parameter="regimes")
        choice = RegimeChoice(
            organisation,
            order.seen + 1,
            regimes,
            person.name[:200],
            " ".join(order.reason.split()),
            self._services.clock.utc_us(),
        )
        after = {"regimes": regimes, "reason": choice.reason}
        async with self._services.deeds.doing(
            person.name,
            "obligations.chosen",
            organisation,
            before={"regimes": before.regimes},
            after=after,
        ):
            await self.regimes.choose(choice)
        return choice

    async def _known(self, organisation: str) -> Known:
        services, settings = self._services, self._services.settings
        now_us = services.clock.utc_us()
        signed = await self._office.parts.trees.newest(organisation)
        checked_log = await services.checker.last(organisation)
        cases = self._office.erasures.cases
        standing = await self._incidents.standing([organisation])
        reviews = await self._reviews.reviews(organisation)
        standing_versions = await self._policies.lists.standing(organisation, DECIDING)
        versions = [each for found in standing_versions.values() for each in found]
        approvers = await services.people_lists.able(Permission.POLICIES_APPROVE, organisation)
        outside = {p.jurisdiction for p in settings.providers.values() if not p.is_in_house}
        stated_us, offset = await self._stated()
        sinks = await self._deliveries.states(settings.sinks) if settings.sinks else []
        oldest = [each.oldest_us for each in sinks if each.oldest_us]
        return Known(
            now_us=now_us,
            period_us=round(settings.audit.checkpoint_period_s * 1_000_000),
            signed_us=signed.signed_us if signed else 0,
            signed_records=signed.size if signed else 0,
            exported_us=await self._exported(organisation),
            verified_us=checked_log.ended_us if checked_log else 0,
            verified_reason=checked_log.reason if checked_log else "",
            first_us=await services.records.began_us(organisation),
            retention_days=retention_of(settings, organisation)[1],
            retention_late_us=await self._retention_late_us(organisation, now_us),
            holds=(await self._office.lists.holds(organisation, 0, 0)).count,
            cases=await cases.dues(organisation),
            done_cases=(await cases.states(organisation))["done"],
            reports=_due(standing),
            incidents=len(standing),
            reviews=[each.state(now_us) for each in reviews if each.ended_us is None],
            signed_reviews=len(await self._reviews.last_signatures(organisation)),
            versions=len(versions),
            unapproved=sum(each.approver in ("", each.author) for each in versions),
            prices=await self._prices(),
            people=await services.people_lists.count_in(organisation),
            approvers=len(approvers),
            is_single_sign_on=bool(settings.oidc.issuer),
            credentials=[each.set_us for each in await self._sealed.listed()],
            jurisdictions=sorted(outside),
            in_house=sum(p.is_in_house for p in settings.providers.values()),
            is_watched=settings.drift.enabled,
            drifts=len(await self._drifts.open([organisation], DRIFTS_MAX)),
            sinks=len(settings.sinks),
            behind_us=now_us - min(oldest) if oldest else 0,
            clock_source=settings.audit.clock_source,
            stated_us=stated_us,
            offset=offset,
        )

    async def _retention_late_us(self, organisation: str, now_us: int) -> int:
        folders = await self._office.retained(organisation)
        late = (each.report.overdue_us(now_us) for each in folders if not each.is_lost)
        return max(late, default=0)

    async def _exported(self, organisation: str) -> int | None:
        folder = self._services.settings.path(self._services.settings.audit.checkpoint_directory)
        files = CheckpointFiles(folder, Disk())

        def newest() -> int | None:
            if not folder.is_dir():
                return None
            found = files.newest_of_all().get(organisation)
            return found.signed_us if found else 0

        try:
            return await asyncio.to_thread(newest)
        except OSError:
            return None

    async def _prices(self) -> Prices:
        """Who put the prices of now in force: they hold for every organisation."""
        order = await self._services.prices.standing()
        if not order.place:
            return "configured"
        proposed_by = (await self._proposals.proposers([order.place])).get(order.place, "")
        is_alone = not proposed_by or same_person(order.actor, proposed_by)
        return "alone" if is_alone else "approved"

    async def _stated(self) -> tuple[int, str]:
        """When a worker last stated its clock, and what it said of how far off it is."""
        query = AuditQuery(organisation=OPERATORS, stage="admin", action="clock.stated")
        for row in await self._services.records.newest(query, 1):
            record = row.projected.record
            offset = record.detail.get("offset_us", "")
            is_number = offset.removeprefix("-").isdigit()
            return record.utc_us, f", {offset} µs off" if is_number else ""
        return 0, ""


def _due(standing: Sequence[tuple[Incident, Sequence[Running]]]) -> dict[str, list[Due]]:
    """Reports that were not made, by rule: when each is due."""
    found: dict[str, list[Due]] = {}
    for _, running in standing:
        for each in running:
            if not each.is_stopped:
                found.setdefault(each.clock.regime, []).append(Due(each.due_us, each.clock.unit))
    return found


def _part(regime: str, organisation: str, known: Known) -> Part:
    lines = tuple(
        Line(
            duty,
            standing_of(duty.check, regime, known),
            PLACES.get(duty.check, "").replace("{organisation}", organisation),
        )
        for duty in DUTIES
        if duty.regime == regime
    )
    counts: dict[str, int] = {}
    for line in lines:
        counts[line.standing.state] = counts.get(line.standing.state, 0) + 1
    return Part(regime, TITLES[next(r for r in REGIMES if r == regime)], lines, counts)
