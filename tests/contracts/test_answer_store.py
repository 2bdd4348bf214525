"""What every store of kept answers promises: the one in memory and the one in a database."""

import secrets
from collections.abc import AsyncIterator

import pytest
from msgspec import structs
from sqlalchemy import delete, select

from gateway.continuing import kept_answers as kept_later
from gateway.continuing.kept_answers import (
    DELETED_US,
    AnswerStore,
    KeptAnswer,
    MemoryAnswers,
)
from gateway.errors import NotReady
from gateway.projects import Project
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store import kept_answers as database_answers
from gateway.store.engine import open_database
from gateway.store.kept_answers import DatabaseAnswers, kept_answers, kept_items


pytestmark = pytest.mark.anyio

PROJECT = Project("acme", "research", "assistant")
ANSWER = KeptAnswer(
    answer_id="resp_1",
    project=PROJECT,
    key_id="abcdefghijkl",
    previous_id="",
    data_class="S1",
    created_us=1,
    expires_us=100,
    input_items=b'[{"role":"user"}]',
    response=b'{"id":"resp_1"}',
)


@pytest.fixture(params=["memory", "database"])
async def store(request: pytest.FixtureRequest, database_url: str) -> AsyncIterator[AnswerStore]:
    if request.param == "memory":
        yield MemoryAnswers()
        return
    database = open_database(database_url)
    yield DatabaseAnswers(database, MasterKey(Secret(secrets.token_bytes(32))))
    await database.close()


async def test_what_is_kept_is_found_by_its_project_only(store: AnswerStore) -> None:
    await store.keep(ANSWER)

    assert await store.find(PROJECT, "resp_1", 99) == ANSWER
    for index in range(3):
        other = [*PROJECT]
        other[index] = "other"
        assert await store.find(Project(*other), "resp_1", 99) is None
    assert await store.find(PROJECT, "resp_2", 99) is None


async def test_what_has_expired_is_not_found_and_is_forgotten(store: AnswerStore) -> None:
    await store.keep(ANSWER)
    await store.keep(structs.replace(ANSWER, answer_id="resp_2", expires_us=500))

    assert await store.find(PROJECT, "resp_1", 100) is None
    assert await store.forget_expired(100) == 1
    assert await store.forget_expired(100) == 0
    assert await store.find(PROJECT, "resp_2", 100) is not None


async def test_all_that_has_expired_goes_however_much_it_is(store: AnswerStore) -> None:
    for number in range(50):
        await store.keep(structs.replace(ANSWER, answer_id=f"resp_{number}"))

    assert await store.forget_expired(100) == 50


async def test_a_projects_oldest_answers_go_until_the_others_fit(store: AnswerStore) -> None:
    for number in range(50):
        answer = structs.replace(ANSWER, answer_id=f"resp_{number}", created_us=number)
        await store.keep(structs.replace(answer, input_items=b"1" * 1_000))
    elsewhere = structs.replace(ANSWER, project=Project("acme", "research", "other"), created_us=0)
    await store.keep(elsewhere)

    assert await store.forget_beyond(PROJECT, 100_000) == 0
    assert await store.forget_beyond(PROJECT, 4_500) == 46
    assert await store.forget_beyond(PROJECT, 4_500) == 0
    there = [await store.find(PROJECT, f"resp_{number}", 1) for number in (45, 46, 49)]
    assert [each is not None for each in there] == [False, True, True]
    assert await store.find(elsewhere.project, "resp_1", 1) == elsewhere
    assert await store.forget_beyond(Project("acme", "research", "nobody"), 1) == 0


async def test_what_is_forgotten_is_gone(store: AnswerStore) -> None:
    await store.keep(ANSWER)

    assert not await store.forget(Project("acme", "research", "other"), "resp_1")
    assert await store.forget(PROJECT, "resp_1")
    assert not await store.forget(PROJECT, "resp_1")
    assert await store.find(PROJECT, "resp_1", 1) is None


async def test_answers_are_found_by_what_stands_in_them_while_they_are_there(
    store: AnswerStore,
) -> None:
    later = structs.replace(ANSWER, answer_id="resp_0", created_us=2, expires_us=500)
    elsewhere = structs.replace(ANSWER, project=Project("acme", "research", "other"))
    await store.keep(ANSWER, ["msg_1", "rs_1"])
    await store.keep(later, ["msg_1"])
    await store.keep(elsewhere, ["msg_1"])

    assert await store.holding(PROJECT, ["msg_1"], 99) == ["resp_1", "resp_0"]
    assert await store.holding(PROJECT, ["msg_1", "rs_1", "msg_2"], 99) == ["resp_1", "resp_0"]
    assert await store.holding(PROJECT, ["rs_1"], 99) == ["resp_1"]
    assert await store.holding(PROJECT, ["msg_2"], 99) == []
    assert await store.holding(PROJECT, ["msg_1"], 100) == ["resp_0"]
    await store.forget(PROJECT, "resp_0")
    assert await store.holding(PROJECT, ["msg_1"], 99) == ["resp_1"]
    assert await store.forget_expired(100) == 2
    assert await store.holding(PROJECT, ["msg_1"], 99) == []


async def test_deletions_of_what_does_not_stand_there_are_noted_for_a_while(
    store: AnswerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (kept_later, database_answers):
        monkeypatch.setattr(module, "DELETED_MAX", 2)
    for now_us, answer_id in enumerate(("resp_1", "resp_1", "resp_2", "resp_3")):
        await store.note_deleted(PROJECT, answer_id, now_us)
    await store.note_deleted(Project("acme", "research", "other"), "resp_3", 9)

    noted = [await store.is_deleted(PROJECT, f"resp_{number}") for number in range(4)]
    assert noted == [False, True, True, False], "of each project so many"
    assert await store.forget_expired(DELETED_US + 1) == 0
    assert not await store.is_deleted(PROJECT, "resp_1")
    assert await store.is_deleted(PROJECT, "resp_2")


async def test_an_answer_that_is_kept_again_stands_there_once_as_it_was(store: AnswerStore) -> None:
    """The first try may have been written after its connection broke."""
    for _ in range(2):
        assert await store.keep(ANSWER, ["msg_1"])

    assert await store.find(PROJECT, "resp_1", 1) == ANSWER
    assert await store.holding(PROJECT, ["msg_1"], 1) == ["resp_1"]


async def test_names_of_items_go_with_their_answer_whoever_destroys_it(database_url: str) -> None:
    database = open_database(database_url)
    store = DatabaseAnswers(database, MasterKey(Secret(secrets.token_bytes(32))))
    await store.keep(ANSWER, ["msg_1", "rs_1"])
    async with database.writing() as connection:
        assert (await connection.execute(select(kept_items))).all()
        await connection.execute(delete(kept_answers))
    async with database.reading() as connection:
        assert not (await connection.execute(select(kept_items))).all()
    await database.close()


@pytest.mark.parametrize("column", ["data_class", "project", "sealed"])
async def test_a_row_that_was_changed_cannot_be_opened(database_url: str, column: str) -> None:
    database = open_database(database_url)
    store = DatabaseAnswers(database, MasterKey(Secret(secrets.token_bytes(32))))
    await store.keep(ANSWER)
    changed = {"data_class": "S0", "project": "other", "sealed": bytes(60)}[column]
    async with database.writing() as connection:
        await connection.execute(kept_answers.update().values({column: changed}))
    place = Project("acme", "research", "other") if column == "project" else PROJECT

    with pytest.raises(NotReady):
        await store.find(place, "resp_1", 1)
    await database.close()
