"""Conversations under erasure: found by whom their turns name, destroyed, and lost by backups."""

import msgspec
import pytest
from msgspec import structs
from sqlalchemy import insert, select

from gateway.configuration.sections import ResponsesSettings
from gateway.continuing.conversing import Conversations, Turn
from gateway.secrets.credentials import master_key
from gateway.store.conversations import DatabaseConversations
from gateway.store.erasure.erasing import in_numbers
from gateway.store.erasure.made_of import MadeOf
from gateway.store.kept_answers import kept_answers
from gateway.types import Principal
from tests.gateway.store.erasure.kept_archive import PROJECT, Archive


pytestmark = pytest.mark.anyio

CALLER = Principal("key1", "a key", *PROJECT, (), None, ())
ITEM = msgspec.Raw(b'{"role":"user","content":"x"}')


def conversations(archive: Archive) -> Conversations:
    store = DatabaseConversations(archive.database, master_key(archive.settings))
    return Conversations(store, archive.clock, ResponsesSettings(), archive.settings.limits)


async def talk(archive: Archive, *users: str, **metadata: str) -> str:
    """One with a turn of each, and the answers that were made with it."""
    talks = conversations(archive)
    made = await talks.create(CALLER, [ITEM], metadata, "S0")
    for number, user in enumerate(users):
        name = made.conversation_id
        await talks.append(Turn(f"req_{number}", PROJECT, name, [ITEM], [ITEM], "S1", user))
        await archive.answer(f"resp_{name}_{number}", user, name)
    return made.conversation_id


async def left(archive: Archive) -> set[str]:
    async with archive.database.reading() as connection:
        return {*(await connection.execute(select(kept_answers.c.id))).scalars()}


async def test_a_conversation_goes_with_whom_a_turn_of_it_named(archive: Archive) -> None:
    mixed = await talk(archive, "bob", "ann", "")
    of_bob = await talk(archive, "bob")
    described = await talk(archive, user_id="ann")
    of_nobody = await talk(archive)
    assert (await archive.kept.find("globex", archive.subject("ann"))).numbers.answers == 0

    found = await archive.kept.find("acme", archive.subject("ann"))
    assert {name for _, name in found.answers} == {
        *(mixed, described),
        *(f"resp_{mixed}_{number}" for number in range(3)),
    }
    assert (found.numbers.answers, found.numbers.unnamed_answers) == (5, 1)
    assert found.numbers.conversations == 2, "and three answers"
    await archive.kept.destroy(found, "acme")
    assert await left(archive) == {of_bob, f"resp_{of_bob}_0", of_nobody}
    assert (await archive.kept.find("acme", archive.subject("ann"))).numbers.things == 0


async def test_of_what_arrived_late_conversations_are_told_with_the_answers(
    archive: Archive,
) -> None:
    """Neither is any of it: who made one since was asked nothing."""
    await talk(archive, "ann")
    found = await archive.kept.find("acme", archive.subject("ann"))
    assert found.numbers.conversations == 1
    told = in_numbers((await MadeOf(archive.database).part(found, ["file-late"])).numbers)
    assert (told["answers"], told["conversations"]) == ("0", "0")


async def test_everything_of_an_organisation_goes_with_its_conversations(archive: Archive) -> None:
    await talk(archive, "bob")
    found = await archive.kept.find("acme", None)
    assert (found.numbers.answers, found.numbers.conversations) == (2, 1)
    await archive.kept.destroy(found, "acme")
    assert await left(archive) == set()


async def test_a_restored_backup_loses_an_erased_conversation_again(archive: Archive) -> None:
    name = await talk(archive, "ann")
    async with archive.database.reading() as connection:
        where = kept_answers.c.id == name
        backup = (await connection.execute(select(kept_answers).where(where))).mappings().one()
    found = await archive.kept.find("acme", archive.subject("ann"))
    await archive.kept.destroy(found, "acme")
    async with archive.database.writing() as connection:
        await connection.execute(insert(kept_answers), dict(backup))
    assert await archive.kept.destroy_again() == 1
    assert await left(archive) == set()


async def test_a_turn_that_ends_after_the_erasure_brings_nothing_back(archive: Archive) -> None:
    talks = conversations(archive)
    name = await talk(archive, "ann")
    await talks.begin("req_late", PROJECT, name, takes=True)
    await archive.kept.destroy(await archive.kept.find("acme", archive.subject("ann")), "acme")
    await talks.append(Turn("req_late", PROJECT, name, [ITEM], [ITEM], "S1", "ann"))
    await talks.let_go("req_late")
    assert await left(archive) == set()


async def test_one_that_is_damaged_is_counted_and_left_alone(archive: Archive) -> None:
    name = await talk(archive, "ann")
    other = await talk(archive, "ann")
    await archive.damage(kept_answers, name)
    found = await archive.kept.find("acme", archive.subject("ann"))
    assert {each for _, each in found.answers} == {
        *(other, f"resp_{other}_0", f"resp_{name}_0"),
    }
    assert (found.numbers.unnamed_answers, found.numbers.is_whole) == (1, False)


async def test_conversations_beyond_what_a_project_may_keep_go_by_their_last_change(
    archive: Archive,
) -> None:
    talks = conversations(archive)
    first, second = [
        (await talks.create(CALLER, [ITEM], {}, "S0")).conversation_id for _ in range(2)
    ]
    archive.clock.advance(1)
    await talks.describe(CALLER, first, {"still": "used"})
    kept = await archive.answers.content(PROJECT, first)
    assert kept is not None
    length_bytes = len(kept[1]) + len(kept[2]) + 100
    assert await archive.answers.forget_beyond(PROJECT, length_bytes) == 1
    assert await left(archive) == {first}
    assert second != first
    found = await talks.find(CALLER, first)
    assert found.metadata == {"still": "used"}
    assert structs.replace(found, metadata={}).created_us < found.changed_us
