"""Batches over HTTP with OpenAI's official client: sent line by line, and nobody else's."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
import openai
import pytest
from openai.types import Batch, BatchError

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
"""
CHAT = "/v1/chat/completions"
OTHERS = [Place("acme", "research", "other"), Place("rival", "research", "assistant")]
IBAN = "DE89 3704 0044 0532 0130 00"


@pytest.fixture
async def client(gateway: RunningGateway, shared_key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=shared_key, max_retries=0
    ) as client:
        yield client


def line(custom_id: str, url: str = CHAT, method: str = "POST", **body: object) -> bytes:
    usual = {"model": ENGINE_TARGET, "messages": [{"role": "user", "content": "Good morning"}]}
    wire = {"custom_id": custom_id, "method": method, "url": url, "body": usual | body}
    return msgspec.json.encode(wire)


async def make(
    client: openai.AsyncOpenAI, lines: Iterable[bytes], endpoint: str = CHAT, **more: Any
) -> Batch:
    content = b"\n".join(lines)
    file = await client.files.create(file=("lines.jsonl", content), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id,
        endpoint=endpoint,  # type: ignore[arg-type]
        completion_window="24h",
        **more,
    )


async def ended(client: openai.AsyncOpenAI, batch: Batch) -> Batch:
    while batch.status in {"validating", "in_progress", "finalizing", "cancelling"}:
        await asyncio.sleep(0.05)
        batch = await client.batches.retrieve(batch.id)
    return batch


async def results(client: openai.AsyncOpenAI, file_id: str | None) -> dict[str, Any]:
    assert file_id is not None
    content = (await client.files.content(file_id)).content
    assert content.endswith(b"\n")
    wires = [msgspec.json.decode(each) for each in content.splitlines()]
    assert len({wire["custom_id"] for wire in wires}) == len(wires)
    return {wire["custom_id"]: wire for wire in wires}


async def test_every_line_is_answered_and_the_batch_says_how_far_it_is(
    client: openai.AsyncOpenAI, gateway: RunningGateway
) -> None:
    lines = [line(f"q-{at}", model=target) for at in range(4) for target in [ENGINE_TARGET]]
    lines += [line("c-0", model=CLAUDE_TARGET), b"", line("g-0", model=GPT_TARGET)]
    made = await make(client, lines, metadata={"job": "nightly"})
    assert made.id.startswith("batch_")
    assert (made.object, made.status, made.endpoint) == ("batch", "validating", CHAT)
    assert made.metadata == {"job": "nightly"}
    assert made.expires_at == made.created_at + 86_400

    batch = await ended(client, made)
    assert (batch.status, batch.errors, batch.error_file_id) == ("completed", None, None)
    assert batch.request_counts is not None
    assert batch.request_counts.model_dump() == {"total": 6, "completed": 6, "failed": 0}
    assert None not in (batch.in_progress_at, batch.finalizing_at, batch.completed_at)
    found = await results(client, batch.output_file_id)
    assert list(found) == ["q-0", "q-1", "q-2", "q-3", "c-0", "g-0"]
    bodies = [wire["response"]["body"] for wire in found.values()]
    check_sums(batch, bodies)
    assert (made.usage, made.model, batch.model) == (None, None, None)
    for wire in found.values():
        assert wire["error"] is None
        response = wire["response"]
        assert response["status_code"] == 200
        said = response["body"]["choices"][0]["message"]["content"]
        assert said == "Hello from the upstream."
        records = await gateway.records(response["request_id"])
        assert [record.stage for record in records] == ["intent", "outcome"]
        assert records[1].detail["batch"] == batch.id
        assert records[1].cost_microusd == wire["gatewright"]["cost_microusd"]
        assert records[0].facts is not None
        assert records[0].facts.service_tier == "batch"
    output = await client.files.retrieve(batch.output_file_id or "")
    assert (output.purpose, output.filename) == ("batch_output", f"{batch.id}_output.jsonl")
    assert (await client.batches.list(limit=1)).data[0].id == batch.id


