"""Changes what keys may do: narrower at once, wider by two people.

Every deed is recorded before it is done, with the old scope and the new one.
"""

import hashlib
from datetime import datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from litestar.exceptions import NotFoundException
from msgspec import UNSET, Struct, UnsetType

from admin.keys.issuing import EXPIRES_DAYS_MAX
from admin.keys.lines import KeyLine
from admin.second_person import PROPOSED, reason_in
from admin.services import Services
from gateway.actors import NOBODYS, same_person
from gateway.clock import DAY_US
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.oversight.access import Permission, Person
from gateway.oversight.key_scope import (
    KeyScope,
    ScopeChange,
    changes,
    check_labels,
    check_models,
    is_widening,
    new_models,
    scope_of,
)
from gateway.store.identity.key_scopes import KeyProposal, KeyScopes
from gateway.store.traffic.key_impact import COUNT_MAX, KeyImpact
from gateway.types import Translation


DAYS: Final = 7
"""Of so many days, today included, is said what a key asked for."""
ROLLUP_BATCHES: Final = 2
MICRO: Final = 1_000_000


class KeyScopeOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """What a key may do from now on; what is left out stays as it is."""

    models: tuple[str, ...] | UnsetType | None = UNSET
    """Targets it may use; null for all that policy permits."""
    expires_days: int | UnsetType | None = UNSET
    """From now on; null for never."""
    labels: tuple[str, ...] | UnsetType = UNSET
    translation: Translation | UnsetType = UNSET
    reason: str = ""
    """Needed where it lets the key do more: somebody else decides by it."""


class ScopeOutcome(Struct, frozen=True):
    """What came of an order."""

    scope: KeyScope
    """What the key may do now."""
    proposal: KeyProposal | None = None
    """What waits for somebody else; None where the change holds already."""


class ScopeImpact(Struct, frozen=True):
    """What a key asked for in the last days, and what of it a wider scope lets through."""

    asked: int
    refused: int
    """Requests that were refused and named a model that it would get."""
    is_many: bool
    """Whether there are more of them than are counted."""
    models: tuple[str, ...]
    """Those that it would get, of all that are configured."""
    days: int = DAYS


class ProposalTold(Struct, frozen=True):
    """What was proposed of a key last, for its page."""

    newest: KeyProposal
    changes: tuple[ScopeChange, ...]
    others: list[str]
    """Who else than its proposer may agree."""
    is_own: bool
    """Whether whoever looks proposed it."""


