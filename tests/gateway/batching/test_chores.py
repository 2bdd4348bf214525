"""How a file becomes numbered lines, wherever the pieces that it arrives in begin and end."""

from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.batching.chores import split_lines


pytestmark = pytest.mark.anyio

LENGTH_MAX = 12


async def _arriving(content: bytes, cuts: Sequence[int]) -> AsyncIterator[bytes]:
    start = 0
    for end in [*sorted(cut % (len(content) + 1) for cut in cuts), len(content)]:
        yield content[start:end]
        start = end


async def _split(content: bytes, cuts: Sequence[int]) -> list[tuple[int, bytes | None]]:
    return [each async for each in split_lines(_arriving(content, cuts), LENGTH_MAX)]


@given(
    st.lists(st.binary(max_size=16).filter(lambda line: b"\n" not in line), max_size=8),
    st.lists(st.integers(0, 200), max_size=6),
    st.booleans(),
)
async def test_lines_and_their_numbers_do_not_depend_on_where_pieces_end(
    lines: list[bytes], cuts: list[int], is_ended: bool
) -> None:
    content = b"\n".join(lines) + (b"\n" if is_ended and lines else b"")
    expected = [
        (number, line if len(line) <= LENGTH_MAX else None)
        for number, line in enumerate(content.split(b"\n"), 1)
    ]
    if not expected[-1][1] and expected[-1][1] is not None:
        expected.pop()  # What follows the last line feed is no line.

    assert await _split(content, cuts) == expected


async def test_a_line_without_an_end_never_grows_beyond_its_limit() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 10
        yield b"\nshort"

    assert [each async for each in split_lines(endless(), LENGTH_MAX)] == [(1, None), (2, b"short")]
