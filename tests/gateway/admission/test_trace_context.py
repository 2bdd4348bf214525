"""A caller's trace is taken where it is one by W3C Trace Context, and nothing else is."""

import pytest

from gateway.admission.trace_context import trace_context


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CARD = "4111111111111111"


def read(value: str, *more: str) -> str:
    headers = [(b"traceparent", each.encode("latin-1")) for each in (value, *more)]
    return trace_context([(b"host", b"127.0.0.1"), *headers])


@pytest.mark.parametrize("flags", ["00", "01", "ff"])
def test_a_trace_and_its_span_are_read(flags: str) -> None:
    assert read(f"00-{TRACE}-{SPAN}-{flags}") == f"{TRACE}-{SPAN}"


def test_a_later_version_may_say_more_behind_them() -> None:
    assert read(f"01-{TRACE}-{SPAN}-01-what.will.be") == f"{TRACE}-{SPAN}"
    assert read(f"01-{TRACE}-{SPAN}-01") == f"{TRACE}-{SPAN}"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "my card is 4111 1111 1111 1111",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01 ",
        f"01-{TRACE}-{SPAN}-01\nmore",
        f"00-{TRACE[1:]}-{SPAN}-01",
    ],
)
def test_what_is_no_trace_is_not_taken(value: str) -> None:
    assert read(value) == ""


def test_of_two_none_is_taken() -> None:
    assert read(f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01") == ""


def test_no_header_is_no_trace() -> None:
    assert trace_context([(b"host", b"127.0.0.1"), (b"tracestate", b"a=1")]) == ""


def test_a_card_that_is_called_a_span_is_not_taken() -> None:
    assert read(f"00-{TRACE}-{CARD}-01") == ""
    assert read(f"00-{'a' * 32}-{CARD}-01") == ""


def test_a_row_of_digits_that_is_nobodys_number_is_taken() -> None:
    trace = f"{'a' * 10}{'1' * 12}{'b' * 10}"
    assert read(f"00-{trace}-{SPAN}-01") == f"{trace}-{SPAN}"
