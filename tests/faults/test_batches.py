"""Batches through kills, restarts and several workers: each line is in the results once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from openai.types import Batch
from sqlalchemy import select

from gateway.batching.runner import BatchRunner
from gateway.batching.steps import Steps
from gateway.configuration.reading import load_settings
from gateway.errors import NotReady
from gateway.store.batching.files import kept_file_parts, kept_files
from gateway.store.batching.lines import LineStore
from gateway.store.engine import open_database
from gateway.store.identity.keys import Place
from gateway.store.schema.batches import batch_lines, batches
from tests.conformance.test_batches import ended, line, make, results
from tests.faults.test_kills import configured, issued, serving
from tests.free_ports import free_port
from tests.running_gateway import RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(180)]
UNHURRIED = """
[inspection]
deadline_s = 30.0
"""


@asynccontextmanager
async def speaking(url: str, key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=5) as client:
        yield client


def asked(upstreams: Upstreams) -> Counter[str]:
    """How often the upstream saw each line, by the mark in its text."""
    wires = [msgspec.json.decode(call.body) for call in upstreams.engine.calls]
    return Counter(wire["messages"][0]["content"] for wire in wires)


def marked(count: int) -> list[bytes]:
    return [
        line(f"q-{at}", messages=[{"role": "user", "content": f"mark {at}"}]) for at in range(count)
    ]


async def all_results(client: openai.AsyncOpenAI, batch: Batch) -> dict[str, Any]:
    found = await results(client, batch.output_file_id)
    errors = await results(client, batch.error_file_id) if batch.error_file_id else {}
    assert not found.keys() & errors.keys()
    return found | errors


async def test_a_killed_worker_goes_on_where_it_was_and_no_result_is_there_twice(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    port = free_port()
    config_file = await configured(tmp_path, database_url, own_upstreams, port)
    key = await issued(load_settings(config_file))
    url = f"http://127.0.0.1:{port}"
    hold = asyncio.Event()
    own_upstreams.engine.answer_once(*[Answer()] * 10)
    own_upstreams.engine.answer(Answer(hold=hold))
    async with serving(config_file, url) as process, speaking(url, key) as client:
        batch = await make(client, marked(40))
        while len(own_upstreams.engine.calls) < 18:
            await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
    hold.set()
    own_upstreams.engine.answer(Answer())
    async with serving(config_file, url), speaking(url, key) as client:
        batch = await ended(client, await client.batches.retrieve(batch.id))
        found = await all_results(client, batch)

    assert batch.status == "completed"
    assert list(found) == [f"q-{at}" for at in range(40)]
    assert {wire["response"]["status_code"] for wire in found.values()} == {200}
    counts = asked(own_upstreams)
    assert len(counts) == 40
    # The eight under way were sent again, and so may be answers that were not written down yet.
    assert 48 <= counts.total() <= 58
    assert max(counts.values()) == 2


async def test_a_worker_that_stops_leaves_its_lines_to_be_sent_again(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    own_upstreams.engine.answer(Answer(hold=hold))
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=UNHURRIED) as gateway:
        key = await gateway.issue_key()
        async with speaking(gateway.url, key) as client:
            batch = await make(client, marked(12))
            while len(own_upstreams.engine.calls) < 8:
                await asyncio.sleep(0.01)
    hold.set()
    async with (
        RunningGateway(tmp_path, database_url, own_upstreams, more=UNHURRIED) as gateway,
        speaking(gateway.url, key) as client,
    ):
        batch = await ended(client, await client.batches.retrieve(batch.id))
        assert len(await all_results(client, batch)) == 12
        # What was broken off is on record as that, and what was sent again once more.
        records = [each for each in await gateway.records() if each.stage == "outcome"]
    lines = Counter(each.detail["line"] for each in records)
    assert sorted(lines.values()) == [*[1] * 4, *[2] * 8]


async def test_a_worker_that_stops_ends_the_lines_whose_answers_it_has(
    tmp_path: Path,
    database_url: str,
    own_upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are paid and on record: sent again, they would be paid a second time."""
    whole, stops = LineStore.end, asyncio.Event()

    async def end(self: LineStore, claim: Any, key: Any, ending: Any) -> bool:
        while not stops.is_set():
            await asyncio.sleep(0.01)
        return await whole(self, claim, key, ending)

    async def close(self: Steps, ending: Collection[str] = ()) -> None:
        asyncio.get_running_loop().call_later(0.05, stops.set)
        await cancel(self, ending)

    cancel = Steps.cancel
    monkeypatch.setattr(LineStore, "end", end)
    monkeypatch.setattr(Steps, "cancel", close)
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=UNHURRIED) as gateway:
        key = await gateway.issue_key()
        async with speaking(gateway.url, key) as client:
            batch = await make(client, marked(12))
            while len([each for each in await gateway.records() if each.status == "ok"]) < 8:
                await asyncio.sleep(0.01)
    async with (
        RunningGateway(tmp_path, database_url, own_upstreams, more=UNHURRIED) as gateway,
        speaking(gateway.url, key) as client,
    ):
        batch = await ended(client, await client.batches.retrieve(batch.id))
        assert len(await all_results(client, batch)) == 12
    assert set(asked(own_upstreams).values()) == {1}


