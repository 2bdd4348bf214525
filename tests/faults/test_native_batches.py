"""Lines answered by vendors' own batch APIs: at their price, once, and none that must stay home."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from gateway.audit.projecting.export import segment_rows
from gateway.configuration.reading import load_settings
from gateway.errors import AuditUnavailable, ConfigurationInvalid, UpstreamUnreachable
from gateway.parcels import VendorBatch
from gateway.providers.parcels.openai import OpenAIParcels
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.types import AuditRecord, Receipt
from tests.conformance.test_batches import ended, line, make, results
from tests.faults.test_kills import configured, issued, serving
from tests.free_ports import free_port
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(180)]

NATIVE = "native_batches = true"
MORE = """
[inspection]
deadline_s = 30.0
[batches]
native_poll_s = 0.05
"""
AADHAAR = "4991 1866 5246"
TOKENS = Answer(input_tokens=100_000, output_tokens=10_000)


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        upstreams.openai.answer(TOKENS)
        upstreams.anthropic.answer(TOKENS)
        yield upstreams


@asynccontextmanager
async def running(
    folder: Path, database_url: str, upstreams: Upstreams
) -> AsyncIterator[tuple[RunningGateway, str]]:
    async with RunningGateway(
        folder, database_url, upstreams, more=MORE, managed=NATIVE
    ) as gateway:
        yield gateway, await gateway.issue_key()


def speaking(url: str, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=5)


def asking(count: int, target: str = GPT_TARGET) -> list[bytes]:
    return [
        line(f"q-{at}", model=target, messages=[{"role": "user", "content": f"mark {at}"}])
        for at in range(1, count + 1)
    ]


async def all_results(client: openai.AsyncOpenAI, batch: Any) -> dict[str, Any]:
    found = await results(client, batch.output_file_id) if batch.output_file_id else {}
    errors = await results(client, batch.error_file_id) if batch.error_file_id else {}
    assert not found.keys() & errors.keys()
    return found | errors


def live_calls(upstreams: Upstreams) -> list[str]:
    """Paths of model calls at the managed upstreams that were made one by one."""
    calls = [call.path for each in upstreams.managed for call in each.calls]
    return [path for path in calls if path.endswith(("/completions", "/messages"))]


def outcomes(records: list[AuditRecord]) -> list[AuditRecord]:
    """Outcomes of lines; and every intent has exactly one."""
    lines = [each for each in records if "batch" in each.detail]
    counts = Counter((each.stage, each.request_id) for each in lines)
    assert set(counts.values()) == {1}
    ends = [each for each in lines if each.stage == "outcome"]
    intents = {each.request_id for each in lines if each.stage == "intent"}
    assert intents <= {each.request_id for each in ends}
    return ends


async def test_lines_go_to_openais_batch_api_at_half_the_price(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        client = speaking(gateway.url, key)
        async with client:
            batch = await ended(client, await make(client, asking(5)))
            found = await all_results(client, batch)
            live = await client.chat.completions.with_raw_response.create(
                model=GPT_TARGET, messages=[{"role": "user", "content": "mark 0"}]
            )
        records = await gateway.records()
    assert batch.status == "completed"
    assert list(found) == [f"q-{at}" for at in range(1, 6)]
    full = int(live.headers["x-gatewright-cost-microusd"])
    assert full > 0
    for wire in found.values():
        assert wire["gatewright"]["cost_microusd"] == -(-full // 2)
        assert wire["gatewright"]["target"] == GPT_TARGET
        usage = openai.types.CompletionUsage.model_validate(wire["response"]["body"]["usage"])
        assert (usage.prompt_tokens, usage.completion_tokens) == (100_000, 10_000)
    vendor = upstreams.openai.batches
    assert (vendor.made, len(vendor.lines)) == (1, 5)
    assert len(vendor.deleted) == 2  # The file that went up, and the one that came back.
    assert len(live_calls(upstreams)) == 1
    ends = outcomes(records)
    assert [each.detail["path"] for each in ends] == ["native_batch"] * 5
    assert {each.detail["native_batch"] for each in ends} == {"batch_v1"}
    assert {each.detail["native_files"] for each in ends} == {" ".join(vendor.deleted)}
    assert [each.attempts[0].upstream_ids for each in ends] == [("q",)] * 5
    assert {each.usage.service_tier for each in ends if each.usage is not None} == {"batch"}
    by_request = {each.request_id: each for each in ends}
    for wire in found.values():
        end = by_request[wire["response"]["request_id"]]
        assert (end.cost_microusd, end.status) == (wire["gatewright"]["cost_microusd"], "ok")


async def test_lines_with_tools_go_to_the_endpoint_that_takes_them_and_others_to_theirs(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    """Newer models take tools in responses only; a vendor's batch is of one endpoint."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    some: list[dict[str, Any]] = [{"tools": [tool]}, {}, {"tools": [tool]}, {}, {}]
    lines = [line(f"q-{at}", model=GPT_TARGET, **each) for at, each in enumerate(some)]
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with speaking(gateway.url, key) as client:
            batch = await ended(client, await make(client, lines))
            found = await all_results(client, batch)
        records = await gateway.records()
    assert batch.status == "completed"
    assert [wire["response"]["status_code"] for wire in found.values()] == [200] * 5
    vendor = upstreams.openai.batches
    handed = {each["endpoint"]: len(each["lines"]) for each in vendor.batches.values()}
    assert handed == {"/v1/responses": 2, "/v1/chat/completions": 3}
    assert live_calls(upstreams) == []
    assert {each.detail["path"] for each in outcomes(records)} == {"native_batch"}


