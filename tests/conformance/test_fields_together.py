"""What is asked beside other things is not lost for it: each still does something, or is told.

The probes ask one thing at a time; here several are drawn, and each is left out once.
"""

from collections.abc import Iterable
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.errors import GatewrightError
from gateway.types import DialectName
from tests.conformance.probes import BASES, NAMES, PROBES, Row, expected, read, written


ALIKE = (
    ("user ann.lee", "safety_identifier ann.lee"),
    ("tools", "tools that an item brings"),
    ("tool_choice allowed", "tools that an item brings"),  # it allows one that both bring
    ("cache_control", "a text with"),
    ("output_config {'effort': 'low'}", "thinking {'type': 'enabled', 'budget_tokens': 2048}"),
    ("thinking {'type': 'adaptive'}", "output_config {'effort'"),
)
"""Beginnings of two probes that say the same: one of them changes nothing."""
ALIKE_WHERE_NOTHING_THINKS = (*ALIKE, ("thinking {'type': 'adaptive'", "output_config {'effort'"))
"""That thoughts be told asks for nothing more of a model without any: its effort is reported."""
TOLD = expected()


def asked(source: DialectName, probes: Iterable[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for probe in probes:
        fields |= PROBES[source][probe]
    return fields


def crossed(row: Row, probes: Iterable[str]) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """What is sent, and what is reported; None where it is refused."""
    try:
        request = read(row.source, BASES[row.source] | asked(row.source, probes))
        return written(request, row)
    except GatewrightError:
        return None


def together(row: Row, drawn: Iterable[str]) -> list[str]:
    """Of what was drawn as much as one request can hold, if it does something by itself."""
    held: list[str] = []
    for probe in drawn:
        alone = TOLD[f"{Row(row.source, probe, row.wanted, row.is_able)}"]
        does = alone.startswith(("exact", "emulated", "reported"))
        if does and not asked(row.source, held).keys() & PROBES[row.source][probe].keys():
            held.append(probe)
    return held


def says_the_same(row: Row, probe: str, others: list[str]) -> bool:
    for one, other in ALIKE if row.is_able else ALIKE_WHERE_NOTHING_THINKS:
        for mine, its in ((one, other), (other, one)):
            if probe.startswith(mine) and any(each.startswith(its) for each in others):
                return True
    return False


def is_reported(row: Row, probe: str, reported: tuple[str, ...]) -> bool:
    """Under the name that it is reported by where it is asked alone; another may have it, too.

    Or under its own: where an image stands last, no mark for a cache can stand at it.
    """
    if PROBES[row.source][probe].keys() & set(reported):
        return True
    kind, _, names = TOLD[f"{Row(row.source, probe, row.wanted, row.is_able)}"].partition(": ")
    return kind == "reported" and set(names.split(", ")) <= set(reported)


@settings(max_examples=250)
@given(st.data())
def test_no_field_is_lost_beside_others(data: st.DataObject) -> None:
    source, wanted = data.draw(st.permutations(list(NAMES)))[:2]
    row = Row(source, "", wanted, is_able=data.draw(st.booleans()))
    names = st.sampled_from(list(PROBES[source]))
    probes = together(row, data.draw(st.lists(names, min_size=4, max_size=12, unique=True)))
    whole = crossed(row, probes)
    assume(whole is not None and len(probes) > 1)
    assert whole is not None

    for probe in probes:
        others = [each for each in probes if each != probe]
        is_lost = crossed(row, others) == whole and not is_reported(row, probe, whole[1])
        assert not is_lost or says_the_same(row, probe, others), (probe, others)
