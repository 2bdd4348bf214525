"""Chat answers as they are written: how they end, and how calls in a stream are numbered."""

import json
from typing import Any

import pytest

from local_engine.core.sequence import FinishReason
from local_engine.sampling_params import SamplingParams
from local_engine.serve.api.chat_response import ChatResponse, Choice
from local_engine.serve.engine import Output
from local_engine.serve.generation import Caller, Generation
from local_engine.text.output_parser import OutputParser, ToolFormat
from local_engine.text.tokenizer import ChatTokenizer


CALL = '<tool_call>{"name": "lamp", "arguments": {"on": true}}</tool_call>'
CUT_CALL = CALL[:40]
# What was written, how the computing ended, and what a client is told.
ENDS = [
    ("hello", FinishReason.STOP, "stop"),
    ("hello", FinishReason.LENGTH, "length"),
    (CALL, FinishReason.STOP, "tool_calls"),
    ("I will. " + CALL, FinishReason.STOP, "tool_calls"),
    (CALL + " and so", FinishReason.LENGTH, "length"),
    (CUT_CALL, FinishReason.LENGTH, "length"),
    (CUT_CALL, FinishReason.STOP, "stop"),
]


def response_of(tokenizer: ChatTokenizer, *, has_one_call: bool = False) -> ChatResponse:
    generation = Generation("1", [5, 6], SamplingParams(), Caller())
    choice = Choice(0, generation, OutputParser(ToolFormat.HERMES), has_one_call=has_one_call)
    return ChatResponse([choice], tokenizer, head={}, include_usage=False, wants_token_ids=False)


def outputs_of(text: str, reason: FinishReason, size: int = 7) -> list[Output]:
    """In pieces of `size` characters, the end in one of its own."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [*(Output(piece, ()) for piece in pieces), Output("", (), reason)]


def streamed(tokenizer: ChatTokenizer, text: str, reason: FinishReason, size: int = 7) -> list[Any]:
    response = response_of(tokenizer)
    events = b"".join(response.part(0, output) for output in outputs_of(text, reason, size))
    lines = events.decode().split("\n\n")[:-1]
    return [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines]


@pytest.mark.parametrize(("text", "reason", "told"), ENDS)
def test_an_answer_ends_as_a_call_only_where_the_model_ended_it(
    demo_tokenizer: ChatTokenizer, text: str, reason: FinishReason, told: str
) -> None:
    whole = json.loads(response_of(demo_tokenizer).whole([outputs_of(text, reason)]))
    (choice,) = whole["choices"]
    assert choice["finish_reason"] == told
    choices = streamed(demo_tokenizer, text, reason)
    assert [each["finish_reason"] for each in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1]["finish_reason"] == told
    calls = [call for each in choices for call in each["delta"].get("tool_calls", [])]
    assert len(calls) == len(choice["message"].get("tool_calls", [])) == text.count("</tool_call>")
    said = "".join(each["delta"].get("content", "") for each in choices)
    assert said.strip() == (choice["message"]["content"] or "")


@pytest.mark.parametrize("size", [7, len(CALL), 2 * len(CALL), 3 * len(CALL)])
def test_calls_of_a_stream_are_numbered_one_after_the_other(
    demo_tokenizer: ChatTokenizer, size: int
) -> None:
    choices = streamed(demo_tokenizer, CALL * 3, FinishReason.STOP, size)
    calls = [call for each in choices for call in each["delta"].get("tool_calls", [])]
    assert [call["index"] for call in calls] == [0, 1, 2]
    assert len({call["id"] for call in calls}) == 3


@pytest.mark.parametrize("size", [7, 1000])
def test_where_one_call_is_asked_for_the_others_are_not_passed_on(
    demo_tokenizer: ChatTokenizer, size: int
) -> None:
    response = response_of(demo_tokenizer, has_one_call=True)
    outputs = outputs_of("Now: " + CALL * 3, FinishReason.STOP, size)
    (choice,) = json.loads(response.whole([outputs]))["choices"]
    assert len(choice["message"]["tool_calls"]) == 1
    assert choice["message"]["content"] == "Now:"
    assert choice["finish_reason"] == "tool_calls"
