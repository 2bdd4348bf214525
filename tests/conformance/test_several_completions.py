"""Text completions of several prompts, several times each: one call, one record."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import openai
import pytest
from openai.types import Completion

from gateway.money.rates import RateLimit
from gateway.store.identity.keys import Place
from gateway.types import Usage
from tests.conformance.test_batches import ended, make, results
from tests.conformance.test_completions import POLICY, PROMPT, REAL_ENGINE
from tests.faults.envelopes import only_outcome, read_to_end
from tests.gateway.pool.test_exact import listening
from tests.journeys.test_operator_limits_how_fast_a_team_asks import limit
from tests.local_engine.models import tiny_spec, write_model_directory
from tests.local_engine.served import served
from tests.running_gateway import ENGINE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

SETTINGS = """
[inspection]
deadline_s = 5.0
[targets.priced]
provider = "engine"
model = "fake-model"
catalogue = "gatewright-demo"
"""
PROMPTS = ["Once upon a time", "In the beginning", "Call me"]
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}


def choice(index: int, text: str, finish: str | None = "stop") -> dict[str, object]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish}


def whole(*texts: str, **more: object) -> Answer:
    choices = [choice(at, text) | more for at, text in enumerate(texts)]
    return Answer(body=msgspec.json.encode(HEAD | {"choices": choices, "usage": USAGE}))


def streamed(*chunks: Iterable[dict[str, object]]) -> Answer:
    """Each chunk with its choices, then what was counted."""
    trees = [HEAD | {"choices": list(choices)} for choices in chunks]
    trees.append(HEAD | {"choices": [], "usage": USAGE})
    events = [b"data: " + msgspec.json.encode(tree) + b"\n\n" for tree in trees]
    return Answer(events=(*events, b"data: [DONE]\n\n"))


async def pieces_of(stream: AsyncIterator[Completion]) -> dict[int, str]:
    texts: dict[int, str] = {}
    async for piece in stream:
        for each in piece.choices:
            texts[each.index] = texts.get(each.index, "") + each.text
    return texts


async def test_several_prompts_and_answers_are_one_call_in_the_callers_words(
    gpt: openai.AsyncOpenAI, gateway: RunningGateway, upstreams: Upstreams
) -> None:
    upstreams.engine.answer(whole(*"abcdef"))
    raw = await gpt.completions.with_raw_response.create(
        model=ENGINE_TARGET, prompt=PROMPTS, n=2, best_of=2, logprobs=2, echo=True
    )
    answer = raw.parse()

    assert [(each.index, each.text) for each in answer.choices] == list(enumerate("abcdef"))
    (call,) = upstreams.engine.calls
    # Newer servers know no `best_of`, and as many as `n` is what they make anyway.
    asked = {"prompt": PROMPTS, "n": 2, "logprobs": 2, "echo": True, "max_tokens": 16}
    assert call.json == {"model": "fake-model"} | asked
    intent, outcome = await gateway.records(raw.headers["x-request-id"])
    assert (intent.stage, outcome.status) == ("intent", "ok")
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (11, 7)


@pytest.mark.parametrize("count", [5, 7])
async def test_an_answer_with_another_number_of_choices_is_none(
    gpt: openai.AsyncOpenAI, gateway: RunningGateway, upstreams: Upstreams, count: int
) -> None:
    """Who asked counts them: one that is missing would give each the next one's answer."""
    upstreams.engine.answer(whole(*"abcdefg"[:count]))
    with pytest.raises(openai.InternalServerError) as caught:
        await gpt.completions.create(model=ENGINE_TARGET, prompt=PROMPTS, n=2)

    assert caught.value.status_code == 502
    request_id = caught.value.response.headers["x-request-id"]
    outcome = await only_outcome(gateway, request_id, "failed", "upstream_malformed")
    assert outcome.attempts


@pytest.mark.parametrize("end", ["whole", "streamed", "cut"])
async def test_a_prompt_can_be_asked_for_its_own_likelihood_alone(
    http: aiohttp.ClientSession,
    gateway: RunningGateway,
    shared_key: str,
    upstreams: Upstreams,
    end: str,
) -> None:
    """What harnesses ask for: no token of an answer, only how likely the prompt's are."""
    counted = {"prompt_tokens": 11, "completion_tokens": 0, "total_tokens": 11}
    said = msgspec.json.encode(HEAD | {"choices": [choice(0, PROMPT)], "usage": counted})
    events = (b"data: " + said + b"\n\n", b"data: [DONE]\n\n")
    upstreams.engine.answer(
        Answer(body=said) if end == "whole" else Answer(events=events[: 1 + (end == "streamed")])
    )
    asked: dict[str, object] = {"model": ENGINE_TARGET, "prompt": PROMPT, "max_tokens": 0}
    asked |= {"echo": True, "logprobs": 1, "stream": end != "whole"}
    headers = {"authorization": f"Bearer {shared_key}"}
    async with http.post(f"{gateway.url}/v1/completions", json=asked, headers=headers) as reply:
        sent, is_cut = await read_to_end(reply)

    assert is_cut == (end == "cut")
    assert is_cut or PROMPT.encode() in sent
    assert upstreams.engine.calls[0].json["max_tokens"] == 0
    outcome = (await gateway.records(reply.headers["x-request-id"]))[-1]
    # The prompt, said once more, is nothing that was written.
    assert outcome.usage == Usage(input_tokens=11, estimated=is_cut)


