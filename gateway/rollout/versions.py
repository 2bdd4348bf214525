"""The life of a policy version, and which version governs whom. Pure: all state is passed in.

    draft ──approve──▶ approved ──shadow──▶ shadow ──canary──▶ canary ──publish──▶ live ──▶ retired
      │                    └───────────────────┴──────────────────┴────publish──────▲
      └─reject─▶ rejected           shadow, canary ──stop──▶ approved │ canary ──guard──▶ withdrawn

A rollback makes the version live again that was live before. If it was a level's first version,
there is none: the rollback retires it, and the levels above govern alone as they did before.

Levels are named like budget accounts (`org:…`, `ws:…`, `proj:…`); the installation's own is "".
Nobody approves what they wrote themselves, and no version takes effect before it was approved.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.actors import NOBODYS, TOKENS_NAME, is_typed, same_person
from gateway.configuration.guarding import GuardRules
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.types import Principal
from policies.hierarchy import compose
from policies.ordering import FASTEST, share
from policies.program import PolicyDocument


State = Literal["draft", "approved", "rejected", "shadow", "canary", "live", "retired", "withdrawn"]
Action = Literal["approve", "reject", "shadow", "canary", "publish", "stop", "withdraw"]

INSTALLATION: Final = ""
PERCENT: Final = 100
_STEPS: Final[Mapping[Action, tuple[frozenset[State], State]]] = {
    "approve": (frozenset({"draft"}), "approved"),
    "reject": (frozenset({"draft", "approved"}), "rejected"),
    "shadow": (frozenset({"approved"}), "shadow"),
    "canary": (frozenset({"approved", "shadow", "canary"}), "canary"),
    "publish": (frozenset({"approved", "shadow", "canary"}), "live"),
    "stop": (frozenset({"shadow", "canary"}), "approved"),
    "withdraw": (frozenset({"shadow", "canary"}), "withdrawn"),
}
_SAID: Final[Mapping[State, str]] = {
    "draft": "in review",
    "rejected": "declined",
    "shadow": "in the shadow",
    "canary": "a canary",
}
"""Names of states for people, if they differ."""
_DONE: Final[Mapping[Action, str]] = {
    "approve": "be approved",
    "reject": "be declined",
    "shadow": "go into the shadow",
    "canary": "be a canary",
    "publish": "go live",
    "stop": "be stopped",
    "withdraw": "be taken back",
}
ALONE: Final[Mapping[State, State]] = {
    "live": "retired",
    "shadow": "approved",
    "canary": "approved",
}
"""States that only one version of a level can have, and what its predecessor becomes."""


class PolicyVersion(Struct, frozen=True):
    """One version of a level's document, and its state."""

    level: str
    number: int
    digest: str
    state: State
    author: str
    created_us: int
    note: str = ""
    approver: str = ""
    percent: float = 0.0
    guard: GuardRules | None = None
    """None if it keeps the installation's own limits as a canary."""


class PolicyEvent(Struct, frozen=True):
    """One line of a level's history."""

    level: str
    number: int
    utc_us: int
    actor: str
    action: str
    reason: str


class Acting(Struct, frozen=True):
    """Which versions of a level acted at one moment, by number; 0 for none.

    Without a live version the levels above governed alone, and above all of them the configuration.
    """

    live: int = 0
    canary: int = 0
    shadow: int = 0
    since_us: int = 0
    """When this began; 0 if nothing had been done before."""


def acting_at(history: Iterable[PolicyEvent], utc_us: int) -> Acting:
    """What acted at that moment, from one level's history in order."""
    acting = Acting()
    for event, after in _followed(history):
        if event.utc_us > utc_us:
            break
        acting = after
    return acting


def canary_began(history: Iterable[PolicyEvent]) -> int:
    """Number of the deed of a level, counted from one, that began its canary; 0 without a canary.

    The same version may be tried again, and the counts are then those of another trial.
    """
    began = canary = 0
    for place, (_, acting) in enumerate(_followed(history), start=1):
        if acting.canary != canary:
            began, canary = place, acting.canary
    return began if canary else 0


