"""What is asked about single tokens: for many rows at once as for one row by itself."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from local_engine.kernels.sampling_floors import floors_reference
from local_engine.kernels.sampling_noise import draw_reference, row_key
from local_engine.runner import drawing
from local_engine.runner.drawing import Row
from local_engine.runner.retouching import described, ranked, retouched, sending
from local_engine.runner.sampler import History, SampledToken, adjusted, describe_token, sample
from local_engine.runner.seen import Seen
from local_engine.sampling_params import SamplingParams
from tests.local_engine.engine_loop import EngineLoop, greedy
from tests.local_engine.late_device import LateTimeline
from tests.local_engine.models import random_decoder, tiny_spec
from tests.local_engine.operations import operations_of


VOCABULARY = 40
ENDS = (1, 2)
NOTHING = torch.zeros(0, dtype=torch.int64)
tokens_of = st.integers(0, VOCABULARY - 1)


class Cut:
    """As `TritonDrawing` works, by the references of its kernels."""

    def draw(self, logits: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        scores = logits[[row.at for row in rows]]
        numbers = torch.tensor([drawing._numbers(row.params) for row in rows])
        inverse, depths, top_ps = numbers.T
        top_ks = torch.tensor([0 if row.params.is_greedy else row.params.top_k for row in rows])
        floors = floors_reference(scores, inverse, depths, top_ks, top_ps)
        keys = torch.tensor([row_key(row.seed, row.position) for row in rows])
        return draw_reference(scores, inverse, floors, keys)


@st.composite
def asked(draw: st.DrawFn) -> SamplingParams:
    num_top = draw(st.none() | st.integers(0, 8))
    words = st.lists(st.lists(tokens_of, min_size=1, max_size=3).map(tuple), max_size=4)
    return SamplingParams(
        temperature=draw(st.sampled_from([0.0, 0.3, 1.0])),
        top_k=draw(st.sampled_from([0, 0, 1, 7])),
        top_p=draw(st.sampled_from([1.0, 0.8, 0.3])),
        min_p=draw(st.sampled_from([0.0, 0.05])),
        presence_penalty=draw(st.sampled_from([0.0, 0.0, 1.5, -2.0, 0.1])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.0, 0.7, -0.3])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.3, 0.7])),
        bad_token_ids=tuple(draw(words)),
        seed=draw(st.integers(0, 1 << 40)),
        logit_bias=draw(st.dictionaries(tokens_of, st.floats(-100, 100, width=32), max_size=4)),
        min_tokens=draw(st.integers(0, 6)),
        stop_token_ids=tuple(draw(st.lists(tokens_of, max_size=3))),
        logprobs=num_top is not None,
        top_logprobs=num_top or 0,
    )


def chosen_together(
    logits: torch.Tensor, rows: list[Row], newest: torch.Tensor = NOTHING
) -> list[SampledToken]:
    before = logits.clone()
    with retouched(logits, rows, ENDS, newest) as scores:
        tokens = Cut().draw(scores, rows)
    weights = torch.arange(float(len(tokens)))
    arriving = sending(LateTimeline(), (tokens, weights), described(logits, rows, tokens))
    assert torch.equal(logits, before), "others look at the same scores"
    found, arrived = zip(*arriving(), strict=True)
    assert arrived == tuple(range(len(tokens)))
    return list(found)


texts = st.lists(tokens_of, max_size=9)


@given(
    asking=st.lists(st.tuples(asked(), texts.filter(bool), texts), min_size=1, max_size=5),
    at_once=st.booleans(),
    seed=st.integers(0, 99),
)
def test_rows_together_are_chosen_as_each_by_itself(
    asking: list[tuple[SamplingParams, list[int], list[int]]], at_once: bool, seed: int
) -> None:
    source = torch.Generator().manual_seed(seed)
    logits = torch.randn((len(asking), VOCABULARY), generator=source) * 2
    rows, histories = [], []
    for at, (params, prompt, written) in enumerate(asking):
        seen = Seen(params, prompt)
        for part in [written[:-1]] if at_once else [[each] for each in written[:-1]]:
            seen.note(part)
        rows.append(Row(at, params, params.seed or 0, len(written), seen))
        histories.append(History(prompt, written, ENDS, num_written=len(written)))
    newest = torch.tensor([[*prompt, *written][-1] for _, prompt, written in asking])
    alone = [
        adjusted(logits[row.at], row.params, each)
        for row, each in zip(rows, histories, strict=True)
    ]
    with retouched(logits, rows, ENDS, newest) as scores:
        assert torch.equal(scores, torch.stack(alone)), "the same to the last bit"
    together = chosen_together(logits, rows, newest)

    for row, history, found in zip(rows, histories, together, strict=True):
        expected = sample(logits[row.at], row.params, history, row.seed)
        assert found.token_id == expected.token_id
        assert (found.logprob is None) == (expected.logprob is None)
        if expected.logprob is not None:
            assert found.logprob == pytest.approx(expected.logprob, abs=1e-5)
            assert [each.token_id for each in found.top] == [each.token_id for each in expected.top]


def test_a_long_text_is_counted_as_a_short_one() -> None:
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.5)
    seen = Seen(params, range(50))
    seen.note([*range(40, 300), 40, 40])
    found = dict(zip(seen.token_ids.tolist(), seen.amounts().tolist(), strict=True))
    expected = {**dict.fromkeys(range(40), 0.0), **dict.fromkeys(range(40, 300), 0.75), 40: 1.25}
    assert found == expected


def test_what_is_only_guessed_is_not_written() -> None:
    params = SamplingParams(frequency_penalty=0.5, bad_token_ids=((4, 5, 6),))
    seen = Seen(params, ())
    seen.note([3, 4])
    guess = seen.followed_by([4, *range(100, 200)])
    assert (seen.token_ids.tolist(), seen.amounts().tolist()) == ([3, 4], [0.5, 0.5])
    assert (seen.tail, seen.num_written) == ([3, 4], 2)
    assert guess.amounts().tolist() == [0.5, 1.0, *[0.5] * 100]
    assert (guess.tail, guess.num_written) == ([198, 199], 103)


@pytest.mark.parametrize(
    ("written", "chosen"), [([3, 4], 8), ([7, 4], 9), ([5], 8), ([4], 9), ([3, 3, 4], 8)]
)
def test_a_bad_word_ends_nowhere_but_behind_all_of_it_however_many_end_alike(
    written: list[int], chosen: int
) -> None:
    logits = torch.zeros(1, VOCABULARY)
    logits[0, 9], logits[0, 8] = 9.0, 8.0
    words = ((3, 4, 9), (5, 9), (6, 9))
    params = SamplingParams(temperature=0.0, bad_token_ids=words, logit_bias={9: 0.5})
    seen = Seen(params)
    seen.note(written[:-1])
    asking = Row(0, params, 0, len(written), seen)
    (found,) = chosen_together(logits, [asking], torch.tensor(written[-1:]))
    assert found.token_id == chosen


def row(**choices: Any) -> Row:
    return Row(0, SamplingParams(temperature=0.0, **choices), 0, 0)


def test_scores_that_nobody_asks_about_stay_where_they_are() -> None:
    logits = torch.randn(1, VOCABULARY)
    with retouched(logits, [row()], ENDS, NOTHING) as scores:
        assert scores is logits
    assert described(logits, [row()], logits.argmax(-1)) is None


def test_an_end_waits_for_the_least_that_is_to_be_written() -> None:
    logits = torch.zeros(1, VOCABULARY)
    logits[0, 1], logits[0, 9], logits[0, 5] = 9.0, 8.0, 7.0
    early = chosen_together(logits, [row(min_tokens=1, stop_token_ids=(9,))])
    late = chosen_together(logits, [row(min_tokens=0, stop_token_ids=(9,))])
    assert (early[0].token_id, late[0].token_id) == (5, 1)


def test_what_is_told_is_the_models_own_opinion_before_any_bias() -> None:
    logits = torch.zeros(1, VOCABULARY)
    found = chosen_together(logits, [row(logit_bias={7: 50.0}, logprobs=True, top_logprobs=1)])[0]
    assert found.token_id == 7
    assert found.logprob == pytest.approx(-torch.log(torch.tensor(float(VOCABULARY))).item())


@given(st.sampled_from([1, 2, 7, 8, 9, 16, 17]), st.integers(0, 50), st.integers(0, 9))
def test_tokens_that_are_given_are_described_as_each_by_itself(
    count: int, num_top: int, seed: int
) -> None:
    source = torch.Generator().manual_seed(seed)
    logits = torch.randn((count, VOCABULARY), generator=source)
    token_ids = torch.randint(VOCABULARY, (count,), generator=source).tolist()
    found = ranked(logits, token_ids, num_top)
    assert len(found) == count
    for row, token_id, mine in zip(logits, token_ids, found, strict=True):
        alone = describe_token(row, token_id, num_top)
        assert mine.token_id == token_id
        assert mine.logprob == pytest.approx(alone.logprob, abs=1e-5)
        assert [each.token_id for each in mine.top] == [each.token_id for each in alone.top]
        assert mine.rank == 1 + sorted(row.tolist(), reverse=True).index(float(row[token_id]))


def test_a_prompts_scores_are_told_without_waiting_for_each_token() -> None:
    def read(num_tokens: int) -> list[SampledToken]:
        loop = EngineLoop(random_decoder(tiny_spec()))
        loop.add(range(5, 5 + num_tokens), greedy(1, prompt_logprobs=2))
        step = loop.scheduler.schedule()
        assert step is not None
        prepared = loop.runner.prepare(step)
        found: list[SampledToken] = []

        def work() -> None:
            (result,) = loop.runner.compute(prepared).values()
            found.extend(result.prompt_logprobs)

        counts.append(operations_of(work))
        return found

    counts: list[Any] = []
    assert (len(read(20)), len(read(60))) == (19, 59)
    few, many = counts
    assert few["item"] == many["item"], "a device is waited for token by token"
    assert many["log_softmax"] == 8
