"""What answers of a batch use together: as each of them says, or nothing where one does not."""

from functools import partial, reduce
from typing import Any

import msgspec
import pytest
from openai.types.batch_usage import BatchUsage

from gateway.batches import AnswerSums
from gateway.dialects.resources.openai_batch_sums import usage_object, with_answer


CHAT: dict[str, Any] = {
    "model": "m",
    "usage": {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2},
    },
}
RESPONSE: dict[str, Any] = {
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


def added(*answers: Any, endpoint: str = "/v1/chat/completions") -> AnswerSums:
    add = partial(with_answer, endpoint)
    return reduce(add, map(msgspec.json.encode, answers), AnswerSums())


@pytest.mark.parametrize(
    ("endpoint", "answers", "counted"),
    [
        ("/v1/chat/completions", [CHAT, EMPTY, CHAT], (11, 6, 14, 4)),
        ("/v1/responses", [RESPONSE, RESPONSE], (100, 60, 140, 40)),
        ("/v1/embeddings", [BARE], (500, 0, 0, 0)),
    ],
)
def test_tokens_of_every_dialect_are_added_up_and_openais_client_reads_them(
    endpoint: str, answers: list[Any], counted: tuple[int, int, int, int]
) -> None:
    sums = added(*answers, endpoint=endpoint)
    usage = usage_object(sums)
    assert usage is not None
    read = BatchUsage.model_validate(usage, strict=True)
    of_read, of_written = read.input_tokens_details, read.output_tokens_details
    assert (read.input_tokens, of_read.cached_tokens) == counted[:2]
    assert (read.output_tokens, of_written.reasoning_tokens) == counted[2:]
    assert read.total_tokens == read.input_tokens + read.output_tokens
    assert sums.model == "m"


@pytest.mark.parametrize("figure", [0, 3, -5, 1.5, "9"])
def test_words_of_the_other_api_count_for_nothing(figure: Any) -> None:
    chat, response = CHAT["usage"], RESPONSE["usage"]
    for endpoint, answer, other in (
        ("/v1/chat/completions", CHAT, dict.fromkeys(response, figure)),
        ("/v1/responses", RESPONSE, dict.fromkeys(chat, figure)),
    ):
        both = {**answer, "usage": other | answer["usage"]}
        assert added(both, endpoint=endpoint) == added(answer, endpoint=endpoint)


@pytest.mark.parametrize("figure", [b"-1", b"1000000001", b"1%s" % (b"0" * 30)])
@pytest.mark.parametrize("name", [b'"prompt_tokens":5', b'"cached_tokens":3'])
def test_a_figure_that_no_answer_has_is_no_count(figure: bytes, name: bytes) -> None:
    told, _, _ = name.partition(b":")
    body = msgspec.json.encode(CHAT).replace(name, told + b":" + figure)
    sums = with_answer("/v1/chat/completions", AnswerSums(), body)
    assert (usage_object(sums), sums.model) == (None, "m")
    assert msgspec.msgpack.encode(sums)


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
