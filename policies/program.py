"""A checked document made ready for decisions: every rule is compiled once, on loading."""

from collections.abc import Mapping
from typing import Any

import msgspec

from policies.document import Constraint, PolicyBody, Preference, digest_of
from policies.expressions import Reading, compile_expression
from policies.facts import Facts
from policies.guards import Guard, make_guard
from policies.language.vocabulary import Condition
from policies.ordering import Ordering, make_ordering
from policies.selectors import Selects, compile_selector


class Closure(msgspec.Struct, frozen=True):
    """One way in which a constraint closes targets, and its wording."""

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
    """A preference ready to be applied."""

    name: str
    applies: Condition
    ordering: Ordering
    readings: tuple[Reading, ...]
    preference: Preference


class PolicyDocument(msgspec.Struct, frozen=True, eq=False):
    """A policy ready for `decide`; equal digests mean equal decisions, and equal documents."""

    body: PolicyBody
    digest: str
    constraints: tuple[ConstraintStep, ...]
    preferences: tuple[PreferenceStep, ...]
    default_ordering: Ordering
    # Per route its own preferences and then the general ones; under "" only the general ones.
    preferences_by_route: Mapping[str, tuple[PreferenceStep, ...]]
    guard: Guard
    """Finds the constraints that hold, by their places."""
    preference_guards: Mapping[str, Guard]
    """The same for the preferences of each route."""
    memory: dict[int, Any] = msgspec.field(default_factory=dict)
    """What `policies.sifting` remembers, by the bits of the constraints that matched."""

    levels: tuple["PolicyDocument", ...] = ()
    """The documents it is composed of, the outermost first; empty for a single document."""
    facts_read: frozenset[str] = frozenset()
    """Names of the facts that any rule reads; other facts need not be determined."""

    def __eq__(self, other: object) -> bool:
        # By its digest: two compilations of one text share neither closures nor memory.
        return isinstance(other, PolicyDocument) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def name(self) -> str:
        return self.body.name

    @property
    def routes(self) -> tuple[str, ...]:
        """The names that may follow `auto:` in a requested model."""
        return tuple(route for route in self.preferences_by_route if route)


def compile_policy(body: PolicyBody) -> PolicyDocument:
    """Build the closures of a checked body; raises ExpressionInvalid on an unchecked one."""
    default_order = body.defaults.order
    constraints = tuple(map(_constraint_step, body.constraints))
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
        constraints=constraints,
        preferences=preferences,
        default_ordering=make_ordering(Preference(""), default_order),
        preferences_by_route=by_route,
        guard=make_guard([step.constraint.when for step in constraints]),
        preference_guards={
            route: make_guard([step.preference.when for step in steps])
            for route, steps in by_route.items()
        },
        facts_read=frozenset(
            reading.fact
            for readings in [step.readings for step in constraints]
            + [step.readings for step in preferences]
            for reading in readings
        ),
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
    ordering = make_ordering(preference, default_order)
    return PreferenceStep(preference.name, applies, ordering, readings, preference)
