"""The services that the control plane's rooms share: settings, clock, stores, deeds, the shell.

Made once at the start and handed to every room; a room takes what it needs and opens nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from litestar import Litestar
from msgspec import Struct

from admin.audit.badge import LogBadge
from admin.audit.checking import LogChecker
from admin.policy_room.badge import PendingBadge
from admin.refusals import Refusals
from admin.screens import Screens
from admin.shell import Shell
from admin.sign_in.shown_once import ShownOnce
from admin.statics import Statics
from admin.system.retiring import RetirementDesk
from gateway.audit.device import AuditLimits
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import AuditUnavailable
from gateway.identity import Peppers
from gateway.oversight.deeds import Deeds
from gateway.oversight.homes import Homes, homes_of
from gateway.pacing import rhythm
from gateway.pacing.upkeep import Duty, Upkeep
from gateway.secrets.credentials import all_peppers, master_key
from gateway.store.custody.custody_lists import CustodyLists
from gateway.store.custody.orders import Custody
from gateway.store.engine import Database, open_database
from gateway.store.erasure.cases import ErasureCases
from gateway.store.erasure.folder_erasures import FolderErasures
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.erasure.late_arrivals import LateArrivals
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.numbered_places import require_what_was_numbered
from gateway.store.evidence.packing import EvidencePacks
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.glance import write_nothing_new
from gateway.store.identity.key_names import KeyNames
from gateway.store.identity.key_scopes import KeyScopes
from gateway.store.identity.keys import KeyStore
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.people_lists import PeopleLists
from gateway.store.identity.provided_sessions import ProvidedSessions
from gateway.store.money.leases import LeaseTable
from gateway.store.money.price_files import PriceFiles
from gateway.store.money.price_proposals import PriceProposals
from gateway.store.money.raises import BudgetRaises
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.money.recorded_raises import RecordedRaises
from gateway.store.money.spending import SpendingReader
from gateway.store.policies.documents import PolicyStore
from gateway.store.policies.scheduler import Scheduler
from gateway.store.retention.folder_retention import FolderRetention
from gateway.store.schema.version import require_permitted_schema
from gateway.store.sealing.right_keys import require_right_keys
from gateway.store.sealing.spare_secrets import Retirement, SpareSecretTable
from gateway.store.traffic.figures import TrafficFigures
from gateway.store.traffic.lists import TrafficReader
from gateway.store.traffic.rollup import Rollup
from gateway.telemetry import Event, logger


ADD_EVERY_S: Final = 10.0
TIDY_EVERY_S: Final = 3600.0
SCHEDULE_EVERY_S: Final = 1.0
RETIRE_EVERY_S: Final = 60.0
FORGET_EVERY_S: Final = 60.0
FORGOTTEN: Final = ("sessions", "refusals", "shown once")


class Services(Struct, frozen=True):
    """One of each service, for all rooms."""

    settings: Settings
    clock: Clock
    database: Database
    keys: KeyStore
    key_names: KeyNames
    """Names of a few keys among many, which is what most pages need."""
    budgets: LeaseTable
    people: PeopleStore
    people_lists: PeopleLists
    """The same people, a page at a time: there may be thousands."""
    provided: ProvidedSessions
    """Sessions that an OpenID provider vouched for, and sign-outs there."""
    records: DatabaseAuditSink
    homes: Homes
    """Which providers are in-house, and which are managed."""
    spending: SpendingReader
    traffic: TrafficReader
    rates: RateLimitTable
    prices: PriceFiles
    """The prices in force: pages use the same ones that workers charge by."""
    figures: TrafficFigures
    rollup: Rollup
    """Adds up what `figures` reads, in the background and before a page is shown."""
    upkeep: Upkeep
    log: SegmentedAuditLog
    """Where deeds are recorded; also what custody of content writes to."""
    deeds: Deeds
    refusals: Refusals
    checker: LogChecker
    lost_workers: RetirementDesk
    """Lost workers, whose names two people retire; each is ended once, from whichever page."""
    integration: Integration
    """The audit folder of this process, and the database."""
    erasures: FolderErasures
    """Carries out in this folder the erasures that were agreed to anywhere."""
    statics: Statics
    screens: Screens
    shown_once: ShownOnce
    """Pages with a secret, kept for a form that is sent twice."""
    shell: Shell

    async def start(self, _: Litestar) -> None:
        if newer := await require_permitted_schema(self.database):
            logger().warning(Event.SCHEMA_NEWER, component="admin", reason=newer)
        await require_right_keys(self.settings, self.database, self.clock)
        directory = self.settings.path(self.settings.audit.directory)
        await require_what_was_numbered(self.database, directory, self.log.worker)
        await self.log.start()
        # Erasures in this folder are on the lists in this folder: workers may have others.
        await self.integration.erase_again()
        master = master_key(self.settings)
        await KeptContent(self.settings, self.database, master, self.clock).catch_up()
        await self.erasures.catch_up()
        self.upkeep.start()

    async def stop(self, _: Litestar) -> None:
        await self.upkeep.close()
        await self.checker.stop()
        with suppress(AuditUnavailable):  # The rest has to stop all the same.
            await self.refusals.tell(is_end=True)
        await self.log.close()
        await self.database.close()
        if self.upkeep.was_started:
            logger().info(Event.PROCESS_STOPPED, component="admin")


def open_services(settings: Settings, clock: Clock) -> Services:
    """Open the database and the log, and make everything that is built on them.

    Raises:
        StartupRefused: a secret is missing or a default.
    """
    database, homes = open_database(settings.database_url), homes_of(settings.providers)
    people, listed = PeopleStore(database, clock), PeopleLists(database)
    rollup, statics = Rollup(database, clock), Statics()
    log = deeds_log(settings, clock)
    screens = Screens(statics, has_openid=bool(settings.oidc.issuer))
    deeds = Deeds(log, clock)
    refusals = Refusals(deeds, clock)
    records = DatabaseAuditSink(database, settings.path(settings.audit.directory))
    checker = LogChecker(settings, records, deeds, clock)
    policies = PolicyStore(database, clock)
    scheduler = Scheduler(database, policies, deeds, clock)
    badge = LogBadge(database, checker, clock, settings.audit.checkpoint_period_s)
    packs = EvidencePacks(database, settings.path(settings.audit.pack_directory), clock)
    shown_once = ShownOnce(clock)
    forgotten = [people.forget_over, refusals.tell, shown_once.forget]
    past = _past(settings, database, deeds, clock)
    lost = RetirementDesk(settings, database, records, log, deeds=deeds, people=listed, clock=clock)
    integration, erasures, *duties = _here(settings, database, log, clock)
    waiting = _waiting(database, log, clock, policies, lost)
    return Services(
        settings=settings,
        clock=clock,
        database=database,
        keys=_keys(settings, database, clock),
        key_names=KeyNames(database),
        budgets=LeaseTable(database, clock),
        people=people,
        people_lists=listed,
        provided=ProvidedSessions(database, master_key(settings), clock),
        records=records,
        homes=homes,
        spending=SpendingReader(database, homes),
        traffic=TrafficReader(database, homes),
        rates=RateLimitTable(database),
        prices=PriceFiles(database, clock),
        figures=TrafficFigures(database),
        rollup=rollup,
        upkeep=_upkeep(database, rollup, scheduler, packs, forgotten, *past, *duties),
        log=log,
        deeds=deeds,
        refusals=refusals,
        checker=checker,
        lost_workers=lost,
        integration=integration,
        erasures=erasures,
        statics=statics,
        screens=screens,
        shown_once=shown_once,
        shell=Shell(screens, people.organisations, settings.currencies, clock, [badge, waiting]),
    )


def _keys(settings: Settings, database: Database, clock: Clock) -> KeyStore:
    peppers = Peppers(all_peppers(settings), settings.secrets.pepper_version)
    return KeyStore(database, peppers, clock)


def _here(
    settings: Settings, database: Database, log: SegmentedAuditLog, clock: Clock
) -> tuple[Integration, FolderErasures, *tuple[Duty, ...]]:
    """The work in the audit folder of this process, whoever agreed to it."""
    keys = master_key(settings)
    parts = Integration(settings, database, clock, keys)
    erasures = FolderErasures(settings, parts, keys, log, clock, worker=log.worker)
    retention = FolderRetention(settings, database, log, clock, worker=log.worker)
    arrivals = LateArrivals(settings, database, log, clock)
    return parts, erasures, erasures.duty, arrivals.duty, retention.duty


def _waiting(
    database: Database,
    log: SegmentedAuditLog,
    clock: Clock,
    policies: PolicyStore,
    lost: RetirementDesk,
) -> PendingBadge:
    custody = Custody(database, log, clock)
    return PendingBadge(
        policies,
        CustodyLists(database, clock),
        PriceProposals(database, clock),
        ErasureCases(database, custody, clock),
        KeyScopes(database, clock),
        retirements=lost.cases,
        raises=BudgetRaises(database, clock),
    )


def _upkeep(
    database: Database,
    rollup: Rollup,
    scheduler: Scheduler,
    packs: EvidencePacks,
    forgotten: Sequence[Callable[[], Awaitable[object]]],
    *more: Duty,
) -> Upkeep:
    return Upkeep(
        (
            *_looks_at(database),
            Duty("rollup", ADD_EVERY_S, rollup.catch_up, Event.UPKEEP_FAILED),
            Duty("rollup", TIDY_EVERY_S, rollup.tidy, Event.UPKEEP_FAILED),
            Duty("schedule", SCHEDULE_EVERY_S, scheduler.tend, Event.SCHEDULE_FAILED),
            *more,
            Duty("packs", TIDY_EVERY_S, packs.drop_expired, Event.UPKEEP_FAILED),
            *(
                Duty(name, FORGET_EVERY_S, forget, Event.UPKEEP_FAILED)
                for name, forget in zip(FORGOTTEN, forgotten, strict=True)
            ),
        )
    )


def _past(settings: Settings, database: Database, deeds: Deeds, clock: Clock) -> tuple[Duty, ...]:
    """Duties that end things at their time: former secrets, and temporarily larger limits."""
    secrets = Retirement(SpareSecretTable(database, master_key(settings), clock), deeds)
    raises = RecordedRaises(BudgetRaises(database, clock), deeds)
    return (
        Duty("secrets", RETIRE_EVERY_S, secrets.tend, Event.UPKEEP_FAILED),
        Duty("larger limits", rhythm.RAISES_S, raises.tend, Event.UPKEEP_FAILED),
    )


def _looks_at(database: Database) -> tuple[Duty, ...]:
    """A check that SQLite accepts writes: it may be hours until somebody else writes."""
    if database.kind != "sqlite":
        return ()
    look = partial(write_nothing_new, database)
    return (Duty("database", ADD_EVERY_S, look, Event.UPKEEP_FAILED),)


def deeds_log(settings: Settings, clock: Clock) -> SegmentedAuditLog:
    """The control plane's own log segments; whoever projects this folder numbers them."""
    return SegmentedAuditLog(
        settings.path(settings.audit.directory),
        f"{settings.audit.worker}-admin",
        keys=master_key(settings),
        clock=clock,
        limits=AuditLimits(
            free_floor_bytes=settings.audit.free_bytes_min,
            deadline_s=settings.audit.append_deadline_s,
        ),
    )
