"""Decodes disguised text as a reader or a program would, into further views with offset maps.

A view only ever adds findings. Each disguise has a trigger for the gate; if the trigger does not
occur, nothing is decoded. All of them read the text once, and decode at most a bounded amount.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

import re2
from msgspec import Struct

from classifiers.pii import columns, html_tables
from classifiers.pii.credentials.called import called, is_called
from classifiers.pii.credentials.pins_elsewhere import called_pins, is_called_pin
from classifiers.pii.findings import Finding
from classifiers.pii.gate import options
from classifiers.pii.numerals import boxed, broken, torn
from classifiers.pii.numerals.number_signs import apart, stands_at_a_number
from classifiers.pii.numerals.scattered import TRIGGER, scattered
from classifiers.pii.numerals.spoken import SPOKEN_TRIGGER, says_digits, spelled_digits, spelled_out
from classifiers.pii.patterns import UPI_HANDLES
from classifiers.pii.views import bases, encodings, rotated
from classifiers.pii.views.decoded import Change, Decoded


ROUNDS_MAX: Final = 3
TAGS: Final = "tags"
SCATTERED: Final = "scattered"
BOXED: Final = "boxed"
MARKUP: Final = "markup"
SPELLED: Final = "spelled"
BARS: Final = "bars"
COLUMNS: Final = "columns"
SIBLINGS: Final = "siblings"
CALLED: Final = "called"
CELLS: Final = "cells"
SIGNS: Final = "signs"
BROKEN: Final = "broken"
PIN: Final = "pin"
_READ_INSIDE: Final = frozenset(
    {SCATTERED, BOXED, MARKUP, SPELLED, BARS, COLUMNS, SIBLINGS, CALLED, CELLS, SIGNS, BROKEN, PIN}
)


def _nothing_more(decoded: Decoded) -> list[Finding]:  # noqa: ARG001 - the shape of `also`.
    return []


class Disguise(Struct, frozen=True):
    """One way of hiding. `trigger` is for the gate over the ASCII view, "" for other scripts."""

    name: str
    trigger: str
    changes: Callable[[str], Iterator[Change]]
    # Whether names can be hidden so; numbers and addresses of mail always can.
    hides_words: bool = False
    # Whether `changes` reads the ASCII view instead of the text itself.
    on_ascii: bool = False
    needs_digits: bool = False
    # Whether it is found only where so much stands without a blank as in no word.
    needs_token: bool = False
    least: float = 0.0
    # Findings that the disguise itself makes.
    also: Callable[[Decoded], list[Finding]] = _nothing_more
    # In a text as it came another one reads more.
    is_only_inside: bool = False
    # Whether it occurs in a text that is not ASCII: the gate reads what is left of it in ASCII.
    occurs: Callable[[str], bool] | None = None

    @property
    def is_anywhere(self) -> bool:
        """Whether its trigger is looked for in every text."""
        return not self.needs_digits and not self.needs_token

    @property
    def is_read_inside(self) -> bool:
        """Whether it is also looked for in text that another disguise hid."""
        return self.hides_words or self.name in _READ_INSIDE


_INLINE = re.compile(
    r"</?(?:a|b|i|u|s|em|ins|sub|sup|wbr|code|font|mark|span|small|strong)(?:\s[^<>]{0,200})?/?>"
    r"|<!--[^<>]{0,200}-->|<br ?/?>|\x1b\[[0-9;]{0,16}m",
    re.IGNORECASE,
)
_TAG_BASE: Final = 0xE0000
_TAG = re.compile("[\U000e0020-\U000e007e]")
# Other marks that nobody sees may stand between them.
_TAGS = re.compile(
    "(?:[\U000e0020-\U000e007e]"
    "[\u00ad\u0300-\u036f\u200b-\u200f\u2060-\u206f\ufe00-\ufe0f\ufeff]*){4,}"
)


_STRESSED = re.compile(r"(\*\*|__|`)([0-9](?:[0-9 .\-]{0,24}[0-9])?)\1")


def _markup(text: str) -> Iterator[Change]:
    """Tags and colours within a line, and marks of Markdown around a part of a number."""
    found: list[Change] = [
        (match.start(), match.end(), " " if match[0][1:3].lower() == "br" else "")
        for match in _INLINE.finditer(text)
    ]
    for match in _STRESSED.finditer(text):
        found += ((match.start(), match.start(2), ""), (match.end(2), match.end(), ""))
    yield from sorted(found)


def _tags(text: str) -> Iterator[Change]:
    """Letters that no reader sees and many models read: tag characters of Unicode."""
    for match in _TAGS.finditer(text):
        yield match.start(), match.end(), _said_by(match[0])


def _said_by(tags: str) -> str:
    return "".join(chr(ord(char) - _TAG_BASE) for char in tags if ord(char) > _TAG_BASE)


def _has_tags(text: str) -> bool:
    return _TAG.search(text) is not None


_AT = r"(?:[ ]?[\[({<][ ]?(?:at|@|arroba)[ ]?[\])}>][ ]?|[ ]+at[ ]+|[ ]*@[ ]*)"
_DOT = r"(?:[ ]?[\[({<][ ]?(?:dot|\.)[ ]?[\])}>][ ]?|[ ]+(?:dot|punkt|punto|point)[ ]+|\.)"
_JOIN = rf"(?:{_DOT}|[ ]+(?:underscore|dash|hyphen|plus|minus)[ ]+)"
_SPELLED_EMAIL = re2.compile(
    rf"(?i)\b([a-z0-9][a-z0-9._%+\-]{{0,40}}(?:{_JOIN}[a-z0-9_\-+]{{1,30}}){{0,3}})({_AT})"
    rf"([a-z0-9\-]{{2,40}}(?:{_DOT}[a-z0-9\-]{{2,24}}){{1,3}})\b".encode(),
    options(),
)
_WORD_MARKS = {
    "dot": ".", "punkt": ".", "punto": ".", "point": ".", "at": "@", "arroba": "@",
    "underscore": "_", "dash": "-", "hyphen": "-", "minus": "-", "plus": "+",
}  # fmt: skip
_MARK = re.compile(
    r"[ ]?[\[({<][ ]?(dot|at|arroba|[.@])[ ]?[\])}>][ ]?"
    r"|[ ]+(dot|punkt|punto|point|at|underscore|dash|hyphen|minus|plus)[ ]+"
    r"|[ ]*(@)[ ]*",
    re.IGNORECASE,
)
_UPI_AT = re.compile(
    rf"(?<=[A-Za-z0-9]) ?[\[({{<]? ?at ?[\])}}>]? ?(?=(?:{UPI_HANDLES})(?![\w.]))", re.IGNORECASE
)
_MAIL_HOSTS = (
    "gmail", "googlemail", "yahoo", "outlook", "hotmail", "live", "rediffmail", "proton",
    "protonmail", "icloud", "gmx", "web", "mail", "aol", "zoho", "yandex", "ymail", "msn",
)  # fmt: skip
_TOP_DOMAINS = frozenset(
    """
    com org net edu gov in co uk de fr es it nl pl se no dk fi pt br us ca au io ai dev app info
    biz me eu ch at be ie jp cn ru za sg ae nz mx ar
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
)


