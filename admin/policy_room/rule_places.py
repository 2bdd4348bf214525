"""Where the rules of a recorded decision stand now: from a request to the very rule."""

from collections.abc import Sequence

from msgspec import Struct

from admin.policy_room.places import SLUG_INSTALLATION, SLUG_ORGANISATION, Place, place_of
from admin.services import Services
from gateway.assembly.configured_policy import load_policy
from gateway.store.policies.documents import PolicyStore
from policies.document import Constraint, PolicyBody, Preference
from policies.explain import RuleExplanation
from policies.hierarchy import SEPARATOR


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
    for place, body in bodies:
        section = f"{asked.kind}s"
        rules: tuple[Constraint | Preference, ...] = (
            body.constraints if asked.kind == "constraint" else body.preferences
        )
        for number, rule in enumerate(rules):
            # Where two levels use a name, the lower one's stands behind that of its document.
            if asked.name not in (rule.name, f"{body.name}{SEPARATOR}{rule.name}"):
                continue
            path = f"/o/{organisation}/policies/{place.slug}#{section}-{number}"
            return RulePlace(path, place.title, (rule.when or None) == (asked.when or None))
    return None