@pytest.mark.postgres
async def until_known(client: openai.AsyncOpenAI) -> None:
    """Its key was made at another worker, and a busy one hears of it later."""
    async with asyncio.timeout(60):
        while True:
            try:
                await client.models.list()
            except openai.AuthenticationError:
                await asyncio.sleep(0.05)
            else:
                return


async def test_workers_share_a_batch_and_each_line_is_sent_once(
    tmp_path: Path, postgres_server: Any, own_upstreams: Upstreams
) -> None:
    url = postgres_server.create_migrated()
    own_upstreams.engine.answer(Answer(gap_s=0.02))
    async with (
        RunningGateway(tmp_path, url, own_upstreams, more=UNHURRIED) as first,
        RunningGateway(tmp_path, url, own_upstreams, more=UNHURRIED, worker="w1") as second,
    ):
        key = await first.issue_key()
        async with speaking(second.url, key) as client:
            await until_known(client)
            batch = await ended(client, await make(client, marked(120)))
            found = await all_results(client, batch)
        workers = Counter(
            wire["gatewright"]["receipt"].partition(".")[0] for wire in found.values()
        )
    postgres_server.drop(url)

    assert list(found) == [f"q-{at}" for at in range(120)]
    assert set(asked(own_upstreams).values()) == {1}
    assert workers.keys() == {"w0", "w1"}


async def test_a_worker_that_fell_silent_cannot_end_a_line_that_was_taken_from_it(
    tmp_path: Path,
    database_url: str,
    own_upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended_whole, has_counted = LineStore.end, list[bool]()

    async def end(self: LineStore, claim: Any, key: Any, ending: Any) -> bool:
        has_counted.append(await ended_whole(self, claim, key, ending))
        return has_counted[-1]

    async def fall_silent(self: LineStore, holder: str, numbers: Any) -> int:
        """No lease is renewed."""
        return 0

    async def notice_nothing(self: BatchRunner) -> None:
        """Whoever saw that a line was taken from them would break it off before its answer came."""

    monkeypatch.setattr(LineStore, "end", end)
    monkeypatch.setattr(LineStore, "keep", fall_silent)
    monkeypatch.setattr(BatchRunner, "_break_off_lost", notice_nothing)
    monkeypatch.setattr("gateway.store.batching.lines.LEASE_US", 2_000_000)
    monkeypatch.setattr("gateway.batching.runner.APART_US", 0)
    monkeypatch.setattr("gateway.pacing.rhythm.BATCH_LEASES_S", 0.2)
    late, newer = asyncio.Event(), asyncio.Event()
    own_upstreams.engine.answer_once(
        Answer(hold=late, text="too late"), Answer(hold=newer, text="newer")
    )
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=UNHURRIED) as gateway:
        key = await gateway.issue_key()
        async with speaking(gateway.url, key) as client:
            batch = await make(client, marked(1))
            while len(own_upstreams.engine.calls) < 2:
                await asyncio.sleep(0.01)
            monkeypatch.setattr("gateway.store.batching.lines.LEASE_US", 60_000_000)
            late.set()
            while not has_counted:
                await asyncio.sleep(0.01)
            newer.set()
            found = await all_results(client, await ended(client, batch))

    assert has_counted[0] is False
    assert has_counted.count(True) == 1
    said = found["q-0"]["response"]["body"]["choices"][0]["message"]["content"]
    assert said != "too late"


