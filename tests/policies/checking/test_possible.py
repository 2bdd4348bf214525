"""What no request can be is found out; whatever a request can be is never denied."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.checking.possible import Search
from policies.expressions import compile_expression
from policies.facts import Facts
from tests.policies.worlds import CONDITIONS, requests


MORE = (
    "stream",
    "not stream and has_tools",
    'data_class < "S2"',
    "findings.aadhaar == 0",
    "findings.aadhaar > 2 or stream",
    "not has(findings.aadhaar)",
    "complexity < 0.5",
    "max_output_tokens <= 1000",
    "max_output_tokens != 5",
    "not (max_output_tokens > 10)",
    "has(max_output_tokens)",
    'model_requested == "auto"',
    'model_requested in ["auto", "managed-mid"]',
    'model_requested != "auto"',
    '"auto" == model_requested',
    "5 > weekday",
    'headers["x-app"] == ""',
    'headers["x-app"] in ["a", "b"]',
)
conditions = st.lists(st.sampled_from([*CONDITIONS, *MORE]), max_size=4)


@given(holding=conditions, missing=conditions, asked=requests())
def test_what_a_request_is_counts_as_possible(
    holding: list[str], missing: list[str], asked: Facts
) -> None:
    met = all(compile_expression(when).holds(asked) for when in holding)
    missed = not any(compile_expression(when).holds(asked) for when in missing)
    if not Search().could(holding, missing):
        assert not (met and missed)


@given(holding=conditions, asked=requests())
def test_a_request_can_always_be_as_this_one_is(holding: list[str], asked: Facts) -> None:
    true = [when for when in holding if compile_expression(when).holds(asked)]
    false = [when for when in holding if when not in true]
    assert Search().could(true, false)


@pytest.mark.parametrize(
    ("holding", "missing"),
    [
        ((), (None,)),
        (("stream",), ("stream",)),
        ((None,), ("stream", "not stream")),
        ((), ('data_class >= "S2"', 'data_class < "S2"')),
        ((), ('data_class >= "S0"',)),
        (('workspace == "a"', 'workspace == "b"'), ()),
        (("complexity > 1", "complexity < 1.5", "complexity == 2"), ()),
        (("max_output_tokens > 5",), ("has(max_output_tokens)",)),
        (('headers["x-app"] == "a"',), ('headers["x-app"] in ["a", "b"]',)),
        (('"a" in labels and stream',), ('stream and "a" in labels',)),
    ],
)
def test_what_no_request_can_be_is_known(
    holding: tuple[str | None, ...], missing: tuple[str | None, ...]
) -> None:
    assert not Search().could(holding, missing)


@pytest.mark.parametrize(
    ("holding", "missing"),
    [
        ((), ()),
        (("stream",), ("has_tools",)),
        ((), ("max_output_tokens > 5", "max_output_tokens <= 5")),
        ((), ('workspace == "a"', 'workspace == "b"')),
        (("complexity > 1", "complexity < 2"), ()),
        (("findings.aadhaar == 0",), ("has(findings.aadhaar)",)),
    ],
)
def test_what_a_request_may_be_is_known(holding: tuple[str, ...], missing: tuple[str, ...]) -> None:
    assert Search().could(holding, missing)


def test_a_search_that_takes_too_long_says_that_a_request_could() -> None:
    pigeons = [f'"{pigeon} in {hole}" in labels' for pigeon in range(8) for hole in range(7)]
    placed = [" or ".join(pigeons[7 * pigeon : 7 * pigeon + 7]) for pigeon in range(8)]
    crowded = [
        f"{pigeons[7 * one + hole]} and {pigeons[7 * other + hole]}"
        for hole in range(7)
        for one in range(8)
        for other in range(one)
    ]
    assert Search().could(placed, crowded), "no request can, but it takes long to see"
