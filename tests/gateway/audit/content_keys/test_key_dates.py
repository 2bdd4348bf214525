"""Of which day a content key is where a clock stood elsewhere, and when nobody knows."""

from pathlib import Path

import msgspec
import pytest

from gateway.audit.content_keys.key_dates import FIRST_DAY, aged_keys, dated
from gateway.audit.content_keys.keys import KEYS_NAME, WrappedKey


TODAY = FIRST_DAY + 1000


def line(number: int, day: int, organisation: str = "acme") -> WrappedKey:
    return WrappedKey(f"{number:016x}", organisation, FIRST_DAY + day, "m", b"", day)


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ([], []),
        ([900, 900, 950, 1000], [900, 900, 950, 1000]),
        # About midnight a clock may be corrected by a day.
        ([900, 899, 900], [900, 899, 900]),
        # Far back for a while, and set right on the day 930.
        ([900, 1, 2, 930, 940], [900, 930, 930, 930, 940]),
        ([-FIRST_DAY, -1, 0, 930], [0, 0, 0, 930]),
        ([900, 898, 901], [900, 901, 901]),
        # Far ahead for a while: what it dated does not live until then.
        ([900, 1001, 9999, 930], [900, 930, 930, 930]),
        # Both, one after the other.
        ([900, 1, 9999, 2, 930], [900, 930, 930, 930, 930]),
        # Ahead by a little: what follows is taken for as old as that, not for older.
        ([900, 950, 901, 902, 951], [900, 950, 951, 951, 951]),
    ],
)
def test_a_key_out_of_order_is_as_old_as_the_next_in_order(
    days: list[int], expected: list[int]
) -> None:
    lines = [line(number, day) for number, day in enumerate(days)]
    found = list(dated(lines, TODAY))
    assert [each.line for each in sorted(found, key=lambda each: each.line.key)] == lines
    by_key = {each.line.key: each for each in found}
    assert [by_key[each.key].day - FIRST_DAY for each in lines] == expected
    assert all(each.is_sure for each in found)


def test_of_the_last_ones_out_of_order_nobody_knows_how_young_they_are() -> None:
    lines = [line(number, day) for number, day in enumerate([900, 950, 1, 9999])]
    found = [(each.day - FIRST_DAY, each.is_sure) for each in dated(lines, TODAY)]
    assert found == [(900, True), (950, True), (950, False), (9999, False)]
    (alone,) = dated([line(1, -FIRST_DAY)], TODAY)
    assert (alone.day, alone.is_sure) == (FIRST_DAY, False)


def test_keys_of_other_organisations_and_of_no_other_worker_say_in_which_order(
    tmp_path: Path,
) -> None:
    files = {
        "w0": [line(1, 900), line(2, 1), line(3, 940, "globex")],
        "w1": [line(4, 800), line(5, 1, "globex")],
    }
    for worker, lines in files.items():
        (tmp_path / worker).mkdir()
        raw = b"".join(b"\n" + msgspec.json.encode(each) + b"\n" for each in lines)
        (tmp_path / worker / KEYS_NAME).write_bytes(raw)
    days = TODAY - (FIRST_DAY + 900)
    aged = aged_keys(tmp_path, {"acme": days, "globex": 1, "initech": 1}, TODAY)
    acme, globex = aged["acme"], aged["globex"]
    assert [(each.line.key[-1], each.day - FIRST_DAY) for each in acme.old] == [("4", 800)]
    assert acme.young_day - FIRST_DAY == 900, "of the two that are left the elder"
    assert [(each.line.key[-1], each.is_sure) for each in globex.old] == [("3", True), ("5", False)]
    assert globex.young_day == 0
    assert aged.keys() == {"acme", "globex"}
    assert aged_keys(tmp_path, {"globex": 1}, TODAY) == {"globex": globex}
    assert aged_keys(tmp_path / "none", {"acme": 1}, TODAY) == {}
