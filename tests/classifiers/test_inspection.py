"""Inspection of whole requests: counts, classes, places, and failing towards secrecy."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.extraction import extract
from classifiers.inspection import MAX_LENGTH, inspect
from classifiers.pii.labels import DataClass
from tests.classifiers import samples
from tests.classifiers.test_extraction import JSON, PNG, REQUEST, places, planted


@pytest.mark.parametrize("path", [path for path in places(REQUEST) if path])
def test_a_card_is_counted_wherever_it_stands_in_a_request(path: tuple[Any, ...]) -> None:
    rng = random.Random(repr(path))
    card = samples.card(rng)
    for what in (card, {card: 1}, int(card), f"so {card} there", json.dumps({"a": {card: [1]}})):
        result = inspect(planted(REQUEST, path, what))
        assert result.counts.get("CREDIT_CARD") == 1
        assert result.data_class >= DataClass.S3


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_an_identifier_in_json_in_strings_is_found_at_each_level(seed: int, levels: int) -> None:
    rng = random.Random(seed)
    value = rng.choice([samples.card, samples.aadhaar, samples.iban, samples.ssn])(rng)
    escaped = "".join(f"\\u{ord(char):04x}" for char in value)
    text = f'{{"value": "{escaped}"}}'
    for _ in range(levels - 1):
        text = json.dumps({"arguments": text})
    assert inspect({"messages": [{"role": "assistant", "content": text}]}).found_class >= 3


@given(JSON)
def test_any_json_has_a_result_with_places_inside_its_segments(document: object) -> None:
    result = inspect(document)
    segments = extract(document).segments
    for finding in result.findings:
        assert 0 <= finding.start < finding.end <= len(segments[finding.segment].text)
    assert result == inspect(document)
    assert result.complete or result.data_class is DataClass.S4


def test_a_key_gives_context_to_its_value() -> None:
    assert inspect({"ssn": "078051120"}).counts == {"US_SSN": 1}
    assert inspect({"args": {"passport_number": "X8844788"}}).counts == {"PASSPORT": 1}
    assert inspect({"db": {"password": "Orbit!Zephyr93"}}).counts == {"PASSWORD": 1}


@pytest.mark.parametrize(
    ("text", "data_class"),
    [
        ("tell me a story about rivers", DataClass.S0),
        ("BIC: FJIVUSZZ", DataClass.S1),
        ("mail jane@corp.io", DataClass.S2),
        ("SSN 078-05-1120", DataClass.S3),
        ("postgres://app:Qx7!kk2@db/orders and SSN 078-05-1120", DataClass.S4),
    ],
)
def test_the_class_of_a_request_is_that_of_its_worst_finding(
    text: str, data_class: DataClass
) -> None:
    document = {"messages": [{"role": "user", "content": text}]}
    assert inspect(document).data_class is data_class


def test_opaque_content_is_the_most_sensitive_unless_a_policy_tolerates_its_kind() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}}
    document = {"messages": [{"role": "user", "content": [image]}]}
    strict = inspect(document)
    assert (strict.complete, strict.data_class) == (False, DataClass.S4)
    assert strict.reasons == ("opaque:image",)
    assert strict.found_class is DataClass.S0
    lenient = inspect(document, frozenset({"image"}))
    assert (lenient.complete, lenient.data_class) == (True, DataClass.S0)
    assert lenient.opaque_kinds == ("image",)


def test_what_is_too_long_is_incomplete_and_a_long_list_is_not() -> None:
    long = inspect({"a": "x " * (MAX_LENGTH // 2 + 1)})
    assert (long.reasons, long.data_class) == (("too-long",), DataClass.S4)
    listed = inspect({"a": "a.b@c.io " * 4_000})
    assert (listed.reasons, listed.counts) == ((), {"EMAIL": 4_000})


def test_a_result_shows_no_value() -> None:
    rng = random.Random(3)
    card = samples.card(rng)
    assert card not in repr(inspect({card: f"my card {card}"}))
