"""Values as a careful adversary hides them: each of these once left for a managed target."""

import base64
import gzip
import json
import random
import string
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from classifiers.extraction import extract
from classifiers.identifiers import is_name
from classifiers.inspection import inspect
from classifiers.pii.detect import find, scan
from classifiers.pii.labels import DataClass
from classifiers.verdicts import CHUNK_LENGTH, CHUNK_OVERLAP
from tests.classifiers import samples


RANDOM = random.Random(9)
CARD = samples.with_luhn("4" + samples.digits(RANDOM, 14))
AADHAAR = samples.aadhaar(RANDOM)
IBAN = samples.iban(RANDOM)
VALUES = {"CREDIT_CARD": CARD, "IN_AADHAAR": AADHAAR, "IBAN": IBAN}
LINE = "Customer\tcard\r\nInge\t{}\r\n"
MARKS = (
    *("\n", "\r\n", "\t\t", "\v", "\f", "\x01", "\x1b", "\x1f", "\x7f", "\x85", "\u2028", " " * 6),
    *("'", '"', '", "', "!", "?", "@", "&", "%", "^", "<", ">", "][", "}{", " -- ", "** **", "` `"),
    *("\u05be", "\u2502", "\u2500", "\u30fb", "\u22c5", "\u2192", "\U0001f600", "\u2800"),
    *("<br>", "</b><b>", "</span> <span>", "<!-- x -->", "=\n", "\\\n", "\\n", "%0A", "&nbsp;"),
)
COLUMN = ("\n", "\r\n", "\\n", "%0A")
INVISIBLE = (
    *("\u0301", "\u0336", "\ufe0f\u20e3", "\u180b", "\ufff9", "\ufffc", "\U000e0100"),
    *("\U0001d173", "\u2800"),
)
HAN = dict(
    zip("0123456789", "\u3007\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d", strict=True)
)


ROWS = (
    "x = " + str([RANDOM.randrange(1000, 10_000) for _ in range(200)]),
    "\n".join(str(RANDOM.randrange(1000, 10_000)) for _ in range(200)),
    "\n".join(str(RANDOM.randrange(10**7, 10**8)) for _ in range(100)),
    ", ".join(str(RANDOM.randrange(10**7, 10**8)) for _ in range(100)),
    "\n".join(",".join(str(RANDOM.randrange(1000, 10_000)) for _ in "abc") for _ in range(100)),
)
"""Every few of them make a number with a right check digit."""


def b64(data: bytes | str) -> str:
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def wrapped(text: str, width: int, end: str = "\n") -> str:
    return end.join(text[at : at + width] for at in range(0, len(text), width))


def other_digits(zero: int) -> Callable[[str], str]:
    return lambda value: "".join(
        chr(zero + int(char)) if char.isdigit() else char for char in value
    )


