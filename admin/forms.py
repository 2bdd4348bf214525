"""Reads submitted forms: every field is text until it is checked, and named if it is wrong.

What was typed is kept as typed, so that a page can show it again beside what to change.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final
from urllib.parse import parse_qsl

from admin.asking import Asking
from gateway.errors import RequestInvalid


MICRO: Final = 1_000_000
MICROUSD_MAX: Final = 10**15
FIELDS_MAX: Final = 500
TEXT_LENGTH_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 100
_GROUPED: Final = re.compile(r"[0-9]{1,3}(,[0-9]{2,3})*,[0-9]{3}(\.[0-9]*)?", re.ASCII)


class Form:
    """Fields by name, in the order they came."""

    def __init__(self, fields: Mapping[str, Sequence[str]] | None = None) -> None:
        self._fields = fields or {}

    def text(self, name: str, default: str = "") -> str:
        """A field without the space around it."""
        return next(iter(self._fields.get(name, ())), default).strip()

    def raw(self, name: str) -> str:
        """A field as it was typed: space around a password is part of it."""
        return next(iter(self._fields.get(name, ())), "")

    def all(self, name: str) -> tuple[str, ...]:
        """Every value of a field that may stand several times."""
        return tuple(self._fields.get(name, ()))

    def whole(self, name: str, most: int) -> int | None:
        """A whole number from 0 to `most`; None if the field is empty.

        Raises:
            RequestInvalid: it is none.
        """
        text = ungrouped(self.text(name)).replace("_", "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)) + 1:
            raise RequestInvalid("this is not a whole number", parameter=name)
        if int(text) > most:
            raise RequestInvalid(f"this is more than {most:,}", parameter=name)
        return int(text)

    def microusd(self, name: str) -> int | None:
        """An amount of dollars, such as `12.50`, in micro-dollars; None if the field is empty.

        Raises:
            RequestInvalid: it is none, negative, or too large to be meant.
        """
        text = ungrouped(self.text(name).removeprefix("$").strip())
        if not text:
            return None
        try:
            amount = Decimal(text) * MICRO if len(text) <= 30 else Decimal("NaN")  # noqa: PLR2004
        except InvalidOperation:
            amount = Decimal("NaN")
        if not amount.is_finite() or amount != amount.to_integral_value():
            raise RequestInvalid("this is not an amount of dollars, such as 12.50", parameter=name)
        if not 0 <= amount <= MICROUSD_MAX:
            raise RequestInvalid("this amount is negative or too large", parameter=name)
        return int(amount)


def ungrouped(text: str) -> str:
    """A number without the commas that group its digits, in thousands or as in India.

    Any other text stays as it is, and then is not a number: `12,50` is not 1250.
    """
    return text.replace(",", "") if _GROUPED.fullmatch(text) else text


def as_sentence(text: str) -> str:
    """A reason as a sentence of a page.

    The rest stays as it was written: a court's file number in small letters is a different one.
    """
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


async def form_of(request: Asking, length_max: int = TEXT_LENGTH_MAX) -> Form:
    """The form that a request sends.

    Raises:
        RequestInvalid: it is not a page's form, or a field has more than `length_max` characters:
            if it were cut off, nobody would notice before the rest is needed.
    """
    try:
        pairs = parse_qsl(
            (await request.body()).decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX
        )
    except ValueError:
        raise RequestInvalid("this form is not complete") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        if len(value) > length_max:
            long = (
                f"{name[:NAME_CHARS_MAX]!r} has {len(value):,} characters: {length_max:,} are taken"
            )
            raise RequestInvalid(f"{long} at most. Nothing was done.", parameter=name)
        fields.setdefault(name, []).append(value)
    return Form(fields)
