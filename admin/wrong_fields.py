"""Says which field of a JSON body is wrong, and why: in our words, never with a value. Pure."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from gateway.errors import RequestInvalid


BODY: Final = "body"
_PLACE: Final = re.compile(r" - at `\$\.?([^`]*)`\Z")
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.+)`", re.DOTALL)
NAME_LENGTH_MAX: Final = 100
"""Of the name of a field that nobody knows, which may be anything."""


@contextmanager
def taken_as(of: str = "", /, **names: str) -> Iterator[None]:
    """Inside of it a refusal names its field as a route takes it: `taken_as(until="until_us")`.

    Stores and forms know some fields under other names. A refusal that names none is about `of`:
    the thing in the address, which is not in a state for what is asked.
    """
    try:
        yield
    except RequestInvalid as error:
        field = error.parameter or of
        error.parameter = names.get(field, field) or None
        raise


def refusal_of(error: Exception) -> RequestInvalid:
    """What msgspec says of a body, as a refusal that names the field by its path (`rates[0].at`).

    A body that is no JSON, or no object, is wrong as a whole: its field is `body`.
    """
    if not isinstance(error, msgspec.ValidationError):
        return RequestInvalid("the body is no JSON", parameter=BODY)
    place, reason = _explained(str(error))
    return RequestInvalid(f"{place or 'the body'}: {reason}", parameter=place or BODY)


def _explained(text: str) -> tuple[str, str]:
    """The path of a field, empty for the whole body, and what is wrong with it."""
    found = _PLACE.search(text)
    place = found[1].replace("[...]", ".*") if found else ""
    reason = text[: found.start()] if found else text
    if missing := _MISSING.fullmatch(reason):
        return _below(place, missing[1]), "this field is required"
    if unknown := _UNKNOWN.fullmatch(reason):
        return _below(place, unknown[1][:NAME_LENGTH_MAX]), "there is no such field"
    if reason.startswith("Invalid"):
        return place, "this value is not one of those allowed"
    return place, f"{reason[:1].lower()}{reason[1:]}".replace("`", "")


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
