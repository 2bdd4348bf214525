"""Drafters: what they guess, and that guessing changes no token."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local_engine.core.sequence import Sequence
from local_engine.runner.speculative import Drafter, ModelDrafter, NgramDrafter, may_speculate
from local_engine.sampling_params import SamplingParams
from tests.local_engine.engine_loop import CPU, EngineLoop, greedy, greedy_tokens
from tests.local_engine.models import random_decoder
from tests.local_engine.served import client_of, served
from tests.local_engine.test_equalities import SPECS, prompt


SPEC = SPECS["native"]
SAMPLED = SamplingParams(temperature=0.8, seed=3, max_tokens=24, ignore_eos=True)

LOOKING_BACK = [
    greedy(24, presence_penalty=0.02, repetition_penalty=1.05),
    replace(SAMPLED, frequency_penalty=0.3, bad_token_ids=((7,), (20, 21))),
]


def run(
    drafter: Drafter, params: list[SamplingParams], **limits: Any
) -> tuple[list[Sequence], int]:
    loop = EngineLoop(random_decoder(SPEC), **limits)
    sequences = [loop.add(prompt(20, seed=n), each) for n, each in enumerate(params)]
    while loop.scheduler.has_work:
        loop.step()
        drafter.propose([each for each in sequences if may_speculate(each)])
    return sequences, loop.num_steps


def drafters() -> dict[str, Drafter]:
    same = ModelDrafter(random_decoder(SPEC), CPU, num_drafts=3, num_blocks=256)
    other = ModelDrafter(random_decoder(SPECS["plain"]), CPU, num_drafts=3, num_blocks=256)
    return {"n-gram": NgramDrafter(3), "same model": same, "other model": other}


@pytest.mark.parametrize("name", ["n-gram", "same model", "other model"])
@pytest.mark.parametrize("num_blocks", [256, 7])
def test_drafts_change_neither_greedy_nor_sampled_tokens(name: str, num_blocks: int) -> None:
    params = [greedy(24), SAMPLED, greedy(17), *LOOKING_BACK]
    plain, _ = run(NgramDrafter(0), params, num_blocks=num_blocks)
    drafted, _ = run(drafters()[name], params, num_blocks=num_blocks)
    for one, other in zip(plain, drafted, strict=True):
        assert one.token_ids == other.token_ids


def test_a_bad_word_that_guesses_begin_is_not_ended() -> None:
    """And what was guessed counts for penalties as if it were written."""
    written = greedy_tokens(random_decoder(SPEC), prompt(20, 0), 24)
    for at in range(2, 6):
        params = [greedy(9, bad_token_ids=(tuple(written[at : at + 2]),))]
        (plain,), _ = run(NgramDrafter(0), params)
        (drafted,), _ = run(drafters()["same model"], params)
        assert drafted.token_ids == plain.token_ids
        assert drafted.output_token_ids != written[:9]


def test_a_model_that_guesses_like_itself_needs_half_the_steps_at_most() -> None:
    _, num_plain = run(NgramDrafter(0), [greedy(24)])
    (sequence,), num_drafted = run(drafters()["same model"], [greedy(24)])
    assert list(sequence.output_token_ids) == greedy_tokens(random_decoder(SPEC), prompt(20, 0), 24)
    assert num_drafted <= num_plain // 2


def test_the_last_time_these_tokens_were_seen_says_what_follows() -> None:
    tokens = [5, 6, 7, 8, 9, 1, 5, 6, 7]
    sequence = Sequence("s", tokens, SamplingParams(max_tokens=10), context_window=64)
    drafter = NgramDrafter(3)
    drafter.propose([sequence])
    assert sequence.draft_token_ids == [8, 9, 1]
    sequence.draft_token_ids = []
    sequence.token_ids.append(2)
    drafter.propose([sequence])
    assert sequence.draft_token_ids == []


@pytest.mark.anyio
@pytest.mark.parametrize("options", [{}, {"num_drafts": 4}, {"num_drafts": 3, "draft_model": "."}])
async def test_a_served_model_speculates_under_grammars_and_penalties(
    tiny_model: Path, options: dict[str, Any]
) -> None:
    if "draft_model" in options:
        options = {**options, "draft_model": str(tiny_model)}
    messages = [{"role": "user", "content": "hello hello hello"}]
    body = {"model": "tiny", "messages": messages, "max_tokens": 30, "temperature": 0}
    async with served(tiny_model, **options) as place, client_of(place.engine) as client:
        texts = []
        for extra in ({}, {"frequency_penalty": 1.0}, {"guided_regex": "(ab|cd){4}"}):
            answer = await client.post("/v1/chat/completions", json={**body, **extra})
            texts.append(answer.json()["choices"][0]["message"]["content"])
        stats = place.engine.stats()
    assert texts == EXPECTED.setdefault("texts", texts)
    assert len(texts[2]) == 8
    assert (stats.draft_tokens > 0) == bool(options)


EXPECTED: dict[str, list[str]] = {}


@pytest.mark.anyio
async def test_a_prompt_whose_every_token_is_asked_about_can_be_guessed_on(
    tiny_model: Path,
) -> None:
    body = {"model": "tiny", "prompt": "hello hello hello", "echo": True, "logprobs": 2}
    asked = {**body, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    said = []
    for options in ({}, {"num_drafts": 3, "draft_model": str(tiny_model)}):
        async with served(tiny_model, **options) as place, client_of(place.engine) as client:
            response = await client.post("/v1/completions", json=asked)
            assert response.status_code == 200, response.text
            said.append(response.json()["choices"][0])
            assert (place.engine.stats().accepted_tokens > 0) == bool(options)
    plain, guessed = (choice["logprobs"] for choice in said)
    assert guessed["tokens"] == plain["tokens"]
    assert guessed["token_logprobs"][1:] == pytest.approx(plain["token_logprobs"][1:], abs=1e-4)


@pytest.mark.anyio
async def test_what_must_leave_no_trace_leaves_none_with_the_model_that_guesses(
    tiny_model: Path,
) -> None:
    options = {"num_drafts": 2, "draft_model": str(tiny_model)}
    body = {"model": "tiny", "prompt": [7] * 40, "max_tokens": 20, "ignore_eos": True}
    async with served(tiny_model, **options) as place, client_of(place.engine) as client:
        drafter, pool = place.worker._drafter, place.runner.pool
        assert isinstance(drafter, ModelDrafter)
        before = [side.clone() for side in (*pool.keys, *pool.values)]
        headers = {"x-gatewright-tenant": "a", "x-gatewright-data-class": "S4"}
        response = await client.post("/v1/completions", json=body, headers=headers)
        assert response.status_code == 200
        assert place.engine.stats().draft_tokens > 0
        # The step that cleans up is planned, and over when the worker answers the next question.
        while place.scheduler.has_work:
            await asyncio.sleep(0.01)
        await place.engine.embed([1])
        for old, new in zip(before, (*pool.keys, *pool.values), strict=True):
            changed = new[(new != old).flatten(1).any(dim=1)]
            assert not changed.any()
        assert not any(side.any() for side in (*drafter._pool.keys, *drafter._pool.values))
