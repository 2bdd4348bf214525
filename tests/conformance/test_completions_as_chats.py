"""Text completions that name a chat model: one user's turn there, said in a header, and no more."""

from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from tests.conformance.test_batches import ended, make, results
from tests.conformance.test_chosen_embeddings import explained
from tests.conformance.test_completions import POLICY, PROMPT, TOLD, continued
from tests.faults.envelopes import only_outcome, untouched
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer, RecordingUpstream


pytestmark = pytest.mark.anyio

CHATS = (CLAUDE_TARGET, GPT_TARGET)
LIMITS = {CLAUDE_TARGET: "max_tokens", GPT_TARGET: "max_completion_tokens"}


def asked_of(upstreams: Upstreams, model: str) -> RecordingUpstream:
    return upstreams.anthropic if model == CLAUDE_TARGET else upstreams.openai


@pytest.mark.parametrize("prompt", [PROMPT, [PROMPT]])
@pytest.mark.parametrize("model", CHATS)
async def test_rule_64_a_prompt_for_a_chat_model_is_one_users_turn_and_reported(
    gpt: openai.AsyncOpenAI,
    gateway: RunningGateway,
    upstreams: Upstreams,
    model: str,
    prompt: str | list[str],
) -> None:
    raw = await gpt.completions.with_raw_response.create(model=model, prompt=prompt, stop=["END"])
    answer = raw.parse()

    assert (answer.object, answer.choices[0].text) == ("text_completion", TOLD)
    assert answer.id.startswith("cmpl-")
    assert (answer.choices[0].index, answer.choices[0].finish_reason) == (0, "stop")
    assert answer.choices[0].logprobs is None
    assert answer.usage is not None
    assert answer.usage.total_tokens == 18
    assert raw.headers["x-gatewright-dropped"] == "bare_text"
    (call,) = asked_of(upstreams, model).calls
    (turn,) = msgspec.json.decode(call.body, type=dict[str, Any])["messages"]
    assert turn["role"] == "user"
    assert PROMPT in str(turn["content"])
    assert call.json[LIMITS[model]] == 16
    _, outcome = await gateway.records(raw.headers["x-request-id"])
    assert outcome.dropped == ("bare_text",)
    told = await explained(gateway, gpt, raw.headers["x-request-id"])
    against = {each["name"]: each["exclusions"] for each in told["explanation"]["targets"]}
    assert against[model] == []


@pytest.mark.parametrize("wants_usage", [True, False])
@pytest.mark.parametrize("model", CHATS)
async def test_rule_64_a_chat_is_streamed_as_a_continuation(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams, model: str, *, wants_usage: bool
) -> None:
    options: Any = {"stream_options": {"include_usage": True}} if wants_usage else {}
    stream = await gpt.completions.create(model=model, prompt=PROMPT, stream=True, **options)
    pieces = [piece async for piece in stream]

    assert {(piece.object, piece.id) for piece in pieces} == {("text_completion", pieces[0].id)}
    assert pieces[0].id.startswith("cmpl-")
    said = [piece.choices[0] for piece in pieces if piece.choices]
    assert "".join(each.text for each in said) == TOLD
    assert [each.finish_reason for each in said] == [None] * (len(said) - 1) + ["stop"]
    assert (pieces[-1].usage is not None) == wants_usage
    assert len(pieces) == len(said) + wants_usage


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"prompt": [PROMPT, PROMPT]}, "prompt"),
        ({"n": 2}, "n"),
        ({"logprobs": 0}, "logprobs"),
        ({"echo": True}, "echo"),
    ],
)
@pytest.mark.parametrize("model", CHATS)
async def test_rule_24_what_a_chat_cannot_give_is_refused(
    gpt: openai.AsyncOpenAI,
    gateway: RunningGateway,
    upstreams: Upstreams,
    model: str,
    fields: dict[str, Any],
    at: str,
) -> None:
    with pytest.raises(openai.BadRequestError, match=r"\(rule 24\)") as caught:
        await gpt.completions.create(**{"model": model, "prompt": PROMPT} | fields)

    assert caught.value.param == at
    request_id = caught.value.response.headers["x-request-id"]
    await only_outcome(gateway, request_id, "refused", "unsupported_parameter")
    assert untouched(upstreams)


