"""The engine's API beyond a plain chat: choices, tools, structure, completions, embeddings."""

import base64
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tokenizers.processors import TemplateProcessing

from tests.local_engine.served import Served, client_of, events, served


MESSAGES = [{"role": "user", "content": "hello"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "lamp",
        "parameters": {
            "type": "object",
            "properties": {"on": {"type": "boolean"}},
            "required": ["on"],
            "additionalProperties": False,
        },
    },
}
pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def place(tiny_model_for_module: Path) -> AsyncIterator[Served]:
    async with served(tiny_model_for_module) as found:
        yield found


@pytest.fixture(scope="module")
async def client(place: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(place.engine) as found:
        yield found


async def post(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    response = await client.post(path, json={"model": "tiny", **body})
    assert response.status_code == 200, response.text
    return response.json()


async def chat(client: httpx.AsyncClient, **body: Any) -> Any:
    return await post(client, "/v1/chat/completions", messages=MESSAGES, **body)


async def test_n_choices_differ_and_repeat_with_their_seed(client: httpx.AsyncClient) -> None:
    body = {"n": 3, "seed": 5, "temperature": 1.5, "max_tokens": 6}
    first, second = await chat(client, **body), await chat(client, **body)
    texts = [choice["message"]["content"] for choice in first["choices"]]
    assert texts == [choice["message"]["content"] for choice in second["choices"]]
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2]
    assert len(set(texts)) > 1
    assert first["usage"]["completion_tokens"] <= 18


@pytest.mark.parametrize("headers", [{}, {"x-gatewright-tenant": "a"}], ids=["nameless", "named"])
async def test_eight_choices_read_their_prompt_once_and_write_as_each_alone(
    place: Served, client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    asked = {"model": "tiny", "prompt": list(range(10, 60)), "max_tokens": 4, "seed": 7, "n": 8}
    before = place.engine.stats()
    answer = (await client.post("/v1/completions", json=asked, headers=headers)).json()
    after = place.engine.stats()
    num_read = after.prompt_tokens - after.cached_tokens
    # Three blocks of sixteen are shared, the two tokens behind them are each choice's own.
    assert num_read - (before.prompt_tokens - before.cached_tokens) == 50 + 7 * 2
    for index, choice in enumerate(answer["choices"]):
        alone = {**asked, "n": 1, "seed": 7 + index}
        response = await client.post("/v1/completions", json=alone)
        assert response.json()["choices"][0]["text"] == choice["text"]


async def test_nameless_requests_meet_nothing_of_each_other(
    place: Served, client: httpx.AsyncClient
) -> None:
    asked = {"model": "tiny", "prompt": list(range(10, 60)), "max_tokens": 1, "n": 2}
    before = place.engine.stats().cached_tokens
    for _ in range(3):
        await client.post("/v1/completions", json=asked)
    assert place.engine.stats().cached_tokens - before == 3 * 48


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_after_the_largest_seed_comes_the_smallest(
    client: httpx.AsyncClient, path: str
) -> None:
    question: Any = {"messages": MESSAGES} if "chat" in path else {"prompt": "one two"}
    body = {**question, "temperature": 1.5, "max_tokens": 6, "return_token_ids": True}

    async def tokens(seed: int, n: int) -> list[list[int]]:
        found = await post(client, path, **body, seed=seed, n=n)
        return [choice["token_ids"] for choice in found["choices"]]

    largest, next_one = await tokens((1 << 63) - 1, 2)
    assert [largest] == await tokens((1 << 63) - 1, 1)
    assert [next_one] == await tokens(-(1 << 63), 1)
    assert largest != next_one


async def test_a_stream_of_choices_joins_to_the_whole(client: httpx.AsyncClient) -> None:
    body = {"n": 2, "seed": 5, "temperature": 1.5, "max_tokens": 6, "messages": MESSAGES}
    whole = await chat(client, **{k: v for k, v in body.items() if k != "messages"})
    response = await client.post(
        "/v1/chat/completions", json={"model": "tiny", "stream": True, **body}
    )
    texts = ["", ""]
    for event in events(response.text):
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["delta"].get("content") or ""
    assert texts == [choice["message"]["content"] for choice in whole["choices"]]


async def test_a_schema_shapes_the_answer(client: httpx.AsyncClient) -> None:
    schema = TOOL["function"]["parameters"]  # type: ignore[index]
    form = {"type": "json_schema", "json_schema": {"name": "lamp", "schema": schema}}
    answer = await chat(client, response_format=form, max_tokens=40, temperature=0)
    assert isinstance(json.loads(answer["choices"][0]["message"]["content"])["on"], bool)


async def test_a_choice_of_words_is_all_that_can_be_said(client: httpx.AsyncClient) -> None:
    answer = await chat(client, guided_choice=["red", "green"], max_tokens=20)
    assert answer["choices"][0]["message"]["content"] in {"red", "green"}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "lamp"}}])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_that_must_be_called_is_called(
    client: httpx.AsyncClient, choice: Any, *, stream: bool
) -> None:
    body = {"model": "tiny", "messages": MESSAGES, "tools": [TOOL], "tool_choice": choice}
    response = await client.post(
        "/v1/chat/completions", json={**body, "max_tokens": 60, "temperature": 0, "stream": stream}
    )
    if stream:
        choices = [event["choices"][0] for event in events(response.text)]
        (call,) = [c for each in choices for c in each["delta"].get("tool_calls", [])]
        reason = choices[-1]["finish_reason"]
    else:
        (found,) = response.json()["choices"]
        (call,) = found["message"]["tool_calls"]
        reason = found["finish_reason"]
    assert call["function"]["name"] == "lamp"
    assert isinstance(json.loads(call["function"]["arguments"])["on"], bool)
    assert reason == "tool_calls"


