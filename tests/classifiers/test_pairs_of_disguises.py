"""One disguise inside another: what is seen through by itself is seen through behind one, too."""

import base64
import binascii
import gzip
import json
import random
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from classifiers.inspection import inspect
from classifiers.pii.detect import find
from tests.classifiers import samples


RANDOM = random.Random(9)
CARD = samples.with_luhn("4" + samples.digits(RANDOM, 14))
AADHAAR = samples.aadhaar(RANDOM)
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
HINDI = (
    *("\u0936\u0942\u0928\u094d\u092f", "\u090f\u0915", "\u0926\u094b", "\u0924\u0940\u0928"),
    *("\u091a\u093e\u0930", "\u092a\u093e\u0902\u091a", "\u091b\u0939", "\u0938\u093e\u0924"),
    *("\u0906\u0920", "\u0928\u094c"),
)
HAN = "\u3007\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d"
CIRCLES = "\u24ea\u2460\u2461\u2462\u2463\u2464\u2465\u2466\u2467\u2468"

Write = Callable[[str], str]


def groups(value: str) -> list[str]:
    return [value[at : at + 4] for at in range(0, len(value), 4)]


def digits_of(zero: int) -> Write:
    return lambda text: "".join(chr(zero + int(c)) if c in "0123456789" else c for c in text)


def as_json(text: str) -> str:
    """As programs write it that keep to ASCII: what is ASCII stands as it is."""
    return json.dumps(text)[1:-1]


def as_bytes(text: str) -> str:
    """As Python shows bytes."""
    return repr(text.encode())[2:-1]


def utf_16(text: str) -> Iterator[int]:
    data = text.encode("utf-16-be")
    return (int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2))


def uuencoded(text: str) -> str:
    data = text.encode()
    lines = [binascii.b2a_uu(data[at : at + 45]).decode() for at in range(0, len(data), 45)]
    return "".join(["begin 644 a.txt\n", *lines, "`\nend\n"])


