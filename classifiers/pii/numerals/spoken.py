"""Numbers in words, as they are said, in English, Hindi, German, French and Spanish."""

import re
from collections.abc import Iterator
from itertools import dropwhile, pairwise, product
from typing import Final

from classifiers.pii.findings import Finding
from classifiers.pii.numerals import validators
from classifiers.pii.views.decoded import Change, Decoded


_DIGIT_WORDS = {
    "zero": "0", "oh": "0", "nought": "0", "one": "1", "two": "2", "three": "3", "four": "4",
    "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10", "eleven": "11",
    "twelve": "12", "thirteen": "13", "fourteen": "14", "fifteen": "15", "sixteen": "16",
    "seventeen": "17", "eighteen": "18", "nineteen": "19",
    "shunya": "0", "sifar": "0", "ek": "1", "do": "2", "teen": "3", "char": "4", "chaar": "4",
    "paanch": "5", "panch": "5", "chhe": "6", "chhah": "6", "cheh": "6", "saat": "7", "aath": "8",
    "nau": "9", "null": "0", "eins": "1", "zwei": "2", "zwo": "2", "drei": "3", "vier": "4",
    "sechs": "6", "sieben": "7", "acht": "8", "neun": "9", "fuenf": "5", "f\u00fcnf": "5",
    "z\u00e9ro": "0", "un": "1", "une": "1", "deux": "2", "trois": "3",
    "quatre": "4", "cinq": "5", "sept": "7", "huit": "8", "neuf": "9", "cero": "0", "uno": "1",
    "dos": "2", "tres": "3", "cuatro": "4", "cinco": "5", "seis": "6", "siete": "7", "ocho": "8",
    "nueve": "9",
    "\u0936\u0942\u0928\u094d\u092f": "0", "\u091c\u093c\u0940\u0930\u094b": "0",
    "\u090f\u0915": "1", "\u0926\u094b": "2", "\u0924\u0940\u0928": "3", "\u091a\u093e\u0930": "4",
    "\u092a\u093e\u0902\u091a": "5", "\u092a\u093e\u0901\u091a": "5", "\u091b\u0939": "6",
    "\u091b\u0903": "6", "\u091b\u0947": "6", "\u0938\u093e\u0924": "7", "\u0906\u0920": "8",
    "\u0928\u094c": "9",
}  # fmt: skip
_TENS = {
    "twenty": "2", "thirty": "3", "forty": "4", "fourty": "4", "fifty": "5", "sixty": "6",
    "seventy": "7", "eighty": "8", "ninety": "9",
}  # fmt: skip
_TIMES = {"double": 2, "triple": 3, "treble": 3, "quadruple": 4}
# One letter that is a word of its own begins or ends no number.
_SINGLE = frozenset("aiAI")
_FILLERS = frozenset(("dash", "hyphen", "space", "and", "then", "uh", "um"))
_ALSO_WORDS = frozenset(("null", "un", "une"))
"""Words of many texts: they are digits only beside others."""
_LONGEST_GAP = 12
_LONGEST_SAID = 4
_SAID = " \t\n,.-"
"""Between words as spoken, or written in a row; a longer gap, or quotes, mean a list."""
_MARKS = f"{_SAID}\"'\\"
_SPOKEN = "|".join(
    sorted((*_DIGIT_WORDS, *_TENS, *_TIMES, *_FILLERS), key=lambda word: (-len(word), word))
)
_SPELLED = re.compile(
    rf"(?<![\w])(?:{_SPOKEN}|[0-9]{{1,4}}|[A-Za-z])(?![\w\u0900-\u097f])", re.IGNORECASE
)
_LEAST_SPELLED: Final = 3
_STRAY_MAX: Final = 2


def spelled_digits(text: str) -> Iterator[Change]:
    """Runs of number words, with digits among them, as the digits they say."""
    run: list[re.Match[str]] = []
    for match in _SPELLED.finditer(text):
        gap = text[run[-1].end() : match.start()] if run else ""
        if run and (len(gap) > _LONGEST_GAP or gap.strip(_MARKS)):
            yield from _in_run(text, run)
            run = []
        if run or not _is_beside(match):
            run.append(match)
    yield from _in_run(text, run)