ENCODED: dict[str, Callable[[str], str]] = {
    "base64 of lines and columns": lambda value: b64(LINE.format(value)),
    "base64 of Cyrillic": lambda value: b64(
        f"\u041c\u043e\u044f \u043a\u0430\u0440\u0442\u0430 \u0442\u0430\u043a\u0430\u044f: {value}"
    ),
    "base64 of UTF-16": lambda value: b64(value.encode("utf-16")),
    "base64 of UTF-32": lambda value: b64(value.encode("utf-32")),
    "base64 of UTF-32 without a mark": lambda value: b64(value.encode("utf-32-le")),
    "base64 of UTF-32 that begins high": lambda value: b64(value.encode("utf-32-be")),
    "hexadecimal of UTF-32 of Osmanya": lambda value: (
        other_digits(0x104A0)(value).encode("utf-32-be").hex()
    ),
    "base32 in lines": lambda value: wrapped(
        base64.b32encode(f"some words, then {value} and more".encode()).decode(), 40
    ),
    "base32 of Devanagari": lambda value: base64.b32encode(
        other_digits(0x966)(value).encode()
    ).decode(),
    "base85 in a line of code": lambda value: (
        f'data="{base64.b85encode(value.encode()).decode()}",'
    ),
    "base85 of Devanagari": lambda value: base64.b85encode(
        other_digits(0x966)(value).encode()
    ).decode(),
    "Ascii85 between brackets": lambda value: f"({base64.a85encode(value.encode()).decode()})",
    "bits in a row": lambda value: "".join(f"{ord(char):08b}" for char in value),
    "base64 of gzip": lambda value: b64(gzip.compress(f"it is {value}".encode(), mtime=0)),
    "base64 of zlib": lambda value: b64(zlib.compress(f"it is {value}".encode())),
    "base64 of a blank that is kept": lambda value: b64(f"it is\xa0{value}"),
    "base64 of Japanese": lambda value: b64(f"\u30ab\u30fc\u30c9\u3000{value}"),
    "base64 of what nobody sees": lambda value: b64("\u200b".join(value)),
    "base64 of several pages": lambda value: b64(f"page\f{value}\f"),
    "base64 of a record": lambda value: b64(bytes((10, len(value))) + value.encode() + b"\x10\x01"),
    "hexadecimal of a blank that is kept": lambda value: f"it is\xa0{value}".encode().hex(),
    "hexadecimal of columns of four": lambda value: samples.grouped(value, "\t").encode().hex(),
    "base64 in lines of ten": lambda value: wrapped(b64(f"some words, then {value} and more"), 10),
    "base64 in lines of sixty": lambda value: wrapped(
        b64(f"{'long ' * 12}{value} and more"), 60, "\r\n"
    ),
    "base64 in a path": lambda value: f"https://shop.example/{b64(value)}/pay",
    "base64 thrice": lambda value: b64(b64(b64(value))),
    "hexadecimal with dashes": lambda value: value.encode().hex("-"),
    "hexadecimal of lines": lambda value: LINE.format(value).encode().hex(),
    "a list of bytes in hexadecimal": lambda value: ", ".join(f"0x{ord(c):02x}" for c in value),
    "a column of bytes": lambda value: "\\x" + value.encode().hex(),
    "a list of bytes in lines of eight": lambda value: ",\n    ".join(
        ", ".join(f"0x{ord(char):02x}" for char in row)
        for row in wrapped(f"it is my number {value}", 8).split("\n")
    ),
    "a list of bytes": lambda value: json.dumps([ord(char) for char in value]),
    "percent and u": lambda value: "".join(f"%u{ord(char):04x}" for char in value),
    "entities without an end": lambda value: "".join(f"&#{ord(char)}" for char in value),
    "entities of entities": lambda value: "".join(f"&amp;amp;#{ord(char)};" for char in value),
    "long entities": lambda value: "".join(f"&#x{ord(char):08x};" for char in value),
    "escapes of escapes": lambda value: "".join(f"\\\\u{ord(char):04x}" for char in value),
    "escapes in braces": lambda value: "".join(f"\\u{{{ord(char):x}}}" for char in value),
    "long escapes": lambda value: "".join(f"\\U{ord(char):08x}" for char in value),
    "escapes in octal": lambda value: "".join(f"\\{ord(char):03o}" for char in value),
    "escapes of pairs": lambda value: json.dumps(other_digits(0x1D7CE)(value))[1:-1],
    "escapes of bytes": lambda value: repr(other_digits(0x966)(value).encode())[2:-1],
    "escapes of bytes in octal": lambda value: "".join(
        f"\\{byte:03o}" for byte in other_digits(0x966)(value).encode()
    ),
    "escapes of Gurmukhi": lambda value: json.dumps(other_digits(0xA66)(value))[1:-1],
    "escapes of Adlam": lambda value: json.dumps(other_digits(0x1E950)(value))[1:-1],
    "escapes of what nobody sees": lambda value: json.dumps("\u200b".join(value))[1:-1],
    "percent of Osmanya": lambda value: quote(other_digits(0x104A0)(value)),
    "hexadecimal of Devanagari": lambda value: other_digits(0x966)(value).encode().hex(),
    "tag characters with marks between": lambda value: "\u200b".join(
        chr(0xE0000 + ord(char)) for char in value
    ),
    "quoted-printable": lambda value: "".join(f"={ord(char):02X}" for char in value),
    "tag characters": lambda value: "".join(chr(0xE0000 + ord(char)) for char in value),
    "digits of Osmanya": other_digits(0x104A0),
    "digits of Adlam": other_digits(0x1E950),
    "digits of Han": lambda value: "".join(HAN.get(char, char) for char in value),
}


def labels(text: str) -> set[str]:
    return {finding.label for finding in find(text)}


