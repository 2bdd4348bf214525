"""Sampling: what greedy means, what truncation keeps, what a seed repeats."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from local_engine.runner import sampler
from local_engine.runner.sampler import History, adjusted, sample, truncated_probabilities
from local_engine.sampling_params import SamplingParams
from tests.local_engine.operations import operations_of


scores = st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=40).map(torch.tensor)


@given(scores, st.floats(0.01, 1.0), st.integers(0, 40), st.integers(0, 99))
def test_temperature_zero_is_greedy_whatever_else_is_asked(
    logits: torch.Tensor, top_p: float, top_k: int, seed: int
) -> None:
    params = SamplingParams(temperature=0.0, top_p=top_p, top_k=top_k, seed=seed)
    assert logits[sample(logits, params, History(), seed).token_id] == logits.max()


@given(scores, st.floats(0.05, 2.0), st.floats(0.01, 1.0), st.integers(-1, 45), st.floats(0.0, 1.0))
def test_truncation_keeps_the_likeliest_tokens_and_a_whole_distribution(
    logits: torch.Tensor, temperature: float, top_p: float, top_k: int, min_p: float
) -> None:
    params = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p)
    kept = truncated_probabilities(logits, params)
    assert abs(float(kept.sum()) - 1.0) < 1e-4
    assert logits[kept > 0.0].max() >= logits.max() - 1e-3
    if (kept == 0.0).any() and (kept > 0.0).any():
        assert logits[kept > 0.0].min() >= logits[kept == 0.0].max() - 1e-3
    if top_k > 0:
        # Equal ones stay together: without those at the edge there are fewer than asked for.
        assert int((kept > kept[kept > 0.0].min()).sum()) < top_k


@given(scores, st.floats(0.05, 0.95))
def test_top_p_keeps_the_smallest_set_of_equals_that_reaches_it(
    logits: torch.Tensor, top_p: float
) -> None:
    full = truncated_probabilities(logits, SamplingParams())
    kept = truncated_probabilities(logits, SamplingParams(top_p=top_p)) > 0.0
    mass = float(full[kept].sum())
    assert mass >= top_p - 1e-4
    edge = full[kept].min()
    assert mass - float(full[kept & (full <= edge)].sum()) <= top_p + 1e-4


@given(scores, st.integers(-(2**63), 2**63 - 1), st.lists(st.integers(0, 1), max_size=5))
def test_the_same_seed_and_position_give_the_same_token(
    logits: torch.Tensor, seed: int, written: list[int]
) -> None:
    params, history = SamplingParams(seed=seed), History(num_written=len(written))
    assert sample(logits, params, history, seed) == sample(logits, params, history, seed)


def test_frequencies_of_samples_follow_the_probabilities() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log()
    counts = torch.zeros(3)
    for seed in range(3000):
        counts[sample(logits, SamplingParams(seed=seed), History(), seed).token_id] += 1
    assert torch.allclose(counts / 3000, torch.tensor([0.5, 0.3, 0.2]), atol=0.04)


def test_positions_of_one_request_draw_independently() -> None:
    logits = torch.zeros(50)
    params = SamplingParams(seed=1)
    drawn = {
        sample(logits, params, History(num_written=position), 1).token_id for position in range(40)
    }
    assert len(drawn) > 10


def test_penalties_push_down_what_was_written() -> None:
    logits = torch.tensor([1.0, 0.9, 0.0])
    presence = SamplingParams(temperature=0.0, presence_penalty=0.5)
    assert sample(logits, presence, History(written=[0]), 0).token_id == 1
    frequency = SamplingParams(temperature=0.0, frequency_penalty=0.06)
    assert sample(logits, frequency, History(written=[0]), 0).token_id == 0
    assert sample(logits, frequency, History(written=[0, 0]), 0).token_id == 1


def test_a_bias_can_forbid_and_force_tokens() -> None:
    logits = torch.tensor([5.0, 1.0, 0.0])
    forbidden = SamplingParams(temperature=0.0, logit_bias={0: -100.0})
    assert sample(logits, forbidden, History(), 0).token_id == 1
    forced = SamplingParams(logit_bias={2: 100.0})
    assert sample(logits, forced, History(), 0).token_id == 2


def test_logprobs_are_those_of_the_untouched_distribution() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0])
    params = SamplingParams(temperature=0.0, logit_bias={0: -100.0}, logprobs=True, top_logprobs=2)
    sampled = sample(logits, params, History(), 0)
    expected = logits.log_softmax(0)
    assert sampled.token_id == 1
    assert sampled.logprob == float(expected[1])
    assert [(t.token_id, t.logprob) for t in sampled.top] == [
        (0, float(expected[0])),
        (1, float(expected[1])),
    ]


def test_of_a_bad_word_only_the_last_token_is_forbidden_and_only_after_the_others() -> None:
    logits = torch.tensor([3.0, 2.0, 1.0])
    params = SamplingParams(temperature=0.0, bad_token_ids=((2, 1, 0),))
    written = {(): 0, (1,): 0, (2,): 0, (1, 2): 0, (2, 1): 1, (0, 2, 1): 1, (2, 1, 0): 0}
    for before, chosen in written.items():
        assert sample(logits, params, History(written=before), 0).token_id == chosen
    single = SamplingParams(temperature=0.0, bad_token_ids=((0,), (1,)))
    assert sample(logits, single, History(), 0).token_id == 2


def operations(params: SamplingParams, history: History, size: int = 512) -> Counter[str]:
    logits = torch.arange(size) / 8
    return operations_of(lambda: sample(logits, params, history, 7))


def test_a_long_text_is_penalised_in_as_many_operations_as_a_short_one() -> None:
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.5, repetition_penalty=1.1)
    short, long = (History([1, 2], list(range(count))) for count in (3, 300))
    assert operations(params, short) == operations(params, long)


def test_many_biases_are_added_in_as_many_operations_as_one() -> None:
    few, many = (SamplingParams(logit_bias=dict.fromkeys(range(count), 2.0)) for count in (2, 300))
    assert operations(few, History()) == operations(many, History())


texts = st.lists(st.integers(0, 9), max_size=30)
penalties = st.floats(-2.0, 2.0)


@given(texts, texts, penalties, penalties, st.floats(0.01, 10.0), st.floats(-100.0, 100.0))
def test_penalties_and_biases_are_what_they_are_said_to_be_token_by_token(
    prompt: list[int],
    written: list[int],
    presence: float,
    frequency: float,
    factor: float,
    b: float,
) -> None:
    params = SamplingParams(
        presence_penalty=presence,
        frequency_penalty=frequency,
        repetition_penalty=factor,
        logit_bias={3: b, 7: -b},
    )
    logits = torch.linspace(-3.0, 3.0, 10)
    expected = logits.tolist()
    for token_id in range(10):
        count = written.count(token_id)
        if token_id in prompt or count:
            expected[token_id] *= factor if expected[token_id] <= 0 else 1 / factor
        expected[token_id] -= presence * (count > 0) + frequency * count
        expected[token_id] += params.logit_bias.get(token_id, 0.0)
    found = adjusted(logits, params, History(prompt, written))
    assert torch.allclose(found, torch.tensor(expected), rtol=1e-4, atol=1e-4)
    assert torch.equal(logits, torch.linspace(-3.0, 3.0, 10)), "the model's own scores were changed"


@given(
    st.integers(0, 99),
    st.floats(0.1, 2.0),
    st.sampled_from([1.0, 0.999999, 0.95, 0.3]),
    st.sampled_from([0, 1, 7, 1500]),
    st.sampled_from([0.0, 1e-6, 0.02, 0.5, 1.0]),
)
def test_of_a_large_vocabulary_the_same_tokens_are_kept_as_if_all_were_sorted(
    seed: int, spread: float, top_p: float, top_k: int, min_p: float
) -> None:
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(seed)) * 4 * spread
    params = SamplingParams(top_p=top_p, top_k=top_k, min_p=min_p)
    found = truncated_probabilities(logits, params)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "_FIRST_CANDIDATES", 5000)
        expected = truncated_probabilities(logits, params)
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "params", [SamplingParams(min_p=0.05), SamplingParams(min_p=0.9, top_p=0.9)]
)
def test_a_large_vocabulary_is_not_sorted_for_a_floor_that_few_reach(
    params: SamplingParams,
) -> None:
    assert operations(params, History(), size=32_000)["sort"] == 0
