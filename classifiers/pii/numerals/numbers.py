"""Judges runs of digits: which identifier, if any, each group of a run can be.

A run is found once ("+49 40 4084502", "7 0 7 3 8 0 9 7 7"); then every window of its groups is
tested against the rules for its length. The nearest context word decides between rules that fit.
"""

# ruff: noqa: PLR2004 - the numbers here are those of the identifiers themselves.

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from msgspec import Struct

from classifiers.pii.labels import data_class_of
from classifiers.pii.numerals import validators
from classifiers.pii.numerals.rows import is_stretch


# At most 41 digits with at most three separators between two: a bounded read per candidate.
RUN = r"[+(]{0,2}[0-9](?:[ .\-/()\t]{0,3}[0-9]){6,40}"
RUN_GATE = r"[0-9](?:[ .\-/()\t]{0,3}[0-9]){6}"
CONTEXT_BEFORE_LENGTH = 56
CONTEXT_AFTER_LENGTH = 10
_GROUPS = re.compile(r"[0-9]+")  # Applied to one run of at most 170 characters only.
_HUMP = re.compile("(?<=[a-z])(?=[A-Z])")
_MAX_GROUPS = 9
_LONGEST_IDENTIFIER = 19
_SPELLED_LENGTHS = (19, 16, 15, 14, 13, 12, 11, 10, 9)


class NumberRule(Struct, frozen=True):
    """An identifier of digits only; `bare` is the score without a context word, 0 = needs one."""

    label: str
    lengths: frozenset[int]
    bare: float
    with_context: float
    words: tuple[str, ...]
    accepts: Callable[[str], bool] | None = None
    # Group lengths that speak for themselves: they score `shaped` without a context word.
    shapes: frozenset[tuple[int, ...]] = frozenset()
    shaped: float = 0.0


class Number(Struct, frozen=True):
    """A judged window: offsets inside the run, label and score."""

    start: int
    end: int
    label: str
    score: float


def _range(low: int, high: int) -> frozenset[int]:
    return frozenset(range(low, high + 1))


