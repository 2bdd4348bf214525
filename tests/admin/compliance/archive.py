"""An organisation with requests, their content, and people who may look at it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from gateway.audit.disk import Disk
from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.checkpoints import verifier_keys
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import StoppedClock
from gateway.identity import Peppers
from gateway.money.budgets import end_user_subject
from gateway.oversight.access import Grant, Role
from gateway.oversight.deeds import OPERATORS
from gateway.secrets.credentials import master_key, pepper
from gateway.secrets.secret import Secret
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.identity.people import PeopleStore
from gateway.types import AuditRecord
from tests.admin.listener import Browser, Listener, browsing
from tests.gateway.audit.samples import LIMITS


PASSWORD = "a password for tests only"
SAID = "the words of "


def log_keys(listener: Listener) -> list[str]:
    """The public keys of whoever signs this log."""
    return verifier_keys(listener.settings.path(listener.settings.audit.directory))


def subject(listener: Listener, user: str, organisation: str = "acme") -> str:
    settings = listener.settings
    peppers = Peppers({settings.secrets.pepper_version: pepper(settings)})
    return end_user_subject(organisation, user, peppers.keyed)


async def converse(
    listener: Listener, users: Sequence[str], organisation: str = "acme", days_ago: int = 0
) -> list[str]:
    """A request of each user, with content, some days ago; the ids of the requests."""
    await listener.issue_key(f"key of {organisation} {days_ago}", organisation)
    settings, worker = listener.settings, f"t{days_ago}-{organisation[:8]}"
    directory = settings.path(settings.audit.directory)
    clock = StoppedClock(listener.clock.utc_us() - days_ago * 86_400_000_000)
    keys = master_key(settings)
    log = SegmentedAuditLog(directory, worker, keys=keys, clock=clock, limits=LIMITS, disk=Disk())
    await log.start()
    ids = []
    for number, user in enumerate(users):
        intent = AuditRecord(
            stage="intent",
            request_id=f"req_{organisation}_{user}_{days_ago}",
            organisation=organisation,
            utc_us=clock.utc_us() + number,
            target="house",
            subject=subject(listener, user, organisation),
        )
        done = await log.append(intent, f"{SAID}{user}".encode())
        outcome = AuditRecord(
            stage="outcome",
            request_id=intent.request_id,
            organisation=organisation,
            utc_us=clock.utc_us() + number,
            status="ok",
            http_status=200,
            intent=done.leaf_hash,
            subject=intent.subject,
        )
        await log.append(outcome)
        ids.append(intent.request_id)
    await log.close()
    async with listener.database() as database:
        await Projector(directory, DatabaseAuditSink(database, directory)).catch_up()
    return ids


@asynccontextmanager
async def person(
    listener: Listener, name: str, role: Role = "compliance", organisation: str = "acme"
) -> AsyncIterator[Browser]:
    """Somebody who has just signed in."""
    async with listener.database() as database:
        store = PeopleStore(database, listener.clock)
        if name not in {each.name for each in await store.listed()}:
            await store.add(name, password=Secret(PASSWORD))
            await store.grant(name, Grant(role, organisation))
    async with browsing(listener) as browser:
        assert (await browser.sign_in_as(name, PASSWORD)).status == 303
        yield browser


async def deeds(listener: Listener) -> list[tuple[str, str]]:
    """Who did what so far, as the log has it."""
    return [(each.actor, each.action) for each in await recorded_deeds(listener)]


async def recorded_deeds(listener: Listener) -> list[AuditRecord]:
    directory = listener.settings.path(listener.settings.audit.directory)
    async with listener.database() as database:
        sink = DatabaseAuditSink(database, directory)
        await Projector(directory, sink).catch_up()
        rows = sink.records(AuditQuery(organisation=OPERATORS))
        return [row.projected.record async for row in rows]