def _payment_handles(text: str) -> Iterator[Change]:
    for match in _UPI_AT.finditer(text):
        if match[0].lower() != "at":
            yield match.start(), match.end(), "@"


def _spelled_emails(text: str) -> Iterator[Change]:
    """`text` is ASCII. A plain " at " needs a spelled dot, or a mailbox host after it."""
    for match in _SPELLED_EMAIL.finditer(text.encode("ascii", "replace")):
        local, mark, host = (part.decode("ascii") for part in match.groups())
        plain = mark.strip().lower() == "at"
        spelled_dot = " " in host or any(char in host for char in "[({<")
        if mark == "@" and not spelled_dot and " " not in local and "[" not in local:
            continue
        bare = _unspelled(host)
        if bare.rpartition(".")[2].lower() not in _TOP_DOMAINS:
            continue
        if plain and not spelled_dot and bare.partition(".")[0].lower() not in _MAIL_HOSTS:
            continue
        yield match.start(), match.end(), f"{_unspelled(local)}@{bare}"


def _unspelled(text: str) -> str:
    return _MARK.sub(lambda m: _mark_of(m[1] or m[2] or m[3]), text)


def _mark_of(word: str) -> str:
    return _WORD_MARKS.get(word.lower(), word)


_SPACED = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z0-9] ){5,60}[A-Za-z0-9](?![A-Za-z0-9])")
_ODD = re.compile(r"[A-Za-z0-9]{1,8}(?: ?[_|*~+=#\\\u2022] ?[A-Za-z0-9]{1,8}){1,24}")
_BARRED = re.compile(r"(?<![0-9])[0-9]{1,8}(?: ?[_|*~+#\\\u2022] ?[0-9]{1,8}){1,24}(?![0-9])")
_LISTED = re.compile(r"[A-Z0-9]{1,8}(?:[,:;./\-] ?[A-Z0-9]{1,8}){1,24}(?![a-z])")


