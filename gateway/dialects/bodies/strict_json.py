"""Parses request bodies to trees with exactly one meaning, checked against typed wire structs.

Duplicate keys, `NaN`, numbers beyond a float, lone surrogates, deep nesting and field names in
other letter cases are refused: two readers of the same bytes (the gateway and the upstream) must
not see two different requests.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec
from msgspec import Meta

from gateway.dialects.bodies.flaws import (
    path_of_ambiguity,
    path_of_depth,
    path_of_half_pair,
    path_to,
)
from gateway.dialects.bodies.other_letters import check_letters
from gateway.errors import RequestInvalid


DEPTH_MAX = 64
MODEL_LENGTH_MAX = 256

ModelName = Annotated[
    str, Meta(min_length=1, max_length=MODEL_LENGTH_MAX, pattern=r"\A[^\x00-\x1f\x7f]+\Z")
]
PositiveInt = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=10**9)]
"""Token counts of an upstream. No answer has more: the cost of a larger figure would fit into no
column of a budget. `admission.plausible_counts` has the bounds of each request."""
Fraction = Annotated[float, Meta(ge=0, le=1)]

Wire = TypeVar("Wire")

_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
"""Shells and editors on Windows write them, and nobody sees them."""
_CONTAINERS = frozenset({dict, list})
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`\Z")


class _Ambiguous(ValueError):
    """The JSON is well formed but has no single meaning; the message is ours."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        raise _Ambiguous("an object in it has the same key twice")
    return tree


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0.0:
        raise _Ambiguous("a number in it is out of range")
    return number


def _no_constant(name: str) -> NoReturn:
    raise _Ambiguous(f"{name} is not JSON")


_FAST_DECODER = msgspec.json.Decoder()
_FAST_ENCODER = msgspec.json.Encoder()
_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant
)


def decode_object(raw: bytes) -> dict[str, object]:
    """The body's JSON object.

    Raises:
        RequestInvalid: it is not a JSON object in UTF-8, or it could be read in two ways.
    """
    tree = _canonical(raw)
    if tree is None:
        tree = _read_strictly(raw)
        if b"\\" in raw and _ESCAPED_SURROGATE.search(raw) is not None:
            _check_surrogates(tree)
    if _opens_more(raw, DEPTH_MAX):
        _check_depth(tree)
    check_letters(tree)
    return tree


def _canonical(raw: bytes) -> dict[str, object] | None:
    """The tree of a body that is exactly what an encoder would write for that tree, else None.

    No encoder writes a key twice, `NaN` or half a surrogate pair, so equality proves the meaning at
    a fifth of the cost of looking for each of them. The official SDKs' bodies are of this kind.
    """
    try:
        tree = _FAST_DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return tree if type(tree) is dict and _FAST_ENCODER.encode(tree) == raw else None


def _read_strictly(raw: bytes) -> dict[str, object]:
    if not raw.strip():
        raise RequestInvalid("The body is empty: send a JSON object.")
    if raw.startswith(_BYTE_ORDER_MARKS):
        raise RequestInvalid("The body begins with a byte order mark: send UTF-8 without one.")
    try:
        tree: object = _DECODER.decode(raw.decode())
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        raise _broken("UTF-8", f"byte {error.start}", path_to(before, len(before))) from None
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise _broken("JSON", at, path_to(error.doc, error.pos)) from None
    except _Ambiguous as error:
        place = path_of_ambiguity(raw.decode())
        raise _flawed(place, f"The body is not acceptable JSON: {error}") from None
    except RecursionError:
        raise RequestInvalid("The body is nested too deeply.") from None
    except ValueError:
        raise RequestInvalid("The body holds a number that is too long.") from None
    if not isinstance(tree, dict):
        raise RequestInvalid("The body must be a JSON object.")
    return tree


def _broken(what: str, at: str, place: str) -> RequestInvalid:
    return _flawed(place, f"The body is not {what}: error at {at}")


def _flawed(place: str, reason: str) -> RequestInvalid:
    """A refusal; it names no place if none was found."""
    return invalid(place, reason) if place else RequestInvalid(f"{reason}.")


def _opens_more(raw: bytes, most: int) -> bool:
    """Whether it has more brackets than that, in strings or outside.

    Searching for the next one skips a long string at once; counting looks at each byte.
    """
    for bracket in (b"{", b"["):
        at = raw.find(bracket)
        while at >= 0:
            if not most:
                return True
            most -= 1
            at = raw.find(bracket, at + 1)
    return False


def _check_depth(tree: object) -> None:
    """Level by level, so that the check itself cannot run out of stack."""
    level: list[Any] = [tree]
    for _ in range(DEPTH_MAX):
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) in _CONTAINERS
        ]
        if not level:
            return
    place = path_of_depth(tree, DEPTH_MAX)
    raise _flawed(place, f"The body is nested more than {DEPTH_MAX} levels deep")


def _check_surrogates(tree: dict[str, object]) -> None:
    """Half a surrogate pair is not a character; it could not be sent on in UTF-8."""
    try:
        json.dumps(tree, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        place = path_of_half_pair(tree)
        raise _flawed(place, "The body holds half of a surrogate pair") from None


def checked(tree: Mapping[str, object], wire: type[Wire]) -> Wire:
    """The tree as a typed wire struct; unknown fields are left alone.

    Raises:
        RequestInvalid: with the path of the first field that is wrong, and no value.
    """
    try:
        return msgspec.convert(tree, wire)
    except msgspec.ValidationError as error:
        reason, place = _explain(str(error))
        message = f"{place}: {reason}." if place else f"{reason}."
        raise RequestInvalid(message, parameter=place or None) from None


def _explain(text: str) -> tuple[str, str]:
    """Split a message of msgspec: the reason without values, the path as `messages[0].role`."""
    found = _PLACE.search(text)
    place = found.group(1).replace("[...]", ".*") if found is not None else ""
    reason = text[: found.start()] if found is not None else text
    if reason.startswith("Invalid"):
        reason = "This value is not one of those allowed"
    elif "matching regex" in reason:
        reason = "Expected text without control characters"
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", reason):
        reason = "This field is required"
        place = f"{place}.{missing.group(1)}" if place else missing.group(1)
    return reason.replace("`", ""), place


def invalid(place: str, reason: str) -> RequestInvalid:
    """An error to raise: refuses a field by its path, in the same words as `checked`."""
    return RequestInvalid(f"{place}: {reason}.", parameter=place)
