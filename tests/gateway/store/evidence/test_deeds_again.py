"""A database that was put back to before some deeds: what they took away is taken away again."""

import secrets
from typing import Any

import msgspec
import pytest

from gateway.audit.entries import encode_record, entry_bytes
from gateway.audit.projection import START, ProjectedRecord
from gateway.clock import HOUR_US, SECOND_US, StoppedClock
from gateway.errors import Unauthenticated
from gateway.identity import KeyText, Peppers, authenticate
from gateway.oversight.access import Grant
from gateway.oversight.deeds import OPERATORS
from gateway.rollout.versions import OF_MACHINE
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.evidence.deeds_again import Again, DeedsAgain
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.invitations import Invitations
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.identity.people import PeopleStore
from gateway.types import AuditRecord


pytestmark = [pytest.mark.anyio, pytest.mark.either]
PEPPERS = Peppers({1: secrets.token_bytes(32)})
PLACE = Place("acme", "research", "bot")


class Log:
    """What was done since the backup, as the log has it when it was projected again."""

    def __init__(self, database: Database, clock: StoppedClock) -> None:
        self.sink, self._clock = DatabaseAuditSink(database), clock
        self._deeds: list[ProjectedRecord] = []

    def add(self, action: str, *, error: str = "", failed: str = "", **after: Any) -> str:
        detail = {"record": failed} if failed else {"after": msgspec.json.encode(after).decode()}
        record = AuditRecord(
            stage="admin",
            request_id=f"adm_{len(self._deeds)}",
            organisation=OPERATORS,
            utc_us=self._clock.utc_us() + len(self._deeds),
            action=action,
            status="failed" if error or failed else "ok",
            detail=detail,
        )
        raw = entry_bytes(encode_record(record)[1])
        self._deeds.append(ProjectedRecord("w0-admin", 1, 10 * len(self._deeds), raw))
        return self._deeds[-1].leaf_hash

    async def project(self) -> None:
        assert await self.sink.store(self._deeds, "w0-admin", START, (1, 1_000))


@pytest.fixture
def log(database: Database, clock: StoppedClock) -> Log:
    return Log(database, clock)


async def is_good(store: KeyStore, key: KeyText, now_us: int) -> bool:
    headers = [(b"x-api-key", key.reveal().encode())]
    try:
        authenticate(await store.table(), PEPPERS, headers, now_us)
    except Unauthenticated:
        return False
    return True


async def test_a_secret_that_was_replaced_since_ends_when_it_ended(
    database: Database, clock: StoppedClock, log: Log
) -> None:
    store, began_us = KeyStore(database, PEPPERS, clock), clock.utc_us()
    at_once, later, twice, kept, failed = [
        await store.issue(NewKey(PLACE, name, "ada")) for name in "abcde"
    ]
    log.add("key.rotated", key_id=kept.key_id, overlap_s=60)
    known = await store.rotate(kept.key_id, overlap_s=60.0)
    log.add("key.rotated", key_id=at_once.key_id, overlap_s="0")
    log.add("key.rotated", key_id=later.key_id, overlap_s=3600)
    for overlap_s in (7200, 0):
        log.add("key.rotated", key_id=twice.key_id, overlap_s=overlap_s)
    leaf = log.add("key.rotated", key_id=failed.key_id, overlap_s=0)
    log.add("key.rotated", failed=leaf)
    await log.project()
    clock.advance(1.0)
    again = await DeedsAgain(database, log.sink, clock).perform(began_us)
    now_us = clock.utc_us()

    assert again == Again(0, 3, 0, 0, 0)
    assert [
        await is_good(store, key, now_us) for key in (at_once, later, twice, known, failed)
    ] == [False, True, False, True, True]
    assert not await is_good(store, later, began_us + HOUR_US + SECOND_US)
    fresh = await store.rotate(at_once.key_id, overlap_s=0.0)
    assert await is_good(store, fresh, now_us)


async def test_who_was_disabled_or_lost_a_role_since_is_so_again(
    database: Database, clock: StoppedClock, log: Log
) -> None:
    people = PeopleStore(database, clock)
    for name in ("ada", "bo", "cy"):
        await people.add(name, password=Secret("a long enough word"))
        await people.grant(name, Grant("viewer", "acme"))
    since_us = clock.utc_us()
    session = await people.begin("bo")
    links = Invitations(database, clock)
    link = await links.make("cy", f"{OF_MACHINE}root")
    assert await links.whose(link) == "cy"
    log.add("person.disabled", name="ada")
    log.add("person.disabled", person="bo")
    log.add("person.enabled", person="bo")
    log.add("person.password_set", name="cy")
    log.add("role.revoked", person="bo", role="viewer", organisation="acme")
    log.add("role.revoked", name="cy", role="viewer", organisation="acme")
    log.add("role.granted", name="cy", role="viewer", organisation="acme")
    await log.project()
    again = await DeedsAgain(database, log.sink, clock).perform(since_us)

    assert again == Again(0, 0, 1, 1, 1)
    # Who signed out since, or followed the link, would be in by them again.
    assert await people.session(session) is None
    with pytest.raises(Unauthenticated):
        await links.whose(link)
    found = {each.name: each for each in await people.listed()}
    assert [bool(found[name].grants) for name in ("ada", "bo", "cy")] == [True, False, True]
    assert await people.by_password("ada", Secret("a long enough word")) is None
    assert await people.by_password("bo", Secret("a long enough word")) is not None
    assert await people.by_password("cy", Secret("a long enough word")) is None