def _followed(history: Iterable[PolicyEvent]) -> Iterator[tuple[PolicyEvent, Acting]]:
    """Each event with what acts after it."""
    acting = Acting()
    for event in history:
        match event.action:
            case "publish" | "roll_back":
                # What was on trial against the former live version has to be tried again.
                after = Acting(live=event.number)
            case "retire":
                after = Acting()
            case "canary":
                shadow = 0 if acting.shadow == event.number else acting.shadow
                after = Acting(acting.live, event.number, shadow)
            case "shadow":
                after = Acting(acting.live, acting.canary, event.number)
            case "stop" | "withdraw":
                after = Acting(
                    acting.live,
                    0 if acting.canary == event.number else acting.canary,
                    0 if acting.shadow == event.number else acting.shadow,
                )
            case _:
                yield event, acting
                continue
        acting = replace(after, since_us=event.utc_us)
        yield event, acting


def former_of(history: Iterable[PolicyEvent]) -> int:
    """The version that was live before the one that governs now; 0 if there was none."""
    lives = [0]
    for event in history:
        if event.action in ("publish", "roll_back"):
            lives.append(event.number)
        elif event.action == "retire":
            lives.append(0)
    return lives[-2] if len(lives) > 1 else 0


OTHER_PERSON: Final = "A policy is approved by somebody else than its author."
OTHER_USER: Final = (
    f"{OTHER_PERSON} At the command line that is another user of the machine, whatever name --by "
    "says; in the admin pages it is whoever is signed in."
)


def step(version: PolicyVersion, action: Action, actor: str) -> State:
    """The state after an action.

    Raises:
        Forbidden: the author approves.
        ChangedMeanwhile: the version already has that state: pressed twice, or somebody was faster.
        RequestInvalid: the action does not fit the state.
    """
    sources, state = _STEPS[action]
    if version.state not in sources:
        said = f"version {version.number} is {_SAID.get(version.state, version.state)}"
        if version.state == state:
            raise ChangedMeanwhile(f"{said} already")
        raise RequestInvalid(f"{said}: it cannot {_DONE[action]} now")
    if action == "approve" and same_person(actor, version.author):
        if version.author == TOKENS_NAME:
            raise Forbidden(NOBODYS)
        raise Forbidden(OTHER_USER if is_typed(actor) else OTHER_PERSON)
    return state


class Level(Struct, frozen=True):
    """The acting documents of one level."""

    live: PolicyDocument | None = None
    canary: PolicyDocument | None = None
    canary_number: int = 0
    percent: float = 0.0
    shadow: PolicyDocument | None = None
    guard: GuardRules | None = None
    """The canary's own limits; None for the installation's."""
    canary_began: int = 0
    """See `canary_began`."""


class Governing(Struct, frozen=True):
    """What decides for one project: the document in force, and those on trial."""

    document: PolicyDocument
    trials: tuple["Trial", ...] = ()
    shadow: PolicyDocument | None = None

    def document_for(self, principal: Principal) -> PolicyDocument:
        """The one document that decides for a key of the project."""
        for trial in self.trials:
            if trial.takes(principal):
                return trial.document
        return self.document

    def facts_read(self, governed: PolicyDocument) -> frozenset[str]:
        """The facts that the deciding document looks at, and the one in its shadow."""
        shadow = self.shadow
        return governed.facts_read if shadow is None else governed.facts_read | shadow.facts_read


class Trial(Struct, frozen=True):
    """A canary: who gets it, and the complete document with it in its level's place."""

    level: str
    number: int
    percent: float
    version_digest: str
    document: PolicyDocument
    guard: GuardRules | None = None
    began: int = 0
    """The number of the deed of its level that began it."""

    def takes(self, principal: Principal) -> bool:
        """Whether a key is in the trial; the same key stays with the same version while it runs."""
        return is_taken(self.version_digest, principal.key_id, self.percent)


def is_taken(version_digest: str, key_id: str, percent: float) -> bool:
    """Whether a key is in a canary's share."""
    return share(version_digest, key_id) * PERCENT < percent