async def test_what_was_not_sent_in_the_window_expires_and_what_was_is_there(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    window = "[batches]\nwindow_hours = 0.0006\nconcurrent_lines = 2\n" + UNHURRIED
    hold = asyncio.Event()
    own_upstreams.engine.answer(Answer(hold=hold))
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=window) as gateway:
        key = await gateway.issue_key()
        async with speaking(gateway.url, key) as client:
            batch = await make(client, marked(5))
            while (await client.batches.retrieve(batch.id)).status != "finalizing":
                await asyncio.sleep(0.02)
            hold.set()
            batch = await ended(client, batch)
            found = await all_results(client, batch)

    assert (batch.status, bool(batch.expired_at)) == ("expired", True)
    assert asked(own_upstreams).total() == 2
    codes = [wire["error"]["code"] for wire in found.values() if wire["error"]]
    assert codes == ["batch_expired"] * 3


async def test_a_budget_that_is_used_up_fails_the_lines_it_cannot_pay(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    more = "[batches]\nconcurrent_lines = 1\n" + UNHURRIED
    asks = [
        line(f"q-{at}", model="claude-opus-5-5", max_tokens=100, messages=ONE) for at in range(8)
    ]
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=more) as gateway:
        key = await gateway.issue_key()
        async with speaking(gateway.url, key) as client:
            first = await ended(client, await make(client, asks[:1]))
            told = (await all_results(client, first))["q-0"]["gatewright"]
            cost = told["cost_microusd"]
            assert cost > 0
            account = f"key:{key.split('_')[2]}"
            await gateway.limit(account, 4 * cost + 3_000)
            batch = await ended(client, await make(client, asks))
            found = await all_results(client, batch)
            paid = [
                wire["gatewright"]["cost_microusd"]
                for wire in found.values()
                if "gatewright" in wire
            ]
            # What no line could be paid from is on its way back to the database for a moment.
            while gateway.budget_left((account,)) != 4 * cost + 3_000 - sum(paid):
                await asyncio.sleep(0.01)

    codes = {
        wire["response"]["body"]["error"]["code"]
        for wire in found.values()
        if wire["response"]["status_code"] != 200
    }
    assert 0 < len(paid) < 8
    assert codes == {"insufficient_quota"}


async def test_a_line_waits_for_money_that_is_only_set_aside_for_others(
    tmp_path: Path,
    database_url: str,
    own_upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worst price of five fits at once; all together cost a thousandth of the limit."""
    monkeypatch.setattr("gateway.batching.runner.REST_S_MAX", 0.05)
    held = asyncio.Event()
    own_upstreams.anthropic.answer(Answer(hold=held))
    asks = [
        line(f"q-{at}", model="claude-opus-5-5", max_tokens=4_000, messages=ONE) for at in range(20)
    ]
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=UNHURRIED) as gateway:
        key = await gateway.issue_key()
        await gateway.limit("org:acme", 500_000)
        async with speaking(gateway.url, key) as client:
            batch = await make(client, asks)
            while not any(each.status == "refused" for each in await gateway.records()):
                await asyncio.sleep(0.01)
            assert len(own_upstreams.anthropic.calls) >= 5
            held.set()
            batch = await ended(client, batch)
            found = await all_results(client, batch)
        records = [each for each in await gateway.records() if each.stage == "outcome"]

    assert {wire["response"]["status_code"] for wire in found.values()} == {200}
    assert sum(each.cost_microusd for each in records) < 5_000
    assert {each.error for each in records} == {"", "insufficient_quota"}


ONE = [{"role": "user", "content": "Good morning"}]


async def test_an_answer_outlives_a_database_that_is_away_when_it_comes(
    tmp_path: Path,
    database_url: str,
    own_upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The database is gone for a line's end only: everything else may be tried again anyway."""
    whole, failed = LineStore.end, Counter[int]()

    async def end(self: LineStore, claim: Any, key: Any, ending: Any) -> bool:
        failed[claim.line.number] += 1
        if failed[claim.line.number] < 3:
            raise NotReady("the database does not answer")
        return await whole(self, claim, key, ending)

    monkeypatch.setattr(LineStore, "end", end)
    monkeypatch.setattr("gateway.batching.steps.AGAIN_S", 0.05)
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=UNHURRIED) as gateway:
        key = await gateway.issue_key()
        async with speaking(gateway.url, key) as client:
            batch = await ended(client, await make(client, marked(3)))
            found = await all_results(client, batch)

    assert {wire["response"]["status_code"] for wire in found.values()} == {200}
    assert set(asked(own_upstreams).values()) == {1}
    assert set(failed.values()) == {3}