async def test_a_key_that_leaves_nothing_out_does_not_put_bare_text_into_a_chat(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key(translation="strict")
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        with pytest.raises(openai.BadRequestError, match="bare_text"):
            await client.completions.create(model=CLAUDE_TARGET, prompt=PROMPT)

    assert untouched(upstreams)


async def test_sampling_crosses_and_what_has_no_word_there_is_reported(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    fields: Any = {"temperature": 0.5, "seed": 7, "logit_bias": {"5": 1}, "user": "Jane Doe"}
    fields |= {"presence_penalty": 0.5, "extra_body": {"top_k": 40, "min_p": 0.1}}
    raw = await gpt.completions.with_raw_response.create(
        model=CLAUDE_TARGET, prompt=PROMPT, **fields
    )

    dropped = set(raw.headers["x-gatewright-dropped"].split(", "))
    assert {"bare_text", "min_p", "logit_bias", "seed", "presence_penalty"} <= dropped
    (call,) = upstreams.anthropic.calls
    assert b"Jane" not in call.body
    metadata: Any = call.json["metadata"]
    assert len(metadata["user_id"]) >= 32


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_is_cut_or_refused_says_so(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams, *, stream: bool
) -> None:
    said: list[tuple[str, str | None]] = []
    for stop in ("max_tokens", "refusal"):
        upstreams.anthropic.answer(Answer(stop=stop, text="" if stop == "refusal" else TOLD))
        whole: Any = await gpt.completions.create(model=CLAUDE_TARGET, prompt=PROMPT, stream=stream)
        choices = [piece.choices[0] async for piece in whole] if stream else whole.choices
        said.append(("".join(each.text for each in choices), choices[-1].finish_reason))

    refusal = "The model declined to continue."
    assert said == [(TOLD, "length"), (refusal, "content_filter")]


@pytest.mark.parametrize("stream", [False, True])
async def test_values_that_left_as_others_come_back_in_a_chats_answer(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, *, stream: bool
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.format(obligation="pseudonymise = true"))
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    prompt = "Please write to Ingrid Halvorsen about her card."
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running:
        key = await running.issue_key()
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key) as client:
            await client.completions.create(model=CLAUDE_TARGET, prompt=prompt)
            body = own_upstreams.anthropic.calls[-1].body.decode()
            surrogate = body.split("write to ")[1].split(" about", maxsplit=1)[0]
            own_upstreams.anthropic.answer(Answer(text=f"I wrote to {surrogate} today."))
            text = await continued(client, prompt, stream=stream, model=CLAUDE_TARGET)

    assert not any(b"Halvorsen" in call.body for call in own_upstreams.anthropic.calls)
    assert text == "I wrote to Ingrid Halvorsen today."


async def test_lines_of_bare_text_go_to_the_vendors_own_batches_as_chats(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> None:
    lines = [
        msgspec.json.encode(
            {
                "custom_id": model,
                "method": "POST",
                "url": "/v1/completions",
                "body": {"model": model, "prompt": PROMPT},
            }
        )
        for model in CHATS
    ]
    more, managed = "[batches]\nnative_poll_s = 0.05", "native_batches = true"
    async with RunningGateway(
        tmp_path, sqlite_url, own_upstreams, more=more, managed=managed
    ) as running:
        key = await running.issue_key()
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key) as client:
            batch = await ended(client, await make(client, lines, "/v1/completions"))
            found = await results(client, batch.output_file_id)

    for model in CHATS:
        body = found[model]["response"]["body"]
        assert (body["object"], body["choices"][0]["text"]) == ("text_completion", TOLD)
        assert asked_of(own_upstreams, model).batches.made == 1
