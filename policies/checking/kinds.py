"""Sorts targets into kinds: targets of one kind are matched by exactly the same selectors.

Attributes are assumed to vary independently of each other, so that every possible target belongs to
one of the kinds.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, combinations, product
from math import prod
from typing import Final

import msgspec

from policies.facts import TargetFacts
from policies.selectors import Selector


_ANOTHER: Final = "\0"
"""A value that no selector names."""
_TARGET: Final = TargetFacts(
    name=_ANOTHER,
    provider=_ANOTHER,
    jurisdiction=_ANOTHER,
    in_house=False,
    tier=_ANOTHER,
    input_price_microusd_per_mtok=0,
    output_price_microusd_per_mtok=0,
    context_window_tokens=0,
    output_tokens_max=0,
    capabilities=frozenset(),
    available=True,
    unavailable_reason="",
    permitted_to_key=True,
)
_LISTED: Final[Mapping[str, str]] = {
    "targets": "name",
    "jurisdictions": "jurisdiction",
    "tiers": "tier",
    "providers": "provider",
}
"""The selectors' lists of alternatives, and the attribute of a target that each tests."""
_TOGETHER: Final = ("capabilities", "assurances")
"""The selectors' lists of which a target must have every entry."""


class Kind(msgspec.Struct, frozen=True):
    """An example target of a kind, and the names that targets of the kind may have."""

    target: TargetFacts
    names: tuple[str, ...]
    """Empty if it stands for all names that no selector mentions."""


def kinds(selectors: Sequence[Selector], at_most: int) -> tuple[Kind, ...]:
    """Every kind that the selectors tell apart; none if there are more than `at_most`."""
    names, *listed = (_alike([getattr(each, key) for each in selectors]) for key in _LISTED)
    held, promised = (_alike([getattr(each, key) for each in selectors]) for key in _TOGETHER)
    houses = (True, False) if any(each.in_house is not None for each in selectors) else (False,)
    sizes = [len(houses), 2 ** (len(held) + len(promised)), *(len(each) + 1 for each in listed)]
    if prod(sizes) * (len(names) + 1) > at_most:
        return ()
    return tuple(
        Kind(_target(named[:1], *alternatives, *together, in_house=in_house), named)
        for named in (*names, ())
        for alternatives in product(*((*each, ()) for each in listed))
        for together in product(_sums(held), _sums(promised))
        for in_house in houses
    )


def _target(*values: tuple[str, ...], in_house: bool) -> TargetFacts:
    """A target with the first value of each group; of the last two groups it has all values."""
    *alternatives, capabilities, assurances = values
    fields = {
        key: each[0] for key, each in zip(_LISTED.values(), alternatives, strict=True) if each
    }
    return msgspec.structs.replace(
        _TARGET,
        in_house=in_house,
        capabilities=frozenset(capabilities),
        assurances=frozenset(assurances),
        **fields,
    )


def _sums(groups: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The values of every subset of the groups: a target may lack any group as a whole."""
    chosen = chain.from_iterable(combinations(groups, size) for size in range(len(groups) + 1))
    return [tuple(chain.from_iterable(each)) for each in chosen]


def _alike(lists: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The values of some lists, grouped by which of the lists they are in."""
    found: dict[tuple[bool, ...], list[str]] = {}
    for value in dict.fromkeys(chain.from_iterable(lists)):
        found.setdefault(tuple([value in each for each in lists]), []).append(value)
    return [tuple(each) for each in found.values()]