async def test_tool_results_in_a_conversation_are_read(client: httpx.AsyncClient) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "lamp", "arguments": '{"on":true}'}}
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "done"},
        *MESSAGES,
    ]
    answer = await post(
        client, "/v1/chat/completions", messages=messages, tools=[TOOL], max_tokens=2
    )
    assert answer["usage"]["completion_tokens"] >= 1


async def test_a_completion_continues_text_or_token_ids(client: httpx.AsyncClient) -> None:
    body = {"max_tokens": 4, "temperature": 0, "return_token_ids": True}
    by_text = await post(client, "/v1/completions", prompt="one two three", **body)
    (choice,) = by_text["choices"]
    by_ids = await post(client, "/v1/completions", prompt=choice["prompt_token_ids"], **body)
    assert by_ids["choices"][0]["text"] == choice["text"]
    assert by_ids["choices"][0]["token_ids"] == choice["token_ids"]
    many = await post(client, "/v1/completions", prompt=["one two three", "four"], **body)
    assert [each["index"] for each in many["choices"]] == [0, 1]
    assert many["choices"][0]["text"] == choice["text"]


async def test_an_echo_comes_with_the_prompts_own_log_probabilities(
    client: httpx.AsyncClient,
) -> None:
    body = {"prompt": "one two three", "max_tokens": 2, "temperature": 0, "logprobs": 1}
    (plain,) = (await post(client, "/v1/completions", **body))["choices"]
    (echo,) = (await post(client, "/v1/completions", echo=True, **body))["choices"]
    assert echo["text"] == "one two three" + plain["text"]
    logprobs = echo["logprobs"]
    assert logprobs["token_logprobs"][0] is None
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
    assert logprobs["tokens"][-2:] == plain["logprobs"]["tokens"]
    assert len(logprobs["text_offset"]) == len(logprobs["tokens"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_is_scored_alone_where_no_token_is_asked_for(
    client: httpx.AsyncClient, *, stream: bool
) -> None:
    body = {"prompt": "one two three", "temperature": 0, "logprobs": 1, "echo": True}
    body |= {"return_token_ids": True, "stop": ["e"], "n": 2}
    (longer, _) = (await post(client, "/v1/completions", **body, max_tokens=1))["choices"]
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    asked = {"model": "tiny", "max_tokens": 0, **body, **options}
    answer = await client.post("/v1/completions", json=asked)

    assert answer.status_code == 200, answer.text
    told = events(answer.text) if stream else [answer.json()]
    choices = [choice for each in told for choice in each["choices"]]
    assert sorted(choice["index"] for choice in choices) == [0, 1]
    for choice in choices:
        assert (choice["text"], choice["finish_reason"]) == ("one two three", "length")
        assert choice["token_ids"] == []
        for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
            mine = choice["logprobs"][name]
            assert mine[:1] == longer["logprobs"][name][:1]
            assert len(mine) == len(longer["prompt_token_ids"])
    usage = told[-1]["usage"]
    assert usage["completion_tokens"] == 0
    assert usage["prompt_tokens"] == len(longer["prompt_token_ids"])


async def test_no_token_is_an_answer_only_where_the_prompt_is_said_again(
    client: httpx.AsyncClient,
) -> None:
    asked = {"model": "tiny", "prompt": "one", "max_tokens": 0}
    for body in (asked, asked | {"echo": False}):
        answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "max_tokens"


async def test_a_streamed_echo_is_said_where_the_first_token_ends_the_answer(
    client: httpx.AsyncClient,
) -> None:
    body = {"prompt": "one two", "max_tokens": 4, "temperature": 0, "return_token_ids": True}
    (plain,) = (await post(client, "/v1/completions", **body))["choices"]
    ends = {"stop_token_ids": plain["token_ids"][:1], "echo": True, "stream": True}
    answer = await client.post("/v1/completions", json={"model": "tiny", **body, **ends})

    (choice,) = [event["choices"][0] for event in events(answer.text)]
    assert (choice["text"], choice["finish_reason"]) == ("one two", "stop")


async def test_a_streamed_completion_joins_to_the_whole(client: httpx.AsyncClient) -> None:
    body = {"model": "tiny", "prompt": "one", "max_tokens": 6, "temperature": 0}
    whole = (await post(client, "/v1/completions", **body))["choices"][0]["text"]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    response = await client.post("/v1/completions", json={**body, **options})
    *parts, last = events(response.text)
    assert "".join(event["choices"][0]["text"] for event in parts) == whole
    assert [event["usage"] for event in parts] == [None] * len(parts)
    assert last["usage"]["completion_tokens"] <= 6


async def test_a_streamed_echo_says_the_prompt_once_and_where_each_token_stands(
    tiny_model: Path,
) -> None:
    prompts = ["one two three", "four " * 80]
    body = {"prompt": prompts, "max_tokens": 4, "temperature": 0, "logprobs": 1, "echo": True}
    # The longer prompt is read in several steps.
    async with served(tiny_model, token_budget=40) as place, client_of(place.engine) as client:
        whole = (await post(client, "/v1/completions", **body))["choices"]
        asked = {"model": "tiny", "stream": True, **body}
        response = await client.post("/v1/completions", json=asked)

    parts = [event["choices"][0] for event in events(response.text)]
    for index, choice in enumerate(whole):
        mine = [part for part in parts if part["index"] == index]
        assert "".join(part["text"] for part in mine) == choice["text"]
        told = [each for part in mine for each in part["logprobs"]["tokens"]]
        assert told == choice["logprobs"]["tokens"]
        likely = [each for part in mine for each in part["logprobs"]["token_logprobs"]]
        assert likely[0] is None
        assert likely[1:] == pytest.approx(choice["logprobs"]["token_logprobs"][1:], abs=1e-3)
        starts = [part["logprobs"]["text_offset"][0] for part in mine if part["logprobs"]["tokens"]]
        assert starts == sorted(set(starts))
        assert starts[1] >= len(prompts[index])


async def test_embeddings_have_length_one_in_both_encodings(client: httpx.AsyncClient) -> None:
    answer = await post(client, "/v1/embeddings", input=["hello", "world"])
    first, second = (entry["embedding"] for entry in answer["data"])
    assert sum(x * x for x in first) == pytest.approx(1.0, abs=1e-4)
    assert first != second
    packed = await post(client, "/v1/embeddings", input="hello", encoding_format="base64")
    raw = base64.b64decode(packed["data"][0]["embedding"])
    assert list(struct.unpack(f"<{len(first)}f", raw)) == pytest.approx(first, abs=1e-6)


async def test_tokens_and_text_turn_into_each_other(client: httpx.AsyncClient) -> None:
    found = await post(client, "/tokenize", prompt="hello world")
    assert found["count"] == len(found["tokens"])
    assert (await post(client, "/detokenize", tokens=found["tokens"]))["prompt"] == "hello world"
    by_chat = await post(client, "/tokenize", messages=MESSAGES)
    assert by_chat["count"] > 1


CALLED = {"id": "1", "type": "function", "function": {"name": "lamp", "arguments": '{"on":true}'}}


@pytest.mark.parametrize(
    "asked",
    [
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}] * 2}]},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "none"},
        {"tools": [TOOL], "tool_choice": "auto", "chat_template_kwargs": {"mood": "calm"}},
        {
            "messages": [
                *MESSAGES,
                {"role": "assistant", "content": None, "tool_calls": [CALLED]},
                {"role": "tool", "tool_call_id": "1", "content": "done"},
            ]
        },
    ],
)
async def test_a_chat_is_counted_and_found_again_as_it_is_answered(
    client: httpx.AsyncClient, asked: dict[str, Any]
) -> None:
    body = {"messages": MESSAGES, **asked}
    answer = await post(client, "/v1/chat/completions", **body, max_tokens=1, return_token_ids=True)
    assert (await post(client, "/tokenize", **body))["tokens"] == answer["prompt_token_ids"]
    chain = await client.post("/cache/chain", json=body)
    found = msgspec.msgpack.decode(chain.content)
    assert found["num_tokens"] == answer["usage"]["prompt_tokens"]