def check_sums(batch: Batch, bodies: list[dict[str, Any]]) -> None:
    """A batch says what its answers say together, whatever listing it is in."""
    assert batch.usage is not None
    told = [each["usage"] for each in bodies]
    assert batch.usage.input_tokens == sum(each["prompt_tokens"] for each in told) > 0
    assert batch.usage.output_tokens == sum(each["completion_tokens"] for each in told) > 0
    assert batch.usage.total_tokens == sum(each["total_tokens"] for each in told)


@pytest.mark.parametrize("errs", [False, True])
async def test_a_batch_of_one_model_names_it_and_counts_what_was_answered(
    client: openai.AsyncOpenAI, *, errs: bool
) -> None:
    lines = [line("q-0"), line("q-1")] + [line("unknown", model="no-such-model")] * errs
    batch = await ended(client, await make(client, lines, metadata={"job": "nightly"}))
    bodies = [
        wire["response"]["body"] for wire in (await results(client, batch.output_file_id)).values()
    ]
    check_sums(batch, bodies)
    assert {batch.model} == {body["model"] for body in bodies}
    assert batch.metadata == {"job": "nightly"}
    (listed,) = (await client.batches.list(limit=1)).data
    assert (listed.usage, listed.model) == (batch.usage, batch.model)


async def test_an_answer_in_several_lines_is_one_line_of_the_results(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    """OpenAI itself writes its answers so, and an upstream could answer lines of others."""
    forged = {"custom_id": "q-1", "response": {"status_code": 200, "body": {}}, "error": None}
    answer = reply_of(Answer(text="a\u2028b\u2029c\x85d"), "m", "openai_chat") | {"more": ["HERE"]}
    indented = msgspec.json.format(msgspec.json.encode(answer), indent=2)
    body = indented.replace(b'"HERE"', b"\r\n%b\r\n" % msgspec.json.encode(forged))
    upstreams.engine.answer(Answer(body=body))

    batch = await ended(client, await make(client, [line("q-0"), line("q-1")]))
    content = (await client.files.content(batch.output_file_id or "")).content

    wires = [msgspec.json.decode(each) for each in content.decode().splitlines()]
    assert [wire["custom_id"] for wire in wires] == ["q-0", "q-1"]
    assert [wire["response"]["body"] for wire in wires] == [answer | {"more": [forged]}] * 2


@pytest.mark.parametrize("words", ["input_tokens", "output_tokens"])
async def test_a_figure_that_fits_nowhere_keeps_no_batch_from_its_end(
    client: openai.AsyncOpenAI, upstreams: Upstreams, words: str
) -> None:
    """In words of the other API, which nobody reads but whoever adds them up."""
    answer = reply_of(Answer(input_tokens=11, output_tokens=7), "m", "openai_chat")
    usage = msgspec.convert(answer["usage"], dict[str, Any]) | {words: "MANY"}
    body = msgspec.json.encode(answer | {"usage": usage})
    upstreams.engine.answer(Answer(body=body.replace(b'"MANY"', b"1" + b"0" * 30)))

    batch = await ended(client, await make(client, [line("q-0"), line("q-1")]))

    assert batch.status == "completed"
    assert batch.usage is not None
    assert (batch.usage.input_tokens, batch.usage.output_tokens) == (22, 14)


async def test_a_line_that_fails_is_in_the_file_of_errors_with_its_status(
    client: openai.AsyncOpenAI,
) -> None:
    batch = await make(
        client,
        [
            line("good"),
            line("unknown", model="no-such-model"),
            line("streamed", stream=True),
            line("wrong", temperature="hot"),
        ],
    )
    batch = await ended(client, batch)

    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 3)
    assert list(await results(client, batch.output_file_id)) == ["good"]
    errors = await results(client, batch.error_file_id)
    statuses = {name: wire["response"]["status_code"] for name, wire in errors.items()}
    assert statuses == {"unknown": 404, "streamed": 400, "wrong": 400}
    codes = {name: wire["response"]["body"]["error"]["code"] for name, wire in errors.items()}
    assert codes == {
        "unknown": "model_not_found",
        "streamed": "unsupported_parameter",
        "wrong": "invalid_request",
    }


