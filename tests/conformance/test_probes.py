"""What becomes of every field is what `probes.txt` says, and nothing is ever lost in silence."""

import re

import pytest

from tests.conformance.contract import ROOT
from tests.conformance.probes import (
    BARE,
    BASES,
    NAMES,
    PROBES,
    SAID_OF_TURNS,
    count,
    expected,
    rows,
    verdict,
    words_of,
    words_sent,
)


ROWS = list(rows())
PIECES = [ROWS[at : at + 60] for at in range(0, len(ROWS), 60)]


@pytest.mark.parametrize("piece", PIECES, ids=[str(piece[0]) for piece in PIECES])
def test_each_probe_is_exact_emulated_reported_or_refused_as_written_down(
    piece: list[object],
) -> None:
    known = expected()
    found = {str(row): verdict(row) for row in piece}  # type: ignore[arg-type]

    assert found == {row: known[row] for row in found}, "see tests/conformance/probes.py"


def test_no_probe_is_lost_in_silence_and_every_refusal_names_its_rule() -> None:
    known = expected()

    assert list(known) == [str(row) for row in ROWS]
    for row, told in known.items():
        kind = re.fullmatch(
            r"exact|emulated(: other words for .*)?|met|reported: .+|refused: \S+ by rule \d+", told
        )
        assert kind is not None, (row, told)


def test_every_name_that_is_told_is_one_that_its_caller_sent() -> None:
    known = expected()
    told = [(row, name) for row in ROWS for name in _named(known[str(row)])]
    foreign = [
        f"{row}: {name}"
        for row, name in told
        if not words_of(name)
        <= words_sent(BASES[row.source] | PROBES[row.source][row.probe]) | SAID_OF_TURNS
    ]

    assert len(told) > 500
    assert foreign == []


def _named(told: str) -> list[str]:
    """Fields that a verdict names."""
    kind, _, rest = told.partition(": ")
    if kind not in {"reported", "refused"}:
        return []
    return rest.partition(" by rule ")[0].split(", ")


def test_there_are_more_probes_than_any_peer_was_asked() -> None:
    assert len(ROWS) > 549
    each = {source: len(probes) * len(NAMES) * 2 for source, probes in PROBES.items()}
    assert len(ROWS) == sum(each.values()) + len(PROBES[BARE]) * 2


def test_the_count_in_the_documents_is_the_one_that_was_found() -> None:
    assert count() in ROOT.joinpath("docs", "translation.md").read_text(encoding="utf-8")