def _in_run(text: str, run: list[re.Match[str]]) -> Iterator[Change]:
    """A run as a number; from a list, the number that a check digit proves, otherwise its items.

    Programs have lists of number words, and their length says nothing.
    """
    ends = [
        at for at in range(1, len(run)) if not _is_said(text[run[at - 1].end() : run[at].start()])
    ]
    found = [*_spelled_run(text, run)]
    if not ends or any(_is_proved(digits) for _, _, digits in found):
        yield from found
        return
    for first, end in pairwise((0, *ends, len(run))):
        yield from _spelled_run(text, [*dropwhile(_is_beside, run[first:end])])


def _is_said(gap: str) -> bool:
    return len(gap) <= _LONGEST_SAID and not gap.strip(_SAID)


def _is_proved(digits: str) -> bool:
    """Whether they are a card's or an Aadhaar's, with up to two stray digits at either end."""
    ends = product(range(_STRAY_MAX + 1), range(len(digits) - _STRAY_MAX, len(digits) + 1))
    some = (digits[start:end] for start, end in ends)
    return any(validators.card(each) or validators.aadhaar(each) for each in some)


def _is_beside(match: re.Match[str]) -> bool:
    """Whether it can neither begin nor end a number."""
    return match[0].lower() in _FILLERS or match[0] in _SINGLE


def _spelled_run(text: str, run: list[re.Match[str]]) -> Iterator[Change]:
    while run and _is_beside(run[-1]):
        run.pop()
    if sum(map(_is_digit_word, run)) < _LEAST_SPELLED:
        return
    digits: list[str] = []
    times, tens = 1, ""
    for match in run:
        word = match[0].lower()
        if word in _TIMES:
            times = _TIMES[word]
            continue
        single = len(word) == 1 or word.isdigit()
        said = _DIGIT_WORDS.get(word) or (match[0] if single else "")
        if tens and not (len(said) == 1 and said != "0"):
            digits.append(tens + "0")
            tens = ""
        if word in _TENS:
            tens = _TENS[word]
        elif said:
            digits.append((tens + said) * times)
            tens, times = "", 1
    if tens:
        digits.append(tens + "0")
    # "HDFC zero nine three" and "six nine Q": capitals beside the run are the same identifier.
    start, end = run[0].start(), run[-1].end()
    before, after = (
        _CAPITALS_BEFORE.search(text, max(0, start - 8), start),
        _CAPITALS.match(text, end),
    )
    yield start - bool(before), end + bool(after), "".join(digits)


def _is_digit_word(match: re.Match[str]) -> bool:
    word = match[0].lower()
    return len(word) > 1 and not word.isdigit() and word not in _ALSO_WORDS


_CAPITALS_BEFORE = re.compile(r"[A-Z0-9][ \-]\Z")
_CAPITALS = re.compile(r"[ \-][A-Z0-9]{1,4}(?![a-z])")

_BY_LENGTH = {9: "US_SSN", 10: "PHONE", 11: "PHONE", 12: "IN_AADHAAR", 13: "PHONE"}
_BY_LENGTH |= dict.fromkeys(range(14, 20), "CREDIT_CARD")


def spelled_out(decoded: Decoded) -> list[Finding]:
    """A spelled number always means something: its length alone says what it may be.

    Except if it only counts, from zero or one.
    """
    return [
        Finding(place, place + length, _BY_LENGTH.get(length, "NATIONAL_ID"), 0.5, "spelled")
        for place, length in zip(decoded.places, decoded.lengths, strict=True)
        if length >= _LEAST_IDENTIFIER
        and (said := decoded.text[place : place + length]).isdigit()
        and not _COUNTED.startswith((said, f"0{said}"))
    ]


_LEAST_IDENTIFIER = 7
_COUNTED: Final = "".join(map(str, range(20)))

_OTHER_SCRIPT = "|".join(word for word in _DIGIT_WORDS if not word.isascii())
# One alone is "a" or "two"; a number that is said has several in a row.
_OTHER_SCRIPT_DIGITS = re.compile(
    rf"(?:{_OTHER_SCRIPT})[ \t\n,.\-\"'\\0-9A-Za-z]{{1,12}}(?:{_OTHER_SCRIPT})"
)
_WORD_DIGIT = "|".join(word for word in _DIGIT_WORDS if word.isascii())
SPOKEN_TRIGGER: Final = (
    rf"(?i)\b(?:{_WORD_DIGIT})[ ,.\-\"'\\]{{1,12}}(?:{_WORD_DIGIT}|{'|'.join((*_TENS, *_TIMES))})\b"
)


def says_digits(text: str) -> bool:
    """Whether number words of a script other than Latin occur."""
    return _OTHER_SCRIPT_DIGITS.search(text) is not None
