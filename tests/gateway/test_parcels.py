"""Names of parcels' lines: ours alone are numbers, whatever a vendor sends back."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.parcels import custom_id_of, json_lines, number_of


NAME = "gwp-0123456789abcdef01234567"


@given(st.integers(1, 10**9 - 1))
def test_a_lines_number_comes_back(number: int) -> None:
    assert number_of(custom_id_of(NAME, number), NAME) == number
    assert number_of(custom_id_of(NAME, number), "gwp-another") == 0


@pytest.mark.parametrize(
    "custom_id",
    [
        *("", "-", "7", NAME, f"{NAME}-", f"{NAME}-x", f"{NAME}--7", f"-{NAME}-7", f"{NAME}-7 "),
        *(f"{NAME}-+7", f"{NAME}-7.0", f"{NAME}-\u0667", f"{NAME}-\u00b2", f"{NAME}-7-"),
        *(f"{NAME}-{'9' * 10}", f"{NAME}-{'9' * 5000}"),
    ],
)
def test_what_is_no_name_of_ours_is_no_line(custom_id: str) -> None:
    """With thousands of digits it was an error at each reading, and its parcel never ended."""
    assert number_of(custom_id, NAME) == 0


async def lines_of(pieces: list[bytes], length_max: int = 6) -> list[bytes]:
    async def sent() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return [line async for line in json_lines(sent(), length_max)]


@pytest.mark.anyio
async def test_lines_are_the_same_however_they_are_cut() -> None:
    said = b"one\n\n \nsix666\nseven77\n\rtwo\nseven777777777777\nend"
    whole = [b"one", b"six666", b"", b"\rtwo", b"", b"end"]
    for size in range(1, len(said) + 1):
        assert await lines_of([said[at : at + size] for at in range(0, len(said), size)]) == whole
    assert await lines_of([b"one\nseven", b"77"]) == [b"one", b""]


@pytest.mark.anyio
async def test_a_line_that_comes_in_very_many_pieces_is_put_together_once() -> None:
    """Each byte was copied with every piece that came behind it."""
    joined = 0

    class Piece(bytes):
        def split(self, *given: Any) -> list[bytes]:
            nonlocal joined
            joined += len(self)
            return [*map(Piece, super().split(*given))]

        def __radd__(self, before: bytes) -> "Piece":
            return Piece(bytes(before) + bytes(self))

    await lines_of([Piece(b"a" * 10) for _ in range(1_000)], 100_000)
    assert joined == 10_000
