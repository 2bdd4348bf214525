"""Answers of the background: of killed workers, long ones, and while the database is away."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import openai
import pytest
from openai.types.responses import EasyInputMessageParam
from sqlalchemy import Executable, Table, func, insert, select, update

from gateway.background import following
from gateway.background.runs import Run
from gateway.continuing.kept_answers import KeptAnswer
from gateway.errors import Unavailable
from gateway.projects import Project
from gateway.store.background_runs import background_runs
from gateway.store.engine import open_database
from gateway.store.kept_answers import kept_answers
from gateway.store.schema.custody import audit_holds, erasure_attempts, erasure_cases
from tests.conformance.test_background import SAID, client, over
from tests.conformance.test_background_elsewhere import Clients, clients, lapse, workers
from tests.contracts.test_run_store import any_value
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

__all__ = ["client", "clients", "workers"]
ITEM: EasyInputMessageParam = {"type": "message", "role": "user", "content": "Next"}


@pytest.mark.parametrize("ends", ["cancel", "delete"])
@pytest.mark.either
async def test_a_turn_of_a_killed_worker_is_over_when_its_answer_is_taken_away(
    workers: tuple[RunningGateway, RunningGateway],
    clients: Clients,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
) -> None:
    one, _ = workers
    here, there = clients
    talk = await here.conversations.create()
    upstreams.openai.answer_once(Answer(hold=asyncio.Event()))
    made = await here.responses.create(
        model=GPT_TARGET, input="x", conversation=talk.id, background=True
    )
    await upstreams.openai.called()

    async def silent(*_: Any) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as changed:
        # Its worker does nothing any more, as one that was killed.
        changed.setattr(one.plane._apart.runner._beats, "beat", silent)
        await (there.responses.cancel if ends == "cancel" else there.responses.delete)(made.id)
        await there.responses.create(model=ENGINE_TARGET, input="Next", conversation=talk.id)
    assert len((await there.conversations.items.list(talk.id)).data) == 2


@pytest.mark.parametrize("gone", ["erased", "damaged", "held"])
@pytest.mark.either
async def test_a_turn_of_a_killed_worker_is_over_whatever_has_become_of_its_answer(
    workers: tuple[RunningGateway, RunningGateway],
    clients: Clients,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    gone: str,
) -> None:
    one, other = workers
    here, there = clients
    talk = await here.conversations.create()
    upstreams.openai.answer_once(Answer(hold=asyncio.Event()))
    made = await here.responses.create(
        model=GPT_TARGET, input="x", conversation=talk.id, background=True
    )
    await upstreams.openai.called()

    async def silent(*_: Any) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as changed:
        changed.setattr(one.plane._apart.runner._beats, "beat", silent)
        its = kept_answers.c.id == made.id
        case = {"id": "case-1", "organisation": "acme", "subject": ""}
        begun = {"case_id": "case-1", "begun_us": 2**60, "found": "{}"}
        hold = {"organisation": "acme", "released_by": ""}
        changes: dict[str, list[Executable]] = {
            "erased": [_insert(erasure_cases, case), _insert(erasure_attempts, begun)],
            "damaged": [update(kept_answers).where(its).values(sealed=b"x" * 64)],
            "held": [
                _insert(audit_holds, hold),
                update(kept_answers).where(its).values(expires_us=0),
            ],
        }
        database = open_database(one.settings.database_url)
        async with database.writing() as connection:
            for change in changes[gone]:
                await connection.execute(change)
        await lapse(other, made.id)
        is_over = False
        while not is_over:
            with suppress(openai.ConflictError):
                await there.conversations.items.create(talk.id, items=[ITEM])
                is_over = True
            await asyncio.sleep(0.05)
        query = select(func.count()).select_from(background_runs)
        async with database.reading() as connection:
            assert (await connection.execute(query)).scalar_one() == 0
        await database.close()


def _insert(table: Table, values: Mapping[str, object]) -> Executable:
    return insert(table).values({column.name: any_value(column) for column in table.c} | {**values})


async def test_one_that_repeats_long_instructions_is_followed_to_its_end(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    stream = await client.responses.create(
        model=CLAUDE_TARGET,
        input="x",
        instructions="Be brief. " * 150_000,
        background=True,
        stream=True,
    )
    heard: list[Any] = [event async for event in stream]
    assert heard[-1].type == "response.completed"
    assert heard[-1].response.output_text == SAID
    assert "".join(each.delta for each in heard if each.type.endswith("text.delta")) == SAID


async def test_who_follows_hears_the_rest_when_the_database_is_back(
    client: openai.AsyncOpenAI,
    gateway: RunningGateway,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold = asyncio.Event()
    upstreams.openai.answer_once(Answer(hold=hold))
    stream = await client.responses.create(
        model=GPT_TARGET, input="x", background=True, stream=True
    )
    first: Any = await anext(stream)
    again = await client.responses.retrieve(first.response.id, stream=True)
    heard: list[Any] = [await anext(again)]
    store = gateway.plane._apart.followers._store
    asked = asyncio.Event()

    async def away(*_: Any) -> Any:
        asked.set()
        raise Unavailable("The database does not answer.")

    with monkeypatch.context() as changed:
        changed.setattr(store, "find", away)
        await asked.wait()
    hold.set()
    ended = await over(client, first.response.id)
    rest: list[Any] = [event async for event in stream]
    heard += [event async for event in again]
    assert rest[-1].response.to_dict() == ended.to_dict()
    assert [first, *rest] == heard


async def test_what_a_server_says_of_itself_in_an_answer_is_read_as_it_was_kept(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    upstreams.openai.answer_once(
        Answer(
            body=b'{"id":"resp_1","object":"response","created_at":1,"model":"m",'
            b'"status":null,"background":"no","output":[{"type":"message","id":"msg_1",'
            b'"role":"assistant","status":"completed","content":[{"type":"output_text",'
            b'"text":"Hi","annotations":[]}]}],"usage":{"input_tokens":1,"output_tokens":1}}'
        )
    )
    made = await client.responses.create(model=GPT_TARGET, input="x")
    assert (await client.responses.retrieve(made.id)).output_text == "Hi"


async def test_one_whose_end_nobody_could_be_told_has_failed_and_is_there(
    client: openai.AsyncOpenAI,
    gateway: RunningGateway,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also while another answer keeps its worker's leases alive."""
    runner, hold, end = gateway.plane._apart.runner, asyncio.Event(), asyncio.Event()
    monkeypatch.setattr("gateway.background.ending.INSISTS_S", 0.0)
    upstreams.engine.answer_once(Answer(hold=hold))
    upstreams.openai.answer_once(Answer(hold=end))
    other = await client.responses.create(model=ENGINE_TARGET, input="x", background=True)
    talk = await client.conversations.create()
    stream: Any = await client.responses.create(
        model=GPT_TARGET, input="x", conversation=talk.id, background=True, stream=True
    )
    first: Any = await anext(stream)
    await upstreams.openai.called()

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("The database does not answer.")

    with monkeypatch.context() as changed:
        for way in ("end", "end_turn"):
            changed.setattr(runner._store, way, away)
        end.set()
        while len(runner._under_way) > 1:
            await asyncio.sleep(0.02)
    failed = await over(client, first.response.id)
    assert (failed.status, failed.output) == ("failed", [])
    assert failed.error is not None
    assert "could not be kept" in failed.error.message
    assert [event.type async for event in stream][-1] == "response.failed"
    hold.set()
    assert (await over(client, other.id)).status == "completed"
    # Its turn is over.
    await client.responses.create(model=ENGINE_TARGET, input="Next", conversation=talk.id)


