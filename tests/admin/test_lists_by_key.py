"""Lists that may have a hundred thousand rows are paged by the key of the row before a page."""

import re
from typing import Any

import msgspec
import pytest
from sqlalchemy import delete, insert, select, update

from gateway.store.batching.files import kept_files
from gateway.store.batching.lists import BatchLists
from gateway.store.engine import Database
from gateway.store.identity.key_lists import KeyLists, KeySearch
from gateway.store.identity.people_lists import PeopleLists
from gateway.store.schema.batches import batches
from gateway.store.schema.tables import people, virtual_keys
from tests.admin.listener import ON_BOTH, Listener
from tests.admin.policies.people import add_person, signed_in
from tests.admin.test_lists_in_parts import fill_batches
from tests.admin.test_long_lists import MANY, fill, fill_keys, onward, page


pytestmark = pytest.mark.anyio
SIZE = 40


async def filled(listener: Listener, database: Database) -> None:
    await listener.issue_key("assistant")
    now_us = listener.clock.utc_us()
    await fill_batches(database, now_us)
    await fill_keys(database, now_us, MANY)
    await fill(database, people, {"name": "person{}", "title": "P", "created_us": now_us})
    # Of ten that began in the same microsecond the id says which comes first.
    for table in (virtual_keys, batches, kept_files):
        same = [f"{letter}03{digit}" for letter in "kbf" for digit in range(10)]
        began_us = now_us - 35 if table is not virtual_keys else now_us
        moved = update(table).where(table.c.id.in_(same)).values(created_us=began_us)
        async with database.writing() as connection:
            await connection.execute(moved)


@ON_BOTH
async def test_a_part_behind_a_key_is_the_one_that_is_counted_off(listener: Listener) -> None:
    async with listener.database() as database:
        await filled(listener, database)
        keys, known = KeyLists(database, listener.clock), PeopleLists(database)
        lists = BatchLists(database, listener.clock)
        ways: list[Any] = [
            lambda first, after: keys.page("acme", KeySearch(), (first, after), SIZE),
            lambda first, after: known.page((), first, SIZE, after),
            lambda first, after: lists.page("acme", "", first, SIZE, after),
            lambda first, after: lists.files_page("acme", first, SIZE, after),
        ]
        for way in ways:
            first, after, seen = 0, "", []
            while True:
                by_key, counted = await way(first, after), await way(first, "")
                assert by_key == counted, (way, first)
                seen += by_key.rows
                if not by_key.following:
                    break
                first, after = by_key.following, by_key.onward
            assert len(seen) == by_key.count >= MANY
            for wrong in ("~", "x~y", "1", "9" * 30 + "~a", "-1~a", "٥~a"):
                other = await way(SIZE, wrong)
                assert other.count == by_key.count, wrong


@ON_BOTH
async def test_a_row_that_comes_or_goes_moves_nothing_across_a_page(listener: Listener) -> None:
    async with listener.database() as database:
        await filled(listener, database)
        lists, now_us = BatchLists(database, listener.clock), listener.clock.utc_us()
        start = await lists.page("acme", "", 0, SIZE)
        async with database.writing() as connection:
            newer = (await connection.execute(select(batches).limit(1))).mappings().one()
            await connection.execute(
                insert(batches), dict(newer) | {"id": "newest", "created_us": now_us + 1}
            )
            gone = batches.c.id == start.rows[-1].id
            await connection.execute(delete(batches).where(gone))
        part = await lists.page("acme", "", start.following, SIZE, start.onward)
        seen = [row.id for row in (*start.rows, *part.rows)]
        assert len(seen) == len(set(seen)) == 2 * SIZE
        async with database.writing() as connection:
            await connection.execute(delete(batches).where(batches.c.organisation == "acme"))
        assert (await lists.page("acme", "", start.following, SIZE, start.onward)).rows == ()


async def test_pages_and_programs_are_led_on_by_key(listener: Listener) -> None:
    async with listener.database() as database:
        await filled(listener, database)
    await add_person(listener, "mira", "platform_admin", where="*")
    async with signed_in(listener, "mira") as mira:
        for path in ("/o/acme/keys", "/o/acme/batches", "/o/acme/files", "/people"):
            text = await page(mira, path)
            way = onward(text)
            assert re.search(r"from=100&after=\w+", way), path
            assert re.search(r"101–\d+ of \d+", await page(mira, way)), path
        for path in ("batches", "files"):
            answer, _ = await mira.send("GET", f"/api/organisations/acme/{path}?from=0")
            way = answer.headers["link"].partition(">")[0].removeprefix("<")
            assert "&after=" in way
            _, text = await mira.send("GET", way)
            assert len(msgspec.json.decode(text)) == MANY + (path == "batches") - 100
        _, text = await mira.send("GET", "/api/organisations/acme/keys")
        told = msgspec.json.decode(text)
        path = f"/api/organisations/acme/keys?from={told['following']}&after={told['onward']}"
        _, text = await mira.send("GET", path)
        assert len(msgspec.json.decode(text)["keys"]) == told["count"] - 100
