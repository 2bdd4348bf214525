"""Documents of an organisation, its workspaces and their projects as one: a child only narrows.

    organisation ⊇ workspace ⊇ project

All constraints of all levels apply; the lower caps and the stricter defaults count. Preferences
only order what is left, so the nearest level's come first.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from policies.document import Constraint, Defaults, PolicyBody, Preference
from policies.program import PolicyDocument, compile_policy


SEPARATOR: Final = "/"


def compose(levels: Sequence[PolicyDocument]) -> PolicyDocument:
    """One document of several, the outermost first; a single one is itself.

    Rules keep their names, with the document's name before them where two levels use the same.
    """
    if len(levels) == 1:
        return levels[0]
    bodies = [level.body for level in levels]
    used: set[str] = set()
    constraints: list[Constraint] = []
    preferences: list[Preference] = []
    cached: list[int] = []
    for body in bodies:
        names = {rule.name: _free(rule.name, body.name, used) for rule in _rules(body)}
        used.update(names.values())
        constraints += [replace(rule, name=names[rule.name]) for rule in body.constraints]
        own = [replace(rule, name=names[rule.name]) for rule in body.preferences]
        # The default order of the level that wrote a preference stays its own.
        own = [rule if rule.order else replace(rule, order=body.defaults.order) for rule in own]
        own = [_kept_at_most(rule, cached) for rule in own]
        cached += [body.defaults.cache_s] if body.defaults.cache_s is not None else []
        preferences = own + preferences
    return compile_policy(
        PolicyBody(
            name=SEPARATOR.join(body.name for body in bodies),
            version=bodies[0].version,
            defaults=_defaults([body.defaults for body in bodies]),
            constraints=tuple(constraints),
            preferences=tuple(preferences),
        )
    )


def _rules(body: PolicyBody) -> tuple[Constraint | Preference, ...]:
    return (*body.constraints, *body.preferences)


def _kept_at_most(rule: Preference, outer: Sequence[int]) -> Preference:
    """The rule, with answers given again no longer than the levels above it let them be."""
    if rule.cache_s is None or not outer:
        return rule
    return replace(rule, cache_s=min(rule.cache_s, *outer))


def _free(name: str, document: str, used: set[str]) -> str:
    while name in used:
        name = f"{document}{SEPARATOR}{name}"
    return name


def _defaults(levels: Sequence[Defaults]) -> Defaults:
    caps = [level.output_tokens_max for level in levels if level.output_tokens_max is not None]
    kept = [level.cache_s for level in levels if level.cache_s is not None]
    refuses = any(level.when_requested_model_closed == "refuse" for level in levels)
    return Defaults(
        output_tokens_max=min(caps, default=None),
        when_requested_model_closed="refuse" if refuses else "substitute",
        order=levels[-1].order,
        cache_s=min(kept, default=None),
    )
