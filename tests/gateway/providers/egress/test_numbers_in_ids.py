"""An upstream may call a call what it will; a number of somebody's in it is on no record."""

import random
import uuid

import pytest

from gateway.providers.egress.upstream_ids import ids_in
from tests.identifiers import aadhaar, card


GOOD = "req_011CVAJ8LcHDFjLT6FPRyo4Q"
CARD, AADHAAR = card(11), aadhaar(5)


@pytest.mark.parametrize("number", [CARD, AADHAAR])
@pytest.mark.parametrize("between", ["", *"._:-"])
@pytest.mark.parametrize("length", [1, 3, 4])
@pytest.mark.parametrize("around", ["{}", "req_{}", "a{}b", "a.{}"])
def test_who_is_called_by_a_number_of_somebodys_is_called_nothing(
    number: str, between: str, around: str, length: int
) -> None:
    groups = [number[at : at + length] for at in range(0, len(number), length)]
    hidden = around.format(between.join(groups))
    assert ids_in(hidden) == ()
    assert ids_in(f"{GOOD}, {hidden}") == (GOOD,)
    assert ids_in(f"{hidden}, {GOOD}") == (GOOD,)


def test_what_vendors_call_calls_is_nearly_always_kept() -> None:
    """One in a hundred at most looks like a number of somebody's by chance."""
    chance = random.Random(7)
    made = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(2000)]
    made += [f"req_{chance.getrandbits(128):032x}" for _ in range(2000)]
    kept = [each for each in made if ids_in(each) == (each,)]
    assert len(kept) > 0.99 * len(made)
