"""The approvals inbox: all that waits for a second person, in one list, with its effects."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import urlencode

from msgspec import Struct

from admin.compliance.office import erasures_of
from admin.costs.limits import Standing
from admin.costs.raising import RaiseKeeper
from admin.keys.scoping import ScopeImpact, ScopeKeeper, changes_of
from admin.models.price_diff import PriceDiff
from admin.models.price_keeping import PriceKeeper
from admin.models.prices import DAYS
from admin.policy_room.badge import refused
from admin.policy_room.limits import guard_amendments
from admin.policy_room.matter_words import held_by, reading_of, whose_content
from admin.policy_room.pages import EMPTY
from admin.policy_room.places import place_named
from admin.policy_room.room import PolicyRoom
from admin.policy_room.weighing import Weight
from admin.queries import Query
from admin.second_person import (
    ASKED,
    refused_erasure,
    refused_prices,
    refused_raise,
    refused_retirement,
    refused_widening,
)
from admin.system.retiring import more_than_shown
from gateway.actors import same_person
from gateway.batching.left_open import LeftBehind
from gateway.configuration.guarding import wider
from gateway.oversight.access import Permission, Person, allows
from gateway.oversight.key_scope import ScopeChange
from gateway.store.custody.custody_lists import CustodyLists
from gateway.store.custody.orders import Custody, CustodyRefused
from gateway.store.erasure.attempts import Attempt
from gateway.store.erasure.cases import ErasureCase
from gateway.store.erasure.erasing import Consequences
from gateway.store.evidence.retirements import Retirement
from gateway.store.identity.key_scopes import KeyProposal
from gateway.store.money.raises import BudgetRaise
from gateway.store.pages import START, Part
from policies.checking.difference import Amendment, amendments


WEIGHED_MAX: Final = 5
"""Of so many matters of a kind the impact is told here; of the others on their own pages."""
PAGE_MATTERS: Final = 20
KINDS: Final = ("policies", "prices", "keys", "budgets", "workers", "reveals", "erasures", "holds")
KIND: Final = Query("kind", "Of one kind only.", choices=KINDS)


class Matter(Struct, frozen=True):
    """One thing that waits; `kind` is one of KINDS."""

    kind: str
    id: str
    """A version's or a price proposal's number, or the id of anything else."""
    title: str
    href: str
    asked_by: str
    asked_us: int
    """0 where nothing says when."""
    why: str
    refused: str
    """Why whoever looks may not decide it; empty where they may."""
    subject: str = ""
    """The digest of the end user whom it concerns; empty for everybody, or nobody."""
    level: str = ""
    """The slug of a version's level."""
    changes: tuple[Amendment, ...] = ()
    weight: Weight | None = None
    wider: tuple[str, ...] = ()
    """What a version's own limits allow beyond the installation's."""
    prices: PriceDiff | None = None
    """What a price file changes; None where it would be refused by now."""
    problem: str = ""
    """Why prices would be refused, or an erasure; or what more of a worker is open than shown."""
    days: int = DAYS
    """Of so many days before, what they would have cost is told."""
    widening: KeyProposal | None = None
    scope_changes: tuple[ScopeChange, ...] = ()
    scope_impact: ScopeImpact | None = None
    """What a key asked for lately that it would get; None where it is not counted here."""
    larger: BudgetRaise | None = None
    """The limit that is to be larger, as it was asked for."""
    standing: Standing | None = None
    """That limit as it stands; None where it is not read for this page."""
    retirement: Retirement | None = None
    left: LeftBehind | None = None
    """What of a lost worker would be ended; None where it is not counted for this page."""
    case: ErasureCase | None = None
    begun: Attempt | None = None
    """Who began to erase and did not come to the end; None where nobody did."""
    erased: Consequences | None = None
    """What an erasure would destroy; None where it is not counted for this page."""


Stretch: TypeAlias = tuple[int, int, str]
"""How many come before it, how many are wanted, and the key of the last before it."""
Source: TypeAlias = Callable[[Stretch], Awaitable[Part[Matter]]]
"""Some of a kind; where none are wanted it only counts."""
Reader: TypeAlias = Callable[[Person, str, Stretch], Awaitable[Part[Matter]]]
_COUNTING: Final[Stretch] = (0, 0, "")
_OF: Final = ":"
"""Between a kind and the key of its last matter on a page."""


class Waiting(Struct, frozen=True):
    """A page of the inbox."""

    matters: Part[Matter]
    counts: dict[str, int]
    """How many wait of each kind, of those that wait."""
    kind: str
    """The only one that is shown; empty for all."""


