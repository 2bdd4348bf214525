"""Combines the documents of an organisation, its workspaces and projects; a child only narrows.

    organisation ⊇ workspace ⊇ project

All constraints of all levels apply; the lower caps and the stricter defaults count. Preferences
only order what is left, so the nearest level's come first.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from policies.document import Constraint, Defaults, PolicyBody, Preference
from policies.program import PolicyDocument, compile_policy


SEPARATOR: Final = "/"


def compose(levels: Sequence[PolicyDocument]) -> PolicyDocument:
    """Combines several documents, the outermost first, into one; a single one stays as it is.

    Rules keep their names; if two levels use the same one, the document's name is put before it.
    """
    if len(levels) == 1:
        return levels[0]
    bodies = [level.body for level in levels]
    used: set[str] = set()
    constraints: list[Constraint] = []
    preferences: list[Preference] = []
    outer: list[Defaults] = []
    for body in bodies:
        names = _names_of(body, used)
        constraints += [replace(rule, name=names[rule.name]) for rule in body.constraints]
        own = [replace(rule, name=names[rule.name]) for rule in body.preferences]
        # A preference without an order takes the one in force at its own level, not one from below.
        order = _order([*outer, body.defaults])
        own = [rule if rule.order else replace(rule, order=order) for rule in own]
        own = [_kept_at_most(rule, outer) for rule in own]
        outer.append(body.defaults)
        preferences = own + preferences
    whole = compile_policy(
        PolicyBody(
            name=SEPARATOR.join(body.name for body in bodies),
            version=bodies[0].version,
            defaults=_defaults([body.defaults for body in bodies]),
            constraints=tuple(constraints),
            preferences=tuple(preferences),
        )
    )
    return replace(whole, levels=tuple(levels))


def rule_names(levels: Sequence[PolicyBody]) -> Mapping[str, str]:
    """The name of each rule of the last level in the composed policy, by its own name."""
    used: set[str] = set()
    names: Mapping[str, str] = {}
    for body in levels:
        names = _names_of(body, used)
    return names


def _names_of(body: PolicyBody, used: set[str]) -> dict[str, str]:
    """Names for a level's rules; adds them to those that are used.

    No two rules of a level share a name: an approval of one would be an approval of both.
    """
    taken = used | {rule.name for rule in _rules(body)}
    names: dict[str, str] = {}
    for rule in _rules(body):
        name = rule.name
        if name in used:
            name = _free(name, body.name, taken)
            taken.add(name)
        names[rule.name] = name
    used |= taken
    return names


def _rules(body: PolicyBody) -> tuple[Constraint | Preference, ...]:
    return (*body.constraints, *body.preferences)


def _kept_at_most(rule: Preference, outer: Sequence[Defaults]) -> Preference:
    """The rule, with its cache settings no longer and no looser than the levels above allow."""
    above = _cached(outer)
    if rule.cache_s is not None and above.cache_s is not None:
        rule = replace(rule, cache_s=min(rule.cache_s, above.cache_s))
    if rule.cache_like_percent is not None and above.cache_like_percent is not None:
        nearest = max(rule.cache_like_percent, above.cache_like_percent)
        rule = replace(rule, cache_like_percent=nearest)
    return rule


def _cached(levels: Sequence[Defaults]) -> Defaults:
    """The strictest cache settings of all levels."""
    spans = [level.cache_s for level in levels if level.cache_s is not None]
    shares = [each.cache_like_percent for each in levels if each.cache_like_percent is not None]
    return Defaults(cache_s=min(spans, default=None), cache_like_percent=max(shares, default=None))


def _order(levels: Sequence[Defaults]) -> tuple[str, ...]:
    """The order of the nearest level that sets one; `cheapest` is the default, so it sets none."""
    silent = Defaults().order
    said = [level.order for level in levels if level.order != silent]
    return said[-1] if said else silent


def _free(name: str, document: str, taken: set[str]) -> str:
    while name in taken:
        name = f"{document}{SEPARATOR}{name}"
    return name


def _defaults(levels: Sequence[Defaults]) -> Defaults:
    caps = [level.output_tokens_max for level in levels if level.output_tokens_max is not None]
    refuses = any(level.when_requested_model_closed == "refuse" for level in levels)
    return Defaults(
        output_tokens_max=min(caps, default=None),
        when_requested_model_closed="refuse" if refuses else "substitute",
        order=_order(levels),
        cache_s=_cached(levels).cache_s,
        cache_like_percent=_cached(levels).cache_like_percent,
    )
