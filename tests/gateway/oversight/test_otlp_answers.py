"""What a collector rejected is read from its answer, whatever that is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.oversight.otlp_answers import Rejected, rejected_in


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"rejectedSpans": "3", "errorMessage": "too old"}, Rejected(3, "too old")),
        ({"rejectedDataPoints": 4}, Rejected(4, "")),
        ({"rejected_data_points": "5", "error_message": "x"}, Rejected(5, "x")),
        ({"errorMessage": "a warning"}, Rejected(0, "a warning")),
        ({"rejectedSpans": "0"}, None),
        ({"rejectedSpans": "-1"}, None),
        ({"rejectedSpans": True}, None),
        ({"rejectedSpans": "9" * 400}, None),
        ({"rejectedSpans": "\u0663"}, None),
        ({"rejectedSpans": 1.5, "errorMessage": ["x"]}, None),
        ({}, None),
        (None, None),
        ("rejected", None),
    ],
)
def test_counts_and_words_are_read_in_every_form_that_the_mapping_allows(
    said: Any, found: Rejected | None
) -> None:
    for name in ("partialSuccess", "partial_success"):
        assert rejected_in(json.dumps({name: said}).encode()) == found


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.binary() | ANY.map(lambda value: json.dumps({"partialSuccess": value}).encode()))
def test_nothing_that_is_answered_is_an_error_of_ours(body: bytes) -> None:
    rejected_in(body)
