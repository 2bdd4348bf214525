"""Windows of budgets, and limits that change."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.money.budgets import FOREVER_US, WindowKind, window_end_us, window_start_us


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("kind", "now", "start", "end"),
    [
        ("day", "2028-02-29T23:59:59", "2028-02-29T00:00:00", "2028-03-01T00:00:00"),
        ("day", "2028-03-01T00:00:00", "2028-03-01T00:00:00", "2028-03-02T00:00:00"),
        ("month", "2027-12-31T23:59:59", "2027-12-01T00:00:00", "2028-01-01T00:00:00"),
        ("month", "2028-01-31T12:00:00", "2028-01-01T00:00:00", "2028-02-01T00:00:00"),
    ],
)
def test_a_window_begins_and_ends_at_midnight_utc(
    kind: WindowKind, now: str, start: str, end: str
) -> None:
    assert window_start_us(kind, us(now) + 999_999) == us(start)
    assert window_end_us(kind, us(start)) == us(end)


def test_the_total_has_no_end() -> None:
    assert window_start_us("total", us("2028-01-31T12:00:00")) == 0
    assert window_end_us("total", 0) == FOREVER_US


@given(st.integers(0, 4_000_000_000_000_000), st.sampled_from(["total", "day", "month"]))
def test_every_moment_lies_in_its_window_and_windows_do_not_overlap(
    now_us: int, kind: WindowKind
) -> None:
    start = window_start_us(kind, now_us)
    end = window_end_us(kind, start)
    assert start <= now_us < end
    assert window_start_us(kind, end - 1) == start
    if kind != "total":
        assert window_start_us(kind, end) == end
