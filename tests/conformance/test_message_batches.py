"""Message batches over HTTP with Anthropic's official client: sent, fetched, nobody else's."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import anthropic
import httpx2
import msgspec
import openai
import pytest
from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse

from gateway.api.message_batches import GROUP_BYTES, GROUP_LINES, _groups
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.lines import LineStore
from gateway.store.identity.keys import Place
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer, reply_of


pytestmark = pytest.mark.anyio

SETTINGS = """
[inspection]
deadline_s = 5.0
[limits]
batch_lines_max = 120
batch_line_bytes_max = 20000
file_bytes_max = 500000
"""
OTHERS = [Place("acme", "research", "other"), Place("rival", "research", "assistant")]
PATH = "/v1/messages/batches"


@pytest.fixture
async def client(
    gateway: RunningGateway, shared_key: str
) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=gateway.url, api_key=shared_key, max_retries=0
    ) as client:
        yield client


def ask(custom_id: str, **params: object) -> Any:
    messages = [{"role": "user", "content": "Good morning"}]
    usual = {"model": ENGINE_TARGET, "max_tokens": 50, "messages": messages}
    return {"custom_id": custom_id, "params": usual | params}


async def ended(client: anthropic.AsyncAnthropic, batch: MessageBatch) -> MessageBatch:
    while batch.processing_status != "ended":
        await asyncio.sleep(0.05)
        batch = await client.messages.batches.retrieve(batch.id)
    return batch


async def results(
    client: anthropic.AsyncAnthropic, batch: MessageBatch
) -> dict[str, MessageBatchIndividualResponse]:
    found = [each async for each in await client.messages.batches.results(batch.id)]
    assert len({each.custom_id for each in found}) == len(found)
    return {each.custom_id: each for each in found}


async def test_an_answer_in_several_lines_is_one_line_of_the_results(
    client: anthropic.AsyncAnthropic, upstreams: Upstreams
) -> None:
    answer = reply_of(Answer(text="In\u2028lines."), "m", "anthropic_messages")
    body = msgspec.json.format(msgspec.json.encode(answer), indent=2).replace(b"\n", b"\r\n")
    upstreams.anthropic.answer(Answer(body=body))
    made = await client.messages.batches.create(requests=[ask("c", model=CLAUDE_TARGET)])

    found = await results(client, await ended(client, made))

    assert found["c"].result.type == "succeeded"
    assert found["c"].result.message.to_dict()["content"] == answer["content"]


async def test_every_request_is_answered_in_the_callers_dialect_whatever_answers(
    client: anthropic.AsyncAnthropic, gateway: RunningGateway
) -> None:
    targets = {"e": ENGINE_TARGET, "c": CLAUDE_TARGET, "g": GPT_TARGET}
    made = await client.messages.batches.create(
        requests=[ask(name, model=target) for name, target in targets.items()]
    )
    assert made.id.startswith("msgbatch_")
    assert (made.type, made.processing_status) == ("message_batch", "in_progress")
    assert made.request_counts.processing == 3
    assert made.results_url is None
    assert (made.expires_at - made.created_at).total_seconds() == 86_400

    batch = await ended(client, made)
    assert batch.request_counts.model_dump() == {
        **dict.fromkeys(("canceled", "errored", "expired", "processing"), 0),
        "succeeded": 3,
    }
    assert batch.ended_at is not None
    assert batch.results_url == f"{PATH}/{batch.id}/results"
    found = await results(client, batch)
    assert list(found) == ["e", "c", "g"]
    for name, each in found.items():
        assert each.result.type == "succeeded"
        (block,) = each.result.message.content
        assert block.type == "text"
        assert block.text == "Hello from the upstream."
        told: Any = each.model_extra
        assert told["gatewright"]["target"] == targets[name]
    records = [each for each in await gateway.records() if each.detail.get("batch") == batch.id]
    assert [each.stage for each in records].count("outcome") == 3


async def test_what_fails_is_an_error_that_the_client_understands(
    client: anthropic.AsyncAnthropic,
) -> None:
    made = await client.messages.batches.create(
        requests=[
            ask("good"),
            ask("unknown", model="no-such-model"),
            ask("streamed", stream=True),
            ask("endless", max_tokens=-1),
        ]
    )
    batch = await ended(client, made)

    assert (batch.request_counts.succeeded, batch.request_counts.errored) == (1, 3)
    found = await results(client, batch)
    kinds = {
        name: each.result.error.error.type
        for name, each in found.items()
        if each.result.type == "errored"
    }
    assert kinds == {
        "unknown": "not_found_error",
        "streamed": "invalid_request_error",
        "endless": "invalid_request_error",
    }


async def test_a_batch_is_listed_deleted_and_then_gone(client: anthropic.AsyncAnthropic) -> None:
    made = [await client.messages.batches.create(requests=[ask("a")]) for _ in range(3)]
    listed = [each.id async for each in client.messages.batches.list(limit=2)]
    assert listed[:3] == [each.id for each in reversed(made)]
    most = await client.messages.batches.list(limit=1_000)
    assert [each.id for each in most.data] == listed
    with pytest.raises(anthropic.BadRequestError):
        await client.messages.batches.list(limit=1_001)
    page = await client.messages.batches.list(before_id=made[0].id, limit=1)
    assert [each.id for each in page.data] == [made[1].id]

    batch = await ended(client, made[0])
    gone = await client.messages.batches.delete(batch.id)
    assert (gone.id, gone.type) == (batch.id, "message_batch_deleted")
    for read in (client.messages.batches.retrieve, client.messages.batches.results):
        with pytest.raises(anthropic.NotFoundError) as caught:
            await read(batch.id)
        body: Any = caught.value.body
        assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")


async def test_results_of_a_batch_that_is_deleted_meanwhile_are_cut_and_do_not_pass_for_all(
    client: anthropic.AsyncAnthropic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.batching.lines.READ_AT_ONCE", 1)
    made = await client.messages.batches.create(requests=[ask("a"), ask("b"), ask("c")])
    batch, read = await ended(client, made), LineStore.ended

    async def slowly(*given: Any) -> AsyncIterator[Any]:
        async for group in read(*given):
            yield group
            await client.messages.batches.delete(batch.id)

    monkeypatch.setattr(LineStore, "ended", slowly)
    with pytest.raises(httpx2.RemoteProtocolError):
        await results(client, batch)


async def test_a_cancelled_batch_lets_requests_under_way_end_and_begins_no_other(
    client: anthropic.AsyncAnthropic, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    upstreams.engine.answer(Answer(hold=hold))
    made = await client.messages.batches.create(requests=[ask(f"q-{at}") for at in range(20)])
    while len(upstreams.engine.calls) < 8:
        await asyncio.sleep(0.01)
    with pytest.raises(anthropic.BadRequestError):
        await client.messages.batches.delete(made.id)
    with pytest.raises(anthropic.AnthropicError):
        await client.messages.batches.results(made.id)
    cancelled = await client.messages.batches.cancel(made.id)
    assert cancelled.processing_status == "canceling"
    assert cancelled.cancel_initiated_at is not None
    hold.set()

    batch = await ended(client, cancelled)
    assert (batch.request_counts.succeeded, batch.request_counts.canceled) == (8, 12)
    found = await results(client, batch)
    assert [each.result.type for each in found.values()].count("canceled") == 12
    assert len(upstreams.engine.calls) == 8


async def test_a_revoked_key_stops_its_batch_and_says_why(
    gateway: RunningGateway, client: anthropic.AsyncAnthropic, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    upstreams.engine.answer(Answer(hold=hold))
    key = await gateway.issue_key()
    made = await client.with_options(api_key=key).messages.batches.create(
        requests=[ask(f"q-{at}") for at in range(10)]
    )
    while len(upstreams.engine.calls) < 8:
        await asyncio.sleep(0.01)
    await gateway.revoke_key(key)
    while key.split("_")[2] in gateway.plane.snapshots.current().keys.records:
        await asyncio.sleep(0.01)
    hold.set()

    found = await results(client, await ended(client, made))
    errors = [each.result.error for each in found.values() if each.result.type == "errored"]
    assert [error.error.type for error in errors] == ["authentication_error"] * 2


@pytest.mark.parametrize("place", OTHERS)
async def test_nobody_elses_batch_is_found(
    gateway: RunningGateway, client: anthropic.AsyncAnthropic, shared_key: str, place: Place
) -> None:
    batch = await ended(client, await client.messages.batches.create(requests=[ask("a")]))
    stranger = client.with_options(api_key=await gateway.issue_key(place))

    asks = stranger.messages.batches
    for read in (asks.retrieve, asks.cancel, asks.delete, asks.results):
        with pytest.raises(anthropic.NotFoundError):
            await read(batch.id)
    assert [each.id async for each in asks.list()] == []
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=shared_key) as other:
        with pytest.raises(openai.NotFoundError):
            await other.batches.retrieve(batch.id)
    assert (await client.messages.batches.retrieve(batch.id)).id == batch.id


def body_of(*requests: object) -> bytes:
    return msgspec.json.encode({"requests": requests})


WRONG = [
    (b"", "requests"),
    (b"[]", "requests"),
    (b'{"requests":[]}', "requests"),
    (b'{"requests":{}}', "requests"),
    (b'{"requests":[{]}', "requests"),
    (b'{"requests":[\xff]}', "requests"),
    (b'{"requests":[1],"requests":[2]}', "requests"),
    (b'{"more":1,"requests":[1]}', "requests"),
    (b"[" * 200_000, "requests"),
    (body_of(1), "requests.0"),
    (body_of(ask("a"), {"custom_id": "b"}), "requests.1"),
    (body_of(ask("a") | {"url": "x"}), "requests.0"),
    (body_of(ask("a b")), "requests.0.custom_id"),
    (body_of(ask("x" * 65)), "requests.0.custom_id"),
    (body_of(ask("a"), ask("b"), ask("a")), "requests.2.custom_id"),
    (body_of({"custom_id": "a", "params": []}), "requests.0.params"),
    (b'{"requests":[{"custom_id":"a","custom_id":"b","params":{}}]}', "requests.0"),
    (body_of(*[ask(f"l-{at}") for at in range(121)]), "requests: A batch has at most 120"),
    # Not made into a list of millions first.
    (body_of(*[1] * 200), "requests.0"),
]


@pytest.mark.parametrize(("body", "place"), WRONG)
async def test_a_body_that_is_no_batch_is_refused_with_its_place(
    gateway: RunningGateway,
    client: anthropic.AsyncAnthropic,
    upstreams: Upstreams,
    body: bytes,
    place: str,
) -> None:
    before = [each.id async for each in client.messages.batches.list()]
    status, error = await posted(gateway, client, body)

    assert (status, error["type"]) == (400, "invalid_request_error")
    assert place in error["message"]
    assert [each.id async for each in client.messages.batches.list()] == before
    assert not upstreams.engine.calls


async def posted(
    gateway: RunningGateway, client: anthropic.AsyncAnthropic, body: bytes
) -> tuple[int, dict[str, Any]]:
    headers = {"x-api-key": str(client.api_key), "content-type": "application/json"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(gateway.url + PATH, data=body, headers=headers) as response,
    ):
        wire = await response.json()
        assert wire["type"] == "error"
        assert response.headers["request-id"] == wire["request_id"]
        return response.status, wire["error"]


async def test_what_is_too_long_is_refused_and_nothing_of_it_stays(
    gateway: RunningGateway, client: anthropic.AsyncAnthropic
) -> None:
    before = [each.id async for each in client.messages.batches.list()]
    long = ask("a", system="x" * 20_000)
    assert (await posted(gateway, client, body_of(long)))[0] == 413
    assert (await posted(gateway, client, b"x" * 500_001))[0] == 413
    assert [each.id async for each in client.messages.batches.list()] == before


@pytest.mark.parametrize(("owner", "name"), [(LineStore, "receive"), (BatchStore, "begin")])
async def test_what_was_forgotten_while_it_arrived_may_be_sent_again(
    client: anthropic.AsyncAnthropic, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    step = getattr(owner, name)
    stores: list[BatchStore] = []
    make = BatchStore.make

    async def makes(store: BatchStore, *given: Any, **named: Any) -> Any:
        stores.append(store)
        return await make(store, *given, **named)

    async def late(owner: object, batch_id: str, *given: Any, **named: Any) -> Any:
        await stores[0].drop(batch_id)
        return await step(owner, batch_id, *given, **named)

    known = [each.id async for each in client.messages.batches.list()]
    monkeypatch.setattr(BatchStore, "make", makes)
    monkeypatch.setattr(owner, name, late)
    with pytest.raises(anthropic.InternalServerError) as caught:
        await client.messages.batches.create(requests=[ask("a")])
    assert caught.value.status_code == 529
    assert [each.id async for each in client.messages.batches.list()] == known


@pytest.mark.parametrize("length", [2, 100, GROUP_BYTES // 3, GROUP_BYTES + 1])
def test_no_group_that_is_kept_at_once_is_longer_than_others_should_wait(length: int) -> None:
    raws = [b"x" * length] * (2 * GROUP_LINES + 1)
    groups = list(_groups(raws, length))
    assert [number for group in groups for number, _ in group] == list(range(1, len(raws) + 1))
    assert max(map(len, groups)) <= GROUP_LINES
    assert max(sum(len(raw) for _, raw in group) for group in groups) < GROUP_BYTES + length
