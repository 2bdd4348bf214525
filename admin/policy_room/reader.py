"""Gathers what the pages and the API show of an organisation's policies; changes nothing."""

from collections.abc import Mapping, Sequence
from typing import Final

from litestar.exceptions import NotFoundException
from msgspec import Struct
from msgspec.structs import replace

from admin.policy_room.counting import HitCount, HitCounter, Hits
from admin.policy_room.places import Place, above, place_named, place_of
from admin.policy_room.wording import effects
from admin.services import Services
from gateway.assembly.configured_policy import load_policy
from gateway.oversight.searching import Filter, Term, render
from gateway.rollout.key_share import KeyShare
from gateway.rollout.versions import PolicyVersion, State
from gateway.store.policies.documents import PolicyStore
from gateway.store.policies.drafts import DraftTable, PolicyDraft
from gateway.store.policies.schedules import Schedule
from gateway.store.policies.version_lists import Pending
from gateway.store.traffic.archive import DecisionArchive
from policies.checking.reach import unreachable
from policies.document import Constraint, PolicyBody, Preference
from policies.facts import TargetFacts
from policies.hierarchy import rule_names
from policies.program import PolicyDocument
from policies.text.writing import document_text


ON_TRIAL: Final[tuple[State, ...]] = ("canary", "shadow")
ACTING: Final[tuple[State, ...]] = ("live", *ON_TRIAL)
PLACES_MAX: Final = 200
REFUSED_SHOWN_US: Final = 14 * 86_400_000_000
NO_NAMES: Final[Mapping[str, str]] = {}
RULES_SHOWN_MAX: Final = 200
"""Of one phase on one page; the code shows all of them."""


class RuleLine(Struct, frozen=True):
    """A rule as a list shows it."""

    section: str
    number: int
    """In the order of asking, from 1."""
    name: str
    when: str
    effects: tuple[str, ...]
    never_matches: str
    hits: int
    last_us: int
    last_id: str
    """The request that it held for last."""
    listed: str
    """A filter that finds the newest that it held for."""
    decided: str
    """A filter that finds all that it held for when they were decided, whatever it said then."""


class LevelView(Struct, frozen=True):
    """A level with the document that is live there, its rules, and what is on its way."""

    place: Place
    live: PolicyVersion | None
    """None where the configuration's own document governs, or none of this level's."""
    body: PolicyBody | None
    digest: str
    constraints: tuple[RuleLine, ...]
    preferences: tuple[RuleLine, ...]
    hits: HitCount | None
    trials: tuple[PolicyVersion, ...]
    pending: tuple[PolicyVersion, ...]
    """The newest that do not act yet."""
    pending_count: int
    draft: PolicyDraft | None
    schedules: tuple[Schedule, ...] = ()
    """What waits for its time, and what was refused then."""

    def waiting(self, number: int) -> Schedule | None:
        """What is scheduled for a version."""
        found = (each for each in self.schedules if each.number == number)
        return next((each for each in found if each.state == "waiting"), None)

    @property
    def warnings(self) -> list[RuleLine]:
        return [rule for rule in (*self.constraints, *self.preferences) if rule.never_matches]