async def test_who_follows_is_counted_before_he_hears_anything(
    client: openai.AsyncOpenAI,
    gateway: RunningGateway,
    shared_key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Callers who come at once are not all let in before the first of them hears something."""
    monkeypatch.setattr(following, "FOLLOWERS_MAX", 2)
    stream: Any = await client.responses.create(
        model=ENGINE_TARGET, input="x", background=True, stream=True
    )
    answer_id = [event async for event in stream][-1].response.id
    followers = gateway.plane._apart.followers
    keys = gateway.plane.snapshots.current().keys
    principal = keys.records[shared_key.split("_")[2]].principal
    one, other = [await followers.follow(principal, answer_id, -1) for _ in range(2)]
    with pytest.raises(openai.InternalServerError, match="Too many callers"):
        await client.responses.retrieve(answer_id, stream=True)
    assert [piece async for piece in one]
    more = await followers.follow(principal, answer_id, -1)
    with pytest.raises(Unavailable):
        await followers.follow(principal, answer_id, -1)
    del other, more
    again: Any = await client.responses.retrieve(answer_id, stream=True)
    assert [event async for event in again][-1].response.id == answer_id


async def test_all_that_a_killed_worker_leaves_has_failed_at_one_beat_after_the_other(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are: no look at all of them is so long that beats would wait for it."""
    runner, project = gateway.plane._apart.runner, Project("acme", "research", "assistant")
    monkeypatch.setattr("gateway.background.beats.LOOK_S", 10**6)
    queued = b'{"id":"r","object":"response","status":"queued","background":true,"output":[]}'
    for number in range(45):
        name = f"resp_{number}"
        answer = KeptAnswer(name, project, "key1", "", "S0", 1, 2**60, b"[]", queued)
        run = Run(project, name, f"req_{number}", "gone", "gone.1")
        assert await gateway.does(runner._store.begin(answer, run, 99))
    database = open_database(gateway.settings.database_url)
    async with database.writing() as connection:
        await connection.execute(update(background_runs).values(leased_until_us=0))
    runner._beats._look_s = 0.0
    query = select(func.count()).select_from(background_runs)
    while (await database.peek(query))[0][0]:
        await asyncio.sleep(0.05)
    await database.close()
    kept = await gateway.does(runner._threads.find_kept(project, "resp_44"))
    assert kept is not None
    assert b'"status":"failed"' in kept.response
