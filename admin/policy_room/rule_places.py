"""Where the rules of a recorded decision stand now: from a request to the very rule."""

from collections.abc import Sequence
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
    """A rule in the document that is live at a level now."""

    path: str
    title: str
    """Of its level."""
    is_same: bool
    """Whether its condition is still the one that was asked."""


class RulePlaces:
    """Looks among what is live; a rule that was taken out has no place."""

    def __init__(self, services: Services) -> None:
        """Raises ConfigurationInvalid when the configured document cannot be used."""
        self._base = load_policy(services.settings).body
        self._policies = PolicyStore(services.database, services.clock)

    async def of(
        self, organisation: str, workspace: str, project: str, rules: Sequence[RuleExplanation]
    ) -> list[RulePlace | None]:
        """A place for each of the rules, in their order."""
        slugs = [SLUG_INSTALLATION, SLUG_ORGANISATION]
        if workspace and project:
            slugs += [f"ws:{workspace}", f"proj:{workspace}:{project}"]
        places = [place_of(organisation, slug) for slug in slugs]
        bodies = [(place, body) for place in places if (body := await self._live(place))]
        return [_found(organisation, bodies, rule) for rule in rules]

    async def _live(self, place: Place) -> PolicyBody | None:
        version = await self._policies.lists.live(place.name)
        if version is None:
            return None if place.depth else self._base
        document = await self._policies.document(version.digest)
        return document.body if document else None


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
