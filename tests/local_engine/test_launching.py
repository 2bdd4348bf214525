"""Steps that are launched before the one before has been collected: the same tokens come out.

This is how an engine serves on a GPU; here a CPU plays one (`late_device`).
"""

from typing import Any

import pytest
import torch

from local_engine.bench.gpu.loop import Loop, new_engine
from local_engine.core.limits import Limits
from local_engine.core.sequence import Sequence
from local_engine.runner.model_runner import ModelRunner
from local_engine.runner.share import ShareOptions
from local_engine.sampling_params import SamplingParams
from tests.local_engine.engine_loop import CPU, greedy
from tests.local_engine.late_device import LateTimeline
from tests.local_engine.models import random_decoder, tiny_spec
from tests.local_engine.operations import operations_of


SPEC = tiny_spec(head_dim=32, context_window=256)
NUM_TOKENS = 12


def prompt(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    found: list[int] = torch.randint(2, 1500, (length,), generator=generator).tolist()
    return found


PROMPTS = [prompt(length, length) for length in (3, 17, 40, 90)]


def sampled(**choices: Any) -> SamplingParams:
    chosen = {"temperature": 0.7, "seed": 11, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    return SamplingParams(**{**chosen, **choices})


def new_loop(timeline: LateTimeline | None, *, kv_tokens: int = 2048, **limits: Any) -> Loop:
    """An engine of its own; without a timeline it computes one step after the other."""
    engine = new_engine(
        random_decoder(SPEC), CPU, kv_tokens=kv_tokens, most_rows=8, timeline=timeline
    )
    return engine.loop(is_ahead=timeline is not None, **{"token_budget": 512, **limits})


def written(loop: Loop, params: list[SamplingParams]) -> list[list[int]]:
    sequences = [loop.add(each, chosen) for each, chosen in zip(PROMPTS, params, strict=True)]
    loop.run()
    loop.close()
    return [list(sequence.output_token_ids) for sequence in sequences]


WAYS: dict[str, dict[str, Any]] = {
    "all at once": {},
    "in chunks": {"token_budget": 32, "prefill_chunk": 16},
    "chunks that nobody asks the scores of": {"token_budget": 16, "prefill_chunk": 16},
    "one after another": {"max_running": 1},
    "too few blocks": {"kv_tokens": 176},
    "without the cache": {"is_caching": False},
}
CHOICES: dict[str, list[SamplingParams]] = {
    "greedy": [greedy(NUM_TOKENS)] * 4,
    "drawn": [sampled(seed=seed) for seed in (1, 2, 3, 4)],
    "cut": [sampled(top_k=5), sampled(top_p=0.8), sampled(min_p=0.2), sampled()],
    "penalised among others": [
        greedy(NUM_TOKENS),
        greedy(NUM_TOKENS, repetition_penalty=1.3),
        sampled(frequency_penalty=0.5),
        sampled(),
    ],
    "never these": [
        greedy(NUM_TOKENS, bad_token_ids=((7,), (8, 9))),
        sampled(top_p=0.9, presence_penalty=1.5),
        greedy(NUM_TOKENS, allowed_token_ids=tuple(range(3, 99)), presence_penalty=2.0),
        sampled(frequency_penalty=-0.5, bad_token_ids=((5, 6, 7),)),
    ],
    "looked at": [
        greedy(NUM_TOKENS, logprobs=True, top_logprobs=3),
        greedy(NUM_TOKENS, logit_bias={7: 100.0}),
        sampled(min_tokens=5, stop_token_ids=(9,)),
        greedy(NUM_TOKENS, prompt_logprobs=1),
    ],
    "of different lengths": [greedy(1), greedy(3), sampled(max_tokens=7), greedy(NUM_TOKENS)],
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("way", WAYS)
def test_a_step_launched_early_writes_what_it_would_have_written(way: str, choice: str) -> None:
    expected = written(new_loop(None), CHOICES[choice])
    timeline = LateTimeline()

    assert written(new_loop(timeline, **WAYS[way]), CHOICES[choice]) == expected
    assert timeline.num_under_way == 0, "everything that was launched was collected"


@pytest.mark.parametrize("choice", CHOICES)
def test_a_thread_that_computes_what_was_planned_ahead_writes_the_same(choice: str) -> None:
    """As `--overlap on` does on a CPU: a sequence may learn its tokens after the thread."""
    expected = written(new_loop(None), CHOICES[choice])
    engine = new_engine(random_decoder(SPEC), CPU, kv_tokens=2048, most_rows=8)

    assert written(engine.loop(is_ahead=True, token_budget=512), CHOICES[choice]) == expected


def test_a_step_is_launched_while_the_one_before_is_under_way() -> None:
    timeline = LateTimeline()
    written(new_loop(timeline), CHOICES["greedy"])

    assert timeline.most_under_way == 2


ASKED: dict[str, dict[str, Any]] = {
    "log-probabilities": {"logprobs": True, "top_logprobs": 5},
    "biases": {"logit_bias": {7: 2.0}},
    "a least number of tokens": {"min_tokens": 4},
    "penalties": {"presence_penalty": 1.5, "repetition_penalty": 1.1},
    "bad words": {"bad_token_ids": ((7,), (8, 9))},
}


@pytest.mark.parametrize("asked", ASKED)
def test_who_asks_about_single_tokens_makes_nobody_wait(asked: str) -> None:
    timeline = LateTimeline()
    written(new_loop(timeline), [greedy(NUM_TOKENS, **ASKED[asked]), *CHOICES["drawn"][1:]])

    assert timeline.most_under_way == 2


@pytest.mark.parametrize("asked", ASKED)
def test_who_asks_about_single_tokens_is_in_each_step(asked: str) -> None:
    """Also where its last token is not known yet, and tells how likely the next one is."""
    steps = []
    for fields in ({}, ASKED[asked]):
        timeline = LateTimeline()
        loop = new_loop(timeline)
        written(loop, [greedy(NUM_TOKENS, **fields)] * 4)
        assert timeline.most_under_way == 2
        steps.append(loop.num_steps)
    assert steps[0] == steps[1]


def test_who_may_write_a_few_tokens_only_is_waited_for() -> None:
    timeline = LateTimeline()
    written(new_loop(timeline), [greedy(NUM_TOKENS, allowed_token_ids=(5, 6, 7))] * 4)

    assert timeline.most_under_way < 2


def test_a_step_waits_for_no_row_because_of_what_it_wrote() -> None:
    """On a GPU each of these operators is a wait, and Qwen asks for this penalty always."""
    waits = {}
    for count in (1, 4):
        loop = new_loop(LateTimeline())
        for each in PROMPTS[:count]:
            loop.add(each, greedy(NUM_TOKENS, presence_penalty=1.5, bad_token_ids=((7, 8),)))
        counted = operations_of(loop.run)
        waits[count] = [counted[name] for name in ("item", "_local_scalar_dense")]
        loop.close()
    assert waits == {1: [0, 0], 4: [0, 0]}


def test_who_joins_and_leaves_meanwhile_changes_nobody_elses_tokens() -> None:
    expected = written(new_loop(None), CHOICES["greedy"])
    loop = new_loop(LateTimeline())
    first = loop.add(PROMPTS[0], greedy(NUM_TOKENS))
    for _ in range(3):
        loop.advance()
    leaver = loop.add(PROMPTS[2], greedy(NUM_TOKENS))
    joiner = loop.add(PROMPTS[1], greedy(NUM_TOKENS))
    for _ in range(3):
        loop.advance()
    loop.scheduler.end(leaver)  # a step of it is under way
    newcomer = loop.add(PROMPTS[3], greedy(NUM_TOKENS))
    loop.run()
    loop.close()

    found = [list(each.output_token_ids) for each in (first, joiner, newcomer)]
    assert found == [expected[0], expected[1], expected[3]]
    assert list(leaver.output_token_ids) == expected[2][: leaver.num_output_tokens]


def test_an_error_while_choosing_is_told_to_whoever_collects_that_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step after it was launched meanwhile, and has done nothing wrong."""
    loop = new_loop(LateTimeline())
    loop.add(PROMPTS[0], greedy(NUM_TOKENS, allowed_token_ids=tuple(range(99))))
    while not loop.num_steps:
        loop.advance()
    chooser = loop._runner._chooser
    monkeypatch.setattr(chooser, "_choose_singly", _fail)
    with pytest.raises(ZeroDivisionError):
        loop.run()
    monkeypatch.undo()
    loop.close()

    again = Loop(loop._runner, Limits(num_blocks=128, watermark=0.0), is_ahead=True)
    sequence = again.add(PROMPTS[0], greedy(NUM_TOKENS))
    again.run()
    again.close()
    assert list(sequence.output_token_ids) == written(new_loop(None), CHOICES["greedy"])[0]


def test_a_device_that_is_lost_is_not_usable() -> None:
    timeline = LateTimeline()
    runner = ModelRunner(random_decoder(SPEC), CPU, ShareOptions(num_blocks=8), timeline=timeline)
    assert runner.is_usable()
    timeline.is_lost = True
    assert not runner.is_usable()


def _fail(*_: object) -> None:
    raise ZeroDivisionError


def test_a_sequence_is_the_same_alone_and_among_others() -> None:
    """Noise is that of its seed and its position, whoever else is drawn for."""
    alone = new_loop(LateTimeline())
    sequence: Sequence = alone.add(PROMPTS[3], sampled(seed=4))
    alone.run()
    alone.close()

    among = written(new_loop(LateTimeline()), CHOICES["drawn"])
    assert list(sequence.output_token_ids) == among[3]
