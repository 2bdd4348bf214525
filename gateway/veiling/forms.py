"""Forms of words to search for: a request's values, and surrogates as models write them.

A model may write a name in capitals, in the possessive (German's "Ashgroves"), between Markdown
marks, or within JSON. Text that stands for nobody's value stays as it is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec


HELD_BACK_MAX: Final = 256
_DIGIT = re.compile(r"\d")
_LETTER = re.compile(
    r"[^\W\d_\u0e00-\u0eff\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc]"
)
"""Letters of scripts that separate words; those of Thailand and the Far East do not."""
_MIXED = re.compile(r"(?=\D*\d)(?=[\W\d_]*[^\W\d_])\S+")
"""Keys and names made of letters and digits; either may continue the other."""
_SEVERAL = re.compile(r"\s|\d")
"""Several words, or one with a digit: a single name in small letters may be any word."""
_NAME = re.compile(r"[^\W\d_]+(?:[ '\-][^\W\d_]+)*")
_GROUPED = re.compile(r"[+(]*[0-9](?:[ .\-/()]{0,3}[0-9]){8,18}")
_NO_DIGIT = re.compile("[^0-9+]")
_BETWEEN = re.compile(r"(?<=[0-9])[ .\-]{1,2}(?=[0-9])")
_MARKS: Final = (" ", "-", ".", "\u00a0", "\u202f", "\u2011", "\u2013")
"""Separators of digit groups; some models write blanks and dashes that allow no line break."""
_CODE = re.compile(r"(?=(?:\D*\d){6})[A-Z0-9]+(?:[ \-]?[A-Z0-9]+)*")
_CODE_BETWEEN = re.compile(r"[ \-]")
_WORDS_MAX: Final = 7
_FOUR = re.compile("[A-Z0-9]{1,4}")
_JOINED: Final = ("", ".", "_", "-")
_IN_FOURS: Final = frozenset({12, 16})
_BEGINNING_LENGTH: Final = 4
_SIBILANTS: Final = "s\u00dfxz"


class Words:
    """Finds whole words in texts, the longest first.

    A number next to letters is a word of its own, and so is a word next to an underscore:
    `card4111…`, `_Ingrid_`.
    """

    __slots__ = ("_any", "_lengths", "_words")

    def __init__(self, words: Iterable[str]) -> None:
        self._words = frozenset(filter(None, words))
        self._lengths = sorted({len(word) for word in self._words}, reverse=True)
        # Only beginnings of words, and no look-around: a thousand whole words take long to compile.
        beginnings = sorted({word[:_BEGINNING_LENGTH] for word in self._words})
        self._any = re.compile("|".join(map(re.escape, beginnings)) or r"(?!)")

    def __repr__(self) -> str:
        return f"Words(count={len(self._words)})"

    def places(self, text: str, first: int = 0) -> Iterator[tuple[int, int, str]]:
        """Start, end and word of each, in order; none begins before `first`."""
        while (match := self._any.search(text, first)) is not None:
            start = match.start()
            end = self._end(text, start)
            if end:
                yield start, end, text[start:end]
            first = end or start + 1

    def _end(self, text: str, start: int) -> int:
        """Where the longest word that begins there ends; 0 if none does."""
        if start and joins(text[start - 1], text[start]):
            return 0
        for length in self._lengths:
            end = start + length
            is_one = end <= len(text) and text[start:end] in self._words
            if is_one and not joins(text[end : end + 1], text[end - 1]):
                return end
        return 0


class Forms(msgspec.Struct, frozen=True):
    """Forms of surrogates, the value of each, and what a stream must know about them."""

    values: Mapping[str, str]
    words: Words
    beginnings: frozenset[str]
    longest: int

    def __repr__(self) -> str:
        return f"Forms(count={len(self.values)})"


def forms_of(values: Mapping[str, str]) -> Forms:
    """All forms of surrogates; if a form is itself a surrogate, it stands for that one's value."""
    told = [*values.items()]
    for chosen, value in values.items():
        told += _changed(chosen, value)
    found: dict[str, str] = {}
    for form, said in told:
        for written in _in_programs(form):
            found.setdefault(written, said)
    for form in [form for form in found if len(form) > HELD_BACK_MAX]:
        del found[form]
    beginnings = frozenset(form[:size] for form in found for size in range(1, len(form) + 1))
    return Forms(found, Words(found), beginnings, max(map(len, found), default=0))


def _in_programs(form: str) -> Iterator[str]:
    """As it is, and in JSON as programs in several languages write it."""
    yield form
    yield in_json(form)
    if "/" in form:
        yield in_json(form).replace("/", "\\/")
    if not form.isascii():
        yield _escaped(form, "04x")
        yield _escaped(form, "04X")


