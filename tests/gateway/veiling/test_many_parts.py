"""Streams that are read on their way back have room for many texts and calls, and an end to it."""

import json
from typing import Any

import pytest

from classifiers.pii.labels import DataClass
from classifiers.pii.scanner import PATTERNS_ONLY
from gateway.dialects.registry import DIALECTS
from gateway.errors import UpstreamMalformed
from gateway.types import StreamEvent
from gateway.veiling.output_scan import OutputScan
from gateway.veiling.rewriting import CHANNELS_MAX, AnswerRewriter
from tests.gateway.veiling.test_veil import veil_of


REWRITERS: dict[str, AnswerRewriter] = {
    "counting": OutputScan(PATTERNS_ONLY.scan, PATTERNS_ONLY.scan, None),
    "masking": OutputScan(PATTERNS_ONLY.scan, PATTERNS_ONLY.scan, DataClass.S3),
    "a veil": veil_of("openai_chat"),
}


def events_of(choices: list[dict[str, Any]]) -> list[StreamEvent]:
    decoder = DIALECTS["openai_chat"].stream_decoder()
    trees = [{"id": "c", "model": "m", "choices": [choice]} for choice in choices]
    data = b"".join(b"data: " + json.dumps(tree).encode() + b"\n\n" for tree in trees)
    return decoder.feed(data)


def said_by(answer: int) -> dict[str, Any]:
    return {"index": answer, "delta": {"content": "Hello."}}


@pytest.mark.parametrize("name", REWRITERS)
def test_answers_that_nobody_asked_for_are_not_looked_after_without_end(name: str) -> None:
    """All that began are looked at with each piece: a hundred thousand took hours of the loop."""
    lift = REWRITERS[name].lifted()
    assert lift.events(events_of([said_by(answer) for answer in range(CHANNELS_MAX)]))
    assert lift.events(events_of([said_by(0)]))
    with pytest.raises(UpstreamMalformed):
        lift.events(events_of([said_by(CHANNELS_MAX)]))


@pytest.mark.parametrize("name", ["counting", "masking"])
def test_neither_are_calls(name: str) -> None:
    def call(index: int) -> dict[str, Any]:
        piece = {
            "index": index,
            "id": f"call_{index}",
            "function": {"name": "f", "arguments": "{}"},
        }
        return {"index": 0, "delta": {"tool_calls": [piece]}}

    calls = [call(index) for index in range(CHANNELS_MAX)]
    assert REWRITERS[name].lifted().events(events_of(calls))
    lift = REWRITERS[name].lifted()
    with pytest.raises(UpstreamMalformed):
        lift.events(events_of([*calls, call(CHANNELS_MAX)]))