async def test_a_text_gets_no_special_tokens_where_it_has_its_own(
    place: Served, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = place.engine.tokenizer._tokenizer
    around = TemplateProcessing(single="<|end|> $A", special_tokens=[("<|end|>", 1)])
    monkeypatch.setattr(inner, "post_processor", around)
    for path, field, counted in (
        ("/tokenize", "prompt", "count"),
        ("/v1/completions", "prompt", "prompt_tokens"),
        ("/v1/embeddings", "input", "prompt_tokens"),
    ):
        counts = [
            answer.get("usage", answer)[counted]
            for fields in ({}, {"add_special_tokens": True}, {"add_special_tokens": False})
            for answer in [await post(client, path, **{field: "one two"}, **fields)]
        ]
        assert counts == [counts[2] + 1, counts[2] + 1, counts[2]], path


async def test_sampling_fields_do_what_they_say(client: httpx.AsyncClient) -> None:
    base = {"prompt": "one two", "max_tokens": 8, "temperature": 0, "return_token_ids": True}

    async def tokens(**fields: Any) -> list[int]:
        (choice,) = (await post(client, "/v1/completions", **base, **fields))["choices"]
        return list(choice["token_ids"])

    plain = await tokens(ignore_eos=True)
    assert len(plain) == 8
    assert (await tokens(ignore_eos=True, stop_token_ids=[plain[2]])) == plain[:3]
    assert plain[0] not in await tokens(ignore_eos=True, logit_bias={str(plain[0]): -100})
    spread = await tokens(ignore_eos=True, repetition_penalty=10.0)
    assert len(set(spread)) >= len(set(plain))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_stopped_an_answer_is_part_of_it_where_that_is_asked_for(
    client: httpx.AsyncClient, path: str, stream: bool
) -> None:
    prompt = {"messages": MESSAGES} if "chat" in path else {"prompt": "one two"}
    asked = {"model": "tiny", **prompt, "temperature": 0, "max_tokens": 12, "ignore_eos": True}

    async def answer(**fields: Any) -> tuple[str, dict[str, Any]]:
        response = await client.post(path, json={**asked, "stream": stream, **fields})
        parts = events(response.text) if stream else [response.json()]
        choices = [part["choices"][0] for part in parts]
        shown = [each.get("delta" if stream else "message", each) for each in choices]
        text = "".join(each.get("content", each.get("text")) or "" for each in shown)
        return text, choices[-1]

    whole, _ = await answer()
    stop = whole[7:10]
    before, end = await answer(stop=stop)
    assert (whole[: whole.index(stop)], "stop") == (before, end["finish_reason"])
    behind, end = await answer(stop=stop, include_stop_str_in_output=True)
    assert (before + stop, "stop") == (behind, end["finish_reason"])


async def test_the_text_of_a_stop_token_is_part_of_an_answer_where_that_is_asked_for(
    client: httpx.AsyncClient,
) -> None:
    asked = {"prompt": "one two", "temperature": 0, "max_tokens": 6, "ignore_eos": True}
    whole = await post(client, "/v1/completions", **asked, return_token_ids=True)
    (choice,) = whole["choices"]
    stop = {"stop_token_ids": choice["token_ids"][-1:]}
    first = choice["token_ids"].index(choice["token_ids"][-1])
    text = (await post(client, "/detokenize", tokens=choice["token_ids"][: first + 1]))["prompt"]
    with_it = await post(
        client, "/v1/completions", **asked, **stop, logprobs=0, include_stop_str_in_output=True
    )
    without = await post(client, "/v1/completions", **asked, **stop, logprobs=0)
    assert with_it["choices"][0]["text"] == text
    assert text.startswith(without["choices"][0]["text"])
    lengths = [len(each["choices"][0]["logprobs"]["tokens"]) for each in (with_it, without)]
    assert lengths == [first + 1, first]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_ends_no_answer_before_its_fewest_tokens(
    client: httpx.AsyncClient, stream: bool
) -> None:
    body = {"prompt": "one two", "temperature": 0, "max_tokens": 24, "ignore_eos": True}
    written = (await post(client, "/v1/completions", **body))["choices"][0]["text"]
    stop = {"stop": [written[0]], "min_tokens": 24, "stream": stream}
    response = await client.post("/v1/completions", json={"model": "tiny", **body, **stop})
    if stream:
        events = [line[6:] for line in response.text.split("\n\n") if line.startswith("data: {")]
        choices = [json.loads(event)["choices"][0] for event in events]
    else:
        choices = response.json()["choices"]
    assert "".join(choice["text"] for choice in choices) == written
    assert choices[-1]["finish_reason"] == "length"
    sooner = await post(client, "/v1/completions", **body, stop=[written[0]], min_tokens=3)
    assert sooner["choices"][0]["text"].startswith(written[0])
    assert sooner["usage"]["completion_tokens"] > 3


async def test_a_prompt_that_leaves_room_for_one_token_gets_one(client: httpx.AsyncClient) -> None:
    answer = await post(client, "/v1/completions", prompt=[5] * 511, ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 1
    assert answer["usage"]["total_tokens"] == 512


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/v1/completions", {"prompt": "a", "logprobs": 21}, "invalid_value"),
        ("/tokenize", {"prompt": "a", "add_generation_prompt": False}, "unsupported_parameter"),
        ("/v1/completions", {"prompt": "a", "logprobs": -1}, "invalid_value"),
        ("/v1/completions", {"prompt": "a", "best_of": 1, "n": 2}, "unsupported_parameter"),
        ("/v1/chat/completions", {"n": 0}, "invalid_value"),
        ("/v1/chat/completions", {"n": 99}, "invalid_value"),
        ("/v1/chat/completions", {"tool_choice": "required"}, "invalid_value"),
        ("/v1/chat/completions", {"guided_regex": "(a"}, "invalid_grammar"),
        ("/v1/chat/completions", {"guided_regex": "(a", "stream": True}, "invalid_grammar"),
        ("/v1/chat/completions", {"bad_words": [""]}, "invalid_value"),
        ("/v1/completions", {"prompt": ""}, "invalid_value"),
        ("/v1/completions", {"prompt": []}, "invalid_value"),
        ("/v1/completions", {"prompt": [1, "a"]}, "invalid_value"),
        ("/v1/completions", {"prompt": [99999]}, "invalid_value"),
        ("/v1/completions", {"prompt": "a", "suffix": "b"}, "unsupported_parameter"),
        ("/v1/completions", {"prompt": "a", "best_of": 3}, "unsupported_parameter"),
        ("/v1/completions", {"prompt": [1] * 512}, "context_length_exceeded"),
        ("/v1/completions", {"prompt": [-1] * 512}, "context_length_exceeded"),
        ("/v1/completions", {"prompt": "a", "stop_token_ids": [-1]}, "invalid_value"),
        ("/v1/completions", {"prompt": "a", "logit_bias": {"1536": 1}}, "invalid_value"),
        *(
            ("/v1/completions", {"prompt": "a", "logit_bias": {key: 1}}, "invalid_value")
            for key in ("05", " 5", "1_0", "\u0665", "5.0", "")
        ),
        ("/v1/embeddings", {"input": []}, "invalid_value"),
        ("/v1/embeddings", {"input": [1] * 513}, "context_length_exceeded"),
        ("/tokenize", {}, "invalid_value"),
        ("/detokenize", {"tokens": [-1]}, "invalid_value"),
    ],
)
async def test_what_cannot_be_done_is_refused_by_code(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], code: str
) -> None:
    messages = {"messages": MESSAGES} if "chat" in path else {}
    response = await client.post(path, json={"model": "tiny", **messages, **body})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["code"] == code


