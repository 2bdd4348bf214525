"""Which keys are a database's own: the first ones, and those that open what lies in it."""

import asyncio
import secrets
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import delete, func, insert, select, update

from gateway.audit.content_keys.keys import DataKeys, WrappedKey
from gateway.audit.disk import Disk
from gateway.audit.proving.checkpoints import open_signer
from gateway.batches import Batch
from gateway.clock import StoppedClock
from gateway.continuing.kept_answers import KeptAnswer
from gateway.errors import StartupRefused
from gateway.projects import Project
from gateway.secrets.content_keys import KeyClosed, fresh_key
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.batching.batches import BatchStore, about_batch
from gateway.store.batching.files import about_file, kept_files
from gateway.store.engine import Database, open_database
from gateway.store.evidence.second_rows import line_of
from gateway.store.kept_answers import DatabaseAnswers
from gateway.store.schema.audit import audit_second_keys
from gateway.store.schema.batches import batches
from gateway.store.schema.tables import key_checks, sealed_secrets, spare_secrets
from gateway.store.sealing.key_checks import (
    MASTER_KEY,
    KeyCheck,
    checked,
    keep_anew,
    key_of_pepper,
    known_masters,
)
from gateway.store.sealing.right_keys import opens_something
from gateway.store.sealing.sealed_kinds import say_who_sealed
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio

PROJECT = Project("acme", "main", "web")


def _key() -> MasterKey:
    return MasterKey(Secret(secrets.token_bytes(32)))


_vouched = partial(opens_something, directory=Path("/nowhere"))


async def _told(database: Database, key: MasterKey, folder: Path | None = None) -> KeyCheck:
    vouched = partial(opens_something, directory=folder) if folder else _vouched
    return await checked(database, MASTER_KEY, key, StoppedClock(), vouched)


async def _count(database: Database) -> int:
    async with database.reading() as connection:
        query = select(func.count()).select_from(key_checks)
        return int((await connection.execute(query)).scalar_one())


async def test_the_first_key_is_the_databases_own_and_another_is_not(database: Database) -> None:
    own, other = _key(), _key()
    assert await _told(database, own) == KeyCheck(is_own=True, key_id=own.key_id)
    assert await _told(database, other) == KeyCheck(is_own=False, key_id=own.key_id)
    assert await _told(database, own) == KeyCheck(is_own=True, key_id=own.key_id)


async def test_of_several_that_start_at_once_with_different_keys_one_is_right(
    database_url: str,
) -> None:
    keys = [_key() for _ in range(6)]
    opened = [open_database(database_url) for _ in keys]
    told = await asyncio.gather(*(_told(each, key) for each, key in zip(opened, keys, strict=True)))
    assert await _count(opened[0]) == 1
    for each in opened:
        await each.close()
    (own,) = [key for key, said in zip(keys, told, strict=True) if said.is_own]
    assert {said.key_id for said in told} == {own.key_id}


async def test_a_check_that_was_changed_or_moved_vouches_for_nobody(database: Database) -> None:
    own, clock = _key(), StoppedClock()
    await _told(database, own)
    async with database.writing() as connection:
        kept = (await connection.execute(select(key_checks.c.sealed))).scalar_one()
        moved = {"name": "pepper:1", "key_id": own.key_id, "sealed": kept, "made_us": 1}
        await connection.execute(key_checks.insert(), moved)
    assert not (await checked(database, "pepper:1", own, clock, _vouched)).is_own
    about = b"gatewright key check\x00master_key"
    for changed in (own.wrap(b"x", b"else"), own.wrap(b"another text", about)):
        async with database.writing() as connection:
            await connection.execute(update(key_checks).values(sealed=changed))
        assert await _told(database, own) == KeyCheck(is_own=False, key_id=own.key_id)


async def test_a_key_that_was_adopted_takes_the_place_of_the_old_one(database: Database) -> None:
    old, new = _key(), _key()
    await _told(database, old)
    await keep_anew(database, MASTER_KEY, new, StoppedClock())
    assert [(await _told(database, key)).is_own for key in (old, new)] == [False, True]


async def test_a_key_that_comes_with_the_one_before_takes_its_place_and_both_are_known(
    database: Database,
) -> None:
    raw = Secret(secrets.token_bytes(32))
    old, new = _key(), MasterKey(raw)
    await _told(database, old)
    both = MasterKey(raw, [old])
    assert await _told(database, new) == KeyCheck(is_own=False, key_id=old.key_id)
    assert await _told(database, both) == KeyCheck(is_own=True, key_id=new.key_id)
    async with database.reading() as connection:
        assert await known_masters(connection) == {old.key_id, new.key_id}
    for key in (new, both, old, new):
        assert await _told(database, key) == KeyCheck(is_own=True, key_id=key.key_id)
    stranger = _key()
    assert not (await _told(database, stranger)).is_own
    await keep_anew(database, MASTER_KEY, new, StoppedClock())
    async with database.reading() as connection:
        assert await known_masters(connection) == {new.key_id}


async def test_what_a_key_sealed_that_this_process_lacks_is_not_lost(database: Database) -> None:
    """A worker that was not restarted yet meets a cancelled batch of the key that took over."""
    raw = Secret(secrets.token_bytes(32))
    old = _key()
    await _told(database, old)
    new = MasterKey(raw, [old])
    await _told(database, new)
    clock = StoppedClock()
    made = await BatchStore(database, new, clock).make(
        Batch(
            *("batch_", "file", PROJECT, "key1", "/v1/chat/completions", "cancelling"),
            created_us=1,
            expires_us=2,
            keep_until_us=3,
            ending="cancelled",
        )
    )
    with pytest.raises(KeyClosed):
        await BatchStore(database, old, clock).content_key(made)
    assert await BatchStore(database, new, clock).content_key(made) is not None


