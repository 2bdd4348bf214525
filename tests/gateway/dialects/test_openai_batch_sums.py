"""What answers of a batch use together: as each of them says, or nothing where one does not."""

from functools import reduce
from typing import Any

import msgspec
import pytest
from openai.types.batch_usage import BatchUsage

from gateway.batches import AnswerSums
from gateway.dialects.openai_batch_sums import usage_object, with_answer


CHAT = {
    "model": "m",
    "usage": {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2},
    },
}
RESPONSE = {
    "model": "m",
    "usage": {
        "input_tokens": 50,
        "output_tokens": 70,
        "total_tokens": 120,
        "input_tokens_details": {"cached_tokens": 30},
        "output_tokens_details": {"reasoning_tokens": 20},
    },
}
BARE = {"model": "m", "usage": {"prompt_tokens": 500, "total_tokens": 500}}
EMPTY = {"model": "m", "usage": {"prompt_tokens": 1, "prompt_tokens_details": None}}


def added(*answers: Any) -> AnswerSums:
    return reduce(with_answer, map(msgspec.json.encode, answers), AnswerSums())


def test_tokens_of_every_dialect_are_added_up_and_openais_client_reads_them() -> None:
    sums = added(CHAT, RESPONSE, BARE, EMPTY, CHAT)
    usage = usage_object(sums)
    assert usage is not None
    read = BatchUsage.model_validate(usage, strict=True)
    assert read.input_tokens == 5 + 50 + 500 + 1 + 5
    assert read.input_tokens_details.cached_tokens == 3 + 30 + 3
    assert read.output_tokens == 7 + 70 + 7
    assert read.output_tokens_details.reasoning_tokens == 2 + 20 + 2
    assert read.total_tokens == read.input_tokens + read.output_tokens
    assert sums.model == "m"


@pytest.mark.parametrize(
    "odd",
    [{}, {"usage": None}, {"usage": {}}, {"usage": 5}, {"usage": {"prompt_tokens": "5"}}, [], 1],
)
def test_where_one_answer_says_nothing_no_sum_is_told(odd: Any) -> None:
    for answers in ([odd], [odd, CHAT], [CHAT, odd], [CHAT, odd, CHAT]):
        assert usage_object(added(*answers)) is None


def test_where_nothing_was_answered_nothing_is_told() -> None:
    assert (usage_object(AnswerSums()), AnswerSums().model) == (None, "")


@pytest.mark.parametrize("others", [["n"], [""], ["n", "m"], ["n", ""], ["", ""]])
def test_a_model_is_told_where_all_answers_name_it(others: list[str]) -> None:
    for names in (["m", *others], [*others, "m"]):
        assert added(*({"model": name} for name in names)).model == ""
    assert added(*({"model": "m"} for _ in others)).model == "m"
