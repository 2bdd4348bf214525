"""Checks sums in an answer: `3 x 4 = 12` is computed again. Bounded; no code is run."""

import re
from math import isclose, isfinite

from msgspec import Struct


EXPRESSION_LENGTH_MAX = 80
EQUATIONS_MAX = 60
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|\.\d+")
_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|[-+*/()])")
_MARKED = re.compile(r"<<([^<>=]{1,80})=([^<>]{1,40})>>[ \t]*\$?(-?\d[\d,]{0,20}(?:\.\d{1,20})?)?")
_SIGNS = "+-*/\u00d7\u00f7"
_STATED = re.compile(
    r"=[ \t]*\$?[ \t]*(-?\d[\d,]{0,20}(?:\.\d{1,20})?)"
    # Not where the right side is a sum itself, as in `2 * 3 + 1 = 6 + 1`.
    r"(?![\d.,]*[ \t]*[a-z ]{0,12}[-+*/x\u00d7\u00f7(][ \t]*\$?\d)"
)
_REMARK = re.compile(r"\([^()\d]{0,60}\)")
_LEFT_PART = re.compile(r"\d[\d,]*(?:\.\d+)?%?|[A-Za-z]+|[^\sA-Za-z\d$]")
_UNIT_WORDS_MAX = 3
_TIMES = re.compile(r"(?<=[\d)\s])[x\u00d7](?=[\s\d($.])")
_NO_ARITHMETIC = re.compile(r"[^\d.()+\-*/]")
_TOLERANCE = 0.011


class Equation(Struct, frozen=True):
    """`operands` → `stated`; `computed` is None if the left side is not plain arithmetic.

    `repeated`: the number that follows a marked equation in the text, if any.
    """

    operands: tuple[float, ...]
    stated: float
    computed: float | None
    repeated: float | None

    @property
    def wrong(self) -> bool:
        return self.computed is not None and not near(self.computed, self.stated)


def near(one: float, other: float) -> bool:
    """Equal up to rounding to cents or to two digits."""
    return isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def numbers(text: str) -> list[float]:
    """All numbers of a text without their signs; thousands separators are understood."""
    found = (float(number.replace(",", "")) for number in _NUMBER.findall(text))
    return [number for number in found if isfinite(number)]


def equations(text: str) -> list[Equation]:
    """The equations of an answer: those marked `<<3*4=12>>`, then those in plain words."""
    text = text.replace("\\", "")
    found: list[Equation] = []
    for left, right, repeated in _MARKED.findall(text)[:EQUATIONS_MAX]:
        stated = numbers(right)
        if stated:
            sign = -1.0 if right.lstrip().startswith("-") else 1.0
            again = numbers(repeated)
            found.append(_equation(left, sign * stated[0], again[0] if again else None))
    plain = _REMARK.sub("", re.sub(r"<<[^<>]{0,200}>>", "", text))
    for match in list(_STATED.finditer(plain))[:EQUATIONS_MAX]:
        left = _left_side(plain[max(0, match.start() - EXPRESSION_LENGTH_MAX) : match.start()])
        if left:
            found.append(_equation(left, float(match.group(1).replace(",", "")), None))
    return found


def _equation(left: str, stated: float, repeated: float | None) -> Equation:
    return Equation(tuple(numbers(left)), stated, compute(left), repeated)


def _left_side(before: str) -> str:
    """The arithmetic that ends a text, read backwards over units: "costs 3 bags * $2" → "3*2"."""
    kept: list[str] = []
    words = 0
    for part in reversed(_LEFT_PART.findall(before.rpartition("\n")[2])):
        operand_next = bool(kept) and kept[-1][0].isdigit()
        if part[0].isdigit():
            if operand_next:
                break
            kept.append(part)
            words = 0
        elif part in {"x", "\u00d7"} and operand_next:
            kept.append("*")
        elif part.isalpha():
            words += 1
            if words > _UNIT_WORDS_MAX:
                break
        elif part in _SIGNS + "()" and not (part == "/" and words):
            kept.append(part)
        elif part not in "/$":
            break
    while kept and kept[-1] in "+*/\u00f7)":
        kept.pop()
    left = "".join(reversed(kept))
    return left if any(sign in left for sign in _SIGNS) else ""


def compute(expression: str) -> float | None:
    """The value of plain arithmetic with words and units between; None if it is something else.

    >>> compute("3 apples x $4")
    12.0
    """
    plain = _TIMES.sub("*", expression.replace("\u00f7", "/").replace("%", "/100").replace(",", ""))
    plain = _NO_ARITHMETIC.sub("", plain)
    if not plain or len(plain) > EXPRESSION_LENGTH_MAX:
        return None
    reader = _Reader(plain)
    try:
        value = reader.sum()
    except (ValueError, ZeroDivisionError, OverflowError, IndexError):
        return None
    return value if reader.done() else None


class _Reader:
    """Recursive descent over sums, products, signs and brackets; depth is bounded by length."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._whole = "".join(self._tokens) == text
        self._at = 0

    def done(self) -> bool:
        return self._whole and self._at == len(self._tokens)

    def sum(self) -> float:
        value = self._product()
        while self._next() in {"+", "-"}:
            value += self._product() if self._take() == "+" else -self._product()
        return value

    def _product(self) -> float:
        value = self._atom()
        while self._next() in {"*", "/"}:
            value = value * self._atom() if self._take() == "*" else value / self._atom()
        return value

    def _atom(self) -> float:
        part = self._take()
        if part == "-":
            return -self._atom()
        if part == "(":
            value = self.sum()
            if self._take() != ")":
                raise ValueError
            return value
        return float(part)

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        self._at += 1
        part: str = self._tokens[self._at - 1]
        return part