@pytest.mark.parametrize("label", VALUES)
@pytest.mark.parametrize("name", ENCODED)
def test_what_a_program_or_a_model_reads_is_found(name: str, label: str) -> None:
    text = f"please look at {ENCODED[name](VALUES[label])} and tell me more"
    assert label in labels(text)


@pytest.mark.parametrize(
    ("label", "mark"),
    # Three lines of four digits may be anything.
    [
        (label, mark)
        for label in VALUES
        for mark in MARKS
        if label != "IN_AADHAAR" or mark not in COLUMN
    ],
)
def test_groups_are_put_together_whatever_stands_between_them(label: str, mark: str) -> None:
    text = f"please look at {samples.grouped(VALUES[label], mark)} and tell me more"
    assert inspect({"messages": [{"role": "user", "content": text}]}).counts.get(label)


@pytest.mark.parametrize("mark", INVISIBLE)
def test_marks_on_digits_hide_nothing(mark: str) -> None:
    for label, value in VALUES.items():
        assert label in labels(f"look at {mark.join(value)} please")


@pytest.mark.parametrize("mark", ["=\n", "=\r\n", "\\\n", '" + "', "'\n'"])
def test_a_number_that_goes_on_elsewhere_is_one(mark: str) -> None:
    for at in (5, 8, 13):
        assert "CREDIT_CARD" in labels(f"look at {CARD[:at]}{mark}{CARD[at:]} please")


@pytest.mark.parametrize(
    "text",
    [
        *(f"cc{CARD}", f"No{CARD}", f"a{CARD}", f"{CARD}x", f"x{CARD}x"),
        *(f"000{CARD}", f"{CARD}D29121010000", f"7 {' '.join(CARD)}", f"{int(CARD):,}"),
        *(" ".join(CARD[at : at + 2] for at in range(0, 16, 2)), CARD.replace("0", "O")),
        *(CARD.replace("1", "l"), CARD.replace("3", "\u0417"), CARD[:4] + "\n" + CARD[4:]),
    ],
)
def test_a_card_is_found_however_it_is_written(text: str) -> None:
    assert "CREDIT_CARD" in labels(f"look at {text} please")


@pytest.mark.parametrize(
    "text", [f"iban_{IBAN}", f"_{IBAN}_", IBAN[0] + IBAN[1].lower() + IBAN[2:]]
)
def test_an_account_is_found_however_it_is_written(text: str) -> None:
    assert "IBAN" in labels(f"look at {text} please")


def test_a_key_beside_the_word_for_an_example_is_still_a_key() -> None:
    key = "ghp_" + samples.token(RANDOM, 36)
    assert "SECRET" in labels(f"use {key}EXAMPLE for it")
    assert not labels("use AKIAIOSFODNN7EXAMPLE or ghp_your_token_here_example for it")


@pytest.mark.parametrize(
    "text",
    [
        "2021, 2022, 2023, 2024\n2025\n2026\n2027",
        *ROWS,
        "[.0000.0000] # in ISO 6429)\n0018  ; [.0000.0000.0000] # CANCEL",
        "x = [640, 480, 1024, 768, 4096, 8192]; y = {4: 16, 5: 25, 6: 36, 7: 49}",
        "<td>4.50</td><td>12</td><td>2024-11-02</td> &#8364; = \\u20ac, a =\nb",
        "0x1F, 0x2A, 0x3B then 12:30:45, 12:31:00, 12:31:15 and 85, 92, 78, 91, 66, 73, 80, 95, 88",
        "commit 4a1b2c3d4e5f60718293a4b5c6d7e8f901234567 of v1.2.3-rc4 on 2024-05-06T10:11:12",
    ],
)
def test_rows_of_numbers_are_no_numbers_of_anybody(text: str) -> None:
    assert not labels(text)


def argument(value: object) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {"it": value}}
    return {"messages": [{"role": "assistant", "content": [use]}]}


@pytest.mark.parametrize(
    "value",
    [
        [int(CARD[at : at + 4]) for at in range(0, 16, 4)],
        [CARD[at : at + 4] for at in range(0, 16, 4)],
        [int(char) for char in CARD],
        list(CARD),
        [CARD[:8], CARD[8:]],
        list(AADHAAR),
        [IBAN[at : at + 4] for at in range(0, len(IBAN), 4)],
        {"type": "Buffer", "data": list(f"it is {CARD}".encode())},
    ],
)
def test_a_value_that_a_program_took_apart_is_seen_and_given_no_pseudonym(value: object) -> None:
    result = inspect(argument(value))
    assert result.data_class is DataClass.S3
    assert result.is_torn


