"""Leads from a recorded decision's rules to where they stand now.

Some keys are decided by a canary: a rule that only the canary has stands in its version.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from admin.policy_room.places import SLUG_INSTALLATION, SLUG_ORGANISATION, Place, place_of
from admin.services import Services
from gateway.assembly.configured_policy import load_policy
from gateway.store.policies.documents import PolicyStore
from policies.document import Constraint, PolicyBody, Preference
from policies.explain import RuleExplanation
from policies.hierarchy import SEPARATOR, rule_names


_Placed: TypeAlias = tuple[Place, int, Constraint | Preference] | None


class RulePlace(Struct, frozen=True):
    """A rule in a document that decides at a level now."""

    path: str
    title: str
    """Of its level."""
    is_same: bool
    """Whether its condition is still the one that was asked."""
    canary: int = 0
    """The version in which it stands where that is on trial for some keys; 0 for the live one."""


class RulePlaces:
    """Looks among what is live; a rule that was taken out has no place."""

    def __init__(self, services: Services) -> None:
        """Raises ConfigurationInvalid when the configured document cannot be used."""
        self._base = load_policy(services.settings).body
        self._policies = PolicyStore(services.database, services.clock)

    async def of(
        self, organisation: str, workspace: str, project: str, rules: Sequence[RuleExplanation]
    ) -> list[RulePlace | None]:
        """A place for each of the rules, in their order: in a canary what the live one has not."""
        slugs = [SLUG_INSTALLATION, SLUG_ORGANISATION]
        if workspace and project:
            slugs += [f"ws:{workspace}", f"proj:{workspace}:{project}"]
        places = [place_of(organisation, slug) for slug in slugs]
        bodies = [(place, body) for place in places if (body := await self._live(place))]
        found = [_found(organisation, bodies, rule) for rule in rules]
        if all(each is not None and each.is_same for each in found):
            return found
        trials = {place: trial for place in places if (trial := await self._canary(place))}
        levels = dict(bodies) | {place: body for place, (_, body) in trials.items()}
        decided = [(place, levels[place]) for place in places if place in levels]
        numbers = {place.slug: number for place, (number, _) in trials.items()}
        tried = [_tried(organisation, decided, rule, numbers) for rule in rules]
        return [
            live if live is not None and live.is_same else trial or live
            for live, trial in zip(found, tried, strict=True)
        ]

    async def _live(self, place: Place) -> PolicyBody | None:
        version = await self._policies.lists.live(place.name)
        if version is None:
            return None if place.depth else self._base
        document = await self._policies.document(version.digest)
        return document.body if document else None

    async def _canary(self, place: Place) -> tuple[int, PolicyBody] | None:
        version = await self._policies.lists.canary(place.name)
        if version is None:
            return None
        document = await self._policies.document(version.digest)
        return (version.number, document.body) if document else None


def _tried(
    organisation: str,
    bodies: Sequence[tuple[Place, PolicyBody]],
    asked: RuleExplanation,
    numbers: Mapping[str, int],
) -> RulePlace | None:
    """A rule as a canary has it, where it was asked as that has it; None where it was not."""
    placed = _called_so_now(bodies, asked) or _called_so_before(bodies, asked)
    if placed is None:
        return None
    place, _, rule = placed
    number = numbers.get(place.slug, 0)
    if not number or (rule.when or None) != (asked.when or None):
        return None
    path = f"/o/{organisation}/policies/{place.slug}/versions/{number}"
    return RulePlace(path, place.title, is_same=True, canary=number)


def _found(
    organisation: str, bodies: Sequence[tuple[Place, PolicyBody]], asked: RuleExplanation
) -> RulePlace | None:
    placed = _called_so_now(bodies, asked) or _called_so_before(bodies, asked)
    if placed is None:
        return None
    place, number, rule = placed
    path = f"/o/{organisation}/policies/{place.slug}#{asked.kind}s-{number}"
    return RulePlace(path, place.title, (rule.when or None) == (asked.when or None))


def _called_so_now(bodies: Sequence[tuple[Place, PolicyBody]], asked: RuleExplanation) -> _Placed:
    """Levels and their documents may share names, so only all of them together tell whose it is."""
    for count, (place, body) in enumerate(bodies, start=1):
        names = rule_names([outer for _, outer in bodies[:count]])
        for number, rule in enumerate(_rules(body, asked)):
            if names[rule.name] == asked.name:
                return place, number, rule
    return None


def _called_so_before(
    bodies: Sequence[tuple[Place, PolicyBody]], asked: RuleExplanation
) -> _Placed:
    """Behind its document's name, while a level above used the same one."""
    for place, body in bodies:
        for number, rule in enumerate(_rules(body, asked)):
            if asked.name in (rule.name, f"{body.name}{SEPARATOR}{rule.name}"):
                return place, number, rule
    return None


def _rules(body: PolicyBody, asked: RuleExplanation) -> tuple[Constraint | Preference, ...]:
    return body.constraints if asked.kind == "constraint" else body.preferences
