"""Sampling: what greedy means, what truncation keeps, what a seed repeats."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from local_engine.runner.sampler import History, sample, truncated_probabilities
from local_engine.sampling_params import SamplingParams


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
