"""Finds the end user whom kept content names, in a line, a result or an answer."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from gateway.dialects.resources.openai_batches import BYTE_ORDER_MARK
from gateway.money.budgets import end_user_reference, end_user_subject


_RESULT = re.compile(r"batch_req_(\w+)_(\d{1,9})")
BATCH_PREFIX: Final = "batch_"
CUT_AT_ONCE: Final = 500
"""Lines that are cut, and read by the caller, before other tasks get a turn of the loop."""


class _Body(Struct, frozen=True):
    """The fields by which a request, and some answers, name their end user."""

    user: Any = None
    safety_identifier: Any = None
    metadata: Any = None


class _Line(Struct, frozen=True):
    body: _Body
    custom_id: Any = None


class _Response(Struct, frozen=True):
    body: _Body = _Body()


class _Result(Struct, frozen=True):
    id: str
    response: _Response | None = None
    custom_id: Any = None


_BODY = msgspec.json.Decoder(_Body)
_LINE = msgspec.json.Decoder(_Line)
_RESULT_LINE = msgspec.json.Decoder(_Result)


class Whose:
    """One end user of one organisation, by the digest used in the log."""

    def __init__(self, organisation: str, subject: str, digest: Callable[[str], bytes]) -> None:
        self.organisation = organisation
        self.subject = subject
        self._digest = digest

    def is_named(self, reference: str) -> bool:
        named = end_user_subject(self.organisation, reference, self._digest)
        return bool(reference) and named == self.subject


def named_by_body(raw: bytes) -> str:
    """The end user that a request's or answer's body names; empty if none, or if it is not one."""
    try:
        return end_user_reference(structs.asdict(_BODY.decode(raw)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def line_of(raw: bytes) -> tuple[str, str]:
    """The custom id of a line of a batch's file, and the end user its body names.

    Both are empty if it is not such a line. A file's first line may begin with a byte order mark.
    """
    try:
        line = _LINE.decode(raw.removeprefix(BYTE_ORDER_MARK))
        return _called(line.custom_id), end_user_reference(structs.asdict(line.body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""


def result_of(raw: bytes) -> tuple[str, int, str, str] | None:
    """Of a line of results: its batch, its line's number and custom id, the end user it names.

    None if it is not a result.
    """
    try:
        line = _RESULT_LINE.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    place = _RESULT.fullmatch(line.id)
    if place is None:
        return None
    body = line.response.body if line.response is not None else _Body()
    named = end_user_reference(structs.asdict(body))
    return f"{BATCH_PREFIX}{place[1]}", int(place[2]), _called(line.custom_id), named


def _called(custom_id: object) -> str:
    return custom_id if isinstance(custom_id, str) else ""


async def cut_lines(
    pieces: AsyncIterator[bytes], length_max: int
) -> AsyncIterator[tuple[int, bytes, bool]]:
    """A file line by line, with line ends: number from 1, bytes, and whether the line is complete.

    A line longer than any line of a batch comes in several parts: it is not a line, and its end
    user cannot be told.
    """
    number, rest, is_part = 1, b"", False
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield number, line + b"\n", not is_part
            number, is_part = number + 1, False
            if not number % CUT_AT_ONCE:
                await asyncio.sleep(0)
        if len(rest) > length_max:
            yield number, rest, False
            rest, is_part = b"", True
    if rest:
        yield number, rest, not is_part