async def test_money_is_set_aside_for_every_answer_to_every_prompt(
    gpt: openai.AsyncOpenAI, gateway: RunningGateway, upstreams: Upstreams
) -> None:
    reserved: list[int] = []
    for count in (1, 4):
        upstreams.engine.answer(whole(*["x"] * (count * len(PROMPTS))))
        raw = await gpt.completions.with_raw_response.create(
            model="priced", prompt=PROMPTS, n=count, max_tokens=1000
        )
        intent, _ = await gateway.records(raw.headers["x-request-id"])
        reserved.append(intent.reserved_microusd)
    upstreams.engine.answer(whole("x"))
    raw = await gpt.completions.with_raw_response.create(
        model="priced", prompt="".join(PROMPTS), max_tokens=1000
    )
    intent, _ = await gateway.records(raw.headers["x-request-id"])

    assert 2.5 < reserved[0] / intent.reserved_microusd < 3.5
    assert 3.5 < reserved[1] / reserved[0] < 4.5


async def test_a_limit_of_tokens_counts_every_answer_to_every_prompt(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key(Place("acme", "few", "tokens"))
    await limit(gateway, RateLimit("ws:acme/few", tokens_per_minute=1500))
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        upstreams.engine.answer(Answer(output_tokens=700))
        await client.completions.create(model=ENGINE_TARGET, prompt=PROMPT)
        asked: Any = {"model": ENGINE_TARGET, "prompt": PROMPTS[:2], "max_tokens": 200}
        with pytest.raises(openai.RateLimitError):
            await client.completions.create(n=4, **asked)
        upstreams.engine.answer(whole("one", "two"))
        few = await client.completions.create(**asked)

    assert [each.text for each in few.choices] == ["one", "two"]


async def test_streamed_answers_are_told_apart_and_the_first_to_stop_is_not_held_back(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    upstreams.engine.answer(
        streamed(
            [choice(0, "one", None), choice(1, "uno", None)],
            [choice(1, " due", "stop")],
            [choice(0, " two", None)],
            [choice(0, " three", "length")],
        )
    )
    stream = await gpt.completions.create(model=ENGINE_TARGET, prompt=PROMPTS[:2], stream=True)
    pieces = [each async for piece in stream for each in piece.choices]

    assert [(each.index, each.text, each.finish_reason) for each in pieces] == [
        *((0, "one", None), (1, "uno", None), (1, " due", "stop")),
        *((0, " two", None), (0, " three", "length")),
    ]


@pytest.mark.parametrize(
    "chunks",
    [
        ([choice(0, "one", None), choice(1, "uno", None)], [choice(1, " due", "stop")]),
        ([choice(1, "uno", None)], [choice(1, " due", "stop")]),
    ],
)
async def test_a_stream_without_the_end_of_each_answer_is_a_broken_one_and_billed_as_told(
    http: aiohttp.ClientSession,
    gateway: RunningGateway,
    shared_key: str,
    upstreams: Upstreams,
    chunks: tuple[list[dict[str, object]], ...],
) -> None:
    upstreams.engine.answer(streamed(*chunks))
    asked = {"model": ENGINE_TARGET, "prompt": PROMPTS[:2], "stream": True}
    headers = {"authorization": f"Bearer {shared_key}"}
    async with http.post(f"{gateway.url}/v1/completions", json=asked, headers=headers) as reply:
        sent, is_cut = await read_to_end(reply)

    assert is_cut
    assert b"ended before its answers had" in sent
    assert b"uno" in sent
    assert b"[DONE]" not in sent
    request_id = reply.headers["x-request-id"]
    outcome = await only_outcome(gateway, request_id, "incomplete", "stream_broken")
    assert outcome.usage == Usage(input_tokens=11, output_tokens=7)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_with_fewer_answers_than_were_asked_for_is_passed_on(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams, *, stream: bool
) -> None:
    upstreams.engine.answer(Answer(text="Only one."))
    said: Any = [{"role": "user", "content": "Hi"}]
    raw = await gpt.chat.completions.with_raw_response.create(
        model=ENGINE_TARGET, messages=said, n=2, stream=stream
    )
    body = (await raw.http_response.aread()).decode()

    assert upstreams.engine.calls[-1].json["n"] == 2
    assert '"index":1' not in body.replace(" ", "")
    assert "one." in body


@pytest.mark.parametrize("stream", [False, True])
async def test_each_answer_gets_the_values_back_that_went_out_as_others(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, *, stream: bool
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.format(obligation="pseudonymise = true"))
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    prompts = ["Please write to Ingrid Halvorsen today.", "Please write to Per Sandvik today."]
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running:
        key = await running.issue_key()
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key) as client:
            own_upstreams.engine.answer(whole("", ""))
            await client.completions.create(model=ENGINE_TARGET, prompt=prompts)
            said: Any = own_upstreams.engine.calls[-1].json["prompt"]
            names = [each.split("write to ")[1].removesuffix(" today.") for each in said]
            if not stream:
                own_upstreams.engine.answer(whole(*(f"To {name}." for name in names)))
                got = await client.completions.create(model=ENGINE_TARGET, prompt=prompts)
                texts = {each.index: each.text for each in got.choices}
            else:
                own_upstreams.engine.answer(in_turns(names))
                events = await client.completions.create(
                    model=ENGINE_TARGET, prompt=prompts, stream=True
                )
                texts = await pieces_of(events)

    assert b"Halvorsen" not in own_upstreams.engine.calls[-1].body
    assert texts == {0: "To Ingrid Halvorsen.", 1: "To Per Sandvik."}


def in_turns(names: list[str]) -> Answer:
    """Both names in pieces of three letters that take turns, two in a chunk."""
    texts = [f"To {name}." for name in names]
    length = max(map(len, texts))
    chunks = [
        [choice(at, text[cut : cut + 3], None) for at, text in enumerate(texts)]
        for cut in range(0, length, 3)
    ]
    return streamed(*chunks, [choice(0, "")], [choice(1, "")])


async def test_masked_answers_say_no_token_of_what_is_masked(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.format(obligation='scan_output = "mask"'))
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    iban = "DE89 3704 0044 0532 0130 00"
    told: dict[str, Any] = {"tokens": [iban], "token_logprobs": [-0.1], "text_offset": [4]}
    told["top_logprobs"] = [{iban: -0.1}]
    own_upstreams.engine.answer(whole(f"Pay {iban}.", "Pay nobody.", logprobs=told))
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running:
        key = await running.issue_key()
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key) as client:
            raw = await client.completions.with_raw_response.create(
                model=ENGINE_TARGET, prompt=PROMPTS[:2], logprobs=1
            )

    assert iban not in raw.text
    assert [each.text for each in raw.parse().choices] == ["Pay [REDACTED:IBAN].", "Pay nobody."]
    assert [each.logprobs for each in raw.parse().choices] == [None, None]