class PolicyReader:
    """Reads the store, the archive and the configuration."""

    def __init__(self, services: Services) -> None:
        """Raises ConfigurationInvalid when the configured document cannot be used."""
        self.base = load_policy(services.settings)
        self.guard = services.settings.policy.guard
        self.store = PolicyStore(services.database, services.clock)
        self.lists = self.store.lists
        self.figures = self.store.figures
        self.schedules = self.store.schedules
        self._clock = services.clock
        self.drafts = DraftTable(services.database, services.clock)
        self.archive = DecisionArchive(services.records, self.store)
        self._keys = services.key_names
        self._hits = HitCounter(self.archive, services.clock)

    async def targets(self) -> tuple[TargetFacts, ...]:
        """The targets that workers serve, all taken as available; none before the first worker."""
        board = await self.store.boards.newest()
        return tuple(replace(each, available=True, unavailable_reason="") for each in board)

    async def levels(self, organisation: str) -> list[LevelView]:
        """The levels with a document or with one on its way, the outermost first."""
        drafts = await self.drafts.drafts()
        names = {"", f"org:{organisation}", *await self.lists.names(organisation), *drafts}
        places = [place_named(organisation, name) for name in names]
        known = sorted((each for each in places if each), key=lambda each: (each.depth, each.name))
        return await self._views(organisation, known[:PLACES_MAX], drafts)

    async def level(self, organisation: str, place: Place) -> LevelView:
        """One level, whether it has a document or not."""
        draft = await self.drafts.draft(place.name)
        drafts = {place.name: draft} if draft else {}
        return (await self._views(organisation, [place], drafts))[0]

    async def key_share(self, version: PolicyVersion) -> KeyShare | None:
        """What the version's share means for the keys of its level (`KeyNames.share_of`)."""
        return await self._keys.share_of(version, self._clock.utc_us())

    async def places_without(self, organisation: str, views: list[LevelView]) -> list[Place]:
        """Workspaces and projects that have keys and no document of their own."""
        taken = {view.place.slug for view in views}
        slugs: set[str] = set()
        for workspace, project in await self._keys.places(organisation):
            slugs |= {f"ws:{workspace}", f"proj:{workspace}:{project}"}
        places = [place_of(organisation, slug) for slug in slugs - taken]
        return sorted(places, key=lambda each: (each.depth, each.name))[:PLACES_MAX]

    async def version(self, place: Place, number: int) -> PolicyVersion:
        """A version of a level; raises NotFoundException."""
        found = await self.lists.version(place.name, number)
        if found is None:
            raise NotFoundException
        return found

    async def document(self, version: PolicyVersion) -> PolicyDocument:
        """A version's document."""
        document = await self.store.document(version.digest)
        assert document is not None  # A foreign key.
        return document

    async def text_of(self, version: PolicyVersion) -> str:
        """A version as it was written, or in our words where only its meaning is known."""
        text = await self.drafts.text_of(version.level, version.number)
        return text or document_text((await self.document(version)).body)

    async def live(self, place: Place) -> tuple[PolicyVersion | None, PolicyDocument | None]:
        """What is live at a level: a version, the configuration's document, or nothing."""
        version = await self.lists.live(place.name)
        if version is not None:
            return version, await self.document(version)
        return None, self.base if place.depth == 0 else None

    async def open_schedules(self, place: Place) -> list[Schedule]:
        """What waits for its time at a level, and what was refused lately."""
        return [each for each in await self._open_schedules() if each.level == place.name]

    async def _open_schedules(self) -> list[Schedule]:
        return await self.schedules.open(self._clock.utc_us() - REFUSED_SHOWN_US)

    async def _views(
        self, organisation: str, places: Sequence[Place], drafts: Mapping[str, PolicyDraft]
    ) -> list[LevelView]:
        acting = await self.lists.standing(organisation, ACTING)
        pending = await self.lists.pending(organisation)
        schedules = await self._open_schedules()
        return [
            await self._view(
                organisation,
                place,
                acting.get(place.name, ()),
                pending.get(place.name, Pending((), 0)),
                drafts.get(place.name),
                tuple(each for each in schedules if each.level == place.name),
            )
            for place in places
        ]

    async def _view(
        self,
        organisation: str,
        place: Place,
        acting: Sequence[PolicyVersion],
        pending: Pending,
        draft: PolicyDraft | None,
        schedules: tuple[Schedule, ...],
    ) -> LevelView:
        live = next((each for each in acting if each.state == "live"), None)
        document = self.base if place.depth == 0 else None
        if live is not None:
            document = await self.document(live)
        hits, names = None, NO_NAMES
        if document is not None:
            hits = await self._hits.count(organisation, place.name, document)
            names = await self._names(organisation, place, document)
        return LevelView(
            place=place,
            live=live,
            body=document.body if document else None,
            digest=document.digest if document else "",
            constraints=_lines("constraint", document, hits, place, names),
            preferences=_lines("preference", document, hits, place, names),
            hits=hits,
            trials=tuple(each for each in acting if each.state in ON_TRIAL),
            pending=pending.newest,
            pending_count=pending.count,
            draft=draft,
            schedules=schedules,
        )

    async def _names(
        self, organisation: str, place: Place, document: PolicyDocument
    ) -> Mapping[str, str]:
        """What decisions call the rules of a level."""
        outer = [(await self.live(each))[1] for each in above(organisation, place)]
        return rule_names([*(each.body for each in outer if each), document.body])


def _lines(
    kind: str,
    document: PolicyDocument | None,
    hits: HitCount | None,
    place: Place,
    names: Mapping[str, str],
) -> tuple[RuleLine, ...]:
    if document is None:
        return ()
    never = {each.path: each.reason for each in unreachable(document.body)}
    body = document.body
    rules: tuple[Constraint | Preference, ...] = (
        body.constraints if kind == "constraint" else body.preferences
    )
    lines = []
    for at, rule in enumerate(rules):
        found = hits.by_rule.get(rule.name, Hits()) if hits else Hits()
        lines.append(
            RuleLine(
                section=f"{kind}s",
                number=at + 1,
                name=rule.name,
                when=_condition(rule),
                effects=effects(rule),
                never_matches=never.get(f"{kind}s[{at}]", ""),
                hits=found.count,
                last_us=found.last_us,
                last_id=found.last_id,
                listed=found.listed,
                decided=decided_by(names[rule.name], place),
            )
        )
    return tuple(lines)


def decided_by(rule: str, place: Place) -> str:
    """The filter of requests of a level for which a rule of its held, by its name in decisions."""
    workspace, project = place.below
    terms = [Term("rule", (rule,))]
    terms += [Term("workspace", (workspace,))] if workspace else []
    terms += [Term("project", (project,))] if project else []
    return render(Filter(tuple(terms)))


def _condition(rule: Constraint | Preference) -> str:
    asked = f"auto:{rule.route}" if isinstance(rule, Preference) and rule.route else ""
    return " · ".join(part for part in (asked, rule.when or "") if part)