def _spaced_out(text: str) -> Iterator[Change]:
    """Join single characters with digits among them, as in `H D F C 0 9 3`."""
    for match in _SPACED.finditer(text):
        if sum(map(str.isdigit, match[0])) >= _LEAST_DIGITS:
            yield match.start(), match.end(), match[0].replace(" ", "")


def _odd_separators(text: str) -> Iterator[Change]:
    """Groups of letters and digits, separated by marks that no identifier has."""
    yield from _glued(_ODD, text, numbers=True)


def _bars(text: str) -> Iterator[Change]:
    """Those marks between groups of digits only, if the text beside them is separate."""
    yield from _glued(_BARRED, text, numbers=True)


def _other_separators(text: str) -> Iterator[Change]:
    """The same with marks of lists, dates and versions: only for letters with digits."""
    yield from _glued(_LISTED, text, numbers=False)


def _glued(pattern: re.Pattern[str], text: str, *, numbers: bool) -> Iterator[Change]:
    for match in pattern.finditer(text):
        glued = "".join(filter(str.isalnum, match[0]))
        digits = sum(map(str.isdigit, glued))
        mixed = _LEAST_DIGITS + 2 < digits < len(glued)
        fours = (
            digits == len(glued)
            and len(match[0].split()) in {1, len(glued) // 4}
            and all(len(group) == _CARD_GROUP for group in _GROUP.findall(match[0]))
        )
        if digits >= _LEAST_DIGITS and (numbers or mixed or fours):
            yield match.start(), match.end(), glued


_LEAST_DIGITS = 4
_CARD_GROUP = 4
_GROUP = re.compile("[0-9]+")
DISGUISES: Final = (
    Disguise("entity", r"&(?:#[0-9xX]|[a-z]{2,8};)", encodings.entities, hides_words=True),
    Disguise(
        "percent",
        r"%[2-7][0-9A-Fa-f]|%[C-Fc-f][0-9A-Fa-f]%|[0-9]%0[0-9A-Da-d]|%0[9ADad][0-9]",
        encodings.percents,
        hides_words=True,
    ),
    Disguise("escape", encodings.ESCAPES, encodings.escapes, hides_words=True),
    Disguise("quoted", encodings.QUOTED, encodings.quoted, hides_words=True),
    Disguise(
        "base64",
        r"[a-z0-9][A-Z][A-Za-z0-9+/_\-=]{7}|[A-Za-z0-9+/_\-]{7}[a-z0-9][A-Z]",
        encodings.in_base64,
        hides_words=True,
    ),
    Disguise("base32", bases.BASE32, bases.in_base32, hides_words=True),
    Disguise("base85", bases.BASE85, bases.in_base85, hides_words=True, needs_token=True),
    Disguise("uuencode", bases.UUENCODED, bases.uuencoded, hides_words=True),
    Disguise("bits", bases.BITS, bases.in_bits, hides_words=True, needs_digits=True),
    Disguise("rot13", rotated.TRIGGER, rotated.rotated),
    Disguise("hex", encodings.HEX, encodings.hexadecimal, hides_words=True),
    Disguise("codes", encodings.CODES, encodings.codes, hides_words=True, needs_digits=True),
    # The ASCII view of a text has no NUL.
    Disguise(TAGS, r"\x00", _tags, hides_words=True, occurs=_has_tags),
    Disguise(CALLED, r"\x00", called, occurs=is_called),
    Disguise(PIN, r"\x00", called_pins, occurs=is_called_pin),
    Disguise(SIGNS, r"\x00", apart, occurs=stands_at_a_number),
    Disguise(
        MARKUP,
        r"(?i)[0-9](?:</?[a-z]|<!--|\x1b\[)|[0-9](?:\*\*|__|`)[ .\-]?[0-9]"
        r"|[0-9][ .\-]?(?:\*\*|__|`)[0-9]",
        _markup,
    ),
    Disguise(COLUMNS, columns.TRIGGER, columns.columns, on_ascii=True),
    Disguise(CELLS, html_tables.TRIGGER, html_tables.in_html, on_ascii=True),
    Disguise(SCATTERED, TRIGGER, scattered, on_ascii=True, needs_digits=True, least=0.5),
    Disguise(BOXED, boxed.TRIGGER, boxed.boxed, on_ascii=True, least=0.5),
    Disguise(BROKEN, broken.TRIGGER, broken.broken, on_ascii=True, needs_digits=True, least=0.5),
    Disguise(SIBLINGS, torn.TRIGGER, torn.siblings, on_ascii=True, needs_digits=True, least=0.5),
    Disguise(
        "at-dot",
        r"(?i)(?:[\[({<][ ]?(?:at|@|arroba)[ ]?[\])}>]|[ ]at[ ]|@)[a-z0-9\- ]{2,42}"
        r"(?:[\[({<]|[ ](?:dot|punkt|punto|point)[ ])"
        rf"|[ ]at[ ]+(?:{'|'.join(_MAIL_HOSTS)})\.[a-z]|[ ]@|@[ ]"
        r"|[ ](?:dot|underscore)[ ]+[a-z0-9]{1,30}[ ]*@",
        _spelled_emails,
        on_ascii=True,
    ),
    Disguise(
        "at-handle",
        rf"(?i)[a-z0-9][ \[({{<]{{1,2}}at[ \])}}>]{{1,2}}(?:{UPI_HANDLES})\b",
        _payment_handles,
    ),
    Disguise(
        SPELLED,
        SPOKEN_TRIGGER,
        spelled_digits,
        also=spelled_out,
        occurs=says_digits,
    ),
    Disguise("spaced", r"\b[A-Za-z0-9] (?:[A-Za-z0-9] ){5}", _spaced_out, needs_digits=True),
    Disguise(
        "separators",
        r"[0-9] ?[_|*~+=#\\] ?[A-Za-z0-9]{1,8}",
        _odd_separators,
        on_ascii=True,
        needs_digits=True,
        least=0.55,
    ),
    Disguise(
        BARS,
        r"[0-9] ?[_|*~+#\\] ?[0-9]{1,8}",
        _bars,
        on_ascii=True,
        needs_digits=True,
        least=0.55,
        is_only_inside=True,
    ),
    Disguise(
        "listed",
        r"[A-Z0-9]{2}[,:;./\-] ?[A-Z0-9]{1,8}[,:;./\-]? ?[A-Z0-9]",
        _other_separators,
        on_ascii=True,
        needs_digits=True,
        least=0.7,
    ),
)