class ScopeKeeper:
    """What people may do to the scope of keys."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._impact = KeyImpact(services.database)
        self.scopes = KeyScopes(services.database, services.clock)

    def wanted(self, line: KeyLine, order: KeyScopeOrder) -> KeyScope:
        """What a key would be allowed to do.

        Raises:
            RequestInvalid: with the field that is wrong.
        """
        now = scope_in(line)
        models = now.models if isinstance(order.models, UnsetType) else order.models
        labels = now.labels if isinstance(order.labels, UnsetType) else order.labels
        lenience = order.translation
        check_models(set(models or ()) - set(now.models or ()), self._services.settings.targets)
        if set(labels) != set(now.labels):
            check_labels(labels)
        expires_us = now.expires_us
        if not isinstance(order.expires_days, UnsetType):
            expires_us = self._ends_us(order.expires_days)
        translation = now.translation if isinstance(lenience, UnsetType) else lenience
        return scope_of(models, expires_us, labels, translation)

    async def change(
        self,
        person: Person,
        organisation: str,
        line: KeyLine,
        order: KeyScopeOrder,
        was: str | None = None,
    ) -> ScopeOutcome:
        """Let a key do less now, or have somebody else decide whether it may do more.

        `was` is `mark_of` the scope that was looked at, None where nobody looked.

        Raises:
            ChangedMeanwhile: it was changed since it was looked at.
            Forbidden: it would do more, and whoever asks came by the admin token.
            RequestInvalid: with the field that is wrong.
        """
        now, wanted = scope_in(line), self.wanted(line, order)
        if was is not None and was != mark_of(now):
            raise ChangedMeanwhile("Somebody else changed this key meanwhile.", parameter="was")
        if now == wanted:
            raise RequestInvalid("It may already do this.", parameter="models")
        before, after = _told(line, now), _told(line, wanted)
        if not is_widening(now, wanted):
            async with self._services.deeds.doing(
                person.name, "key.narrowed", organisation, before=before, after=after
            ):
                await self.scopes.narrow(organisation, line.key_id, now, wanted)
            return ScopeOutcome(wanted)
        if person.of_token:
            raise Forbidden(NOBODYS)
        reason = reason_in(order.reason)
        async with self._services.deeds.doing(
            person.name,
            "key.widening_proposed",
            organisation,
            before=before,
            after=after | {"reason": reason},
        ):
            made = await self.scopes.propose(
                organisation, line.key_id, wanted, seen=now, actor=person.name, reason=reason
            )
        return ScopeOutcome(now, made)

    async def approve(
        self, person: Person, organisation: str, proposal_id: str, comment: str
    ) -> KeyProposal:
        """Let a key do what somebody else proposed.

        Raises:
            NotFoundException: the organisation has no such proposal.
            Forbidden: it is their own.
            ChangedMeanwhile, RequestInvalid: it does not wait any more, or has no comment.
        """
        found = await self._found(organisation, proposal_id)
        if same_person(person.name, found.proposed_by):
            raise Forbidden(PROPOSED)
        comment = reason_in(comment)
        impact = await self.impact(organisation, found)
        after = _deed(found) | {"comment": comment, "asked": impact.asked}
        async with self._services.deeds.doing(
            person.name,
            "key.widened",
            organisation,
            before=_scope(found.seen),
            after=after | {"refused": impact.refused} | _scope(found.wanted),
        ):
            return await self.scopes.approve(organisation, proposal_id, person.name, comment)

    async def decline(
        self, person: Person, organisation: str, proposal_id: str, comment: str
    ) -> KeyProposal:
        """Leave a key as it is; raises like `approve`."""
        found = await self._found(organisation, proposal_id)
        if same_person(person.name, found.proposed_by):
            raise Forbidden(PROPOSED)
        comment = reason_in(comment)
        after = _deed(found) | {"comment": comment}
        async with self._services.deeds.doing(
            person.name, "key.widening_declined", organisation, after=after
        ):
            return await self.scopes.end(
                organisation, proposal_id, person.name, comment, "declined"
            )

    async def withdraw(self, person: Person, organisation: str, proposal_id: str) -> KeyProposal:
        """Take back what one proposed; raises NotFoundException, Forbidden, RequestInvalid."""
        found = await self._found(organisation, proposal_id)
        async with self._services.deeds.doing(
            person.name, "key.widening_withdrawn", organisation, after=_deed(found)
        ):
            return await self.scopes.end(organisation, proposal_id, person.name, "", "withdrawn")

    async def impact(self, organisation: str, proposal: KeyProposal) -> ScopeImpact:
        """What a wider scope would have let through."""
        return await self.impact_of(organisation, proposal.key_id, proposal.seen, proposal.wanted)

    async def impact_of(
        self, organisation: str, key_id: str, before: KeyScope, after: KeyScope
    ) -> ScopeImpact:
        """The same of any two scopes."""
        services = self._services
        await services.rollup.catch_up(ROLLUP_BATCHES)
        zone = ZoneInfo(await services.spending.zone_of(organisation))
        now = datetime.fromtimestamp(services.clock.utc_us() / MICRO, zone)
        first = (now - timedelta(days=DAYS - 1)).replace(hour=0, minute=0, second=0, microsecond=0)
        models = new_models(before, after, services.settings.targets)
        refused = await self._impact.refused(
            organisation, key_id, models, int(first.timestamp()) * MICRO
        )
        return ScopeImpact(
            asked=await self._impact.asked(organisation, key_id, first.date().isoformat()),
            refused=refused,
            is_many=refused >= COUNT_MAX,
            models=models,
        )

    async def told(self, organisation: str, key_id: str, person: Person) -> ProposalTold | None:
        """What was proposed last of a key; None where nothing ever was."""
        for newest in await self.scopes.of_key(organisation, key_id):
            others = await self.others(organisation, newest.proposed_by)
            is_own = same_person(person.name, newest.proposed_by)
            return ProposalTold(newest, changes_of(newest), others, is_own)
        return None

    async def others(self, organisation: str, proposed_by: str) -> list[str]:
        """Who may approve what somebody proposed."""
        return [
            each.name
            for each in await self._services.people_lists.able(
                Permission.KEYS_APPROVE, organisation
            )
            if not same_person(each.name, proposed_by)
        ]

    async def _found(self, organisation: str, proposal_id: str) -> KeyProposal:
        found = await self.scopes.proposal(organisation, proposal_id)
        if found is None:
            raise NotFoundException
        if found.state != "waiting":
            raise RequestInvalid(f"This proposal is {found.state}.", parameter="id")
        return found

    def _ends_us(self, days: int | None) -> int | None:
        if days is None:
            return None
        if not 0 < days <= EXPIRES_DAYS_MAX:
            raise RequestInvalid(f"1 to {EXPIRES_DAYS_MAX} days", parameter="expires_days")
        return self._services.clock.utc_us() + days * DAY_US


def scope_in(line: KeyLine) -> KeyScope:
    """What a key may do now."""
    lenience: Any = line.translation
    return scope_of(line.models, line.expires_us, line.labels, lenience)


def mark_of(scope: KeyScope) -> str:
    """By which a form says what was looked at."""
    return hashlib.sha256(msgspec.json.encode(scope)).hexdigest()


def changes_of(proposal: KeyProposal) -> tuple[ScopeChange, ...]:
    return changes(proposal.seen, proposal.wanted)


def _scope(scope: KeyScope) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(scope)
    return found


def _told(line: KeyLine, scope: KeyScope) -> dict[str, object]:
    return {"key_id": line.key_id, "name": line.name} | _scope(scope)


def _deed(found: KeyProposal) -> dict[str, object]:
    return {
        "key_id": found.key_id,
        "name": found.key_name,
        "proposal": found.id,
        "proposed_by": found.proposed_by,
        "reason": found.reason,
    }
