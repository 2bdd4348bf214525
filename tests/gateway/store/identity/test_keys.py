"""Keys from their issue to their end, and how fast workers hear of it."""

import secrets

import pytest
from sqlalchemy import select, update

from gateway.clock import StoppedClock, SystemClock
from gateway.errors import RequestInvalid, Unauthenticated
from gateway.identity import KeyText, Peppers, authenticate
from gateway.store.engine import Database, open_database
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.revisions import current
from gateway.store.schema.tables import virtual_keys


pytestmark = pytest.mark.anyio
PLACE = Place("acme", "research", "bot")
HOUR_S, DAY_S = 3600.0, 86_400.0
PEPPERS = Peppers({1: secrets.token_bytes(32)})


@pytest.fixture
def store(database: Database, clock: StoppedClock) -> KeyStore:
    return KeyStore(database, PEPPERS, clock)


def headers(key: KeyText) -> list[tuple[bytes, bytes]]:
    return [(b"x-api-key", key.reveal().encode())]


async def is_good(store: KeyStore, key: KeyText, now_us: int) -> bool:
    try:
        authenticate(await store.table(), PEPPERS, headers(key), now_us)
    except Unauthenticated:
        return False
    return True


async def test_an_issued_key_proves_its_place_labels_and_models(
    store: KeyStore, clock: StoppedClock
) -> None:
    new = NewKey(PLACE, "robot", "ada", labels=("eu", "batch"), models=frozenset({"small"}))
    key = await store.issue(new)
    principal = authenticate(await store.table(), PEPPERS, headers(key), clock.utc_us())
    assert (principal.organisation, principal.workspace, principal.project) == (
        "acme",
        "research",
        "bot",
    )
    assert (principal.key_name, principal.labels) == ("robot", ("eu", "batch"))
    assert principal.models == frozenset({"small"})


async def test_no_models_and_all_models_are_told_apart(store: KeyStore) -> None:
    every = await store.issue(NewKey(PLACE, "all", "ada"))
    none = await store.issue(NewKey(PLACE, "none", "ada", models=frozenset()))
    records = (await store.table()).records
    assert records[every.key_id].principal.models is None
    assert records[none.key_id].principal.models == frozenset()


async def test_a_place_is_made_once_and_a_second_key_joins_it(store: KeyStore) -> None:
    await store.ensure_place(PLACE)
    await store.ensure_place(PLACE)
    await store.issue(NewKey(PLACE, "one", "ada"))
    await store.issue(NewKey(PLACE, "two", "ada"))
    assert len(await store.keys("acme")) == 2
    assert await store.keys("other") == []


@pytest.mark.parametrize("name", ["", "Acme", "a/b", "a:b", "-a", "a" * 64, "a b", "ä"])
async def test_a_name_that_could_be_read_as_another_account_is_refused(
    sqlite_url: str, name: str
) -> None:
    database = open_database(sqlite_url)
    store = KeyStore(database, PEPPERS, SystemClock())
    with pytest.raises(RequestInvalid):
        await store.issue(NewKey(Place("acme", name, "bot"), "robot", "ada"))
    assert await store.keys() == []
    await database.close()


async def test_a_revoked_key_is_gone_and_revoking_again_is_no_error(
    store: KeyStore, clock: StoppedClock
) -> None:
    key = await store.issue(NewKey(PLACE, "robot", "ada"))
    await store.revoke(key.key_id)
    await store.revoke(key.key_id)
    assert not await is_good(store, key, clock.utc_us())
    assert (await store.keys())[0].revoked_us == clock.utc_us()
    with pytest.raises(RequestInvalid, match="revoked"):
        await store.rotate(key.key_id, overlap_s=1.0)


async def test_a_foreign_organisation_cannot_touch_a_key(
    store: KeyStore, clock: StoppedClock
) -> None:
    key = await store.issue(NewKey(PLACE, "robot", "ada"))
    with pytest.raises(RequestInvalid, match="no such key"):
        await store.revoke(key.key_id, organisation="other")
    with pytest.raises(RequestInvalid, match="no such key"):
        await store.rotate(key.key_id, overlap_s=1.0, organisation="other")
    assert await is_good(store, key, clock.utc_us())


async def test_rotation_keeps_the_old_secret_for_the_overlap_only(
    store: KeyStore, clock: StoppedClock
) -> None:
    old = await store.issue(NewKey(PLACE, "robot", "ada"))
    new = await store.rotate(old.key_id, overlap_s=60.0)
    assert new.key_id == old.key_id
    assert new.reveal() != old.reveal()
    assert await is_good(store, old, clock.utc_us())
    clock.advance(60.0)
    assert not await is_good(store, old, clock.utc_us())
    assert await is_good(store, new, clock.utc_us())


async def test_a_second_rotation_ends_the_oldest_secret(
    store: KeyStore, clock: StoppedClock
) -> None:
    oldest = await store.issue(NewKey(PLACE, "robot", "ada"))
    await store.rotate(oldest.key_id, overlap_s=60.0)
    await store.rotate(oldest.key_id, overlap_s=60.0)
    assert not await is_good(store, oldest, clock.utc_us())