_AADHAAR_WORDS = ("aadhaar", "aadhar", "adhar", "uidai", "\u0906\u0927\u093e\u0930")
_PHONE_WORDS = (
    "phone", "mobil", "call", "cell", "tel", "fax", "whatsapp", "sms", "reach", "contact", "desk",
    "my number is", "dial", "handy", "telefon", "numero", "rufnummer", "appele", "joindre",
)  # fmt: skip
# The same in other scripts: Hindi, Russian, Chinese, Japanese, Korean, Arabic.
_PHONE_WORDS_ELSEWHERE = (
    "\u092b\u094b\u0928", "\u092e\u094b\u092c\u093e\u0907\u0932",
    "\u092a\u0930 \u0915\u0949\u0932", "\u0915\u0943\u092a\u092f\u093e",
    "\u0442\u0435\u043b\u0435\u0444\u043e\u043d", "\u0442\u0435\u043b.", "\u0437\u0432\u043e\u043d",
    "\u624b\u673a", "\u624b\u6a5f", "\u7535\u8bdd", "\u96fb\u8a71", "\u643a\u5e2f", "\u81f4\u7535",
    "\uc804\ud654", "\ud734\ub300", "\ud578\ub4dc\ud3f0", "\uc5f0\ub77d\ucc98",
    "\u0647\u0627\u062a\u0641", "\u062c\u0648\u0627\u0644", "\u0627\u062a\u0635\u0627\u0644",
    "\u0645\u0648\u0628\u0627\u064a\u0644",
)  # fmt: skip
_PHONE_AFTER = re.compile(
    r"x[ .]?[0-9]|.*\b(?:office|mobile|phone|fax|home|cell|work)\b", re.DOTALL
)
_CARD_WORDS = (
    *("card", "credit", "debit", "visa", "mastercard", "amex", "karte", "carte", "tarjeta"),
    *("cc ", "cc:", "cc=", "cc#"),
)
_SSN_WORDS = (
    *("ssn", "social security", "social_security", "social-security", "socialsecurity"),
    *("social sec", "soc sec", "soc. sec", "ss#", "ss no", "social:", "social #"),
)
_SIN_WORDS = (" sin ", "\x1fsin\x1f", "sin:", "sin=", "social insurance")
_TAX_WORDS = (
    "tax id",
    "tax_id",
    "national id",
    "national_id",
    "steuer-",
    "steuern",
    "steuer i",
    "steueri",
    "cpf",
    "pesel",
    "bsn",
    "insee",
    "nif",
)
# Words that say that the number is something else.
_OTHER_WORDS = (
    "order", "tracking", "parcel", "invoice", "ticket", "sku", "isbn", "timestamp", "commit",
    "trace", "version", "port", "article", "issue", "build", "rupees", "usd", "eur", "$", "amount",
    "population", "epoch", "seed", "imei", "barcode", "serial", "request id", "reference",
    "created_at", "range(", "bytes", "bestell", "auftrag", "rechnung", "sendung", "artikel",
    "commande", "facture", "suivi", "pedido", "factura", "seguimiento", "ordine", "fattura",
)  # fmt: skip
# Words that stand within others, which say nothing: "support", "Bestellung", "recall", "border".
_BEGINNINGS = frozenset(
    """
    call cell tel fax sms reach desk dial handy mobil order port eur usd seed sku build issue trace
    ticket version amount reference article serial epoch invoice
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
) | {"cc ", "cc:", "cc=", "cc#"}
# Those that end names of fields, too; they stand in the middle of "className" and "database".
_EDGES = frozenset({"ssn", "itin", "npi", "aba", "rtn", "nhs", "mrn", "nif", "cpf", "bsn", "insee"})
_SERIALS = "issn"

# A word that names something else makes a right check digit less telling, and never nothing:
# "order 1234…" must not be a way to carry an identifier out.
_DOUBT = 0.1

RULES: tuple[NumberRule, ...] = (
    NumberRule("CREDIT_CARD", _range(13, 19), 0.85, 0.95, _CARD_WORDS, validators.padded_card),
    NumberRule("CREDIT_CARD", _range(12, 19), 0.0, 0.8, _CARD_WORDS, validators.luhn),
    NumberRule(
        "IN_AADHAAR",
        frozenset({12}),
        0.6,
        0.95,
        _AADHAAR_WORDS,
        validators.aadhaar,
        frozenset({(4, 4, 4)}),
        0.8,
    ),
    NumberRule("IN_AADHAAR", frozenset({12, 14}), 0.0, 0.7, _AADHAAR_WORDS),
    NumberRule(
        "US_SSN",
        frozenset({9}),
        0.0,
        0.9,
        _SSN_WORDS,
        validators.us_ssn,
        frozenset({(3, 2, 4)}),
        0.8,
    ),
    NumberRule("US_SSN", frozenset({9}), 0.0, 0.7, ("ssn", "social security")),
    NumberRule(
        "US_ITIN",
        frozenset({9}),
        0.0,
        0.9,
        ("itin", "taxpayer"),
        validators.us_itin,
        frozenset({(3, 2, 4)}),
        0.75,
    ),
    NumberRule("CA_SIN", frozenset({9}), 0.0, 0.9, _SIN_WORDS, validators.ca_sin),
    NumberRule("UK_NHS", frozenset({10}), 0.0, 0.9, ("nhs",), validators.nhs),
    NumberRule("US_NPI", frozenset({10}), 0.0, 0.9, ("npi", "provider"), validators.npi),
    NumberRule(
        "US_ROUTING", frozenset({9}), 0.0, 0.9, ("routing", "aba", "rtn"), validators.aba_routing
    ),
    NumberRule("NATIONAL_ID", _range(8, 15), 0.0, 0.72, _TAX_WORDS),
    NumberRule(
        "BANK_ACCOUNT",
        _range(7, 18),
        0.0,
        0.7,
        ("account", "a/c", "acct", "konto", "compte", "cuenta", "\u0916\u093e\u0924\u093e"),
    ),
    NumberRule("PASSPORT", _range(7, 9), 0.0, 0.7, ("passport",)),
    NumberRule(
        "MRN", _range(7, 10), 0.0, 0.7, ("mrn", "patient id", "patient_id", "medical record")
    ),
    NumberRule("DRIVER_LICENSE", _range(7, 13), 0.0, 0.7, ("licence", "license")),
)
_BY_LENGTH: dict[int, tuple[NumberRule, ...]] = {
    length: tuple(rule for rule in RULES if length in rule.lengths) for length in range(7, 20)
}
_LEAST, _MOST = min(_BY_LENGTH), max(_BY_LENGTH)
_DATES = frozenset({(4, 2, 2), (2, 2, 4), (4, 1, 2), (4, 2, 1), (1, 2, 4), (2, 1, 4)})
_NANP = frozenset({(3, 3, 4), (1, 3, 3, 4)})
_INDIAN = frozenset({(10,), (5, 5), (4, 6), (3, 3, 4)})


def groups_of(run: str) -> list[tuple[int, int]]:
    """The places of the groups of digits in a run."""
    return [match.span() for match in _GROUPS.finditer(run)]


def in_words(said: str, behind: str) -> str:
    """The text before a run, in lower case and with names such as `userSsn` taken apart.

    In a table, only the text of the row itself: headings are about the cells below them, and the
    last heading says nothing about the first cell of the next row. `behind` is the text after the
    run.
    """
    if "\n" in said and _is_row(*said.rpartition("\n")[::2], behind):
        said = said.rpartition("\n")[2]
    return _HUMP.sub(" ", said).lower()


def _is_row(above: str, beside: str, behind: str) -> bool:
    """Whether one mark separates the cells in the line above and beside a cell."""
    above = above[above.rfind("\n") + 1 :]
    for mark in ";\t|,":
        if mark in beside or behind.startswith(mark):
            return above.count(mark) > 1 and (mark != "," or ", " not in above)
    return False


def overlap_start(groups: list[tuple[int, int]]) -> int:
    """Where to continue reading after a run was cut: no identifier may be lost at the cut."""
    digits = 0
    for start, end in reversed(groups):
        digits += end - start
        if digits > _LONGEST_IDENTIFIER:
            return end
    return 0


def judge(
    run: str, groups: list[tuple[int, int]], before: str, after: str
) -> Iterator[Number | None]:
    """Every window of a run's groups, as the best rule reads it, or None.

    `before` and `after` are the text around them in lower case.
    """
    if len(groups) > 1 and _is_decimal(run, groups):
        return
    doubt = _nearest(before, _OTHER_WORDS)
    named_after = _PHONE_AFTER.match(after) is not None
    is_rest = before[-2:-1].isdigit() and before[-1] in " .-/()\t"
    near: dict[tuple[str, ...], int] = {}
    near_phone = max(_nearest(before, _PHONE_WORDS), 0 if named_after else -1)
    if not before.isascii():
        near_phone = max(near_phone, _nearest(before, _PHONE_WORDS_ELSEWHERE))
    for first, last in _windows(groups):
        start, end = groups[first][0], groups[last - 1][1]
        shape = tuple([stop - begin for begin, stop in groups[first:last]])
        if shape[:3] in _DATES and _is_date(run[start:end]):
            continue
        if not _LEAST <= sum(shape) <= _MOST:
            yield None
            continue
        torn = partial(is_stretch, run, groups, first, last, is_rest=is_rest)
        found = _best(run[start:end], shape, before, doubt, near, torn)
        phone = _phone(run[:end], groups[first][0], shape, near_phone, doubt)
        best = max((found, phone), key=_rank)
        if best is None:
            yield None
        else:
            label, score = best
            yield Number(_phone_start(run, start) if label == "PHONE" else start, end, label, score)


def _rank(found: tuple[str, float] | None) -> tuple[int, float]:
    """The more sensitive reading wins: what can be an identifier is not excused as a phone."""
    return (data_class_of(found[0]), found[1]) if found else (-1, 0.0)


def _windows(groups: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    count = len(groups)
    if count > _MAX_GROUPS and groups[-1][1] - groups[0][0] < 3 * count:
        # Digits spelled one by one: from the first on, as many as some identifier has.
        yield 0, count
        yield from ((0, size) for size in _SPELLED_LENGTHS if size < count)
        return
    for size in range(min(count, _MAX_GROUPS), 0, -1):
        for first in range(count - size + 1):
            yield first, first + size


def _best(
    text: str,
    shape: tuple[int, ...],
    before: str,
    doubt: int,
    known: dict[tuple[str, ...], int],
    is_torn: Callable[[], bool],
) -> tuple[str, float] | None:
    """The likeliest rule; `known` remembers where words are, the same for a run's windows.

    Digits that are torn out of a row of numbers (`is_torn`) need a word.
    """
    digits = text if len(shape) == 1 else "".join(filter(str.isdigit, text))
    best: tuple[str, float] | None = None
    for rule, alone in _by_shape(shape):
        near = known.get(rule.words)
        if near is None:
            near = known[rule.words] = _nearest(before, rule.words)
        if near > doubt:
            # Nearer words win by a hair: at most 0.02 over the whole context length.
            score = rule.with_context + near / (50 * CONTEXT_BEFORE_LENGTH)
        else:
            score = alone - (_DOUBT if doubt >= 0 and alone < 0.85 else 0.0)
        if score < 0.5 or (best and score <= best[1]):
            continue
        if rule.accepts is not None and not rule.accepts(digits):
            continue
        if near > doubt or not is_torn():
            best = rule.label, score
    return best


@lru_cache(1024)
def _by_shape(shape: tuple[int, ...]) -> tuple[tuple[NumberRule, float], ...]:
    """The rules for groups of these lengths, each with its score if no word speaks for it."""
    rules = _BY_LENGTH.get(sum(shape), ())
    return tuple((r, r.shaped if shape in r.shapes else _bare(r, shape)) for r in rules)


def _bare(rule: NumberRule, shape: tuple[int, ...]) -> float:
    """Score without a context word: written as one, digit by digit, or in groups as on a card.

    Rows of small numbers ("40 41 42 …") and dotted quads are not identifiers.
    """
    if len(shape) == 1 or max(shape) == 1:
        return rule.bare
    return rule.bare if rule.shaped == 0.0 and min(shape[:-1]) >= 3 else 0.0


def _nearest(before: str, words: tuple[str, ...]) -> int:
    """Where the last of the words starts in the text before; -1 if there is none."""
    near = max(map(before.rfind, words))
    if near <= 0 or not before[near - 1].isalpha():
        return near
    return max(_last(before, word) for word in words)


def _last(before: str, word: str) -> int:
    """Where a word last occurs without being part of another."""
    at = before.rfind(word)
    while at > 0 and before[at - 1].isalpha() and _is_part(before, at, word):
        at = before.rfind(word, 0, at + len(word) - 1)
    return at


def _is_part(before: str, at: int, word: str) -> bool:
    """Whether the word, with a letter before it, is only a part of another."""
    if word in _EDGES:
        end = at + len(word)
        return before[end : end + 1].isalpha() or before.endswith(_SERIALS, 0, end)
    return word in _BEGINNINGS


def _phone(
    run: str, start: int, shape: tuple[int, ...], near: int, doubt: int
) -> tuple[str, float] | None:
    length = sum(shape)
    if not 7 <= length <= 15:
        return None
    if run[_phone_start(run, start) : start].startswith(("+", "(+")):
        return "PHONE", 0.8 + (near > doubt) / 10
    if near > doubt:
        return "PHONE", 0.6 + near / (50 * CONTEXT_BEFORE_LENGTH)
    digits = "".join(filter(str.isdigit, run[start:]))
    if doubt >= 0:
        return None
    if shape in _NANP and digits[-10] in "23456789" and digits[-7] in "23456789":
        return "PHONE", 0.6
    return ("PHONE", 0.55) if _is_indian_mobile(digits, shape) else None


def _is_indian_mobile(digits: str, shape: tuple[int, ...]) -> bool:
    """Ten digits that start with 6 to 9, alone or behind the trunk or country prefix."""
    if len(digits) == 10:
        return digits[0] in "6789" and shape in _INDIAN
    if len(digits) == 12:
        return digits.startswith("91") and digits[2] in "6789" and len(shape) <= 3
    return len(digits) == 11 and digits[0] == "0" and digits[1] in "6789"


def _phone_start(run: str, start: int) -> int:
    while start > 0 and run[start - 1] in "+(":
        start -= 1
    return start


def _is_date(text: str) -> bool:
    """Day, month and a year of this or the last century with one mark between: not a number."""
    parts = _GROUPS.findall(text)[:3]
    year = parts[0] if len(parts[0]) == 4 else parts[2]
    small = [int(part) for part in parts if part is not year]
    return year[:2] in {"19", "20"} and max(small) <= 31 and min(small) <= 12


def _is_decimal(run: str, groups: list[tuple[int, int]]) -> bool:
    """Two groups with a point between them and no fixed width: a measured value, not a number."""
    return len(groups) == 2 and run[groups[0][1] : groups[1][0]] == "." and groups[0][1] <= 3
