"""A value in two parts of a message is seen; as nothing stands in its place, it is not replaced."""

from collections.abc import Iterator

import msgspec
import pytest

from gateway.errors import ClosedByPolicy
from gateway.inspection.inspector import Inspector
from tests.gateway.inspection.test_inspection import ORG, make, request
from tests.identifiers import card


pytestmark = pytest.mark.anyio

CARD = card(3)
HALVES = (f"It is {CARD[:7]}", f"{CARD[7:]} , he said.")


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.fixture
def inspector() -> Iterator[Inspector]:
    made = make()
    yield made
    made.close()


async def test_a_number_in_two_parts_is_as_sensitive_as_in_one(inspector: Inspector) -> None:
    for _ in range(2):  # The second time it is known.
        seen = await inspector.inspect(request(parts(*HALVES)), ORG)
        assert (seen.data_class, seen.complete) == ("S3", True)
        assert seen.findings == {"CREDIT_CARD": 1}


async def test_equal_words_in_other_parts_are_not_taken_for_them(inspector: Inspector) -> None:
    seen = await inspector.inspect(request(parts("\x1f".join(HALVES))), ORG)
    assert seen.data_class == "S0"
    seen = await inspector.inspect(request(parts(*HALVES)), ORG)
    assert seen.data_class == "S3"
    seen = await inspector.inspect(request(parts("\x1f".join(HALVES))), ORG)
    assert seen.data_class == "S0"


async def test_what_has_no_single_place_is_given_no_pseudonym(inspector: Inspector) -> None:
    with pytest.raises(ClosedByPolicy, match="several parts"):
        await inspector.locate(request(parts(*HALVES)), ORG)
    assert await inspector.locate(request("".join(HALVES)), ORG) == (("CREDIT_CARD", CARD),)


async def test_an_answer_with_such_a_value_is_not_kept_blackened(inspector: Inspector) -> None:
    asked = request("What is it?")
    for texts, is_kept in ((HALVES, False), (("".join(HALVES),), True)):
        answer = msgspec.json.encode({"type": "message", "content": parts(*texts)})
        black = await inspector.blackened(asked, ORG, answer)
        assert bool(black) is is_kept
        assert CARD[7:].encode() not in black
        assert (b"It is [REDACTED:CREDIT_CARD]" in black) is is_kept


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 30}}


@pytest.mark.parametrize("inline_bytes_max", [0, 10**6], ids=["in a thread", "on the loop"])
async def test_where_not_all_can_be_read_no_place_is_told_and_no_answer_kept(
    inline_bytes_max: int,
) -> None:
    inspector = make(inline_bytes_max=inline_bytes_max)
    seen = request([PICTURE, *parts(f"It is {CARD} .")])
    with pytest.raises(ClosedByPolicy, match="cannot be read"):
        await inspector.locate(seen, ORG)
    plain, fine = request("What is it?"), msgspec.json.encode({"content": "It is fine."})
    assert await inspector.blackened(plain, ORG, fine) == fine
    assert await inspector.blackened(seen, ORG, fine) == b""
    drawn = msgspec.json.encode({"content": [PICTURE]})
    assert await inspector.blackened(plain, ORG, drawn) == b""
    assert await inspector.blackened(plain, ORG, b"no json") == b""
    inspector.close()
