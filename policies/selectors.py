"""Selectors of constraints: which targets they match, as data, in words and as a closure.

Keys of one selector are joined by "and": a target is selected when it fits each of them. The
entries of a list are alternatives, except `capabilities` and `assurances`: a target must have all.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from policies.facts import TargetFacts


Selects: TypeAlias = Callable[[TargetFacts], bool]


class Selector(msgspec.Struct, frozen=True, omit_defaults=True):
    """Conditions on a target; the lists are sorted, because their order means nothing."""

    in_house: bool | None = None
    jurisdictions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    assurances: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts: list[str] = []
        if self.in_house is not None:
            parts.append("in-house" if self.in_house else "managed")
        for title, names in (
            ("jurisdiction", self.jurisdictions),
            ("target", self.targets),
            ("tier", self.tiers),
            ("provider", self.providers),
        ):
            if names:
                parts.append(f"{title} {' or '.join(names)}")
        if self.capabilities:
            parts.append(f"capability {' and '.join(self.capabilities)}")
        if self.assurances:
            parts.append(f"assurance {' and '.join(self.assurances)}")
        return ", ".join(parts)


def compile_selector(selector: Selector) -> Selects:
    """A closure that says whether a target fits every key of the selector."""
    checks: list[Selects] = []
    if selector.in_house is not None:
        checks.append(_by_house(in_house=selector.in_house))
    if selector.jurisdictions:
        checks.append(_among(lambda target: target.jurisdiction, selector.jurisdictions))
    if selector.targets:
        checks.append(_among(lambda target: target.name, selector.targets))
    if selector.tiers:
        checks.append(_among(lambda target: target.tier, selector.tiers))
    if selector.providers:
        checks.append(_among(lambda target: target.provider, selector.providers))
    if selector.capabilities:
        needed = frozenset(selector.capabilities)
        checks.append(lambda target: needed <= target.capabilities)
    if selector.assurances:
        promised = frozenset(selector.assurances)
        checks.append(lambda target: promised <= target.assurances)
    if len(checks) == 1:
        return checks[0]
    return lambda target: all(check(target) for check in checks)


def _by_house(*, in_house: bool) -> Selects:
    return lambda target: target.in_house is in_house


def _among(read: Callable[[TargetFacts], str], names: tuple[str, ...]) -> Selects:
    known = frozenset(names)
    return lambda target: read(target) in known
