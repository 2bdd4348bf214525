"""Another master key takes over: what the one before sealed opens all the while, and after it."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.secrets.envelope import MasterKey
from gateway.secrets.keeper import SecretUnavailableError
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.schema.batches import batches
from gateway.store.schema.tables import metadata, sealed_secrets
from gateway.store.sealing import resealing
from gateway.store.sealing.resealing import Resealing
from gateway.store.sealing.sealed_kinds import KINDS, hanging_on, named_masters
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from tests.gateway.store.sealed_world import CLOCK, SealedWorld, new_key


pytestmark = pytest.mark.anyio


class Killed(Exception):
    """The process ended."""


class _Mortal:
    """A database whose user is killed before its next transaction that writes, after so many."""

    def __init__(self, database: Database, transactions: int) -> None:
        self._database = database
        self._left = transactions
        self.reading = database.reading

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        if not self._left:
            raise Killed
        self._left -= 1
        async with self._database.writing() as connection:
            yield connection


async def _reseal(database: Database, master: MasterKey) -> Counter[str]:
    done = {kind.name: await Resealing(database, master, CLOCK).of(kind) for kind in KINDS}
    assert not any(each.closed for each in done.values())
    return Counter({name: each.resealed for name, each in done.items()})


async def _hanging(database: Database, key: MasterKey) -> Counter[str]:
    async with database.reading() as connection:
        return (await hanging_on(connection, [key.key_id]))[key.key_id]


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resealing, "AT_ONCE", 2)


async def test_everything_sealed_by_the_key_before_is_sealed_anew_and_opens_without_it(
    database: Database,
) -> None:
    old, present = new_key(), new_key()
    world = SealedWorld(database)
    await world.fill(old())
    await world.require_open(present(old()))
    counts = Counter({kind.name: 3 for kind in KINDS})
    assert await _hanging(database, old()) == counts
    assert await _reseal(database, present(old())) == counts
    assert await _hanging(database, old()) == Counter()
    assert await _hanging(database, present()) == counts
    await world.require_open(present())
    with pytest.raises(SecretUnavailableError):
        await world.require_open(old())
    assert await _reseal(database, present(old())) == Counter()


async def test_killed_between_any_two_transactions_nothing_is_lost_and_the_next_run_ends_it(
    database: Database,
) -> None:
    old, present = new_key(), new_key()
    world = SealedWorld(database)
    await world.fill(old())
    kills = 0
    for kind in KINDS:
        while True:
            mortal = cast(Database, _Mortal(database, 1))
            try:
                await Resealing(mortal, present(old()), CLOCK).of(kind)
            except Killed:
                kills += 1
                await world.require_open(present(old()))
            else:
                break
    assert kills == 2 * len(KINDS), "two rows, then one, and then there are no more"
    await world.require_open(present())


async def test_what_is_sealed_meanwhile_by_either_key_opens_and_the_next_run_takes_it(
    database: Database,
) -> None:
    """A worker that was not restarted seals on by the key that it began with."""
    old, present = new_key(), new_key()
    world = SealedWorld(database)
    await world.fill(old())
    for kind in KINDS:
        await Resealing(database, present(old()), CLOCK).of(kind)
        await world.fill(old(present()), 1)
        await world.fill(present(old()), 1)
    await world.require_open(old(present()))
    assert (await _reseal(database, present(old()))).total()
    await world.require_open(present())


async def test_keys_follow_each_other_and_each_before_may_be_gone(database: Database) -> None:
    first, second, third = new_key(), new_key(), new_key()
    world = SealedWorld(database)
    await world.fill(first(), 1)
    await world.fill(second(first()), 1)
    assert (await _reseal(database, third(second(), first()))).total() == 2 * len(KINDS)
    await world.require_open(third())


async def test_what_opens_with_no_key_hangs_on_none_and_stays_as_it_is(
    database: Database,
) -> None:
    old, present = new_key(), new_key()
    world = SealedWorld(database)
    await world.fill(old(), 2)
    async with database.writing() as connection:
        one = select(batches.c.id).limit(1).scalar_subquery()
        damage = update(batches).where(batches.c.id == one).values(wrapped_key=b"damaged")
        await connection.execute(damage)
    (kind,) = (each for each in KINDS if each.table is batches)
    for _ in range(2):
        done = await Resealing(database, present(old()), CLOCK).of(kind)
        assert done.closed == 1
    assert await _hanging(database, present()) == Counter({kind.name: 1})
    async with database.reading() as connection:
        query = select(batches.c.wrapped_key).where(batches.c.master_key_id == "")
        assert [bytes(each) for each in (await connection.execute(query)).scalars()] == [b"damaged"]


async def test_what_a_lost_key_sealed_is_left_alone(database: Database) -> None:
    lost, old, present = new_key(), new_key(), new_key()
    await SealedWorld(database).fill(lost(), 1)
    world = SealedWorld(database)
    await world.fill(old(), 1)
    before = await _hanging(database, lost())
    assert (await _reseal(database, present(old()))).total() == len(KINDS)
    assert await _hanging(database, lost()) == before
    async with database.reading() as connection:
        assert await named_masters(connection) == {lost().key_id, present().key_id}


async def test_a_secret_set_anew_meanwhile_keeps_its_new_value(database: Database) -> None:
    """Its row is another one by then: nothing of the old one is written over it."""
    old, present = new_key(), new_key()
    table = SealedSecretTable(database, old(present()), CLOCK)
    await table.seal("upstream", Secret("one"), "ann")
    (kind,) = (each for each in KINDS if each.table is sealed_secrets)
    await Resealing(database, present(old()), CLOCK).of(kind)
    await table.seal("upstream", Secret("two"), "ann")
    await Resealing(database, present(old()), CLOCK).of(kind)
    newest = SealedSecretTable(database, present(), CLOCK)
    assert (await newest.open("upstream")).reveal() == "two"
    (told,) = await newest.listed()
    assert told.fingerprint == present().fingerprint(Secret("two"))


def test_every_column_with_a_wrapped_key_is_of_a_kind_that_is_sealed_anew() -> None:
    """Whoever seals something else by the master key has to say so there."""
    wrapped = {
        table.name
        for table in metadata.tables.values()
        if {"wrapped_key", "id_token_key", "line"} & set(table.c.keys())
    }
    assert wrapped == {kind.table.name for kind in KINDS}
    assert all("master_key_id" in kind.table.c for kind in KINDS)