class PolicySet:
    """All acting documents of a snapshot. Compositions are cached: the set never changes."""

    def __init__(
        self,
        base: PolicyDocument,
        levels: Mapping[str, Level] | None = None,
        visible_headers: Mapping[bytes, str] | None = None,
        unkept: dict[str, PolicyDocument] | None = None,
    ) -> None:
        """`base` governs until the installation's own level has a live version.

        `visible_headers` are the request headers that policies may see, with the names they use.
        `unkept` is that of the previous set.
        """
        self.visible_headers = visible_headers or {}
        self.levels = dict(levels or {})
        own = self.levels.get(INSTALLATION, Level())
        self.base = own.live or base
        self.unkept = {} if unkept is None else unkept
        """By digest, documents composed of several levels that decide here and are no version of
        any: records name them, so they have to be stored before they can be explained."""
        self._governing: dict[str, Governing] = {}

    @property
    def digests(self) -> list[tuple[object, ...]]:
        """What distinguishes this set from any other, even if only a canary's guard differs."""
        found: list[tuple[object, ...]] = [("", self.base.digest, "", 0.0, "")]
        for name, level in sorted(self.levels.items()):
            documents = [each.digest if each else "" for each in (level.live, level.canary)]
            shadow = level.shadow.digest if level.shadow else ""
            began = (level.canary_began,) if level.canary else ()
            found.append((name, *documents, level.percent, shadow, level.guard, *began))
        return found

    @cached_property
    def canaries(self) -> frozenset[tuple[str, int, int]]:
        """Level and number of every version on trial with some keys, and when the trial began."""
        return frozenset(
            (name, level.canary_number, level.canary_began)
            for name, level in self.levels.items()
            if level.canary
        )

    @cached_property
    def orders_by_speed(self) -> bool:
        """Whether any acting document looks at measured speeds."""
        levels = self.levels.values()
        documents = [self.base, *(each for level in levels for each in _acting(level))]
        return any(FASTEST in order for document in documents for order in _orders(document))

    @cached_property
    def stays_warm(self) -> bool:
        """Whether any acting document asks where a conversation is cached."""
        levels = self.levels.values()
        documents = [self.base, *(each for level in levels for each in _acting(level))]
        return any(rule.stay_warm for each in documents for rule in each.body.preferences)

    @cached_property
    def tries_targets(self) -> bool:
        """Whether any acting document gives a target on trial a share of the callers."""
        levels = self.levels.values()
        documents = [self.base, *(each for level in levels for each in _acting(level))]
        return any(rule.canary for each in documents for rule in each.body.preferences)

    @cached_property
    def keeps_answers(self) -> bool:
        """Whether any acting document allows answers to be repeated."""
        levels = self.levels.values()
        documents = [self.base, *(each for level in levels for each in _acting(level))]
        return any(
            each.body.defaults.cache_s or any(rule.cache_s for rule in each.body.preferences)
            for each in documents
        )

    def document_for(self, principal: Principal) -> PolicyDocument:
        """The one document that decides for a key."""
        return self.governing(principal).document_for(principal)

    def governing(self, principal: Principal) -> Governing:
        """The composed documents of a principal's project."""
        return self.governing_accounts(principal.accounts)

    def governing_accounts(self, accounts: tuple[str, ...]) -> Governing:
        """The same by the accounts of the tree, from the top down."""
        project = accounts[2] if len(accounts) > 2 else ""  # noqa: PLR2004
        known = self._governing.get(project)
        if known is None:
            known = self._governing[project] = self._compose(accounts[:3])
        return known

    def watched(self) -> list[Governing]:
        """What was composed so far and has something on trial."""
        return [each for each in self._governing.values() if each.trials]

    def _compose(self, accounts: tuple[str, ...]) -> Governing:
        names = [INSTALLATION, *(name for name in accounts if name in self.levels)]
        live = {name: self._live(name) for name in names}
        trials: list[Trial] = []
        shadow: PolicyDocument | None = None
        for name in names:
            level = self.levels.get(name, Level())
            if level.canary is not None:
                whole = _whole({**live, name: level.canary})
                trials.append(
                    Trial(
                        name,
                        level.canary_number,
                        level.percent,
                        level.canary.digest,
                        whole,
                        level.guard,
                        level.canary_began,
                    )
                )
            if level.shadow is not None and shadow is None:
                shadow = _whole({**live, name: level.shadow})
        governing = Governing(_whole(live), tuple(trials), shadow)
        for each in (governing.document, *(trial.document for trial in trials)):
            if each.levels:
                self.unkept[each.digest] = each
        return governing

    def _live(self, name: str) -> PolicyDocument | None:
        return self.base if name == INSTALLATION else self.levels[name].live


def _acting(level: Level) -> list[PolicyDocument]:
    return [each for each in (level.live, level.canary, level.shadow) if each is not None]


def _orders(document: PolicyDocument) -> list[tuple[str, ...]]:
    body = document.body
    return [body.defaults.order, *(preference.order for preference in body.preferences)]


def _whole(documents: Mapping[str, PolicyDocument | None]) -> PolicyDocument:
    return compose([each for each in documents.values() if each is not None])
