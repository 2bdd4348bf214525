"""Fields and paths that come from vLLM: each does what it does there, measured on the model."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from local_engine.serve.api.app import EngineApp
from local_engine.serve.compute.identity import WorkerIdentity
from local_engine.serve.wire import Stats
from local_engine.text.tokenizer import chat_tokenizer
from tests.local_engine.served import Served, client_of, events, served


PROMPT = list(range(10, 60))
MESSAGES = [{"role": "user", "content": "hello"}]
NAMED = {"x-gatewright-tenant": "a", "x-gatewright-data-class": "S1"}
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
    response = await client.post(path, json={"model": "tiny", **body}, headers=NAMED)
    assert response.status_code == 200, response.text
    return response.json()


async def complete(client: httpx.AsyncClient, **body: Any) -> Any:
    base = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "return_token_ids": True}
    return await post(client, "/v1/completions", **{**base, **body})


def reference(place: Served, tokens: list[int]) -> torch.Tensor:
    """Log-probabilities [tokens, vocabulary] of what comes after each token, read at once."""
    decoder = place.runner._decoder
    return decoder.logits(decoder(torch.tensor([tokens]))[0]).float().log_softmax(dim=-1)


def check_scores(place: Served, tokens: list[int], told: list[Any], num_top: int) -> None:
    expected = reference(place, tokens)
    assert told[0] is None
    assert len(told) == len(tokens)
    for at, entry in enumerate(told[1:]):
        mine = entry[str(tokens[at + 1])]
        row = expected[at]
        assert mine["logprob"] == pytest.approx(float(row[tokens[at + 1]]), abs=1e-4)
        assert mine["rank"] == 1 + int((row > row[tokens[at + 1]]).sum())
        best = [str(int(each)) for each in row.topk(num_top).indices]
        assert set(entry) == {str(tokens[at + 1]), *best}
        assert [entry[each]["rank"] for each in best] == list(range(1, num_top + 1))
        assert all(isinstance(each["decoded_token"], str) for each in entry.values())


@pytest.mark.parametrize("num_top", [0, 3])
async def test_a_prompts_scores_are_those_of_the_model_whatever_the_cache_holds(
    place: Served, client: httpx.AsyncClient, num_top: int
) -> None:
    await complete(client)
    cached = (await complete(client))["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == 48  # So there is something that could be skipped.
    for n in (1, 2):
        answer = await complete(client, prompt_logprobs=num_top, n=n)
        assert len(answer["choices"]) == n
        for choice in answer["choices"]:
            check_scores(place, PROMPT, choice["prompt_logprobs"], num_top)
    assert "prompt_logprobs" not in (await complete(client))["choices"][0]


async def test_a_chats_scores_are_told_once_for_all_its_choices(
    place: Served, client: httpx.AsyncClient
) -> None:
    body = {"messages": MESSAGES, "max_tokens": 1, "return_token_ids": True}
    answer = await post(client, "/v1/chat/completions", **body, prompt_logprobs=2, n=3)
    check_scores(place, answer["prompt_token_ids"], answer["prompt_logprobs"], 2)
    assert len(answer["choices"]) == 3


async def test_a_text_has_sixteen_tokens_where_nobody_says_and_room_where_nothing_bounds_it(
    place: Served, client: httpx.AsyncClient
) -> None:
    asked = {"prompt": PROMPT, "ignore_eos": True}
    unsaid = await post(client, "/v1/completions", **asked)
    unbounded = await post(client, "/v1/completions", **asked, max_tokens=None)
    room = place.engine.context_window - len(PROMPT)
    assert unsaid["usage"]["completion_tokens"] == 16
    assert unbounded["usage"]["completion_tokens"] == room


async def test_scores_of_prompt_and_echo_each_name_as_many_as_were_asked_for(
    client: httpx.AsyncClient,
) -> None:
    both = await complete(client, prompt_logprobs=4, logprobs=1, echo=True)
    (choice,) = both["choices"]
    assert {len(each) for each in choice["logprobs"]["top_logprobs"][1:]} == {1}
    assert {len(each) for each in choice["prompt_logprobs"][1:]} <= {4, 5}
    unasked = await complete(client, prompt_logprobs=4, echo=True)
    assert unasked["choices"][0]["logprobs"] is None
    assert unasked["choices"][0]["text"].endswith((await complete(client))["choices"][0]["text"])


async def test_only_allowed_tokens_are_written_and_each_is_the_likeliest_of_them(
    place: Served, client: httpx.AsyncClient
) -> None:
    allowed = [7, 300, 41, 900]
    answer = await complete(client, allowed_token_ids=allowed, max_tokens=6)
    written = answer["choices"][0]["token_ids"]
    rows = reference(place, [*PROMPT, *written])
    for at, token in enumerate(written, len(PROMPT) - 1):
        assert token == max(allowed, key=lambda each: float(rows[at][each]))
    free = (await complete(client, max_tokens=6))["choices"][0]["token_ids"]
    assert free != written
    drawn = await complete(client, allowed_token_ids=allowed, temperature=2.0, n=8, max_tokens=12)
    found = {token for choice in drawn["choices"] for token in choice["token_ids"]}
    assert len(found) > 1
    assert found <= set(allowed)


async def test_an_allowed_end_ends_an_answer_and_waits_for_its_fewest_tokens(
    place: Served, client: httpx.AsyncClient
) -> None:
    (end, *_) = place.engine.ready.eos_token_ids
    (choice,) = (await complete(client, allowed_token_ids=[end], max_tokens=5))["choices"]
    assert (choice["finish_reason"], choice["text"]) == ("stop", "")
    asked = {"allowed_token_ids": [end, 300], "min_tokens": 2, "logit_bias": {str(end): 100}}
    (choice,) = (await complete(client, **asked, max_tokens=5))["choices"]
    assert choice["token_ids"] == [300, 300, end]


async def test_another_salt_meets_nothing_and_the_same_one_does(client: httpx.AsyncClient) -> None:
    prompt = list(range(100, 150))

    async def cached(**fields: Any) -> int:
        answer = await complete(client, prompt=prompt, **fields)
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert [await cached(), await cached()] == [0, 48]
    assert [await cached(cache_salt="x"), await cached(cache_salt="x")] == [0, 48]
    assert [await cached(cache_salt="y"), await cached()] == [0, 48]
    body = {"messages": [{"role": "user", "content": "one two " * 40}], "max_tokens": 1}
    chats = [
        await post(client, "/v1/chat/completions", **body, **fields)
        for fields in ({}, {"cache_salt": "x"}, {"cache_salt": "x"})
    ]
    hits = [chat["usage"]["prompt_tokens_details"]["cached_tokens"] for chat in chats]
    assert hits[:2] == [0, 0]
    assert hits[2] > 0


def test_a_salt_leads_into_no_other_group() -> None:
    identity = WorkerIdentity(b"k" * 32, "model")
    groups = [("a", "S1"), ("a", "S2"), ("b", "S1")]
    salts = [identity.salt(*group, "", salt) for group in groups for salt in ("", "x", "b")]
    assert len(set(salts)) == len(salts)
    nameless = {identity.salt("", "", "", "x") for _ in range(3)}
    assert len(nameless) == 3  # Two who name nobody do not meet by saying the same.


async def test_a_shortened_prompt_is_its_last_tokens(
    place: Served, client: httpx.AsyncClient
) -> None:
    told = (await complete(client, truncate_prompt_tokens=20))["choices"][0]
    assert told["prompt_token_ids"] == PROMPT[-20:]
    alone = (await complete(client, prompt=PROMPT[-20:]))["choices"][0]
    assert told["token_ids"] == alone["token_ids"]
    window = place.engine.context_window
    longer = [1 + at % 500 for at in range(window + 100)]
    answer = await complete(client, prompt=[longer, PROMPT], truncate_prompt_tokens=-1)
    prompts = [choice["prompt_token_ids"] for choice in answer["choices"]]
    assert prompts == [longer[-(window - 4) :], PROMPT]
    cut = await post(client, "/v1/embeddings", input=PROMPT, truncate_prompt_tokens=7)
    whole = await post(client, "/v1/embeddings", input=PROMPT[-7:])
    assert cut["data"] == whole["data"]
    assert cut["usage"]["prompt_tokens"] == 7


async def test_a_prompt_is_cut_from_the_side_that_is_named(
    place: Served, client: httpx.AsyncClient
) -> None:
    window = place.engine.context_window
    longer = [1 + at % 500 for at in range(window + 100)]
    for side, kept in (("left", slice(-20, None)), ("right", slice(20))):
        told = await complete(client, truncate_prompt_tokens=20, truncation_side=side)
        assert told["choices"][0]["prompt_token_ids"] == PROMPT[kept]
        cut = await post(
            client, "/v1/embeddings", input=PROMPT, truncate_prompt_tokens=20, truncation_side=side
        )
        assert cut["data"] == (await post(client, "/v1/embeddings", input=PROMPT[kept]))["data"]
    told = await complete(client, prompt=longer, truncate_prompt_tokens=-1, truncation_side="right")
    assert told["choices"][0]["prompt_token_ids"] == longer[: window - 4]


async def test_what_was_thought_and_an_effort_are_part_of_the_prompt(place: Served) -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{{ m.reasoning_content or '' }}{% endfor %}"
        "{{ reasoning_effort }}{{ enable_thinking }}"
    )
    engine = place.engine
    tokenizer = chat_tokenizer(
        engine.ready.tokenizer_json, engine.ready.tokenizer_config, template.encode()
    )
    said = [{"role": "assistant", "content": "four", "reasoning_content": "two twice"}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "tokenizer", tokenizer)
        async with client_of(engine) as client:
            asked = {"messages": said, "reasoning_effort": "low"}
            counted = await post(client, "/tokenize", **asked)
            body = {**asked, "max_tokens": 1, "return_token_ids": True}
            answer = await post(client, "/v1/chat/completions", **body)
    assert tokenizer.decode(answer["prompt_token_ids"]) == "fourtwo twicelowTrue"
    assert counted["tokens"] == answer["prompt_token_ids"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_control_tokens_are_part_of_a_text_where_that_is_asked_for(
    place: Served, client: httpx.AsyncClient, path: str
) -> None:
    (end, *_) = place.engine.ready.eos_token_ids
    question: Any = {"messages": MESSAGES} if "chat" in path else {"prompt": "one"}
    asked = {**question, "allowed_token_ids": [end], "ignore_eos": True, "max_tokens": 2}

    async def text(**fields: Any) -> str:
        (choice,) = (await post(client, path, **asked, **fields))["choices"]
        return str(choice["message"]["content"] if "chat" in path else choice["text"])

    spelt = place.engine.tokenizer.token_text(end) * 2
    assert [await text(), await text(skip_special_tokens=True)] == ["", ""]
    assert await text(skip_special_tokens=False) == spelt


async def test_tokens_are_named_by_number_where_that_is_asked_for(
    client: httpx.AsyncClient,
) -> None:
    (choice,) = (await complete(client, logprobs=2, return_tokens_as_token_ids=True))["choices"]
    names = [f"token_id:{token}" for token in choice["token_ids"]]
    assert choice["logprobs"]["tokens"] == names
    for name, top in zip(names, choice["logprobs"]["top_logprobs"], strict=True):
        assert len(top) == 2
        assert name in top
    body = {"messages": MESSAGES, "max_tokens": 2, "logprobs": True, "return_token_ids": True}
    chat = await post(client, "/v1/chat/completions", **body, return_tokens_as_token_ids=True)
    (choice,) = chat["choices"]
    told = [entry["token"] for entry in choice["logprobs"]["content"]]
    assert told == [f"token_id:{token}" for token in choice["token_ids"]]


async def test_the_stop_token_that_ended_an_answer_is_told_by_number(
    place: Served, client: httpx.AsyncClient
) -> None:
    first = (await complete(client))["choices"][0]["token_ids"][0]
    (choice,) = (await complete(client, stop_token_ids=[first]))["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", first)
    (end, *_) = place.engine.ready.eos_token_ids
    own = {"allowed_token_ids": [end], "stop_token_ids": [end]}
    assert (await complete(client, **own))["choices"][0]["stop_reason"] is None
    deaf = await complete(client, **own, ignore_eos=True)
    assert deaf["choices"][0]["stop_reason"] == end


async def test_tokens_are_turned_into_a_text_that_shows_control_tokens(
    client: httpx.AsyncClient, place: Served
) -> None:
    begin, end = (place.engine.tokenizer.token_text(token_id) for token_id in (0, 1))
    asked = {"tokens": [0, *place.engine.tokenizer.encode_plain("hello"), 1]}
    answer = await client.post("/detokenize", json=asked)
    assert answer.json() == {"prompt": f"{begin}hello{end}"}
    assert begin.startswith("<|")
    assert end == "<|end|>"


async def test_tokens_come_with_their_texts_where_that_is_asked_for(
    client: httpx.AsyncClient,
) -> None:
    found = await post(client, "/tokenize", prompt="hello world", return_token_strs=True)
    assert "".join(found["token_strs"]) == "hello world"
    assert len(found["token_strs"]) == found["count"]
    assert (await post(client, "/tokenize", prompt="hello"))["token_strs"] is None


async def test_version_and_load_are_told(
    place: Served, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await client.get("/version")).json()["version"].count(".") == 2
    monkeypatch.setattr(place.engine._link, "stats", Stats(num_waiting=2, num_running=3))
    assert (await client.get("/load")).json() == {"server_load": 5}


async def test_version_and_load_are_nobodys_business_without_the_key(place: Served) -> None:
    app = EngineApp(api_key="the-key")
    app.attach("tiny", place.engine)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as keyless:
        told = [(await keyless.get(path)).status_code for path in ("/version", "/load")]
    assert told == [401, 401]


CUT = "truncate_prompt_tokens"
REFUSED = [
    ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ({"prompt_logprobs": -1}, "prompt_logprobs"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [-1]}, "allowed_token_ids"),
    ({"allowed_token_ids": [1 << 40]}, "allowed_token_ids"),
    ({"allowed_token_ids": [1] * 16385}, "allowed_token_ids"),
    ({"allowed_token_ids": [5], "guided_regex": "a"}, "allowed_token_ids"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"cache_salt": "x" * 257}, "cache_salt"),
]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_what_is_out_of_range_is_refused_by_name(
    client: httpx.AsyncClient, path: str, fields: dict[str, Any], param: str
) -> None:
    question: Any = {"messages": MESSAGES} if "chat" in path else {"prompt": "one"}
    response = await client.post(path, json={"model": "tiny", **question, **fields})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_value", param)


@pytest.mark.parametrize(
    ("path", "fields", "code", "param"),
    [
        ("/v1/completions", {"prompt": "a", "logprobs": 21}, "invalid_value", "logprobs"),
        *(
            (path, {asked: "a", CUT: num}, "invalid_value", CUT)
            for path, asked in (("/v1/completions", "prompt"), ("/v1/embeddings", "input"))
            for num in (0, -2)
        ),
        *(
            ("/v1/embeddings", {"input": "a", name: False}, "unsupported_parameter", name)
            for name in ("normalize", "use_activation")
        ),
        ("/v1/embeddings", {"input": "a", "embed_dtype": "float16"}, "invalid_type", "embed_dtype"),
        ("/v1/embeddings", {"input": "a", "endianness": "big"}, "invalid_type", "endianness"),
        *(
            ("/tokenize", {"messages": MESSAGES, name: "x"}, "unsupported_parameter", name)
            for name in ("chat_template", "continue_final_message", "documents")
        ),
    ],
)
async def test_what_another_path_cannot_do_is_refused_by_name(
    client: httpx.AsyncClient, path: str, fields: dict[str, Any], code: str, param: str
) -> None:
    response = await client.post(path, json={"model": "tiny", **fields})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["code"], error["param"]) == (code, param)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("options", [{"include_usage": True}, {}])
async def test_each_part_of_a_stream_tells_what_its_choice_was_counted_so_far(
    client: httpx.AsyncClient, path: str, options: dict[str, Any]
) -> None:
    asked = {"messages": MESSAGES} if "chat" in path else {"prompt": "one two", "echo": True}
    options = {**options, "continuous_usage_stats": True}
    body = {"model": "tiny", "n": 2, "max_tokens": 5, "temperature": 1, "seed": 3, **asked}
    body |= {"ignore_eos": True, "stream": True, "stream_options": options}
    body |= {"return_token_ids": True, "logprobs": True if "chat" in path else 1}
    response = await client.post(path, json=body, headers=NAMED)
    assert response.status_code == 200, response.text
    *parts, last = events(response.text)

    written = {0: 0, 1: 0}
    for part in parts:
        (choice,) = part["choices"]
        usage = part["usage"]
        written[choice["index"]] += len(choice["token_ids"])
        assert usage["completion_tokens"] == written[choice["index"]]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens"] == last["usage"]["prompt_tokens"]
    assert written == {0: 5, 1: 5}
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 10)


CALLED = {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"}
ENDED = {"allowed_token_ids": [1, 300], "min_tokens": 2, "logit_bias": {"1": 100}}


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        *(
            (f"/v1/{path}completions", asked)
            for path in ("", "chat/")
            for asked in (ENDED, {"stop": ["lo wor"], "guided_regex": "hel+lo words", "n": 2})
        ),
        ("/v1/completions", {"prompt": ["one", "two two"], "echo": True}),
        ("/v1/chat/completions", CALLED),
        ("/v1/chat/completions", {"allowed_token_ids": [200], "logprobs": True}),
    ],
)
async def test_a_stream_names_every_token_that_the_whole_answer_names(
    client: httpx.AsyncClient, path: str, asked: dict[str, Any]
) -> None:
    """Also those whose text is held back, or is none: a part of a call, of a character, an end."""
    question: Any = {"messages": MESSAGES} if "chat" in path else {"prompt": "one"}
    body = {**question, "max_tokens": 12, "seed": 5, "return_token_ids": True, **asked}
    whole = await post(client, path, **body)
    response = await client.post(path, json={"model": "tiny", **body, "stream": True})

    prompts: dict[int, list[int]] = {}
    written: dict[int, list[int]] = {}
    for part in events(response.text):
        (choice,) = part["choices"]
        written.setdefault(choice["index"], []).extend(choice["token_ids"])
        prompt = (part if "chat" in path else choice).get("prompt_token_ids")
        if prompt is not None:
            assert choice["index"] not in prompts, "it is told once"
            prompts[choice["index"]] = prompt
    assert written == {each["index"]: each["token_ids"] for each in whole["choices"]}
    if "chat" in path:
        assert prompts == {0: whole["prompt_token_ids"]}
    else:
        assert prompts == {each["index"]: each["prompt_token_ids"] for each in whole["choices"]}


async def test_who_wants_no_usage_is_told_none_along_the_way(client: httpx.AsyncClient) -> None:
    options = {"include_usage": False, "continuous_usage_stats": True}
    body = {"model": "tiny", "prompt": "one", "stream": True, "stream_options": options}
    response = await client.post("/v1/completions", json=body, headers=NAMED)
    assert not any("usage" in event for event in events(response.text))
