"""What ends after somebody was erased whose request it was, or on whose words it goes on."""

import msgspec
import pytest
from msgspec import structs
from sqlalchemy import insert

from gateway.background.runs import TakenAway
from gateway.continuing.kept_answers import KeptAnswer
from gateway.continuing.kept_conversations import Entry, KeptConversation
from gateway.errors import ConversationUnknown, PreviousResponseUnknown
from gateway.store.conversations import DatabaseConversations
from gateway.store.kept_answers import kept_answers
from gateway.store.schema.custody import erasure_attempts, erasure_cases
from tests.contracts.test_run_store import FOR_EVER_US, PROJECT, World, any_value, world


pytestmark = pytest.mark.anyio

__all__ = ["world"]
ANN, BOB = "digest-of-ann", "digest-of-bob"


async def erase(world: World, subject: str, organisation: str = "acme") -> None:
    """As far as it is noted before anything is destroyed."""
    told = {"id": f"case-{subject[-3:]}", "organisation": organisation, "subject": subject}
    case = {column.name: any_value(column) for column in erasure_cases.c} | told
    begun = {"case_id": told["id"], "begun_us": world.clock.utc_us(), "found": "{}"}
    async with world.database.writing() as connection:
        await connection.execute(insert(erasure_cases), [case])
        await connection.execute(insert(erasure_attempts), [begun])


def asked(world: World, name: str, **more: object) -> KeptAnswer:
    return structs.replace(world.answer(name), asked_us=world.clock.utc_us(), **more)


@pytest.mark.parametrize("named", ["previous_id", "sources"])
async def test_what_goes_on_from_what_was_erased_is_not_kept(world: World, named: str) -> None:
    assert await world.answers.keep(world.answer("before"))
    more: dict[str, object] = {named: "before" if named == "previous_id" else ("before",)}
    late, run = asked(world, "late", **more), world.run("away")
    away = asked(world, "away", **more)
    assert await world.runs.begin(away, run, 9)
    assert await world.answers.forget(PROJECT, "before")
    assert await world.answers.keep(structs.replace(late, answer_id="other")), "only deleted"
    world.clock.advance(1)
    await erase(world, ANN, "globex")
    assert not await world.answers.is_erased(late), "somebody of another organisation"
    await erase(world, BOB)
    assert not await world.answers.keep(late)
    with pytest.raises(PreviousResponseUnknown):
        await world.runs.begin(asked(world, "later", **more), world.run("later"), 9)
    assert not await world.runs.end(away, ["msg_1"], holder=run.holder)
    assert await world.runs.find(run.place) is None
    assert [await world.said(name) for name in ("late", "later", "away")] == [None] * 3
    assert await world.count(kept_answers) == 1


@pytest.mark.parametrize("erased", [ANN, ""])
async def test_what_was_asked_for_whom_was_erased_since_is_not_kept(
    world: World, erased: str
) -> None:
    before, others = asked(world, "a", subject=ANN), asked(world, "b", subject=BOB)
    world.clock.advance(1)
    await erase(world, erased)
    world.clock.advance(1)
    assert not await world.answers.keep(before)
    assert await world.answers.keep(others) is bool(erased), "everybody of the organisation"
    assert await world.answers.keep(asked(world, "c", subject=ANN)), "asked after it"


@pytest.mark.parametrize("reason", ["erased", "cancelled", ""])
async def test_a_turn_is_added_with_the_end_of_its_answer_or_not_at_all(
    world: World, reason: str
) -> None:
    store = DatabaseConversations(world.database, world.master)
    now_us = world.clock.utc_us()
    head = ("conv_1", PROJECT, "key1", "S0", now_us, now_us, FOR_EVER_US)
    await store.make(talk := KeptConversation(*head), 9)
    answer, run = asked(world, "a", subject=ANN, previous_id="conv_1"), world.run("a")
    assert await world.runs.begin(answer, run, 9)
    turn = talk.with_more([Entry("msg_1", msgspec.Raw(b"{}"))])
    if reason == "erased":
        await erase(world, ANN)
    elif reason:
        assert await world.runs.end(answer)
    stale = structs.replace(turn, revision=7)
    if not reason:
        assert not await world.runs.end_turn(answer, (), stale, now_us, holder=run.holder)
        assert await world.runs.find(run.place) == run
        assert await world.runs.end_turn(answer, (), turn, now_us, holder=run.holder)
    else:
        with pytest.raises(ConversationUnknown if reason == "erased" else TakenAway):
            await world.runs.end_turn(answer, (), turn, now_us, holder=run.holder)
    found = await store.find(PROJECT, "conv_1", now_us)
    assert found is not None
    assert found.entries == (() if reason else turn.entries)
