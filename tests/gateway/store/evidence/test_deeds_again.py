"""A database that was put back to before some deeds: what they took away is taken away again."""

import secrets
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from gateway.actors import OF_MACHINE
from gateway.audit.entries import encode_record, entry_bytes
from gateway.audit.projecting.projection import START, ProjectedRecord
from gateway.clock import HOUR_US, SECOND_US, StoppedClock
from gateway.errors import Unauthenticated
from gateway.identity import KeyText, Peppers, authenticate
from gateway.money.budgets import Limit
from gateway.money.rates import RateLimit
from gateway.oversight.access import Grant
from gateway.oversight.deeds import OPERATORS
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.evidence.deeds_again import Again, DeedsAgain
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.invitations import Invitations
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.setup_links import SetupLinks
from gateway.store.money.leases import LeaseTable
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.schema.audit import audit_records
from gateway.types import AuditRecord


pytestmark = [pytest.mark.anyio, pytest.mark.either]
PEPPERS = Peppers({1: secrets.token_bytes(32)})
PLACE = Place("acme", "research", "bot")


class Log:
    """What was done since the backup, as the log has it when it was projected again."""

    def __init__(self, database: Database, clock: StoppedClock) -> None:
        self.sink, self._clock = DatabaseAuditSink(database), clock
        self._deeds: list[ProjectedRecord] = []

    def add(
        self, action: str, *, error: str = "", failed: str = "", at_us: int = 0, **after: Any
    ) -> str:
        detail = {"record": failed} if failed else {"after": msgspec.json.encode(after).decode()}
        record = AuditRecord(
            stage="admin",
            request_id=f"adm_{len(self._deeds)}",
            organisation=OPERATORS,
            utc_us=at_us or self._clock.utc_us() + len(self._deeds),
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
    at_once, later, twice, kept, failed, revoked = [
        await store.issue(NewKey(PLACE, name, "ada")) for name in "abcdef"
    ]
    log.add("key.rotated", key_id=kept.key_id, overlap_s=60)
    known = await store.rotate(kept.key_id, overlap_s=60.0)
    log.add("key.rotated", key_id=at_once.key_id, overlap_s="0")
    log.add("key.rotated", key_id=later.key_id, overlap_s=3600)
    for overlap_s in (7200, 0):
        log.add("key.rotated", key_id=twice.key_id, overlap_s=overlap_s)
    log.add("key.rotated", key_id=revoked.key_id, overlap_s=60)
    log.add("key.revoked", key_id=revoked.key_id)
    leaf = log.add("key.rotated", key_id=failed.key_id, overlap_s=0)
    log.add("key.rotated", failed=leaf)
    await log.project()
    clock.advance(1.0)
    again = await DeedsAgain(database, log.sink, clock).perform(0)
    now_us = clock.utc_us()

    assert again == Again(1, 3, 0, 0, 0)
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
    again = await DeedsAgain(database, log.sink, clock).perform(0)

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


async def test_limits_are_as_low_again_as_they_were_last_set(
    database: Database, clock: StoppedClock, log: Log
) -> None:
    budgets, rates = LeaseTable(database, clock), RateLimitTable(database)
    links = SetupLinks(database, clock)
    link = await links.make()
    assert link is not None
    for account in ("org:acme", "org:kept", "org:wider", "org:open", "org:failed", "org:ended"):
        await budgets.set_limit(Limit(account, 1_000))
        await rates.set(RateLimit(account, 60))
    for account, limit in (("org:acme", 10), ("org:wider", 5_000), ("org:new", 7)):
        # As the command line says it, and as pages do.
        log.add("budget.set", account=account, limit_microusd=str(limit), window="total")
        rate = RateLimit(account, limit, concurrent_requests=limit)
        log.add("rate_limit.set", **msgspec.to_builtins(rate))
    log.add("rate_limit.set", account="org:acme", rpm="9", tpm="500")
    for window in ("day", "total"):
        log.add("budget.set", account="org:open", limit_microusd=1, window=window)
    log.add("budget.removed", account="org:open")
    log.add("rate_limit.set", account="org:open", requests_per_minute=1)
    log.add("rate_limit.removed", account="org:open")
    # What was larger for a time is what it was again, and what is so now is no limit to keep to.
    for account in ("org:ended", "org:acme"):
        log.add("budget.raised", account=account, limit_microusd=9_000, window="total")
    log.add("budget.raise_ended", account="org:ended", limit_microusd=500, window="total")
    log.add("budget.set", account="org:acme", limit_microusd=10, window="total")
    leaf = log.add("budget.set", account="org:failed", limit_microusd=1, window="total")
    log.add("budget.set", failed=leaf)
    await log.project()
    again = await DeedsAgain(database, log.sink, clock).perform(0)

    assert again.limits_lowered == 6
    with pytest.raises(Unauthenticated):
        await links.require(link)  # It may have made the first person since.
    found = {each.limit.account: each.limit.limit_microusd for each in await budgets.budgets()}
    same = dict.fromkeys(("org:kept", "org:wider", "org:open", "org:failed"), 1_000)
    assert found == {**same, "org:acme": 10, "org:new": 7, "org:ended": 500}
    assert {each.account: each for each in await rates.all()} == {
        **{
            account: RateLimit(account, 60)
            for account in ("org:kept", "org:open", "org:failed", "org:ended")
        },
        "org:acme": RateLimit("org:acme", 9, 500),
        "org:new": RateLimit("org:new", 7, None, 7),
        "org:wider": RateLimit("org:wider", 60, None, 5_000),
    }
    assert (await DeedsAgain(database, log.sink, clock).perform(0)).limits_lowered == 0


async def test_keys_may_do_as_little_again_as_was_said_last(
    database: Database, clock: StoppedClock, log: Log
) -> None:
    store, now_us = KeyStore(database, PEPPERS, clock), clock.utc_us()
    ends_us = now_us + HOUR_US
    models = frozenset(("claude", "gpt", "own"))
    typed, paged, wide, none, revoked = [
        (await store.issue(NewKey(PLACE, name, "ada", models=models))).key_id for name in "abcde"
    ]
    every = (await store.issue(NewKey(PLACE, "f", "ada", labels=("eu",)))).key_id
    soon = NewKey(PLACE, "g", "ada", expires_us=now_us + SECOND_US)
    ended = (await store.issue(soon)).key_id
    await store.revoke(revoked)
    scope: dict[str, Any] = {"labels": "none", "translation": "strict"}
    log.add("key.narrowed", key_id=typed, models="gpt, own", expires_us=str(ends_us), **scope)
    page: dict[str, Any] = {"models": ["own"], "expires_us": None, "translation": "warn"}
    log.add("key.narrowed", key_id=paged, **page)
    log.add("key.narrowed", key_id=wide, **page)
    log.add("key.widened", key_id=wide, models="all", expires_us="never", **scope)
    for key_id in (none, revoked, ended):
        log.add("key.narrowed", key_id=key_id, models="none", expires_us="never", **scope)
    log.add("key.narrowed", key_id=every, **page)
    await log.project()
    clock.advance(1.0)
    again = await DeedsAgain(database, log.sink, clock).perform(0)

    assert again.keys_narrowed == 5
    found = {each.key_id: each for each in await store.keys()}
    scopes = {
        key_id: (sorted(each.principal.models or ()), each.expires_us, each.principal.translation)
        for key_id, each in found.items()
    }
    assert scopes == {
        typed: (["gpt", "own"], ends_us, "strict"),
        paged: (["own"], None, "warn"),
        wide: (sorted(models), None, "strict"),
        none: ([], None, "strict"),
        revoked: (sorted(models), None, "warn"),
        every: (["own"], None, "warn"),
        ended: ([], now_us + SECOND_US, "warn"),
    }
    assert found[none].principal.models == frozenset()
    assert found[every].principal.labels == ("eu",)


async def test_deeds_whose_segments_were_moved_away_stop_no_start(
    database: Database, clock: StoppedClock, log: Log
) -> None:
    store = KeyStore(database, PEPPERS, clock)
    old, new = [await store.issue(NewKey(PLACE, name, "ada")) for name in "ab"]
    for key in (old, new):
        log.add("key.revoked", key_id=key.key_id)
    await log.project()
    async with database.writing() as connection:
        moved = update(audit_records).where(audit_records.c.sequence == 1)
        await connection.execute(moved.values(raw=None))
    again = await DeedsAgain(database, log.sink, clock).perform(0)

    assert again.keys_revoked == 1
    assert [await is_good(store, key, clock.utc_us()) for key in (old, new)] == [True, False]


async def test_where_number_and_time_differ_what_took_away_holds(
    database: Database, clock: StoppedClock, log: Log
) -> None:
    """A clock was set back in between, or one worker's records came in before another's."""
    people, budgets = PeopleStore(database, clock), LeaseTable(database, clock)
    rates = RateLimitTable(database)
    for name in ("ada", "bo"):
        await people.add(name, password=Secret("a long enough word"))
        await budgets.set_limit(Limit(f"org:{name}", 1_000))
    early_us = clock.utc_us() - HOUR_US
    limit: dict[str, Any] = {"account": "org:ada", "window": "total"}
    log.add("person.enabled", name="ada")
    log.add("budget.set", **limit, limit_microusd=500)
    log.add("rate_limit.set", account="org:ada", rpm="500")
    log.add("rate_limit.set", account="org:ada", rpm="10", at_us=early_us)
    log.add("person.disabled", name="ada", at_us=early_us)
    log.add("budget.set", **limit, limit_microusd=10, at_us=early_us)
    limit["account"] = "org:bo"
    log.add("person.disabled", name="bo")
    log.add("budget.set", **limit, limit_microusd=10)
    log.add("person.enabled", name="bo", at_us=early_us)
    log.add("budget.set", **limit, limit_microusd=500, at_us=early_us)
    await log.project()
    again = await DeedsAgain(database, log.sink, clock).perform(0)

    assert (again.people_disabled, again.limits_lowered) == (2, 3)
    assert await rates.all() == [RateLimit("org:ada", 10)]
    assert {each.limit.limit_microusd for each in await budgets.budgets()} == {10}