@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_a_vendors_batch_that_never_ends_is_cancelled_a_few_times_and_paid_for_on_record(
    tmp_path: Path,
    database_url: str,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """Its lines go one by one; when it ends after all it is deleted, and no answer changes."""
    for module in ("forgetting", "parcel_journeys"):
        monkeypatch.setattr(f"gateway.batching.{module}.CANCELS_MAX", 3)
        monkeypatch.setattr(f"gateway.batching.{module}.rest_s", lambda *_: 0.05)
    monkeypatch.setattr("gateway.batching.parcel_journeys.OVERDUE_S", 0.5)
    vendor = getattr(upstreams, name).batches
    vendor.faults = ParcelFaults(is_slow=True, is_endless=True)
    target = {"openai": GPT_TARGET, "anthropic": CLAUDE_TARGET}[name]
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with speaking(gateway.url, key) as client:
            batch = await ended(client, await make(client, asking(3, target)))
            found = await all_results(client, batch)
        looks = vendor.looks
        async with asyncio.timeout(60):
            while vendor.looks < looks + 20:
                await asyncio.sleep(0.05)
        assert 3 <= len(vendor.cancelled) <= 4
        vendor.faults = ParcelFaults()
        async with asyncio.timeout(60):
            while not vendor.deleted:
                await asyncio.sleep(0.05)
        records = await gateway.records()
    assert (batch.status, len(found)) == ("completed", 3)
    assert len(live_calls(upstreams)) == 3
    (deed,) = [each for each in records if each.action == "batch.never_ended"]
    assert (deed.detail["lines"], deed.detail["batch"]) == ("3", batch.id)
    ends = outcomes([each for each in records if each.stage != "admin"])
    lost = [each for each in ends if each.detail.get("path")]
    assert [(each.status, each.error) for each in lost] == [("failed", "upstream_timeout")] * 3
    assert min(each.cost_microusd for each in lost) > 0
    answered = {wire["response"]["request_id"] for wire in found.values()}
    assert answered == {each.request_id for each in ends if each.status == "ok"}


async def test_messages_go_to_anthropics_batch_api_and_its_sdk_reads_them(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    upstreams.anthropic.batches.faults = ParcelFaults(
        is_reversed=True, is_doubled=True, refused=frozenset({2})
    )
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key) as client:
            batches = client.messages.batches
            batch = await batches.create(
                requests=[
                    {
                        "custom_id": f"m-{at}",
                        "params": {
                            "model": CLAUDE_TARGET,
                            "max_tokens": 50,
                            "messages": [{"role": "user", "content": f"mark {at}"}],
                        },
                    }
                    for at in range(1, 4)
                ]
            )
            while batch.processing_status != "ended":
                await asyncio.sleep(0.05)
                batch = await batches.retrieve(batch.id)
            found = {each.custom_id: each async for each in await batches.results(batch.id)}
        records = await gateway.records()
    assert {name: each.result.type for name, each in found.items()} == {
        "m-1": "succeeded",
        "m-2": "errored",
        "m-3": "succeeded",
    }
    first = found["m-1"].result
    assert first.type == "succeeded"
    assert (first.message.usage.input_tokens, first.message.usage.output_tokens) == (
        100_000,
        10_000,
    )
    # $4 and $20 per million tokens, halved.
    costs = {each.detail["line"]: each.cost_microusd for each in outcomes(records)}
    assert costs == {"1": 300_000, "2": 0, "3": 300_000}
    assert live_calls(upstreams) == []
    assert upstreams.anthropic.batches.made == 1


async def test_a_line_that_must_stay_home_never_leaves_while_its_neighbours_do(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    lines = asking(4)
    text = f"Her Aadhaar number is {AADHAAR}."
    lines[2] = line("q-3", model=GPT_TARGET, messages=[{"role": "user", "content": text}])
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with speaking(gateway.url, key) as client:
            batch = await ended(client, await make(client, lines))
            found = await all_results(client, batch)
        records = await gateway.records()
    targets = {name: wire["gatewright"]["target"] for name, wire in found.items()}
    assert targets == dict.fromkeys(("q-1", "q-2", "q-4"), GPT_TARGET) | {"q-3": ENGINE_TARGET}
    left = b"".join(each.body for upstream in upstreams.managed for each in upstream.requests)
    assert b"mark 1" in left
    assert AADHAAR.encode() not in left
    assert AADHAAR.replace(" ", "").encode() not in left
    assert AADHAAR.encode() in b"".join(call.body for call in upstreams.engine.calls)
    places = {each.detail["line"]: each.jurisdiction for each in outcomes(records)}
    assert places == {"1": "us", "2": "us", "3": "in-house", "4": "us"}


async def test_what_a_vendor_leaves_undone_is_done_line_by_line(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    upstreams.openai.batches.faults = ParcelFaults(
        refused=frozenset({1}),
        overloaded=frozenset({2}),
        unsent=frozenset({3}),
        lost=frozenset({4}),
        cut_after=1,
    )
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with speaking(gateway.url, key) as client:
            batch = await ended(client, await make(client, asking(6)))
            found = await all_results(client, batch)
        records = await gateway.records()
    statuses = {name: wire["response"]["status_code"] for name, wire in found.items()}
    assert statuses == {"q-1": 400} | {f"q-{at}": 200 for at in range(2, 7)}
    assert len(live_calls(upstreams)) == 3
    ends = outcomes(records)
    paths = Counter((each.detail["line"], each.detail.get("path", "")) for each in ends)
    assert paths == Counter(
        [(str(at), "native_batch") for at in range(1, 7)] + [(str(at), "") for at in (2, 3, 4)]
    )
    paid = Counter(each.detail["line"] for each in ends if each.cost_microusd)
    assert paid == Counter(["2", "3", "4", "5", "6"])


@pytest.mark.parametrize("spoil", [lambda told: told[:-40], lambda told: b"\xef\xbb\xbf" + told])
@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_a_result_that_cannot_be_read_may_have_cost_something(
    tmp_path: Path,
    database_url: str,
    upstreams: Upstreams,
    name: str,
    spoil: Callable[[bytes], bytes],
) -> None:
    """Its line goes alone, and the vendor, which answered it, was not free."""
    getattr(upstreams, name).batches.spoil = spoil
    target = GPT_TARGET if name == "openai" else CLAUDE_TARGET
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with speaking(gateway.url, key) as client:
            batch = await ended(client, await make(client, asking(3, target)))
            found = await all_results(client, batch)
        records = await gateway.records()
    assert [wire["response"]["status_code"] for wire in found.values()] == [200] * 3
    assert len(live_calls(upstreams)) == 1
    ends = outcomes(records)
    assert Counter(each.status for each in ends) == {"ok": 3, "failed": 1}
    (unread,) = [each for each in ends if each.status == "failed"]
    assert (unread.detail["path"], unread.error) == ("native_batch", "upstream_timeout")
    assert unread.cost_microusd > 0
    answers = {wire["response"]["request_id"]: wire["gatewright"] for wire in found.values()}
    booked = {each.request_id: each.cost_microusd for each in ends if each.status == "ok"}
    assert booked == {name: each["cost_microusd"] for name, each in answers.items()}


async def test_after_long_waiting_a_download_that_breaks_off_is_read_again_and_nothing_is_resent(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    vendor = upstreams.openai.batches
    vendor.faults = ParcelFaults(is_slow=True)
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with speaking(gateway.url, key) as client:
            batch = await make(client, asking(3))
            while vendor.looks < 6:
                await asyncio.sleep(0.02)
            vendor.faults = ParcelFaults(cut_after=1)
            batch = await ended(client, batch)
            assert len(await all_results(client, batch)) == 3
        ends = outcomes(await gateway.records())
    assert live_calls(upstreams) == []
    assert [each.detail["path"] for each in ends] == ["native_batch"] * 3


async def test_looks_for_a_parcel_that_failed_do_not_say_that_it_is_not_there(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vendor whose list is down for long, and shows new batches late, has it all the same."""
    vendor, find = upstreams.openai.batches, OpenAIParcels.find
    vendor.faults = ParcelFaults(hides_submit=True)
    asked: list[str] = []

    async def finds(service: OpenAIParcels, *given: Any) -> VendorBatch | None:
        asked.append("find")
        if len(asked) <= 5:
            raise UpstreamUnreachable("away")
        return await find(service, *given) if len(asked) > 7 else None

    monkeypatch.setattr(OpenAIParcels, "find", finds)
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with speaking(gateway.url, key) as client:
            batch = await ended(client, await make(client, asking(3)))
            assert len(await all_results(client, batch)) == 3
        outcomes(await gateway.records())
    assert len(asked) == 8
    assert (vendor.made, live_calls(upstreams)) == (1, [])


async def test_a_vendor_that_refuses_a_parcel_gets_its_lines_one_by_one(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    upstreams.openai.batches.faults = ParcelFaults(submit_status=403)
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with speaking(gateway.url, key) as client:
            batch = await ended(client, await make(client, asking(3)))
            assert len(await all_results(client, batch)) == 3
        outcomes(await gateway.records())
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 3
    assert len(live_calls(upstreams)) == 3


@pytest.mark.parametrize("is_handed", [True, False])
async def test_a_revoked_keys_lines_say_whether_a_vendor_had_them(
    tmp_path: Path,
    database_url: str,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    is_handed: bool,
) -> None:
    monkeypatch.setattr("gateway.batching.parcel_journeys.WAITS_MAX", 1_000)
    vendor = upstreams.openai.batches
    vendor.faults = ParcelFaults(is_slow=True) if is_handed else ParcelFaults(submit_status=429)
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with speaking(gateway.url, key) as client:
            batch = await make(client, asking(3))
            while not (vendor.looks if is_handed else upstreams.openai.calls):
                await asyncio.sleep(0.02)
            await gateway.revoke_key(key)
        async with speaking(gateway.url, await gateway.issue_key()) as client:
            found = await all_results(client, await ended(client, batch))
    assert {wire["error"]["code"] for wire in found.values()} == {"invalid_api_key"}
    said = {wire["error"]["message"] for wire in found.values()}
    over = "The key that made this batch is not valid any more; the line"
    tried = f"{over} had been tried, a vendor may have had it, and no answer came."
    assert said == {tried if is_handed else f"{over} was not sent."}


async def test_a_cancelled_batch_is_cancelled_at_its_vendor_too(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    upstreams.openai.batches.faults = ParcelFaults(is_slow=True)
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with speaking(gateway.url, key) as client:
            batch = await make(client, asking(3))
            while not upstreams.openai.batches.looks:
                await asyncio.sleep(0.02)
            batch = await ended(client, await client.batches.cancel(batch.id))
            found = await all_results(client, batch)
        records = await gateway.records()
        left = gateway.budget_left(("org:acme",))
    assert batch.status == "cancelled"
    assert {wire["error"]["code"] for wire in found.values()} == {"batch_cancelled"}
    assert upstreams.openai.batches.cancelled[0] == "batch_v1"
    assert [each.cost_microusd for each in outcomes(records)] == [0, 0, 0]
    assert left is None


async def test_money_for_parked_lines_is_set_aside_at_half_and_a_restart_ends_nothing(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    vendor = upstreams.openai.batches
    vendor.faults = ParcelFaults(is_slow=True)
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        await gateway.limit("org:acme", 100_000_000)
        async with speaking(gateway.url, key) as client:
            batch = await make(client, asking(3))
            while not vendor.looks:
                await asyncio.sleep(0.02)
            intents = [each for each in await gateway.records() if each.stage == "intent"]
            left = gateway.budget_left(("org:acme",))
    assert left == 100_000_000 - sum(each.reserved_microusd for each in intents)
    vendor.faults = ParcelFaults()
    async with RunningGateway(
        tmp_path, database_url, upstreams, more=MORE, managed=NATIVE
    ) as gateway:
        async with speaking(gateway.url, key) as client:
            batch = await ended(client, await client.batches.retrieve(batch.id))
            found = await all_results(client, batch)
        records = await gateway.records()
        after = gateway.budget_left(("org:acme",))
    assert len(found) == 3
    assert (vendor.made, live_calls(upstreams)) == (1, [])
    ends = outcomes(records)
    assert {each.request_id for each in ends} == {each.request_id for each in intents}
    assert after == 100_000_000 - sum(each.cost_microusd for each in ends)


async def test_an_outcome_that_could_not_be_written_at_first_is_not_paid_twice(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[AuditRecord] = []
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        await gateway.limit("org:acme", 100_000_000)
        append = gateway.plane._evidence.append

        async def append_later(record: AuditRecord, content: bytes | None) -> Receipt:
            if record.stage == "outcome" and len(failed) < 2:
                failed.append(record)
                raise AuditUnavailable("The disk is away for a moment.")
            return await append(record, content)

        monkeypatch.setattr(gateway.plane._evidence, "append", append_later)
        async with speaking(gateway.url, key) as client:
            found = await all_results(client, await ended(client, await make(client, asking(3))))
        ends = outcomes(await gateway.records())
        paid = sum(each.cost_microusd for each in ends)
        async with asyncio.timeout(30):
            # What is on its way back to the database is counted by nobody for a moment.
            while gateway.budget_left(("org:acme",)) != 100_000_000 - paid:
                await asyncio.sleep(0.05)
    assert len(failed) == 2
    assert len(found) == 3
    assert all(each.cost_microusd > 0 for each in ends)


@pytest.mark.parametrize(
    ("managed", "reason"),
    [
        (f'{NATIVE}\nassurances = ["no_retention"]', "no_retention"),
        ("native_batches = 7", "native_batches"),
    ],
)
async def test_a_promise_to_keep_nothing_rules_out_a_vendors_batches(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, managed: str, reason: str
) -> None:
    gateway = RunningGateway(tmp_path, sqlite_url, upstreams, managed=managed)
    with pytest.raises(ConfigurationInvalid, match=reason):
        load_settings(gateway.config_file)
    gateway._socket.close()


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
async def test_a_worker_killed_while_its_vendor_works_sends_nothing_twice(
    tmp_path: Path, database_url: str, upstreams: Upstreams, vendor: str
) -> None:
    upstream = getattr(upstreams, vendor)
    target = GPT_TARGET if vendor == "openai" else CLAUDE_TARGET
    upstream.batches.faults = ParcelFaults(is_slow=True, is_reversed=True)
    found, records = await _killed_between(
        tmp_path,
        database_url,
        upstreams,
        asking(30, target),
        lambda: upstream.batches.looks > 0,
        lambda: setattr(upstream.batches, "faults", ParcelFaults(is_reversed=True)),
    )
    assert len(found) == 30
    assert upstream.batches.made == 1
    assert len(upstream.batches.lines) in {0, 30}  # Anthropic's batch is deleted afterwards.
    assert live_calls(upstreams) == []
    assert len(outcomes(records)) == 30


async def test_a_parcel_whose_receipt_was_lost_in_a_kill_is_found_and_not_sent_again(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    vendor = upstreams.openai.batches
    vendor.faults = ParcelFaults(is_slow=True, hides_submit=True)
    found, records = await _killed_between(
        tmp_path,
        database_url,
        upstreams,
        asking(10),
        lambda: vendor.made > 0,
        lambda: setattr(vendor, "faults", ParcelFaults()),
    )
    assert len(found) == 10
    assert (vendor.made, len(vendor.lines)) == (1, 10)
    assert live_calls(upstreams) == []
    assert len(outcomes(records)) == 10


async def _killed_between(
    folder: Path,
    database_url: str,
    upstreams: Upstreams,
    lines: list[bytes],
    is_time: Any,
    then: Any,
) -> tuple[dict[str, Any], list[AuditRecord]]:
    """Kill the worker when it is time, change the world, start it again; results and records."""
    port = free_port()
    more = MORE.partition("30.0")[2]
    config_file = await configured(folder, database_url, upstreams, port, more=more, managed=NATIVE)
    settings = load_settings(config_file)
    key = await issued(settings)
    url = f"http://127.0.0.1:{port}"
    async with serving(config_file, url) as process, speaking(url, key) as client:
        batch = await make(client, lines)
        while not is_time():
            await asyncio.sleep(0.01)
        process.kill()
        await process.wait()
    then()
    async with serving(config_file, url), speaking(url, key) as client:
        batch = await ended(client, await client.batches.retrieve(batch.id))
        found = await all_results(client, batch)
    assert batch.status == "completed"
    assert {wire["response"]["status_code"] for wire in found.values()} == {200}
    return found, await records_in(settings.path(settings.audit.directory))


async def records_in(folder: Path) -> list[AuditRecord]:
    return [row.projected.record async for row in segment_rows(folder)]
