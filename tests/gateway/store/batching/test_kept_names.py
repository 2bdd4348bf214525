"""Whom a line, a result or an answer names, and files as lines without a byte lost."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.money.budgets import end_user_subject
from gateway.store.batching.kept_names import (
    CUT_AT_ONCE,
    Whose,
    cut_lines,
    line_of,
    named_by_body,
    result_of,
)


pytestmark = pytest.mark.anyio
LENGTH_MAX = 8


def digest(text: str) -> bytes:
    return text.encode()


async def cut(*pieces: bytes) -> list[tuple[int, bytes, bool]]:
    async def read() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return [each async for each in cut_lines(read(), LENGTH_MAX)]


async def test_lines_have_numbers_and_their_ends_and_the_last_may_have_none() -> None:
    assert await cut(b"a\n\nb", b"c\nd") == [
        *((1, b"a\n", True), (2, b"\n", True), (3, b"bc\n", True), (4, b"d", True))
    ]


async def test_a_line_that_is_longer_than_any_comes_in_parts_and_is_none() -> None:
    assert await cut(b"a\n123456789", b"0\nb\n") == [
        *((1, b"a\n", True), (2, b"123456789", False), (2, b"0\n", False), (3, b"b\n", True))
    ]
    assert await cut(b"123456789", b"0") == [(1, b"123456789", False), (1, b"0", False)]
    assert await cut(b"12345678", b"\n") == [(1, b"12345678\n", True)]


async def test_others_have_their_turns_while_a_file_is_cut() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    assert len(await cut(b"\n" * 10 * CUT_AT_ONCE)) == 10 * CUT_AT_ONCE
    other.cancel()
    assert turns == 10


@given(st.lists(st.text("ab\n", max_size=12), max_size=6))
async def test_no_byte_is_lost_however_a_file_comes(texts: list[str]) -> None:
    pieces = [text.encode() for text in texts]
    found = await cut(*pieces)
    assert b"".join(raw for _, raw, _ in found) == b"".join(pieces)
    by_number: dict[int, bytes] = {}
    for number, raw, _ in found:
        by_number[number] = by_number.get(number, b"") + raw
    assert list(by_number.values()) == b"".join(pieces).splitlines(keepends=True)


@pytest.mark.parametrize(
    "body", [{"user": "ann"}, {"safety_identifier": "ann"}, {"metadata": {"user_id": "ann"}}]
)
def test_a_body_names_its_user_in_any_dialects_words(body: dict[str, object]) -> None:
    raw = json.dumps(body).encode()
    assert named_by_body(raw) == "ann"
    assert line_of(b'{"custom_id":"q","body":' + raw + b"}") == ("q", "ann")
    assert line_of(b'{"custom_id":7,"body":' + raw + b"}") == ("", "ann")
    wire = {"id": "batch_req_9f_12", "custom_id": "q", "response": {"body": body}}
    assert result_of(json.dumps(wire).encode()) == ("batch_9f", 12, "q", "ann")


@pytest.mark.parametrize("raw", [b"", b"[", b"\xff", b"7", b"[" * 100_000])
def test_what_is_none_names_nobody(raw: bytes) -> None:
    assert (named_by_body(raw), line_of(raw), result_of(raw)) == ("", ("", ""), None)


def test_a_result_without_an_answer_has_its_place_and_names_nobody() -> None:
    assert result_of(b'{"id":"batch_req_9f_3","response":null}') == ("batch_9f", 3, "", "")


@pytest.mark.parametrize("name", ["batch_req_9f", "batch_req_9f_", "req_9f_3", "batch_req_9f_3x"])
def test_what_has_no_place_in_a_batch_is_no_result(name: str) -> None:
    assert result_of(json.dumps({"id": name}).encode()) is None


def test_who_is_named_is_told_by_a_digest_and_nobody_is_not_named() -> None:
    ann = Whose("acme", end_user_subject("acme", "ann", digest), digest)
    assert (ann.is_named("ann"), ann.is_named("bob"), ann.is_named("")) == (True, False, False)
    nobody = Whose("acme", end_user_subject("acme", "", digest), digest)
    assert not nobody.is_named("")