REGEX: dict[str, Any] = {"guided_regex": "(a"}
NO_SCHEMA = {"type": "object", "properties": {"a": {"type": 7}}}
NO_FORM = {"type": "json_schema", "json_schema": {"name": "f", "schema": NO_SCHEMA}}
NO_TOOL = {"type": "function", "function": {"name": "f", "parameters": NO_SCHEMA}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", REGEX, "guided_regex"),
        ("/v1/chat/completions", {"structured_outputs": {"regex": "(a"}}, "structured_outputs"),
        ("/v1/chat/completions", {"response_format": NO_FORM}, "response_format"),
        ("/v1/chat/completions", {"tools": [NO_TOOL], "tool_choice": "required"}, "tools"),
        ("/v1/completions", {"prompt": "a", **REGEX}, "guided_regex"),
        ("/v1/completions", {"prompt": [1] * 512}, "prompt"),
        ("/v1/completions", {"prompt": "a", "stop": ["x" * 1000]}, "stop"),
    ],
)
async def test_what_cannot_be_done_is_refused_with_the_field_that_asked_for_it(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], param: str, *, stream: bool
) -> None:
    messages = {"messages": MESSAGES} if "chat" in path else {}
    asked = {"model": "tiny", "stream": stream, **messages, **body}
    response = await client.post(path, json=asked)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