def _changed(chosen: str, value: str) -> Iterator[tuple[str, str]]:
    """In capitals, in small letters, grouped differently, over two lines, and in the genitive.

    The value is changed in the same way.
    """
    yield chosen.upper(), value.upper()
    if _SEVERAL.search(chosen):
        yield chosen.lower(), value.lower()
    if _GROUPED.fullmatch(chosen):
        yield _NO_DIGIT.sub("", chosen), _NO_DIGIT.sub("", value)
        for mark in _MARKS:
            yield _BETWEEN.sub(mark, chosen), _BETWEEN.sub(mark, value)
    elif _CODE.fullmatch(chosen):
        yield from _grouped_anew(chosen, value)
    yield from _over_lines(chosen, value)
    yield from _in_addresses(chosen, value)
    for mark in " -" if chosen.isdecimal() and len(chosen) in _IN_FOURS else "":
        yield mark.join(_FOUR.findall(chosen)), mark.join(_FOUR.findall(value))
    if _NAME.fullmatch(chosen):
        whose = f"{value}'" if value[-1:].lower() in _SIBILANTS else f"{value}s"
        yield f"{chosen}s", whose
        yield f"{chosen.upper()}S", whose.upper()


def _grouped_anew(chosen: str, value: str) -> Iterator[tuple[str, str]]:
    """Letters and digits, such as an IBAN's, ungrouped and in the groups of an IBAN."""
    plain, meant = _CODE_BETWEEN.sub("", chosen), _CODE_BETWEEN.sub("", value)
    yield plain, meant
    yield plain.lower(), meant.lower()
    for mark in (" ", "\u00a0", "\u202f"):
        yield mark.join(_FOUR.findall(plain)), mark.join(_FOUR.findall(meant))


def _in_addresses(chosen: str, value: str) -> Iterator[tuple[str, str]]:
    """A name as part of an address, and an address as part of a link or of Markdown."""
    words, said = chosen.split(" "), value.split(" ")
    if len(words) == len(said) > 1 and _NAME.fullmatch(chosen) and _NAME.fullmatch(value):
        yield "".join(words), "".join(said)
        for mark in _JOINED:
            yield mark.join(words).lower(), mark.join(said).lower()
    if "@" in chosen:
        yield quote(chosen, safe=""), quote(value, safe="")
        yield chosen[:1].upper() + chosen[1:], value[:1].upper() + value[1:]
    elif "_" in chosen:
        yield chosen.replace("_", "\\_"), value.replace("_", "\\_")


def _over_lines(chosen: str, value: str) -> Iterator[tuple[str, str]]:
    """With a line break, or a non-breaking blank, in place of one of its blanks.

    If the value has as many words, its break is in the same place, since these may be separate
    lines.
    """
    words, said = chosen.split(" "), value.split(" ")
    if not 1 < len(words) <= _WORDS_MAX:
        return
    yield "\u00a0".join(words), "\u00a0".join(said)
    if len(words) == len(said):
        yield from zip(_lines(words), _lines(said), strict=True)
    elif not _NAME.fullmatch(chosen):
        yield from ((lines, value) for lines in _lines(words))


def _lines(words: Sequence[str]) -> Iterator[str]:
    for at in range(1, len(words)):
        yield f"{' '.join(words[:at])}\n{' '.join(words[at:])}"


def _kind_of(char: str) -> str:
    """What must not stand next to a character at which a word begins or ends."""
    if _DIGIT.match(char):
        return _DIGIT.pattern
    return _LETTER.pattern if _LETTER.match(char) else ""


def whole_place(text: str, start: int, end: int) -> tuple[int, int]:
    """Extend a place to the whole word or number at its beginning and end.

    A finding may be only a part of one, such as the first hundred characters of a key: as only
    whole words are replaced, the rest would leave.
    """
    first, last = _kind_of(text[start : start + 1]), _kind_of(text[end - 1 : end])
    if _MIXED.fullmatch(text, start, end):
        first = last = rf"(?:{_DIGIT.pattern}|{_LETTER.pattern})"
    while first and start and re.match(first, text[start - 1]):
        start -= 1
    while last and end < len(text) and re.match(last, text[end]):
        end += 1
    return start, end


def in_json(value: str) -> str:
    """A value as it stands inside a JSON string."""
    return msgspec.json.encode(value).decode()[1:-1]


def joins(char: str, other: str) -> bool:
    """Whether two adjacent characters belong to one word or number."""
    kind = _kind_of(other)
    return bool(kind and char) and re.match(kind, char) is not None


def _escaped(text: str, code_as: str) -> str:
    """Pure ASCII JSON, as many models write it."""
    units = text.encode("utf-16-be")
    return "".join(
        chr(code) if code < 0x80 else f"\\u{code:{code_as}}"  # noqa: PLR2004 - ASCII.
        for code in (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    )
