"""The engine over a real socket with the official SDK: real answers, refusals, cancellation."""

import asyncio
import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import httpx
import openai
import pytest

from tests.local_engine.engine_process import EngineProcess
from tests.local_engine.test_chat_request import BAD_REQUESTS


QUESTION = "What does a receipt prove?"
ANSWER = (
    "A receipt proves that the audit record of your request is in the log."
    " It names the worker, the segment, the offset and the leaf hash."
)
# Forbidding the end token makes an answer as long as its cap: the way to a slow request.
NEVER_ENDING: dict[str, Any] = {
    "model": "gatewright-demo",
    "messages": [{"role": "user", "content": "Hello"}],
    "logit_bias": {"1": -100},
    "max_tokens": 1900,
}


@pytest.fixture
def client(engine_process: EngineProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{engine_process.url}/v1", api_key="unused", max_retries=0
    ) as client:
        yield client


def ask(client: openai.OpenAI, text: str, **options: Any) -> Any:
    messages: Any = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="gatewright-demo", messages=messages, **options)


def http(process: EngineProcess, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", process.ready["port"], timeout=20)
    connection.request(method, path, body=body)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, content


def metric(process: EngineProcess, name: str) -> float:
    text = http(process, "GET", "/metrics")[1].decode()
    found = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(found[0].split()[1]) if found else 0.0


def wait_until_idle(process: EngineProcess) -> None:
    while metric(process, "gatewright_engine_num_requests_running"):
        time.sleep(0.02)


def test_a_corpus_question_gets_its_answer(client: openai.OpenAI) -> None:
    completion = ask(client, QUESTION)
    choice = completion.choices[0]
    assert choice.message.content == ANSWER
    assert choice.finish_reason == "stop"
    assert completion.model == "gatewright-demo"
    usage = completion.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens == 0


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (
            "What is a sovereign route?",
            (
                "A sovereign route sends a request only to models in the allowed jurisdiction,"
                " such as the in-house engine. No fallback or retry can widen it."
            ),
        ),
        (
            "how do budgets work",
            (
                "A budget reserves the worst price before the call and settles the true price after"
                " it. Under concurrency it is never overspent."
            ),
        ),
        (
            "What is the capital of France?",
            (
                "I am the small demo model of Gatewright, and I do not know that."
                " Ask me about Gatewright, or give me a small text task."
            ),
        ),
        ("Repeat after me: hello sovereign world", "hello sovereign world"),
        ("Repeat after me: [EMAIL_1]", "[EMAIL_1]"),
        ("Write in upper case: hello world", "HELLO WORLD"),
        ("How many words are in this text: the gateway keeps data home", "5"),
        ("Reply with pong", "pong"),
    ],
)
def test_readme_questions_get_their_answers(
    client: openai.OpenAI, question: str, answer: str
) -> None:
    assert ask(client, question, temperature=0).choices[0].message.content == answer


def test_a_stream_joins_to_the_same_answer_and_ends_with_its_usage(client: openai.OpenAI) -> None:
    chunks = list(ask(client, QUESTION, stream=True, stream_options={"include_usage": True}))
    *spoken, last = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in spoken) == ANSWER
    assert spoken[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in spoken[-2:]] == [None, "stop"]
    assert last.choices == []
    assert last.usage.completion_tokens > 10
    assert len(spoken) > 10
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_without_the_option_carries_no_usage(client: openai.OpenAI) -> None:
    chunks = list(ask(client, QUESTION, stream=True))
    assert all(chunk.choices for chunk in chunks)
    assert all(chunk.usage is None for chunk in chunks)


@pytest.mark.anyio
async def test_the_asynchronous_sdk_streams_too(engine_process: EngineProcess) -> None:
    async with (
        openai.AsyncOpenAI(base_url=f"{engine_process.url}/v1", api_key="unused") as client,
        client.chat.completions.stream(
            model="gatewright-demo", messages=[{"role": "user", "content": QUESTION}]
        ) as stream,
    ):
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.content == ANSWER


def test_a_length_cap_and_a_stop_string_end_the_answer(client: openai.OpenAI) -> None:
    short = ask(client, QUESTION, max_tokens=4)
    assert short.choices[0].finish_reason == "length"
    assert short.usage.completion_tokens == 4
    assert ANSWER.startswith(short.choices[0].message.content)
    stopped = ask(client, QUESTION, stop=["audit rec", "never"])
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].message.content == "A receipt proves that the "
    assert stopped.choices[0].stop_reason == "audit rec"
    assert short.choices[0].stop_reason is None


def test_a_seed_repeats_a_sampled_answer(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"temperature": 2.0, "seed": 5, "max_tokens": 30}
    first = ask(client, "Tell me a joke.", **options).choices[0].message.content
    assert ask(client, "Tell me a joke.", **options).choices[0].message.content == first
    others = {
        ask(client, "Tell me a joke.", **{**options, "seed": seed}).choices[0].message.content
        for seed in range(4)
    }
    assert len(others) > 1


