"""What every store of kept answers promises: the one in memory and the one in a database."""

import secrets
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from gateway.errors import NotReady
from gateway.ports import AnswerStore, KeptAnswer
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.engine import open_database
from gateway.store.kept_answers import DatabaseAnswers, kept_answers
from gateway.threads import MemoryAnswers


pytestmark = pytest.mark.anyio

PROJECT = ("acme", "research", "assistant")
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
        assert await store.find((other[0], other[1], other[2]), "resp_1", 99) is None
    assert await store.find(PROJECT, "resp_2", 99) is None


async def test_what_has_expired_is_not_found_and_is_forgotten(store: AnswerStore) -> None:
    await store.keep(ANSWER)
    await store.keep(structs.replace(ANSWER, answer_id="resp_2", expires_us=500))

    assert await store.find(PROJECT, "resp_1", 100) is None
    assert await store.forget_expired(100) == 1
    assert await store.forget_expired(100) == 0
    assert await store.find(PROJECT, "resp_2", 100) is not None


async def test_what_is_forgotten_is_gone(store: AnswerStore) -> None:
    await store.keep(ANSWER)

    assert not await store.forget(("acme", "research", "other"), "resp_1")
    assert await store.forget(PROJECT, "resp_1")
    assert not await store.forget(PROJECT, "resp_1")
    assert await store.find(PROJECT, "resp_1", 1) is None


@pytest.mark.parametrize("column", ["data_class", "project", "sealed"])
async def test_a_row_that_was_changed_cannot_be_opened(database_url: str, column: str) -> None:
    database = open_database(database_url)
    store = DatabaseAnswers(database, MasterKey(Secret(secrets.token_bytes(32))))
    await store.keep(ANSWER)
    changed = {"data_class": "S0", "project": "other", "sealed": bytes(60)}[column]
    async with database.writing() as connection:
        await connection.execute(kept_answers.update().values({column: changed}))
    place = ("acme", "research", "other") if column == "project" else PROJECT

    with pytest.raises(NotReady):
        await store.find(place, "resp_1", 1)
    await database.close()