def test_lists_of_numbers_that_are_no_value_are_nothing() -> None:
    for value in ([4000, 4100, 4200, 4300], [1, 2, 3] * 5, list(range(0, 250, 7)), ["a", "1"]):
        assert inspect(argument(value)).counts == {}
    assert inspect(argument([85, 92, 78, 91, 66, 73, 80, 95, 88, 79])).counts == {}


def test_digits_that_a_float_has_lost_count_as_unread() -> None:
    long = samples.with_luhn("4" + samples.digits(random.Random(2), 17))
    assert extract({"n": json.loads(f"{long}.0")}).reasons == ("huge-number",)
    for harmless in (1e18, 1.7e18, 0.25, 9007199254740992.0, 1e300, -3e19):
        assert extract({"n": harmless}).reasons == ()


@pytest.mark.parametrize("kind", ["summary_text", "reasoning_text"])
def test_parts_of_a_thought_are_read_as_one(kind: str) -> None:
    parts = [{"type": kind, "text": text} for text in (f"It is {CARD[:9]}", f"{CARD[9:]}.")]
    thought = {"type": "reasoning", "id": "rs_1", "summary": parts}
    assert inspect({"input": [thought]}).counts == {"CREDIT_CARD": 1}


@pytest.mark.parametrize(
    "hidden",
    [
        f"call_a{CARD}",
        f"call_{CARD}b_1",
        "toolu_" + b64(CARD).rstrip("="),
        f"call_{IBAN}",
        "resp_ABCPK1234L",
        "call_AKIA" + samples.token(RANDOM, 16, string.ascii_uppercase + string.digits),
        "ses_AIza" + samples.token(RANDOM, 35),
    ],
)
def test_an_id_that_hides_something_is_read(hidden: str) -> None:
    assert not is_name(hidden)
    called = {"role": "assistant", "tool_calls": [{"id": hidden, "function": {"name": "f"}}]}
    assert inspect({"messages": [called]}).data_class >= DataClass.S3


def test_long_base64_and_hexadecimals_are_read_on_behind_a_cut() -> None:
    words = samples.clean_text(random.Random(4), 3_600)
    for share in (0.3, 0.7, 0.95):
        at = int(len(words) * share)
        said = f"{words[:at]} {CARD} {words[at:]}"
        for begin in range(4):
            for coded in (b64(said), said.encode().hex()):
                content = f"{'x' * begin} {coded}"
                seen = inspect({"messages": [{"role": "user", "content": content}]})
                assert seen.counts.get("CREDIT_CARD")


@pytest.mark.parametrize("padding", [40, 200, 900])
def test_what_nobody_sees_pushes_no_number_over_a_cut(padding: int) -> None:
    value = ("\u200b" * padding).join(CARD)
    for back in (len(value) // 3, len(value) - 100, CHUNK_OVERLAP + 9):
        content = f"{'a word ' * 2_500}"[: CHUNK_LENGTH - back] + f" {value} and so on" * 2
        seen = inspect({"messages": [{"role": "user", "content": content}]})
        assert seen.data_class >= DataClass.S3


def test_more_is_decoded_only_where_something_is_encoded() -> None:
    assert scan("AAAA" * 4_000).complete
    assert scan("=\n" * 8_000).complete
    assert scan("\\n1" * 5_000).complete


@pytest.mark.parametrize("member", ["input", "prompt", "stop", "anything"])
@pytest.mark.parametrize("pieces", [4, 8, 1], ids=["groups", "halves", "digits"])
def test_no_member_of_a_request_takes_a_value_apart_in_a_list(member: str, pieces: int) -> None:
    listed = [CARD[at : at + pieces] for at in range(0, len(CARD), pieces)]
    assert inspect({"model": "m", member: listed}).counts == {"CREDIT_CARD": 1}


def test_groups_with_a_point_are_groups() -> None:
    listed = [float(CARD[at : at + 4]) for at in range(0, len(CARD), 4)]
    assert inspect({"anything": listed}).counts == {"CREDIT_CARD": 1}