class Inbox:
    """Gathers what waits in an organisation."""

    def __init__(self, room: PolicyRoom) -> None:
        services = room.services
        self._room = room
        self.prices = PriceKeeper(services)
        self.keys = ScopeKeeper(services)
        self.budgets = RaiseKeeper(services)
        self.workers = services.lost_workers
        self.custody = Custody(services.database, services.log, services.clock)
        self.lists = CustodyLists(services.database, services.clock)
        self.erasures = erasures_of(services)

    async def read(
        self, person: Person, organisation: str, kind: str, place: tuple[int, str] = START
    ) -> Waiting:
        """Some of what somebody may see of it, the oldest of each kind first; `kind` may be "".

        `place` is how many come before, and a kind with the key in it behind which to go on. What
        stands on other pages is only counted: a document of each of ten thousand versions would
        take minutes.
        """
        sources = self._sources(person, organisation)
        counts = {name: (await read(_COUNTING)).count for name, read in sources.items()}
        kind = kind if kind in sources else ""
        asked = [kind] if kind else [*sources]
        total = sum(counts[name] for name in asked)
        first, onward = place
        if first >= total:
            first, onward = max(total - 1, 0) // PAGE_MATTERS * PAGE_MATTERS, ""
        found: list[Matter] = []
        for name, start, key in _from(asked, counts, first, onward):
            room = PAGE_MATTERS - len(found)
            if start < counts[name] and room:
                some = await sources[name]((start, room, key))
                if not found:
                    first = some.first + sum(counts[each] for each in asked[: asked.index(name)])
                found += some.rows
                onward = f"{name}{_OF}{some.onward}"
                if not some.following:
                    onward = "".join(asked[asked.index(name) + 1 :][:1]) + _OF
        part = Part(tuple(found), total, first, onward)
        return Waiting(part, {name: count for name, count in counts.items() if count}, kind)

    def _sources(self, person: Person, organisation: str) -> dict[str, Source]:
        """By kind, in the order of KINDS, what somebody may see."""
        sources: tuple[tuple[str, Permission, str | None, Reader], ...] = (
            ("policies", Permission.POLICIES_READ, organisation, self._policies),
            ("prices", Permission.SYSTEM_READ, None, self._prices),
            ("keys", Permission.KEYS_READ, organisation, self._keys),
            ("budgets", Permission.BUDGETS_READ, organisation, self._budgets),
            ("workers", Permission.SYSTEM_READ, None, self._workers),
            ("reveals", Permission.CONTENT_APPROVE_REVEAL, organisation, self._reveals),
            ("erasures", Permission.CONTENT_APPROVE_ERASURE, organisation, self._erasures),
            ("holds", Permission.HOLDS_SET, organisation, self._holds),
        )
        return {
            kind: partial(read, person, organisation)
            for kind, permission, where, read in sources
            if allows(person, permission, where)
        }

    async def _policies(self, person: Person, organisation: str, stretch: Stretch) -> Part[Matter]:
        reader = self._room.reader
        part = await reader.lists.waiting(organisation, *stretch)
        found: list[Matter] = []
        for version in part.rows:
            place = place_named(organisation, version.level)
            assert place is not None  # These alone are over an organisation's requests.
            document = await reader.document(version)
            _, live = await reader.live(place)
            weight = None
            if len(found) < WEIGHED_MAX:
                weight = await self._room.weigher.weigh(organisation, place, document)
            found.append(
                Matter(
                    kind="policies",
                    id=str(version.number),
                    title=f"{place.title}, version {version.number}",
                    href=f"/o/{organisation}/policies/{place.slug}/versions/{version.number}",
                    asked_by=version.author,
                    asked_us=version.created_us,
                    why=version.note,
                    refused=refused(person, organisation, place, version.author),
                    level=place.slug,
                    changes=(
                        *amendments(live.body if live else EMPTY, document.body),
                        *guard_amendments(reader.guard, version.guard or reader.guard),
                    ),
                    wider=wider(version.guard, reader.guard),
                    weight=weight,
                )
            )
        return part.of(found)

    async def _prices(self, person: Person, _: str, stretch: Stretch) -> Part[Matter]:
        """They hold for all organisations, so they wait in the inbox of each."""
        part = await self.prices.proposals.waiting(*stretch)
        found = []
        for each in part.rows:
            comparison = await self.prices.compared(each.file)
            found.append(
                Matter(
                    kind="prices",
                    id=str(each.number),
                    title=f"Price file {each.file}" if each.file else "Prices as configured",
                    href=f"/models/prices/files/{each.file}",
                    asked_by=each.proposed_by,
                    asked_us=each.proposed_us,
                    why=each.reason,
                    refused=refused_prices(person, each),
                    prices=comparison.found,
                    problem=comparison.problem,
                )
            )
        return part.of(found)

    async def _workers(self, person: Person, _: str, stretch: Stretch) -> Part[Matter]:
        """As with prices; with what would be ended as things are now."""
        part = await self.workers.cases.waiting(*stretch)
        found = []
        for place, each in enumerate(part.rows):
            left = await self.workers.left(each.worker) if place < WEIGHED_MAX else None
            found.append(
                Matter(
                    kind="workers",
                    id=each.id,
                    title=f"Retire the worker {each.worker} for good",
                    href=f"/system/gone/{each.worker}",
                    asked_by=each.asked_by,
                    asked_us=each.asked_us,
                    why=each.reason,
                    refused=refused_retirement(person, each),
                    problem=more_than_shown(each, left) if left else "",
                    retirement=each,
                    left=left,
                )
            )
        return part.of(found)

    async def _keys(self, person: Person, organisation: str, stretch: Stretch) -> Part[Matter]:
        part = await self.keys.scopes.waiting(organisation, *stretch)
        found = []
        for place, each in enumerate(part.rows):
            impact = None
            if place < WEIGHED_MAX:
                impact = await self.keys.impact(organisation, each)
            found.append(
                Matter(
                    kind="keys",
                    id=each.id,
                    title=f"Wider permissions for the key {each.key_name}",
                    href=f"/o/{organisation}/keys/{each.key_id}#scope",
                    asked_by=each.proposed_by,
                    asked_us=each.proposed_us,
                    why=each.reason,
                    refused=refused_widening(person, each),
                    widening=each,
                    scope_changes=changes_of(each),
                    scope_impact=impact,
                )
            )
        return part.of(found)

    async def _budgets(self, person: Person, organisation: str, stretch: Stretch) -> Part[Matter]:
        part = await self.budgets.raises.waiting(organisation, *stretch)
        found = []
        for place, (each, title) in enumerate(await self.budgets.told(organisation, part.rows)):
            standing = None
            if place < WEIGHED_MAX:
                standing = await self.budgets.standing(organisation, each.account, each.window)
            at = urlencode({"open": each.account})
            found.append(
                Matter(
                    kind="budgets",
                    id=each.id,
                    title=f"A larger limit for {title}",
                    href=f"/o/{organisation}/costs/limits?{at}#{each.account}",
                    asked_by=each.asked_by,
                    asked_us=each.asked_us,
                    why=each.reason,
                    refused=refused_raise(person, each),
                    larger=each,
                    standing=standing,
                )
            )
        return part.of(found)

    async def _reveals(self, person: Person, organisation: str, stretch: Stretch) -> Part[Matter]:
        part = await self.lists.waiting_reveals(organisation, *stretch)
        may_look = allows(person, Permission.AUDIT_READ, organisation)
        found = [
            Matter(
                kind="reveals",
                id=each.id,
                title=reading_of(each),
                href=f"/o/{organisation}/compliance/reveals/{each.id}" if may_look else "",
                asked_by=each.asked_by,
                asked_us=each.asked_us,
                why=f"{each.reason} ({each.ticket})",
                refused=ASKED if same_person(each.asked_by, person.name) else "",
            )
            for each in part.rows
        ]
        return part.of(found)

    async def _erasures(self, person: Person, organisation: str, stretch: Stretch) -> Part[Matter]:
        """With what each would destroy as things are now, not as they were when it was asked."""
        part = await self.erasures.cases.asked(organisation, *stretch)
        found = []
        may_look = allows(person, Permission.AUDIT_READ, organisation)
        begun = await self.erasures.cases.attempts.begun(organisation)
        for place, case in enumerate(part.rows):
            erased, problem = None, ""
            try:
                if place < WEIGHED_MAX:
                    erased = await self.erasures.consequences(organisation, case.subject or None)
            except CustodyRefused as error:
                problem = str(error)
            at = f"/o/{organisation}/compliance/erasures/{case.id}"
            found.append(
                Matter(
                    kind="erasures",
                    id=case.id,
                    title=f"Erase {whose_content(case)} for good",
                    href=at if may_look else "",
                    asked_by=case.asked_by,
                    asked_us=case.asked_us,
                    why=f"{case.ticket}, opened by {case.opened_by}",
                    refused=refused_erasure(person, case),
                    case=case,
                    subject=case.subject,
                    begun=begun.get(case.id),
                    erased=erased,
                    problem=problem,
                )
            )
        return part.of(found)

    async def _holds(self, person: Person, organisation: str, stretch: Stretch) -> Part[Matter]:
        part = await self.lists.releases(organisation, *stretch)
        found = [
            Matter(
                kind="holds",
                id=each.id,
                title=f"Release the hold on {held_by(each)}",
                href=f"/o/{organisation}/compliance/holds",
                asked_by=each.release_by,
                # A hold's row does not say when its release was asked for.
                asked_us=0,
                why=f"Held because: {each.reason}",
                subject=each.subject,
                refused=ASKED if same_person(each.release_by, person.name) else "",
            )
            for each in part.rows
        ]
        return part.of(found)


def _from(
    asked: Sequence[str], counts: Mapping[str, int], first: int, onward: str
) -> Iterator[tuple[str, int, str]]:
    """Kinds from a place on: of each how many come before, and the key of the last of these."""
    begins, _, key = onward.partition(_OF)
    before = 0
    for name in asked:
        start = max(first - before, 0)
        before += counts[name]
        if begins not in asked:
            yield name, start, ""
        elif name == begins:
            yield name, min(start, max(counts[name] - 1, 0)) if key else 0, key
        elif asked.index(name) > asked.index(begins):
            yield name, 0, ""