async def test_data_that_must_stay_home_stays_home_line_by_line(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    secret = [{"role": "user", "content": f"Pay {IBAN} today"}]
    batch = await make(
        client, [line("open", model=GPT_TARGET), line("own", model=GPT_TARGET, messages=secret)]
    )
    batch = await ended(client, batch)

    found = await results(client, batch.output_file_id)
    assert found["open"]["gatewright"]["target"] == GPT_TARGET
    assert found["own"]["gatewright"]["target"] == ENGINE_TARGET
    managed = b"".join(call.body for each in upstreams.managed for call in each.calls)
    assert b"DE89" not in managed
    assert len(upstreams.openai.calls) == 1


async def test_responses_and_embeddings_are_batches_as_well(client: openai.AsyncOpenAI) -> None:
    url = "/v1/responses"
    wire = {"custom_id": "r", "method": "POST", "url": url, "body": {"model": ENGINE_TARGET}}
    wire["body"] = {"model": ENGINE_TARGET, "input": "Good morning"}
    batch = await ended(client, await make(client, [msgspec.json.encode(wire)], url))

    body = (await results(client, batch.output_file_id))["r"]["response"]["body"]
    assert body["object"] == "response"
    # Kept as any other response is.
    assert (await client.responses.retrieve(body["id"])).id == body["id"]
    other = await make(client, [line("e", "/v1/embeddings")], "/v1/embeddings")
    assert (await ended(client, other)).request_counts.failed == 1  # type: ignore[union-attr]


def flaws_of(batch: Batch) -> list[BatchError]:
    assert batch.errors is not None
    return batch.errors.data or []


FLAWS = [
    ([b"{"], "invalid_json_line", 1),
    ([line("a"), b"not json"], "invalid_json_line", 2),
    ([line("a"), b"", line("b")[:-1] + b"\xff}"], "invalid_json_line", 3),
    ([b'{"custom_id":"a","custom_id":"b","method":"POST"}'], "invalid_json_line", 1),
    ([b"[1]"], "invalid_json_line", 1),
    ([line("a"), line("b"), line("a")], "duplicate_custom_id", 3),
    ([line("a", method="GET")], "invalid_method", 1),
    ([line("a", "/v1/embeddings")], "mismatched_endpoint", 1),
    ([line("a", "http://elsewhere/v1/chat/completions")], "mismatched_endpoint", 1),
    ([line("")], "invalid_custom_id", 1),
    ([line("x" * 600)], "invalid_custom_id", 1),
    ([b'{"custom_id":"a","method":"POST","url":"/v1/chat/completions"}'], *("missing", 1)),
    ([b'{"custom_id":7,"method":"POST","url":"x","body":{}}'], "invalid_value", 1),
    ([line("a").replace(b'"body":{', b'"body":[{').replace(b"}}", b"}]}")], "invalid_body", 1),
    ([line("a"), line("b", note="x" * 20_000)], "line_too_long", 2),
    ([line(f"l-{at}") for at in range(121)], "too_many_lines", 121),
    ([b"", b"  "], "empty_file", None),
]


@pytest.mark.parametrize(("lines", "code", "number"), FLAWS)
async def test_a_file_that_is_no_batch_fails_with_what_is_wrong_and_where(
    client: openai.AsyncOpenAI,
    upstreams: Upstreams,
    lines: list[bytes],
    code: str,
    number: int | None,
) -> None:
    batch = await ended(client, await make(client, lines))

    assert batch.status == "failed"
    assert batch.failed_at
    flaw = flaws_of(batch)[0]
    assert str(flaw.code).startswith(code)
    assert flaw.line == number
    assert "elsewhere" not in str(batch.errors)
    assert batch.output_file_id is None
    assert not upstreams.engine.calls


async def test_everything_that_is_wrong_is_told_up_to_a_hundred(
    client: openai.AsyncOpenAI,
) -> None:
    batch = await ended(client, await make(client, [b"{"] * 130))
    assert [flaw.line for flaw in flaws_of(batch)] == list(range(1, 101))


async def test_an_order_that_makes_no_sense_is_refused(client: openai.AsyncOpenAI) -> None:
    file = await client.files.create(file=line("a"), purpose="batch")
    good: dict[str, Any] = {
        "input_file_id": file.id,
        "endpoint": CHAT,
        "completion_window": "24h",
    }
    for wrong, parameter in (
        ({"endpoint": "/v1/moderations"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"metadata": {f"k{at}": "v" for at in range(17)}}, "metadata"),
        ({"metadata": {"k": "v" * 600}}, "metadata"),
        ({"input_file_id": ""}, "input_file_id"),
        ({"extra_body": {"priority": "high"}}, "$"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.batches.create(**(good | wrong))
        assert caught.value.param == parameter
    with pytest.raises(openai.NotFoundError):
        await client.batches.create(**(good | {"input_file_id": "file-unknown"}))
    output = (await ended(client, await client.batches.create(**good))).output_file_id
    with pytest.raises(openai.BadRequestError):
        await client.batches.create(**(good | {"input_file_id": output}))


@pytest.mark.parametrize("place", OTHERS)
async def test_nobody_elses_batch_or_file_of_results_is_found(
    gateway: RunningGateway, client: openai.AsyncOpenAI, place: Place
) -> None:
    batch = await ended(client, await make(client, [line("a")]))
    stranger = client.with_options(api_key=await gateway.issue_key(place))

    for ask in (stranger.batches.retrieve, stranger.batches.cancel):
        with pytest.raises(openai.NotFoundError) as caught:
            await ask(batch.id)
        assert caught.value.code == "batch_not_found"
    with pytest.raises(openai.NotFoundError):
        await stranger.files.content(batch.output_file_id or "")
    with pytest.raises(openai.NotFoundError):
        await stranger.batches.create(
            input_file_id=batch.input_file_id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
        )
    assert [each.id async for each in stranger.batches.list()] == []


async def test_a_cancelled_batch_lets_lines_under_way_end_and_begins_no_other(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    upstreams.engine.answer(Answer(hold=hold))
    made = await make(client, [line(f"q-{at}") for at in range(20)])
    while len(upstreams.engine.calls) < 8:
        await asyncio.sleep(0.01)
    cancelled = await client.batches.cancel(made.id)
    assert cancelled.status == "cancelling"
    assert (await client.batches.cancel(made.id)).status == "cancelling"
    hold.set()

    batch = await ended(client, cancelled)
    assert (batch.status, bool(batch.cancelled_at)) == ("cancelled", True)
    assert len(upstreams.engine.calls) == 8
    assert len(await results(client, batch.output_file_id)) == 8
    errors = await results(client, batch.error_file_id)
    assert len(errors) == 12
    assert {wire["error"]["code"] for wire in errors.values()} == {"batch_cancelled"}
    assert {wire["response"] for wire in errors.values()} == {None}
    finished = await ended(client, await make(client, [line("a")]))
    with pytest.raises(openai.BadRequestError):
        await client.batches.cancel(finished.id)


async def test_a_revoked_key_stops_its_batch_and_says_why(
    gateway: RunningGateway, client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    upstreams.engine.answer(Answer(hold=hold))
    key = await gateway.issue_key()
    made = await make(client.with_options(api_key=key), [line(f"q-{at}") for at in range(20)])
    while len(upstreams.engine.calls) < 8:
        await asyncio.sleep(0.01)
    await gateway.revoke_key(key)
    while key.split("_")[2] in gateway.plane.snapshots.current().keys.records:
        await asyncio.sleep(0.01)
    hold.set()

    # Another key of the project reads what came of it.
    batch = await ended(client, made)
    assert batch.status == "completed"
    assert len(upstreams.engine.calls) == 8
    errors = await results(client, batch.error_file_id)
    assert len(errors) == 12
    assert {wire["error"]["code"] for wire in errors.values()} == {"invalid_api_key"}


async def test_a_full_upstream_makes_lines_wait_and_not_fail(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    full = Answer(status=503, retry_after_s=1)
    upstreams.engine.answer_once(*[full] * 6)
    batch = await ended(client, await make(client, [line(f"q-{at}") for at in range(3)]))

    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (3, 0)
    assert len(upstreams.engine.calls) > 3


async def test_a_line_whose_upstream_keeps_failing_fails_after_a_few_tries(
    client: openai.AsyncOpenAI, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.batching.runner.FAILED_REST_S", 0.05)
    upstreams.openai.answer(Answer(fault="bad_json"))
    made = await make(client, [line("a", model=GPT_TARGET)])
    batch = await ended(client, made)

    errors = await results(client, batch.error_file_id)
    assert errors["a"]["response"]["status_code"] == 502
    assert len(upstreams.openai.calls) >= 3