async def test_what_names_no_key_is_of_the_first_one_that_a_database_knows(
    database: Database,
) -> None:
    """So it is after an upgrade of a database that nobody had started from yet."""
    own = _key()
    await _file(database, own)
    await checked(database, MASTER_KEY, own, StoppedClock(), _vouched, begun=say_who_sealed)
    async with database.reading() as connection:
        found = (await connection.execute(select(kept_files.c.master_key_id))).scalar_one()
    assert found == own.key_id


async def _secret(database: Database, own: MasterKey) -> None:
    await SealedSecretTable(database, own, StoppedClock()).seal("upstream", Secret("value"), "ann")


async def _spare(database: Database, own: MasterKey) -> None:
    async with database.writing() as connection:
        await connection.execute(filled(spare_secrets, name="a", master_key_id=own.key_id))


async def _batch(database: Database, own: MasterKey) -> None:
    where = dict(zip(("organisation", "workspace", "project"), PROJECT, strict=True))
    kept_as = fresh_key(own, *about_batch(PROJECT, "b1")).kept_as
    async with database.writing() as connection:
        await connection.execute(
            filled(batches, id="b1", created_us=1, wrapped_key=kept_as, **where)
        )
        # Of two the newer one is damaged: that says nothing about the key.
        await connection.execute(
            filled(batches, id="b2", created_us=2, wrapped_key=b"damaged", **where)
        )


async def _file(database: Database, own: MasterKey) -> None:
    where = dict(zip(("organisation", "workspace", "project"), PROJECT, strict=True))
    kept_as = fresh_key(own, *about_file(PROJECT, "f1")).kept_as
    async with database.writing() as connection:
        await connection.execute(filled(kept_files, id="f1", wrapped_key=kept_as, **where))


async def _answer(database: Database, own: MasterKey) -> None:
    answer = KeptAnswer("resp_1", PROJECT, "key1", "", "S0", 1, 2, b"[]", b"{}")
    await DatabaseAnswers(database, own).keep(answer)


async def _second_key(database: Database, own: MasterKey) -> None:
    key = WrappedKey("k", "acme", 1, own.key_id, b"", 1)
    async with database.writing() as connection:
        await connection.execute(insert(audit_second_keys), [line_of(key)])


@pytest.mark.parametrize("fill", [_secret, _spare, _batch, _file, _answer, _second_key])
async def test_an_upgraded_database_takes_only_a_key_that_opens_something_of_it(
    database: Database, fill: object
) -> None:
    own = _key()
    assert callable(fill)
    await fill(database, own)
    assert await _told(database, _key()) == KeyCheck(is_own=False, key_id="")
    assert await _count(database) == 0
    assert (await _told(database, own)).is_own


@pytest.mark.parametrize("name", ["signers", "contents"])
async def test_an_audit_folder_says_which_key_is_right_where_the_database_does_not(
    database: Database, tmp_path: Path, name: str
) -> None:
    """Workers sign there from the first minute: a database may hold nothing sealed for long."""
    own, clock, disk = _key(), StoppedClock(), Disk()
    if name == "signers":
        open_signer(tmp_path / "w0", "log/w0", own, clock, disk)
    else:
        tmp_path.joinpath("w0").mkdir()
        DataKeys(tmp_path / "w0", own, clock, disk).seal("acme", "", b"", b"words")
    assert await _told(database, _key(), tmp_path) == KeyCheck(is_own=False, key_id="")
    assert await _count(database) == 0
    assert (await _told(database, own, tmp_path)).is_own


async def test_a_folder_that_cannot_be_read_vouches_for_nobody(
    database: Database, tmp_path: Path
) -> None:
    tmp_path.joinpath("w0", "keys.jsonl").mkdir(parents=True)
    with pytest.raises(StartupRefused, match=r"audit: .*keys\.jsonl: Is a directory"):
        await _told(database, _key(), tmp_path)
    assert await _count(database) == 0


async def test_an_old_secret_beside_one_of_this_key_is_no_objection(database: Database) -> None:
    own = _key()
    await _secret(database, own)
    async with database.writing() as connection:
        await connection.execute(filled(sealed_secrets, name="old", master_key_id="another"))
    assert (await _told(database, own)).is_own


def test_the_key_of_a_pepper_is_its_own_and_says_nothing_of_it() -> None:
    pepper = secrets.token_bytes(32)
    assert key_of_pepper(pepper).key_id == key_of_pepper(pepper).key_id
    assert key_of_pepper(pepper).key_id != MasterKey(Secret(pepper)).key_id


async def test_a_cancelled_batch_is_given_up_only_where_the_key_is_the_databases_own(
    database: Database,
) -> None:
    own, wrong, clock = _key(), _key(), StoppedClock()
    await _told(database, own)
    await _batch(database, own)
    async with database.writing() as connection:
        later_us = clock.utc_us() + 1
        ended = {"state": "cancelling", "ending": "cancelled", "keep_until_us": later_us}
        await connection.execute(update(batches).values(ended))
    with_wrong, with_own = BatchStore(database, wrong, clock), BatchStore(database, own, clock)
    batch, damaged = [await with_own.led(name) for name in ("b1", "b2")]
    assert batch is not None
    assert damaged is not None
    with pytest.raises(KeyClosed):
        await with_wrong.content_key(batch)
    for each in (batch, damaged):
        assert await with_own.content_key(each) is not None
    async with database.writing() as connection:
        await connection.execute(delete(batches))
    assert await with_own.content_key(batch) is None
