"""A checked document made ready for decisions: every rule compiled once, when it is loaded."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from policies.document import Constraint, PolicyBody, Preference, digest_of
from policies.expressions import Reading, compile_expression
from policies.facts import TIERS, Facts, TargetFacts, tier_rank
from policies.selectors import Selects, compile_selector
from policies.vocabulary import Condition


# Assumed length of an answer when the request does not bound it; only used to compare prices.
OUTPUT_TOKENS_ASSUMED: Final = 1_000

IN_HOUSE_FIRST: Final = "in_house_first"
CHEAPEST: Final = "cheapest"
ORDERINGS: Final = (*TIERS, CHEAPEST, IN_HOUSE_FIRST)

Rank: TypeAlias = Callable[[Facts, TargetFacts], int]


class Closure(msgspec.Struct, frozen=True):
    """One way in which a constraint closes targets, with the words for it."""

    closes: Selects
    reason: str


class ConstraintStep(msgspec.Struct, frozen=True):
    """A constraint ready to be applied."""

    name: str
    applies: Condition
    closures: tuple[Closure, ...]
    readings: tuple[Reading, ...]
    constraint: Constraint


class PreferenceStep(msgspec.Struct, frozen=True):
    """A preference ready to be applied; `ranks` are compared one after the other."""

    name: str
    applies: Condition
    ranks: tuple[Rank, ...]
    readings: tuple[Reading, ...]
    preference: Preference


class PolicyDocument(msgspec.Struct, frozen=True):
    """A policy as `decide` takes it; equal digests mean equal decisions."""

    body: PolicyBody
    digest: str
    constraints: tuple[ConstraintStep, ...]
    preferences: tuple[PreferenceStep, ...]
    default_ranks: tuple[Rank, ...]
    # Per route its own preferences and then the general ones; under "" only the general ones.
    preferences_by_route: Mapping[str, tuple[PreferenceStep, ...]]

    @property
    def name(self) -> str:
        return self.body.name

    @property
    def version(self) -> int:
        return self.body.version

    @property
    def routes(self) -> tuple[str, ...]:
        """What may follow `auto:` in a requested model."""
        return tuple(route for route in self.preferences_by_route if route)


def compile_policy(body: PolicyBody) -> PolicyDocument:
    """Build the closures of a checked body; raises ExpressionInvalid on an unchecked one."""
    default_order = body.defaults.order
    preferences = tuple(_preference_step(each, default_order) for each in body.preferences)
    routes = dict.fromkeys(step.preference.route or "" for step in preferences)
    by_route = {
        route: tuple(
            [step for step in preferences if route and step.preference.route == route]
            + [step for step in preferences if step.preference.route is None]
        )
        for route in ["", *routes]
    }
    return PolicyDocument(
        body=body,
        digest=digest_of(body),
        constraints=tuple(map(_constraint_step, body.constraints)),
        preferences=preferences,
        default_ranks=_ranks((), default_order),
        preferences_by_route=by_route,
    )


def price_order(facts: Facts, target: TargetFacts) -> int:
    """Expected price of the request at this target in pico-dollars, for comparison only."""
    output_tokens = facts.max_output_tokens
    if output_tokens is None:
        output_tokens = OUTPUT_TOKENS_ASSUMED
    return (
        facts.input_tokens_estimate * target.input_price_microusd_per_mtok
        + output_tokens * target.output_price_microusd_per_mtok
    )


def _always(_: Facts) -> bool:
    return True


def _condition(when: str | None) -> tuple[Condition, tuple[Reading, ...]]:
    if when is None:
        return _always, ()
    expression = compile_expression(when)
    return expression.holds, expression.readings


def _constraint_step(constraint: Constraint) -> ConstraintStep:
    closures: list[Closure] = []
    if constraint.allow_only is not None:
        closures.append(
            Closure(
                _negated(compile_selector(constraint.allow_only)),
                f"allows only: {constraint.allow_only}",
            )
        )
    if constraint.forbid is not None:
        closures.append(
            Closure(compile_selector(constraint.forbid), f"forbids: {constraint.forbid}")
        )
    applies, readings = _condition(constraint.when)
    return ConstraintStep(constraint.name, applies, tuple(closures), readings, constraint)


def _negated(selects: Selects) -> Selects:
    return lambda target: not selects(target)


def _preference_step(preference: Preference, default_order: tuple[str, ...]) -> PreferenceStep:
    applies, readings = _condition(preference.when)
    ranks = _ranks(preference.targets, preference.order or default_order)
    return PreferenceStep(preference.name, applies, ranks, readings, preference)


def _ranks(targets: tuple[str, ...], order: tuple[str, ...]) -> tuple[Rank, ...]:
    """Named targets first; then each word of the order, the tiers together as one ladder."""
    ranks: list[Rank] = []
    if targets:
        ranks.append(_named_rank(targets))
    tiers = tuple(word for word in order if word in TIERS)
    for word in order:
        if word == CHEAPEST:
            ranks.append(price_order)
        elif word == IN_HOUSE_FIRST:
            ranks.append(lambda _, target: 0 if target.in_house else 1)
        elif word == tiers[0]:
            ranks.append(_tier_rank(tiers))
    return tuple(ranks)


def _named_rank(targets: tuple[str, ...]) -> Rank:
    places = {name: place for place, name in enumerate(targets)}
    return lambda _, target: places.get(target.name, len(places))


def _tier_rank(tiers: tuple[str, ...]) -> Rank:
    """The listed tiers in their order, then the others from the cheapest up."""
    places = {tier: place for place, tier in enumerate(tiers)}
    return lambda _, target: places.get(target.tier, len(TIERS) + tier_rank(target.tier))
