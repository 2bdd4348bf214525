"""The certificate of an erasure: what several audit folders did, as one of them signed for it."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.store.erasure.attempts import DatedKey
from gateway.store.erasure.cases import ErasureCase
from gateway.store.erasure.certificates import certified, told_of
from gateway.store.erasure.erased_records import PROOFS_MAX
from gateway.store.erasure.folder_reports import FolderReport
from gateway.store.erasure.outstanding import Outstanding, Reach


SUMS = ("records", "checked", "contents_unreadable", "proofs_hold", "key_lines_damaged")
MOST = ("records_looked_at", "records_unreadable")
COUNTS = st.integers(0, 9)
NAMES = st.lists(st.sampled_from(["k1", "k2", "k3"]), unique=True)
SEEN = st.fixed_dictionaries(
    {
        **dict.fromkeys((*SUMS, *MOST), COUNTS),
        "all_looked_at": st.booleans(),
        "proofs": st.lists(st.integers(), max_size=PROOFS_MAX),
        "keys": st.lists(st.sampled_from(["v1", "v2"]), unique=True),
        "checkpoint": st.sampled_from(["", "a note"]),
    }
)
DAMAGE_ONLY = COUNTS.map(lambda lines: {"key_lines_damaged": lines})
OUTSTANDING = st.sampled_from(
    [(), (Outstanding("", ("w9",), "retired"),), (Outstanding("", ("w9",), "unknown"),)]
)


def case(said: dict[str, Any] | None) -> ErasureCase:
    text = msgspec.json.encode(said).decode() if said is not None else ""
    return ErasureCase(
        *("case1", "acme", "", "gdpr", "T-1", "ann", 1, 2), certificate=text, reached_us=7
    )


def report(number: int, keys: list[str], checked: dict[str, Any] | None) -> FolderReport:
    found = tuple(DatedKey(each, 1) for each in keys)
    text = msgspec.json.encode(checked).decode() if checked is not None else ""
    return FolderReport("case1", f"f{number}", ("w0",), "w0", found, done_us=1, checked=text)


@given(
    SEEN, NAMES, st.lists(st.tuples(NAMES, st.none() | DAMAGE_ONLY | SEEN), max_size=3), OUTSTANDING
)
def test_it_says_of_all_folders_together_no_more_than_each_of_them_saw(
    first: dict[str, Any],
    keys: list[str],
    others: list[tuple[list[str], dict[str, Any] | None]],
    outstanding: tuple[Outstanding, ...],
) -> None:
    reports = tuple(report(number, *each) for number, each in enumerate(others))
    told = told_of(case(first | {"keys_destroyed": keys}), Reach(reports, outstanding))
    seen = [first, *(checked for _, checked in others if checked)]
    whole = [each for each in seen if "records" in each]
    assert {name: told[name] for name in SUMS} == {
        name: sum(each.get(name, 0) for each in seen) for name in SUMS
    }
    assert {name: told[name] for name in MOST} == {
        name: max(each[name] for each in whole) for name in MOST
    }
    assert told["all_looked_at"] == all([not outstanding, *(e["all_looked_at"] for e in whole)])
    assert told["proofs"] == [one for each in whole for one in each["proofs"]][:PROOFS_MAX]
    assert len(told["keys"]) == len({*told["keys"]})
    assert {*told["keys"]} == {one for each in whole for one in each["keys"]}
    assert bool(told["checkpoint"]) == any(each["checkpoint"] for each in whole)
    destroyed = {*keys, *(one for names, _ in others for one in names)}
    assert (len(told["keys_destroyed"]), {*told["keys_destroyed"]}) == (len(destroyed), destroyed)
    is_complete = all(each.why == "retired" for each in outstanding)
    assert (told["complete"], told["reached_us"]) == (is_complete, 7 if is_complete else 0)
    assert [each["folder"] for each in told["folders"]] == [each.folder for each in reports]


def test_of_what_was_not_carried_out_there_is_none() -> None:
    assert told_of(case(None), Reach()) == {}
    assert certified(case(None), Reach()) == b""
