"""The number of what waits for whoever looks, in the bar of every page."""

from collections.abc import Sequence
from typing import Final

from admin.keys.scope_rights import refused_widening
from admin.models.price_rights import refused_prices
from admin.policy_room.erasure_rights import refused_erasure
from admin.policy_room.places import may, place_named
from admin.shell import Badge
from admin.system.retirement_rights import refused_retirement
from gateway.oversight.access import Permission, Person, allows
from gateway.rollout.versions import PolicyVersion, same_person
from gateway.store.custody.erasure_cases import ErasureCases
from gateway.store.custody.orders import Custody
from gateway.store.evidence.retirements import Retirements
from gateway.store.identity.key_scopes import KeyScopes
from gateway.store.money.price_proposals import PriceProposals
from gateway.store.policies.documents import PolicyStore


OWN: Final = "You asked for this: somebody else decides."


def refused(person: Person, organisation: str, version: PolicyVersion) -> str:
    """Why somebody may not approve a version; empty where they may."""
    place = place_named(organisation, version.level)
    assert place is not None
    if not may(person, Permission.POLICIES_APPROVE, organisation, place):
        return "No role of yours approves policies at this level."
    return OWN if same_person(person.name, version.author) else ""


class PendingBadge:
    """Counts for the shell."""

    def __init__(
        self,
        policies: PolicyStore,
        custody: Custody,
        proposals: PriceProposals,
        cases: ErasureCases,
        scopes: KeyScopes,
        retirements: Retirements,
    ) -> None:
        self._policies = policies
        self._custody = custody
        self._proposals = proposals
        self._cases = cases
        self._scopes = scopes
        self._retirements = retirements

    async def __call__(self, person: Person, organisation: str) -> Sequence[Badge]:
        count = 0
        if allows(person, Permission.POLICIES_APPROVE, organisation or None):
            count += sum(
                place_named(organisation, each.level) is not None
                and not refused(person, organisation, each)
                for each in await self._policies.awaiting()
            )
        if organisation and allows(person, Permission.CONTENT_APPROVE_REVEAL, organisation):
            waiting = await self._custody.waiting_reveals(organisation)
            count += sum(not same_person(each.asked_by, person.name) for each in waiting)
        if organisation and allows(person, Permission.HOLDS_SET, organisation):
            held = await self._custody.holds(organisation)
            asked_by = [each.release_by for each in held if each.release_by]
            count += sum(not same_person(each, person.name) for each in asked_by)
        if organisation and allows(person, Permission.KEYS_APPROVE, organisation):
            widenings = await self._scopes.waiting(organisation)
            count += sum(not refused_widening(person, each) for each in widenings)
        if organisation and allows(person, Permission.CONTENT_APPROVE_ERASURE, organisation):
            asked = await self._cases.asked(organisation)
            count += sum(not refused_erasure(person, each) for each in asked)
        if allows(person, Permission.PRICES_APPROVE):
            waiting_prices = await self._proposals.waiting()
            count += sum(not refused_prices(person, each) for each in waiting_prices)
        if allows(person, Permission.WORKERS_APPROVE_RETIREMENT):
            lost = await self._retirements.waiting()
            count += sum(not refused_retirement(person, each) for each in lost)
        if not count:
            return ()
        word = f"{count} to approve"
        return (Badge(word, "warn", f"/o/{organisation}/approvals", "What waits for you"),)
