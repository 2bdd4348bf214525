"""Whole answers with half a character in them are looked at and told again like any others."""

import json
from typing import Any

import pytest

from classifiers.pii.labels import DataClass
from gateway.dialects.registry import DIALECTS
from tests.gateway.veiling.test_output_scan import VALUES, output_scan
from tests.gateway.veiling.test_veil import veil_of


CARD = VALUES["CREDIT_CARD"]


def answer(text: str) -> bytes:
    """As a server whose texts are UTF-16 cuts it in the middle of its last character."""
    message = {"role": "assistant", "content": f"{text} \ud83d"}
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    return json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()


def text_of(raw: bytes) -> Any:
    return DIALECTS["openai_chat"].decode_reply(raw).text


@pytest.mark.parametrize("masked_from", [None, DataClass.S3])
def test_findings_are_counted_and_masked(masked_from: DataClass | None) -> None:
    scan = output_scan(masked_from)
    shown = text_of(scan.unveiled(answer(f"Pay with {CARD} today.")))
    assert scan.found == {"CREDIT_CARD": 1}
    assert (CARD in shown) == (masked_from is None)
    assert shown.endswith(" \ufffd")


def test_values_come_back() -> None:
    veil = veil_of("openai_chat")
    assert veil.names.values
    for name, value in veil.names.values.items():
        shown = text_of(veil.unveiled(answer(f"It is {name} there.")))
        assert shown == f"It is {value} there. \ufffd"
