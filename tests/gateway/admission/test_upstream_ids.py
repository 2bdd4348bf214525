"""An upstream may call a call what it will; a number of somebody's in it is on no record."""

import random
import uuid

import pytest

from gateway.admission.upstream_ids import without_numbers
from tests.identifiers import aadhaar, card


GOOD = "req_011CVAJ8LcHDFjLT6FPRyo4Q"
CARD, AADHAAR = card(11), aadhaar(5)


@pytest.mark.parametrize("number", [CARD, AADHAAR])
@pytest.mark.parametrize("between", ["", *"._:-"])
@pytest.mark.parametrize("around", ["{}", "req_{}", "a{}b", "a.{}"])
def test_who_is_called_by_a_number_of_somebodys_is_called_nothing(
    number: str, between: str, around: str
) -> None:
    groups = [number[at : at + 4] for at in range(0, len(number), 4)]
    hidden = around.format(between.join(groups))
    assert without_numbers((hidden,)) == ()
    assert without_numbers((GOOD, hidden)) == (GOOD,)
    assert without_numbers((hidden, GOOD)) == (GOOD,)


def test_what_vendors_call_calls_is_nearly_always_kept() -> None:
    """One in a hundred at most looks like a number of somebody's by chance."""
    chance = random.Random(7)
    made = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(2000)]
    made += [f"req_{chance.getrandbits(128):032x}" for _ in range(2000)]
    kept = [each for each in made if without_numbers((each,)) == (each,)]
    assert len(kept) > 0.99 * len(made)
    assert without_numbers(()) == ()