def test_log_probabilities_come_with_every_token(client: openai.OpenAI) -> None:
    choice = ask(client, QUESTION, logprobs=True, top_logprobs=2).choices[0]
    entries = choice.logprobs.content
    assert "".join(entry.token for entry in entries) == ANSWER
    assert all(entry.logprob <= 0 for entry in entries)
    assert all(entry.top_logprobs[0].logprob == entry.logprob for entry in entries)


def test_the_model_list_names_digest_and_context_window(
    client: openai.OpenAI, engine_process: EngineProcess
) -> None:
    (model,) = client.models.list().data
    extra = model.model_extra or {}
    assert model.id == "gatewright-demo"
    assert extra["digest"] == engine_process.ready["digest"]
    assert extra["context_window_tokens"] == 2048
    assert extra["max_model_len"] == 2048
    assert extra["capabilities"] == [], "the demo model's template knows no tools"
    assert client.models.retrieve("gatewright-demo") == model
    with pytest.raises(openai.NotFoundError) as refusal:
        client.models.retrieve("some/other")
    assert refusal.value.code == "model_not_found"


@pytest.mark.parametrize("index", range(0, len(BAD_REQUESTS), 4))
def test_a_bad_request_gets_the_error_envelope(client: openai.OpenAI, index: int) -> None:
    fields, code, _ = BAD_REQUESTS[index]
    body = {"model": "gatewright-demo", "messages": [{"role": "user", "content": "hi"}], **fields}
    with pytest.raises(openai.BadRequestError) as refusal:
        client.post("/chat/completions", body=body, cast_to=object)
    assert refusal.value.code == code
    assert refusal.value.type == "invalid_request_error"


def test_a_prompt_longer_than_the_context_is_refused_by_its_code(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(client, "word " * 3000)
    assert refusal.value.code == "context_length_exceeded"
    assert "2048" in refusal.value.message


def test_an_unknown_model_path_or_method_is_refused(
    client: openai.OpenAI, engine_process: EngineProcess
) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        client.chat.completions.create(model="other", messages=[{"role": "user", "content": "x"}])
    assert refusal.value.code == "model_not_found"
    assert "`gatewright-demo`" in refusal.value.message, "whoever asks the wrong port sees it"
    assert http(engine_process, "GET", "/v1/nothing")[0] == 404
    for method, path, allowed in (
        ("GET", "/v1/chat/completions", "POST"),
        ("HEAD", "/v1/chat/completions", "POST"),
        ("DELETE", "/health/live", "GET, HEAD"),
    ):
        refused = httpx.request(method, engine_process.url + path)
        assert (refused.status_code, refused.headers["allow"]) == (405, allowed)
    told = httpx.head(engine_process.url + "/health/live")
    assert (told.status_code, told.content) == (200, b"")


def test_malformed_and_oversized_bodies_are_refused(engine_process: EngineProcess) -> None:
    path = "/v1/chat/completions"
    status, body = http(engine_process, "POST", path, b"{not json")
    assert (status, json.loads(body)["error"]["code"]) == (400, "invalid_json")
    status, body = http(engine_process, "POST", path, b" " * (5 << 20))
    assert (status, json.loads(body)["error"]["code"]) == (413, "request_too_large")


def test_health_and_metrics_answer(engine_process: EngineProcess, client: openai.OpenAI) -> None:
    assert http(engine_process, "GET", "/health/live")[0] == 200
    assert http(engine_process, "GET", "/health/ready")[0] == 200
    before = metric(engine_process, "gatewright_engine_generation_tokens_total")
    completion = ask(client, QUESTION)
    after = metric(engine_process, "gatewright_engine_generation_tokens_total")
    assert after - before == completion.usage.completion_tokens


@pytest.mark.anyio
async def test_a_hang_up_stops_the_computation(engine_process: EngineProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", engine_process.ready["port"])
    body = json.dumps({**NEVER_ENDING, "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await reader.readuntil(b"data: ")
    running = "gatewright_engine_num_requests_running"
    assert await asyncio.to_thread(metric, engine_process, running) == 1
    written = "gatewright_engine_generation_tokens_total"
    before = await asyncio.to_thread(metric, engine_process, written)
    writer.close()
    await asyncio.to_thread(wait_until_idle, engine_process)
    after = await asyncio.to_thread(metric, engine_process, written)
    assert after - before < NEVER_ENDING["max_tokens"]


@pytest.mark.anyio
async def test_a_full_queue_refuses_and_the_event_loop_stays_awake(
    engine_process: EngineProcess,
) -> None:
    url = f"{engine_process.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as client:

        async def occupy() -> None:
            await client.post("/chat/completions", body=NEVER_ENDING, cast_to=object)

        running = [asyncio.create_task(occupy()) for _ in range(2)]
        waiting = "gatewright_engine_num_requests_waiting"
        while not await asyncio.to_thread(metric, engine_process, waiting):
            await asyncio.sleep(0.01)
        with pytest.raises(openai.InternalServerError) as refusal:
            await occupy()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert refusal.value.status_code == 503
    assert refusal.value.code == "queue_full"
    assert int(refusal.value.response.headers["retry-after"]) >= 1
    await asyncio.to_thread(wait_until_idle, engine_process)
