"""Collects the names of what a conversion left out, to report each of them once."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from operator import or_
from types import GenericAlias
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from gateway.conversation import Hosted
from gateway.errors import FeatureUnsupported
from gateway.price import ANYWHERE, PLAIN_TIERS, TIERS_ASKED, US, Price, paid_tier
from gateway.types import ChatRequest, Target


NAMES_MAX = 32

AUTO_TIER = "auto"
"""The one service tier that means the same to every vendor."""

_WITH_US = frozenset({"us", "usa", "america"})
"""Jurisdictions that include the United States; an operator's own label says nothing about it."""
_WORLDWIDE = frozenset({"global", "world", "worldwide", "anywhere"})
"""Jurisdictions that exclude nothing."""
_FIELD = re.compile(r"\A[A-Za-z_.\-]{1,48}[0-9]{0,2}\Z")
"""Letters, and two digits at most: nobody's number and nobody's key."""
_OPAQUE = re.compile(r"\A[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12,44}\Z")


class Losses:
    """Names of lost fields, in order, each once; and what may be lost only by a setting."""

    __slots__ = ("_names", "hosted")

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = dict.fromkeys(names)
        self.hosted: list[Hosted] = []

    def add(self, name: str) -> None:
        self._names[name] = None

    def add_unknown(
        self, tree: Mapping[str, object], known: frozenset[str], prefix: str = ""
    ) -> None:
        """Add fields that we do not know; a name that does not look like one might be content."""
        if known.issuperset(tree):
            return
        for key, value in tree.items():
            if key not in known and value is not None:
                self.add(prefix + (key if _FIELD.match(key) else "unknown_field"))

    def add_unread(self, node: object, shape: type[Struct], prefix: str) -> None:
        """The same for an object, each one of a list, and all in it that have shapes of their own.

        `shape` is what we read of it. Nearly always that is all there is, which is seen at once.
        """
        if not isinstance(node, list | dict):
            return
        try:
            msgspec.convert(node, _nothing_else(shape))
        except msgspec.ValidationError:
            self._add_unread(node, shape, prefix)

    def _add_unread(self, node: object, shape: type[Struct], prefix: str) -> None:
        known, shaped, inner = _read_of(shape)
        for each in node if isinstance(node, list) else (node,):
            if not isinstance(each, dict):
                continue
            if not known.issuperset(each):
                self.add_unknown(each, known, prefix)
            if shaped.isdisjoint(each):
                continue
            for name, kind in inner:
                held = each.get(name)
                if isinstance(held, list | dict):
                    self._add_unread(held, kind, f"{prefix}{name}.")

    def names(self) -> tuple[str, ...]:
        """At most `NAMES_MAX`, since they travel in a header; a last one says if there are more."""
        names = tuple(self._names)
        return names if len(names) <= NAMES_MAX else (*names[:NAMES_MAX], "and_more")


@cache
def _read_of(
    shape: type[Struct],
) -> tuple[frozenset[str], frozenset[str], tuple[tuple[str, type[Struct]], ...]]:
    """The fields that we read of an object, and those that are objects themselves, with shapes."""
    hints = get_type_hints(shape)
    shapes = [(name, _shape_in(hint)) for name, hint in hints.items()]
    inner = tuple((name, kind) for name, kind in shapes if kind is not None)
    return frozenset(hints), frozenset(name for name, _ in inner), inner


@cache
def _nothing_else(shape: type[Struct]) -> Any:
    """An object, or a list of objects, in which no object has a field that we do not read."""
    only = _only(shape)
    return only | GenericAlias(list, only)


@cache
def _only(shape: type[Struct]) -> Any:
    fields = [(name, _only_in(hint), None) for name, hint in get_type_hints(shape).items()]
    return msgspec.defstruct(shape.__name__, fields, forbid_unknown_fields=True)


def _only_in(hint: Any) -> Any:
    """The same for what a field may hold, whatever in it has no shape."""
    if _shape_in(hint) is None:
        return Any
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _only(hint)
    held = [each if _shape_in(each) is None else _only_in(each) for each in get_args(hint)]
    return GenericAlias(list, held[0]) if get_origin(hint) is list else reduce(or_, held)


def _shape_in(hint: object) -> type[Struct] | None:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint
    return next(filter(None, map(_shape_in, get_args(hint))), None)


def unsupported(place: str, reason: str, rule: int) -> FeatureUnsupported:
    """An error to raise if something cannot be left out without changing the request's meaning.

    `rule` is the number of the rule in docs/translation.md that says so.
    """
    return FeatureUnsupported(f"{place}: {reason} (rule {rule}).", parameter=place)


def check_schema_wanted(target: Target, place: str = "response_format", *, is_wanted: bool) -> None:
    """Refuse a schema for an answer if the model cannot be held to one; `place` asks for it.

    Raises:
        FeatureUnsupported
    """
    if is_wanted and "json_schema" not in target.capabilities:
        raise unsupported(place, "This model cannot be held to a schema", 33)


def _is_priced(name: str, asked: str, price: Price) -> bool:
    if name == "inference_geo":
        return asked == ANYWHERE or (asked == US and price.us_percent > 0)
    is_known = name == "service_tier" and price.percent_of(paid_tier(asked))
    return asked in PLAIN_TIERS or bool(is_known)


def check_tier_priced(request: ChatRequest, target: Target) -> None:
    """Refuse a tier or place of unknown price: it could be neither reserved nor billed.

    For a speed no price is known at all. A place outside the target's jurisdiction is refused as
    well: policies cleared that jurisdiction, and callers choose no other.

    Raises:
        FeatureUnsupported
    """
    if target.in_house or TIERS_ASKED.isdisjoint(request.tree):
        return
    for name in sorted(TIERS_ASKED):
        asked = request.tree.get(name)
        if isinstance(asked, str) and not _is_priced(name, asked, target.price):
            raise unsupported(name, "What this costs at this model is not known", rule=26)
    is_bound = request.tree.get("inference_geo") == US
    if is_bound and target.jurisdiction.lower() not in _WITH_US:
        raise unsupported("inference_geo", "This model is in another jurisdiction", rule=26)


def lets_out(request: ChatRequest, target: Target) -> bool:
    """Whether a request lets a vendor answer anywhere, although the target's jurisdiction does not.

    It would override what the vendor's workspace is bound to. If it is left out, that binding
    holds.
    """
    is_bound = not target.in_house and target.jurisdiction.lower() not in _WORLDWIDE
    return is_bound and request.tree.get("inference_geo") == ANYWHERE


def is_opaque(user: str) -> bool:
    """Whether an end user's name is a UUID or a hash, and so identifies nobody."""
    return _OPAQUE.match(user) is not None


def opaque_user(user: str) -> str:
    """An end user's name → at most 64 characters that identify nobody; UUIDs and hashes stay."""
    return user if is_opaque(user) else hashlib.sha256(user.encode()).hexdigest()


def breakpoint_life(mark: Mapping[str, object] | None, losses: Losses) -> str:
    """The same for OpenAI's breakpoints, which have other lifetimes."""
    if mark is None:
        return ""
    if mark.get("ttl") is None:
        return "5m"
    losses.add("prompt_cache_breakpoint.ttl")
    return "1h"


def cache_life(control: Mapping[str, object] | None) -> str:
    """How long a cache breakpoint lives: `5m` or `1h`; empty without one."""
    if control is None:
        return ""
    return "1h" if control.get("ttl") == "1h" else "5m"
