"""Input made to be slow: work grows with length only, and what is left unread is said."""

import base64
import random
import sys
from collections.abc import Callable
from typing import Self

import pytest

from classifiers.inspection import inspect
from classifiers.pii.labels import DataClass
from classifiers.pii.scanner import Scanner, load
from classifiers.units import Unit
from classifiers.verdicts import judge


SCANNER = load()
UNITS: dict[str, str] = {
    "digits": "8",
    "spaced digits": "1 ",
    "at signs": "@",
    "half addresses": "a@b.",
    "percent": "%41",
    "entities": "&#65;",
    "escapes": "\\u0041",
    "number words": "one two three ",
    "Hindi words": "\u090f\u0915 \u0926\u094b ",
    "odd separators": "1_",
    "dashes": "A1-",
    "keys": "key=",
    "key blocks": "-----BEGIN PRIVATE KEY-----",
    "manifests": "kind: secret data: ",
    "tokens": "eyJhbGciOi",
    "zero width": "\u200b4",
    "names": "Anna Berg, ",
    "seams": "\x1f",
    "escaped percent": "%2525",
    "accounts": "GB29 ",
    "digits in lines": "4\n",
    "groups in quotes": "4111', '",
    "digits between tags": "<b>4</b>",
    "torn lines": "41=\n",
    "written ends of lines": "4\\n",
    "bytes in a list": "52, ",
    "bytes in hexadecimal": "0x34, ",
    "letters like digits": "4O1l ",
    "capitals apart": "G?B?8?2?",
    "lines of base64": "QUJDREVGR0hJSktMTU5P\n",
    "words that are turned": "rot13 cnffjbeq: ",
    "words for passwords": "\u043f\u0430\u0440\u043e\u043b\u044c: ",
    "base32": "MFRGGZDF",
    "base32 in lines": "MFRGGZDFMZTWQ2LK\n",
    "base85": "G&D0Y",
    "base85 between blanks": "G&D0YI50IhFf}$X ",
    "Ascii85": "1c.!C",
    "open frames": "<~1c.!C",
    "frames": "<~1c.!C3&!3L~> ",
    "uuencoded heads": "begin 644 a\n#0S0S\n",
    "bits": "00110100 ",
    "noughts": "AAAA",
    "fields beside each other": '"a1":"4111", ',
    "lists in lists": '["4111", ',
    "tag characters": "\U000e0034",
    "accents": "4\u0301",
    "cells": "<td>ssn",
    "rows of cells": "<tr><td>ssn<td>1234",
    "tables of cells": "<table><tr><td>ssn<td>1234<tr><td>1234<td>1234",
    "tags of cells": "<td><b><i>",
    "lines between quotes": 'ssn,"x\n',
    "headings": "ssn,x\n",
    "headings of open quotes": "'ssn,\"x\n",
    "headings far apart": "ssn,x\n\n1,2\n",
    "rows of quotes": "insert into t (ssn, x) values ('', ''",
}


class Counter:
    """Counts calls of Python functions and of C functions while it is entered: work, not time."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._count)
        return self

    def _count(self, frame: object, event: str, argument: object) -> None:
        self.calls += event in {"call", "c_call"}

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def work(text: str) -> int:
    judge(Unit(text), SCANNER)
    with Counter() as counter:
        judge(Unit(text), SCANNER)
    return counter.calls


@pytest.mark.parametrize("name", UNITS)
def test_twice_the_text_is_at_most_about_twice_the_work(name: str) -> None:
    unit = UNITS[name]
    small, large = (work(unit * (size // len(unit))) for size in (2_000, 8_000))
    assert large <= 4.8 * small + 4_000


def nested(length: int) -> str:
    data = b"my card 4111111111111111 "
    while len(data) < length:
        data = base64.b64encode(data * 2)
    return data.decode()[:length]


@pytest.mark.parametrize(
    "make",
    [
        lambda: "8" * 200_000,
        lambda: "@" * 100_000,
        lambda: nested(60_000),
        lambda: random.Random(1).randbytes(20_000).hex(),
    ],
)
def test_long_floods_have_a_verdict(make: Callable[[], str]) -> None:
    verdict = judge(Unit(make()), SCANNER)
    assert all(0 <= f.start < f.end for f in verdict.findings)


def test_a_flood_of_candidates_is_incomplete_and_so_most_sensitive() -> None:
    seen = inspect({"a": "kind: secret data: " * 900}, scanner=Scanner(None))
    assert (seen.reasons, seen.data_class) == (("too-many-candidates",), DataClass.S4)


def test_a_request_deeper_than_any_reader_goes_is_most_sensitive() -> None:
    document: object = "SSN 078-05-1120"
    for _ in range(5_000):
        document = [document]
    seen = inspect({"a": document}, scanner=SCANNER)
    assert (seen.reasons, seen.data_class) == (("too-deep",), DataClass.S4)
