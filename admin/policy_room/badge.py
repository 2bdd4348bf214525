"""The number in every page's bar of what waits for the person looking."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from admin.policy_room.places import Place, may, place_named
from admin.second_person import ASKED, refused_prices, refused_retirement
from admin.shell import Badge
from gateway.actors import same_person
from gateway.oversight.access import Permission, Person, allows
from gateway.store.custody.custody_lists import CustodyLists
from gateway.store.erasure.cases import ErasureCases
from gateway.store.evidence.retirements import Retirements
from gateway.store.identity.key_scopes import KeyScopes
from gateway.store.money.price_proposals import PriceProposals
from gateway.store.money.raises import BudgetRaises
from gateway.store.policies.documents import PolicyStore


def refused(person: Person, organisation: str, place: Place, author: str) -> str:
    """Why somebody may not approve a version of this author; empty where they may."""
    if not may(person, Permission.POLICIES_APPROVE, organisation, place):
        return "None of your roles may approve policies at this level."
    return ASKED if same_person(person.name, author) else ""


class PendingBadge:
    """Counts for the shell."""

    def __init__(
        self,
        policies: PolicyStore,
        custody: CustodyLists,
        proposals: PriceProposals,
        cases: ErasureCases,
        scopes: KeyScopes,
        *,
        retirements: Retirements,
        raises: BudgetRaises,
    ) -> None:
        self._policies = policies
        self._custody = custody
        self._proposals = proposals
        self._cases = cases
        self._scopes = scopes
        self._retirements = retirements
        self._raises = raises

    async def __call__(self, person: Person, organisation: str) -> Sequence[Badge]:
        count = 0
        if allows(person, Permission.POLICIES_APPROVE, organisation or None):
            for level, author, waiting in await self._policies.lists.waiting_by(organisation):
                place = place_named(organisation, level)
                if place is not None and not refused(person, organisation, place, author):
                    count += waiting
        if organisation:
            count += await self._of_others(person, organisation)
        if allows(person, Permission.PRICES_APPROVE):
            waiting_prices = (await self._proposals.waiting()).rows
            count += sum(not refused_prices(person, each) for each in waiting_prices)
        if allows(person, Permission.WORKERS_APPROVE_RETIREMENT):
            lost = (await self._retirements.waiting()).rows
            count += sum(not refused_retirement(person, each) for each in lost)
        if not count:
            return ()
        word = f"{count:,} to approve"
        return (Badge(word, "warn", f"/o/{organisation}/approvals", "Waiting for you"),)

    async def _of_others(self, person: Person, organisation: str) -> int:
        """What others asked for in an organisation, and this person may decide."""
        waits: Sequence[tuple[Permission, Callable[[str], Awaitable[Counter[str]]]]] = (
            (Permission.CONTENT_APPROVE_REVEAL, self._custody.waiting_reveals_by),
            (Permission.HOLDS_SET, self._custody.releases_by),
            (Permission.KEYS_APPROVE, self._scopes.waiting_by),
            (Permission.BUDGETS_SET, self._raises.waiting_by),
            (Permission.CONTENT_APPROVE_ERASURE, self._cases.asked_by),
        )
        count = 0
        for permission, waiting_by in waits:
            if allows(person, permission, organisation) and not person.of_token:
                for asked_by, waiting in (await waiting_by(organisation)).items():
                    count += 0 if same_person(asked_by, person.name) else waiting
        return count
