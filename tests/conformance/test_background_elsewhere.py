"""Answers of the background at two workers, under limits, and where they may not be kept."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from sqlalchemy import func, select, update

from gateway.background import beats
from gateway.clock import SystemClock
from gateway.identity import Peppers
from gateway.money.budgets import end_user_subject
from gateway.secrets.credentials import master_key, pepper
from gateway.store.background_runs import background_events, background_runs
from gateway.store.engine import open_database
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.identity.keys import Place
from tests.conformance.test_background import SAID, over, under_way
from tests.conformance.test_batches import ended, line, make, results
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

MORE = "[inspection]\ndeadline_s = 5.0\n"
POLICY = """
name = "levels"
version = 1
[[constraints]]
name = "keep"
when = 'project == "private"'
audit_content = "{level}"
"""
Clients = tuple[openai.AsyncOpenAI, openai.AsyncOpenAI]


@pytest.fixture
async def workers(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    monkeypatch.setattr(beats, "LOOK_S", 0.2)
    async with (
        RunningGateway(tmp_path, database_url, upstreams, more=MORE) as one,
        RunningGateway(tmp_path, database_url, upstreams, more=MORE, worker="w1") as other,
    ):
        yield one, other


@pytest.fixture
async def clients(workers: tuple[RunningGateway, RunningGateway]) -> AsyncIterator[Clients]:
    one, other = workers
    key = await one.issue_key()
    while key.split("_")[2] not in other.plane.snapshots.current().keys.records:
        await asyncio.sleep(0.01)
    async with (
        openai.AsyncOpenAI(base_url=f"{one.url}/v1", api_key=key, max_retries=0) as here,
        openai.AsyncOpenAI(base_url=f"{other.url}/v1", api_key=key, max_retries=0) as there,
    ):
        yield here, there


async def test_what_one_worker_makes_another_reads_follows_cancels_and_deletes(
    clients: Clients, upstreams: Upstreams
) -> None:
    here, there = clients
    hold = asyncio.Event()
    upstreams.anthropic.answer(Answer(hold=hold))
    stream = await here.responses.create(
        model=CLAUDE_TARGET, input="Good morning", background=True, stream=True
    )
    heard = [await anext(stream), await anext(stream)]
    await stream.close()
    followed: Any = heard[0]
    answer_id = followed.response.id
    assert (await under_way(there, answer_id)).status == "in_progress"
    follows = await there.responses.retrieve(answer_id, stream=True, starting_after=1)
    stopped = [
        await here.responses.create(model=CLAUDE_TARGET, input="x", background=True)
        for _ in range(2)
    ]
    await upstreams.anthropic.called(3)
    assert (await there.responses.cancel(stopped[0].id)).status == "cancelled"
    await there.responses.delete(stopped[1].id)
    await upstreams.anthropic.aborted(2)
    assert (await here.responses.retrieve(stopped[0].id)).status == "cancelled"
    with pytest.raises(openai.NotFoundError):
        await here.responses.retrieve(stopped[1].id)

    hold.set()
    rest: list[Any] = [event async for event in follows]
    assert [event.sequence_number for event in rest] == [*range(2, 2 + len(rest))]
    assert rest[-1].response.output_text == SAID
    whole = await here.responses.retrieve(answer_id, stream=True)
    assert len([event async for event in whole]) == 2 + len(rest)
    assert (await over(there, answer_id)).to_dict() == rest[-1].response.to_dict()


async def test_what_a_silent_worker_made_has_failed_and_is_not_kept_when_it_speaks_again(
    workers: tuple[RunningGateway, RunningGateway],
    clients: Clients,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = workers
    here, there = clients
    talk = await here.conversations.create()
    hold = asyncio.Event()
    upstreams.openai.answer_once(Answer(hold=hold))
    beating = asyncio.Event()

    async def silent() -> None:
        await beating.wait()

    stream = await here.responses.create(
        model=GPT_TARGET, input="x", conversation=talk.id, background=True, stream=True
    )
    first: Any = await anext(stream)
    answer_id = first.response.id
    await upstreams.openai.called()
    with monkeypatch.context() as changed:
        changed.setattr(one.plane._apart.runner._beats, "_keep", lambda *_: silent())
        await lapse(other, answer_id)
        failed = await over(there, answer_id)
        assert failed.status == "failed"
        assert failed.error is not None
        assert "worker that made this answer" in failed.error.message
        assert [event.type async for event in stream][-1] == "response.failed"
    # The turn of a worker that is gone is over, and nothing was added.
    await there.responses.create(model=ENGINE_TARGET, input="Next", conversation=talk.id)
    hold.set()
    await until_over(one)
    assert (await here.responses.retrieve(answer_id)).to_dict() == failed.to_dict()
    assert len((await here.conversations.items.list(talk.id)).data) == 2


async def lapse(worker: RunningGateway, answer_id: str) -> None:
    database = open_database(worker.settings.database_url)
    mine = update(background_runs).where(background_runs.c.id == answer_id)
    async with database.writing() as connection:
        await connection.execute(mine.values(leased_until_us=0))
    await database.close()


async def until_over(worker: RunningGateway) -> None:
    """Until a worker has nothing under way in the background."""
    while worker.plane._apart.runner._under_way:
        await asyncio.sleep(0.02)


async def test_a_worker_that_is_ended_says_what_it_did_not_come_to_the_end_of(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.background.runner.DRAIN_S", 0.3)
    more = MORE + "[responses]\nbackground_running_max = 1\n"
    async with RunningGateway(tmp_path, database_url, upstreams) as other:
        key = await other.issue_key()
        async with openai.AsyncOpenAI(base_url=f"{other.url}/v1", api_key=key) as there:
            async with (
                RunningGateway(tmp_path, database_url, upstreams, more=more, worker="w1") as ending,
                openai.AsyncOpenAI(base_url=f"{ending.url}/v1", api_key=key) as here,
            ):
                upstreams.engine.answer(Answer(hold=asyncio.Event()))
                made, waiting = [
                    await here.responses.create(
                        model=ENGINE_TARGET, input="Good morning", background=True
                    )
                    for _ in range(2)
                ]
                await upstreams.engine.called()
            for each in (made, waiting):
                found = await there.responses.retrieve(each.id)
                assert found.status == "failed"
                assert found.error is not None
                assert "was ended" in found.error.message
    outcomes = [record for record in await other.records() if record.stage == "outcome"]
    assert [(record.error, len(record.attempts)) for record in outcomes] == [
        ("worker_stopped", 0),
        ("worker_stopped", 1),
    ]
    assert len(upstreams.engine.calls) == 1


async def test_a_worker_that_is_told_to_end_begins_no_more_while_it_answers_the_others(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    more = MORE + "[responses]\nbackground_running_max = 1\n"
    async with RunningGateway(tmp_path, database_url, upstreams, more=more) as ending:
        key = await ending.issue_key()
        async with openai.AsyncOpenAI(
            base_url=f"{ending.url}/v1", api_key=key, max_retries=0
        ) as client:
            hold = asyncio.Event()
            upstreams.engine.answer(Answer(hold=hold))
            asked: dict[str, Any] = {"model": ENGINE_TARGET, "input": "x", "background": True}
            sent, waiting = [await client.responses.create(**asked) for _ in range(2)]
            await upstreams.engine.called()
            ending.loop.call_soon_threadsafe(ending.plane.say_leaving)
            failed = await over(client, waiting.id)
            assert failed.status == "failed"
            assert failed.error is not None
            assert "was ended" in failed.error.message
            with pytest.raises(openai.InternalServerError, match="about to end"):
                await client.responses.create(**asked)
            hold.set()
            assert (await over(client, sent.id)).status == "completed"
    assert len(upstreams.engine.calls) == 1


async def test_beyond_its_bounds_a_worker_takes_on_no_more_and_a_project_neither(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    more = MORE + (
        "[responses]\nbackground_running_max = 1\nbackground_waiting_max = 1\n"
        "background_project_max = 1\n"
    )
    async with RunningGateway(tmp_path, database_url, upstreams, more=more) as gateway:
        keys = [
            await gateway.issue_key(Place("acme", "research", name)) for name in ("a", "b", "c")
        ]
        a, b, c = (
            openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0)
            for key in keys
        )
        hold = asyncio.Event()
        upstreams.engine.answer(Answer(hold=hold))
        asked: dict[str, Any] = {"model": ENGINE_TARGET, "input": "x", "background": True}
        running = await a.responses.create(**asked)
        with pytest.raises(openai.RateLimitError, match="This project has 1"):
            await a.responses.create(**asked)
        await upstreams.engine.called()
        waiting = await b.responses.create(**asked)
        with pytest.raises(openai.RateLimitError, match="Too many answers wait"):
            await c.responses.create(**asked)
        assert (await b.responses.retrieve(waiting.id)).status == "queued"
        await gateway.revoke_key(keys[1])
        while keys[1].split("_")[2] in gateway.plane.snapshots.current().keys.records and (
            gateway.plane.snapshots.current().keys.live(
                keys[1].split("_")[2], SystemClock().utc_us()
            )
        ):
            await asyncio.sleep(0.01)
        hold.set()
        assert (await over(a, running.id)).status == "completed"
        again = await gateway.issue_key(Place("acme", "research", "b"))
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=again) as later:
            failed = await over(later, waiting.id)
        assert failed.status == "failed"
        assert failed.error is not None
        assert "key" in failed.error.message
        assert len(upstreams.engine.calls) == 1
        for client in (a, b, c):
            await client.close()


async def test_one_that_takes_too_long_has_failed_whether_it_was_sent_or_waits(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> None:
    more = f"{MORE}[responses]\nbackground_running_max = 1\nbackground_deadline_s = 2.0\n"
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        key = await gateway.issue_key()
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
            upstreams.engine.answer(Answer(hold=asyncio.Event()))
            sent, waiting = [
                await client.responses.create(model=ENGINE_TARGET, input="x", background=True)
                for _ in range(2)
            ]
            said = [(await over(client, each.id)).error for each in (sent, waiting)]
        await until_over(gateway)
        outcomes = [record for record in await gateway.records() if record.stage == "outcome"]
    assert all(said)
    assert {(record.status, record.error) for record in outcomes} <= {
        ("failed", "upstream_timeout"),
        ("failed", "unavailable"),
    }
    assert len(outcomes) == 2


@pytest.mark.parametrize("level", ["none", "redacted"])
async def test_where_policy_keeps_less_nothing_is_made_in_the_background(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, level: str
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(level=level))
    more = f'{MORE}[policy]\nfile = "{policy}"\n'
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        key = await gateway.issue_key(Place("acme", "research", "private"))
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
            with pytest.raises(openai.PermissionDeniedError) as caught:
                await client.responses.create(model=ENGINE_TARGET, input="x", background=True)
        assert caught.value.code == "policy_denied"
        assert "background" in caught.value.message
        assert not upstreams.engine.calls


@pytest.mark.parametrize("setting", ["background_running_max", "keep_days"])
async def test_where_nothing_is_kept_or_made_it_is_refused(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, setting: str
) -> None:
    more = f"{MORE}[responses]\n{setting} = 0\n"
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        key = await gateway.issue_key()
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
            with pytest.raises(openai.BadRequestError) as caught:
                await client.responses.create(model=ENGINE_TARGET, input="x", background=True)
        assert caught.value.param == "background"


async def test_a_line_of_a_batch_is_not_made_in_the_background_and_a_count_ignores_it(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key, url = await gateway.issue_key(), "/v1/responses"
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        apart = line("apart", url, messages=None, input="Good morning", background=True)
        batch = await ended(client, await make(client, [apart], url))
        refused = (await results(client, batch.error_file_id))["apart"]["response"]
        assert (refused["status_code"], refused["body"]["error"]["param"]) == (400, "background")
        counted = await client.responses.input_tokens.count(
            model=GPT_TARGET, input="x", extra_body={"background": True, "store": False}
        )
        assert counted.input_tokens > 0


async def test_by_azures_paths_it_is_read_and_cancelled_as_well(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    upstreams.openai.answer_once(Answer(hold=asyncio.Event()))
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=gateway.url, api_key=await gateway.issue_key(), api_version="preview"
    ) as client:
        made = await client.responses.create(model=GPT_TARGET, input="x", background=True)
        assert (await under_way(client, made.id)).status == "in_progress"
        assert (await client.responses.cancel(made.id)).status == "cancelled"


async def test_what_is_erased_while_it_is_made_is_cut_off_and_never_kept(
    workers: tuple[RunningGateway, RunningGateway], clients: Clients, upstreams: Upstreams
) -> None:
    one, _ = workers
    here, there = clients
    upstreams.anthropic.answer(Answer(hold=asyncio.Event()))
    asked: dict[str, Any] = {"model": CLAUDE_TARGET, "input": "x", "background": True}
    stream = await here.responses.create(**asked, stream=True, safety_identifier="ann")
    first: Any = await anext(stream)
    other = await here.responses.create(**asked, safety_identifier="bob")
    await upstreams.anthropic.called(2)
    settings = one.settings
    database = open_database(settings.database_url)
    kept = KeptContent(settings, database, master_key(settings), SystemClock())
    subject = end_user_subject("acme", "ann", Peppers({1: pepper(settings)}).keyed)
    holding = await kept.find("acme", subject)
    assert [name for _, name in holding.answers] == [first.response.id]
    await kept.destroy(holding, "acme")
    await upstreams.anthropic.aborted()
    events: list[Any] = [event async for event in stream]
    assert events[-1].type == "error"
    with pytest.raises(openai.NotFoundError):
        await there.responses.retrieve(first.response.id)
    count = select(func.count()).select_from(background_events)
    async with database.reading() as connection:
        assert (await connection.execute(count)).scalar_one() == 0
    await database.close()
    assert (await there.responses.cancel(other.id)).status == "cancelled"


async def test_money_is_set_aside_while_one_is_made_and_settled_when_it_ends(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    place = Place("acme", "research", "paying")
    account = "proj:acme/research/paying"
    await gateway.limit(account, 1_000_000)
    upstreams.anthropic.answer_once(Answer(hold=asyncio.Event()))
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=await gateway.issue_key(place)
    ) as client:
        made = await client.responses.with_raw_response.create(
            model=CLAUDE_TARGET, input="x", max_output_tokens=1000, background=True
        )
        before = gateway.budget_left((account,))
        assert before is not None
        assert before < 1_000_000
        await upstreams.anthropic.called()
        await client.responses.cancel(made.parse().id)
    while len(records := await gateway.records(made.headers["x-request-id"])) < 2:
        await asyncio.sleep(0.02)
    outcome = records[1]
    assert (outcome.status, outcome.error) == ("cancelled", "client_gone")
    assert gateway.budget_left((account,)) == 1_000_000 - outcome.cost_microusd


@pytest.mark.parametrize("ends", ["cancel", "delete"])
async def test_what_is_taken_away_while_its_end_is_written_adds_no_turn(
    clients: Clients,
    workers: tuple[RunningGateway, RunningGateway],
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
) -> None:
    """Somebody takes it away in the moment in which its turn is about to be written."""
    (one, _), (here, there) = workers, clients
    talk = await here.conversations.create()
    hold = asyncio.Event()
    upstreams.openai.answer_once(Answer(hold=hold))
    await here.responses.create(model=GPT_TARGET, input="x", conversation=talk.id, background=True)
    await upstreams.openai.called()
    runner = one.plane._apart.runner
    conversations = runner._threads.conversations
    find = conversations._store.find
    asked: list[Any] = []

    async def found(*names: Any) -> Any:
        if not asked:
            asked.append(names)
            # As another worker does it.
            ((place, each),) = runner._under_way.items()
            if ends == "cancel":
                assert await runner._store.end(each.answer)
            else:
                await runner._threads.discard(*place)
        return await find(*names)

    with monkeypatch.context() as changed:
        changed.setattr(conversations._store, "find", found)
        hold.set()
        await until_over(one)
    assert asked
    assert (await there.conversations.items.list(talk.id)).data == []
    await there.responses.create(model=ENGINE_TARGET, input="Next", conversation=talk.id)