async def test_the_engine_of_this_repository_answers_as_it_does_without_a_gateway(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> None:
    write_model_directory(tmp_path / "tiny", tiny_spec(context_window=256))
    asked: Any = {"prompt": PROMPTS, "n": 2, "max_tokens": 8, "seed": 3, "temperature": 1}
    asked |= {"logprobs": 2, "echo": True}
    async with served(tmp_path / "tiny") as place, listening(place) as url:
        more = REAL_ENGINE.format(url=url)
        async with (
            RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as direct,
            openai.AsyncOpenAI(
                base_url=f"{running.url}/v1", api_key=await running.issue_key(), max_retries=0
            ) as client,
        ):
            own = await direct.completions.create(model="tiny", **asked)
            ours = await client.completions.create(model="tiny-house", **asked)
            stream = await client.completions.create(model="tiny-house", stream=True, **asked)
            texts = await pieces_of(stream)
            scored: Any = {"prompt": PROMPT, "logprobs": 0, "echo": True, "max_tokens": 0}
            score = await client.completions.create(model="tiny-house", **scored)

    assert score.choices[0].text == PROMPT
    assert score.usage is not None
    assert score.usage.completion_tokens == 0
    assert [each.index for each in ours.choices] == list(range(6))
    assert [each.text for each in ours.choices] == [each.text for each in own.choices]
    assert texts == {each.index: each.text for each in own.choices}
    # The index of a prompt's answers is the prompt's, times `n`, and which of them it is.
    assert [each.text.startswith(PROMPTS[each.index // 2]) for each in ours.choices] == [True] * 6
    for each, other in zip(ours.choices, own.choices, strict=True):
        assert each.logprobs is not None
        assert other.logprobs is not None
        assert each.logprobs.tokens == other.logprobs.tokens
        assert each.logprobs.text_offset == other.logprobs.text_offset
    assert ours.usage is not None
    assert ours.usage == own.usage


async def test_a_batch_may_hold_text_completions(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    bodies: dict[str, dict[str, Any]] = {"one": {"prompt": PROMPT}, "bad": {"prompt": [1, 2]}}
    lines = [
        msgspec.json.encode(
            {
                "custom_id": name,
                "method": "POST",
                "url": "/v1/completions",
                "body": {"model": ENGINE_TARGET, **body},
            }
        )
        for name, body in bodies.items()
    ]
    batch = await ended(gpt, await make(gpt, lines, "/v1/completions"))

    assert batch.status == "completed"
    (good,) = (await results(gpt, batch.output_file_id)).values()
    assert good["response"]["body"]["choices"][0]["text"] == "Hello from the upstream."
    assert upstreams.engine.calls[0].path == "/v1/completions"
    (bad,) = (await results(gpt, batch.error_file_id)).values()
    assert bad["response"]["body"]["error"]["param"] == "prompt"