WRITTEN: dict[str, Write] = {
    "dashes": lambda value: "-".join(groups(value)),
    "bars": lambda value: " | ".join(groups(value)),
    "lines": lambda value: "\n".join(groups(value)),
    "tags": lambda value: "</b><b>".join(groups(value)),
    "breaks": lambda value: "<br>".join(groups(value)),
    "one by one": " ".join,
    "list of groups": lambda value: json.dumps(groups(value)),
    "list of digits": ", ".join,
    "words": lambda value: " ".join(WORDS[int(char)] for char in value),
    "Hindi words": lambda value: " ".join(HINDI[int(char)] for char in value),
}
INVISIBLE: dict[str, Write] = {
    "zero width": "\u200b".join,
    "soft hyphens": "\u00ad".join,
    "accents": "\u0301".join,
}
SCRIPTS: dict[str, Write] = {
    "full width": lambda text: "".join(
        chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text
    ),
    "Devanagari": digits_of(0x966),
    "Tamil": digits_of(0xBE6),
    "Osmanya": digits_of(0x104A0),
    "bold": digits_of(0x1D7CE),
    "circles": lambda text: "".join(CIRCLES[int(c)] if c in "0123456789" else c for c in text),
    "Han": lambda text: "".join(HAN[int(c)] if c in "0123456789" else c for c in text),
}
ENCODED: dict[str, Write] = {
    "percent": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "escapes": lambda text: "".join(f"\\u{code:04x}" for code in utf_16(text)),
    "bytes in escapes": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "bytes in octal": lambda text: "".join(f"\\{byte:03o}" for byte in text.encode()),
    "JSON": as_json,
    "bytes of Python": as_bytes,
    "entities": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "hexadecimal entities": lambda text: "".join(f"&#x{ord(char):x};" for char in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "gzip": lambda text: base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode(),
    "hexadecimal": lambda text: text.encode().hex(),
    "hexadecimal with colons": lambda text: text.encode().hex(":"),
    "base64 of UTF-16": lambda text: base64.b64encode(text.encode("utf-16")).decode(),
    "base64 of UTF-32": lambda text: base64.b64encode(text.encode("utf-32")).decode(),
    "base64 of UTF-32 that begins high": lambda text: base64.b64encode(
        text.encode("utf-32-be")
    ).decode(),
    "hexadecimal of UTF-32": lambda text: text.encode("utf-32-le").hex(),
    "hexadecimal of UTF-32 that begins high": lambda text: text.encode("utf-32-be").hex(),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "base32 in small letters": lambda text: (
        base64.b32encode(text.encode()).decode().lower().rstrip("=")
    ),
    "base85": lambda text: base64.b85encode(text.encode()).decode(),
    "Ascii85": lambda text: base64.a85encode(text.encode()).decode(),
    "Ascii85 in its frame": lambda text: base64.a85encode(
        text.encode(), adobe=True, wrapcol=40
    ).decode(),
    "uuencode": uuencoded,
    "bits": lambda text: " ".join(f"{byte:08b}" for byte in text.encode()),
    "quoted-printable": lambda text: "".join(f"={byte:02X}" for byte in text.encode()),
    "list of bytes": lambda text: json.dumps(list(text.encode())),
    "tag characters": lambda text: "".join(chr(0xE0000 + ord(char)) for char in text),
}
DISGUISES: Final = {**WRITTEN, **INVISIBLE, **SCRIPTS, **ENCODED}


def goes_around(outer: str, inner: str) -> bool:
    """Whether anybody would read one around the other: groups are of digits, and so are words."""
    if outer in {"JSON", "bytes of Python"} and inner in ENCODED:
        return False  # They leave as it is what is ASCII.
    if outer in WRITTEN:
        return "words" not in outer.lower() and inner in SCRIPTS
    if outer in SCRIPTS:
        # Hindi words and tag characters have nothing that another script could write.
        return inner not in SCRIPTS and inner not in {"Hindi words", "tag characters"}
    if outer == "Ascii85" and (
        inner in SCRIPTS or inner in INVISIBLE or inner in {"Hindi words", "tag characters"}
    ):
        return False  # It reads like anything; in its frame other letters are read, too.
    if outer in INVISIBLE and inner == "Hindi words":
        return False  # Letters of that script join in other ways then.
    return outer != "tag characters" or (
        inner in {**WRITTEN, **ENCODED} and inner not in {"lines", "uuencode", "Hindi words", outer}
    )


PAIRS: Final = [
    (inner, outer) for outer in DISGUISES for inner in DISGUISES if goes_around(outer, inner)
]


def labels_behind(value: str, inner: str, outer: str) -> set[str]:
    said = DISGUISES[outer](DISGUISES[inner](value))
    content = f"please look at my number {said} and tell me more"
    return set(inspect({"messages": [{"role": "user", "content": content}]}).counts)


@pytest.mark.parametrize(("inner", "outer"), PAIRS)
def test_a_card_is_found_behind_two_disguises(inner: str, outer: str) -> None:
    assert "CREDIT_CARD" in labels_behind(CARD, inner, outer)


@pytest.mark.parametrize(
    ("inner", "outer"),
    # Three numbers in a column may be anything.
    [(inner, outer) for inner, outer in PAIRS if "lines" not in {inner, outer}],
)
def test_an_aadhaar_is_found_behind_two_disguises(inner: str, outer: str) -> None:
    # Among the numbers of a long encoding there may be one that looks like a card's.
    assert {"IN_AADHAAR", "CREDIT_CARD"} & labels_behind(AADHAAR, inner, outer)


@pytest.mark.parametrize("mark", ["", "\u200b", "\u0301"])
def test_what_is_read_in_other_letters_keeps_its_place(mark: str) -> None:
    hidden = mark.join(DISGUISES["full width"](DISGUISES["percent"](CARD)))
    text = f"\u00e9t\u00e9 {hidden} \u00e9t\u00e9"
    found = [(f.label, text[f.start : f.end]) for f in find(text)]
    assert found == [("CREDIT_CARD", hidden)]


def test_other_letters_beside_an_encoding_hide_it_not() -> None:
    # Folded to ASCII the letter is a part of the run, and the run is none.
    for letter in "\u00e9\u0430\uff41":
        text = f"please look at {letter}{DISGUISES['hexadecimal'](CARD)}{letter} and more"
        assert [finding.label for finding in find(text)] == ["CREDIT_CARD"]


@pytest.mark.parametrize(
    "text",
    [
        r"caf\xe9, na\xc3\xafve, \303\251t\303\251 \u4e00\u4e8c\u4e09 \u200b\u200d \u0a66 1\u2060",
        "\uff1c\uff42\uff1e12\uff1c\uff0f\uff42\uff1e 100\uff05 \uff06amp; caf\u00e9%C3%A9",
        "f09f9880f09f9880f09f9880 e4bda0e5a5bde4b896e7958c caf\u00e9deadbeefcafebabe",
    ],
)
def test_letters_of_other_languages_are_no_numbers(text: str) -> None:
    assert find(text) == ()