async def test_a_secret_that_nobody_was_told_is_taken_back_unless_it_was_replaced(
    store: KeyStore, clock: StoppedClock
) -> None:
    first = await store.issue(NewKey(PLACE, "robot", "ada"))
    lost = await store.rotate(first.key_id, overlap_s=60.0)
    await store.take_back(lost)
    clock.advance(120.0)
    assert await is_good(store, first, clock.utc_us())
    assert not await is_good(store, lost, clock.utc_us())

    late = await store.rotate(first.key_id, overlap_s=60.0)
    newest = await store.rotate(first.key_id, overlap_s=60.0)
    await store.take_back(late)
    assert await is_good(store, newest, clock.utc_us())


async def test_an_emptied_digest_under_a_pepper_that_is_gone_is_of_no_secret(
    store: KeyStore, database: Database
) -> None:
    """Of such a pepper no digest is made, and what stands for none must equal nothing."""
    first = await store.issue(NewKey(PLACE, "robot", "ada"))
    lost = await store.rotate(first.key_id, overlap_s=60.0)
    emptied = {"digest": b"", "pepper_version": 7}
    async with database.writing() as connection:
        await connection.execute(update(virtual_keys).values(emptied))
    await store.take_back(lost)
    async with database.reading() as connection:
        row = (await connection.execute(select(virtual_keys))).mappings().one()
    assert {name: row[name] for name in emptied} == emptied


async def test_no_secret_reaches_the_database(
    database: Database, store: KeyStore, sqlite_url: str
) -> None:
    key = await store.issue(NewKey(PLACE, "robot", "ada"))
    async with database.reading() as connection:
        rows = (await connection.exec_driver_sql("SELECT * FROM virtual_keys")).all()
    assert key.reveal()[21:64] not in repr(rows)


async def test_every_change_raises_the_revision(database: Database, store: KeyStore) -> None:
    seen = [await current(database)]
    key = await store.issue(NewKey(PLACE, "robot", "ada"))
    seen.append(await current(database))
    await store.rotate(key.key_id, overlap_s=1.0)
    seen.append(await current(database))
    await store.revoke(key.key_id)
    seen.append(await current(database))
    assert seen == [seen[0], seen[0] + 1, seen[0] + 2, seen[0] + 3]


async def test_a_clock_that_is_set_back_revives_neither_a_key_nor_a_replaced_secret(
    store: KeyStore, clock: StoppedClock
) -> None:
    until_us = clock.utc_us() + 60_000_000
    key = await store.issue(NewKey(PLACE, "robot", "ada", expires_us=until_us))
    old = await store.issue(NewKey(PLACE, "other", "ada"))
    new = await store.rotate(old.key_id, overlap_s=60.0)
    table = await store.table()
    clock.advance(60.0)
    clock.jump(-HOUR_S)

    for keys in (table, await store.table()):
        for ended in (key, old):
            with pytest.raises(Unauthenticated):
                authenticate(keys, PEPPERS, headers(ended), clock.utc_us())
        authenticate(keys, PEPPERS, headers(new), clock.utc_us())
        assert keys.live(key.key_id, clock.utc_us()) is None
        assert keys.live("another", clock.utc_us()) is None
        assert keys.live(new.key_id, clock.utc_us()) is not None


async def test_a_key_is_good_again_when_a_clock_that_was_set_too_far_is_set_right(
    store: KeyStore, clock: StoppedClock
) -> None:
    until_us = clock.utc_us() + 60_000_000
    key = await store.issue(NewKey(PLACE, "robot", "ada", expires_us=until_us))
    clock.jump(365 * DAY_S)
    meanwhile = await store.table()
    with pytest.raises(Unauthenticated):
        authenticate(meanwhile, PEPPERS, headers(key), clock.utc_us())
    clock.jump(-365 * DAY_S)

    authenticate(meanwhile, PEPPERS, headers(key), clock.utc_us())


async def test_a_key_that_a_worker_with_a_wrong_clock_knew_is_good_within_a_day(
    database: Database, clock: StoppedClock
) -> None:
    until_us = clock.utc_us() + round(5 * DAY_S * 1e6)
    key = await KeyStore(database, PEPPERS, clock).issue(
        NewKey(PLACE, "robot", "ada", expires_us=until_us)
    )
    clock.jump(6 * DAY_S)
    table = await KeyStore(database, PEPPERS, clock).table()
    clock.jump(-6 * DAY_S)
    with pytest.raises(Unauthenticated):
        authenticate(table, PEPPERS, headers(key), clock.utc_us())
    clock.advance(DAY_S)

    authenticate(table, PEPPERS, headers(key), clock.utc_us())


async def test_a_key_that_expired_long_ago_is_not_kept_in_memory(
    store: KeyStore, clock: StoppedClock
) -> None:
    key = await store.issue(NewKey(PLACE, "robot", "ada", expires_us=clock.utc_us() + 1))
    stays = await store.issue(NewKey(PLACE, "other", "ada"))
    clock.advance(7 * DAY_S)
    assert set((await store.table()).records) == {key.key_id, stays.key_id}
    clock.advance(1.0)

    assert set((await store.table()).records) == {stays.key_id}