async def test_nothing_that_a_batch_holds_can_be_read_at_rest(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    canaries = {name: f"canary{name}0815" for name in ("id", "body", "answer", "meta", "file")}
    own_upstreams.engine.answer(Answer(text=canaries["answer"]))
    asks = [
        line(canaries["id"], messages=[{"role": "user", "content": canaries["body"]}]),
        line(f"{canaries['id']}2", temperature=canaries["body"]),
    ]
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=UNHURRIED) as gateway:
        key = await gateway.issue_key()
        async with speaking(gateway.url, key) as client:
            file = await client.files.create(
                file=(canaries["file"], b"\n".join(asks)), purpose="batch"
            )
            made = await client.batches.create(
                input_file_id=file.id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
                metadata={"note": canaries["meta"]},
            )
            batch = await ended(client, made)
            assert len(await all_results(client, batch)) == 2
            assert canaries["meta"] in str(batch.metadata)
        held = await at_rest(database_url)
    folder = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    assert len(held) > 2_000
    assert [name for name, text in canaries.items() if text.encode() in held] == []
    assert [name for name, text in canaries.items() if text.encode() in folder] == []


async def at_rest(database_url: str) -> bytes:
    """Every cell of the tables of files and batches."""
    database = open_database(database_url, pooled=False)
    try:
        async with database.reading() as connection:
            rows = [
                row
                for table in (kept_files, kept_file_parts, batches, batch_lines)
                for row in (await connection.execute(select(table))).all()
            ]
    finally:
        await database.close()
    cells = [cell for row in rows for cell in row]
    return b"".join(cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells)


async def test_a_project_has_so_many_batches_open_and_no_more(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    own_upstreams.engine.answer(Answer(hold=hold))
    more = "[batches]\nopen_max = 2\n" + UNHURRIED
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=more) as gateway:
        key = await gateway.issue_key()
        other = await gateway.issue_key(Place("acme", "research", "other"))
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
        ) as client:
            first = [await make(client, marked(1)) for _ in range(2)]
            with pytest.raises(openai.RateLimitError):
                await make(client, marked(1))
            await make(client.with_options(api_key=other), marked(1))
            hold.set()
            for batch in first:
                await ended(client, batch)
            await ended(client, await make(client, marked(1)))


async def test_where_batches_are_switched_off_there_is_nothing_at_their_addresses(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> None:
    off = "[batches]\nenabled = false\n"
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=off) as gateway:
        key = await gateway.issue_key()
        async with speaking(gateway.url, key) as client:
            for ask in (client.files.list, client.batches.list):
                with pytest.raises(openai.NotFoundError) as caught:
                    await ask()
                assert caught.value.code == "unknown_url"


HALF_PRICE = """
[models."in-house"]
vendor = "in-house"
tier = "cheap"
input_microusd_per_mtok = 1_000_000
output_microusd_per_mtok = 1_000_000
cache_read_microusd_per_mtok = 1_000_000
cache_write_microusd_per_mtok = 1_000_000
cache_write_1h_microusd_per_mtok = 1_000_000
batch_percent = 50
context_window_tokens = 32768
output_tokens_max = 8192
capabilities = ["json_schema", "streaming"]
source = "a test"
as_of = "2026-11-21"
"""


async def test_a_line_costs_what_a_request_costs_but_where_the_house_has_a_price_for_batches(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> None:
    (tmp_path / "own.toml").write_text(HALF_PRICE)
    more = '[prices]\nfile = "own.toml"\n' + UNHURRIED
    costs: dict[str, tuple[int, int]] = {}
    async with (
        RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as gateway,
        speaking(gateway.url, await gateway.issue_key()) as client,
    ):
        for target in ("house-model", "gpt-6.2-sol"):
            plain = await client.chat.completions.with_raw_response.create(
                model=target, messages=[{"role": "user", "content": "Good morning"}]
            )
            batch = await ended(client, await make(client, [line("a", model=target)]))
            told = (await all_results(client, batch))["a"]["gatewright"]
            usual = int(plain.headers["x-gatewright-cost-microusd"])
            costs[target] = (usual, told["cost_microusd"])

    assert costs["house-model"] == (18, 9)
    assert costs["gpt-6.2-sol"][0] == costs["gpt-6.2-sol"][1] > 0
