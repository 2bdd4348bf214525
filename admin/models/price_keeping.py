"""Stores price files, and puts them in force by two people; every deed is recorded first."""

from litestar.exceptions import NotFoundException, PermissionDeniedException

from admin.models.prices import Comparison, PriceDesk
from admin.second_person import PROPOSED, reason_in
from admin.services import Services
from gateway.actors import same_person
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.money.price_file import configured_prices
from gateway.oversight.access import Permission, Person, allows
from gateway.store.money.price_files import CONFIGURED, PriceOrder
from gateway.store.money.price_proposals import PriceProposal


class PriceKeeper:
    """For whoever is signed in."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._desk = PriceDesk(services)
        self.proposals = self._desk.proposals

    async def compared(self, number: int) -> Comparison:
        """What a file would change now; raises NotFoundException."""
        if number == CONFIGURED:
            return await self._desk.with_prices(await configured_prices(self._services.settings))
        try:
            return await self._desk.with_prices(await self._services.prices.text(number))
        except RequestInvalid:
            raise NotFoundException from None

    async def others(self, proposed_by: str) -> list[str]:
        """Who may approve what somebody proposed."""
        return [
            each.name
            for each in await self._services.people_lists.able(Permission.PRICES_APPROVE)
            if not same_person(each.name, proposed_by)
        ]

    async def keep(self, person: Person, name: str, text: str) -> int:
        """Keep a file that could be put in force; raises RequestInvalid where it could not."""
        comparison = await self._desk.with_text(text, name)
        more_of(comparison)
        after = {"name": name[:100], "length_bytes": len(text.encode())}
        async with self._services.deeds.doing(person.name, "prices.kept", "", after=after):
            return await self._services.prices.add(name, text, person.name)

    async def propose(self, person: Person, number: int, reason: str, seen: int) -> PriceProposal:
        """Have somebody else decide whether a file is put in force.

        Raises:
            NotFoundException: there is none of this number.
            ChangedMeanwhile: something else was put in force since it was looked at.
            RequestInvalid: it is in force or proposed already, has no reason, or would be refused.
        """
        now = await self._services.prices.standing()
        more_microusd = more_of(await self.compared(number))
        reason = reason_in(reason)
        if now.place != seen:
            raise ChangedMeanwhile("Other prices were put in force meanwhile.", parameter="seen")
        if now.number == number:
            raise RequestInvalid("these prices are in force", parameter="number")
        after = {
            "number": number,
            "seen": seen,
            "reason": reason,
            "last_days_more_microusd": more_microusd,
        }
        async with self._services.deeds.doing(person.name, "prices.proposed", "", after=after):
            return await self.proposals.propose(
                number, person.name, reason, seen=seen, more_microusd=more_microusd
            )

    async def approve(self, person: Person, number: int, comment: str) -> PriceOrder:
        """Put in force what somebody else proposed.

        Raises:
            NotFoundException: there is no such proposal.
            Forbidden: it is their own.
            ChangedMeanwhile: something else was put in force since it was proposed.
            RequestInvalid: it does not wait any more, has no comment, or would be refused by now.
        """
        found = await self._found(person, number, Permission.PRICES_APPROVE)
        if same_person(person.name, found.proposed_by):
            raise Forbidden(PROPOSED)
        comment, services = reason_in(comment), self._services
        now = await services.prices.standing()
        if now.place != found.seen:
            raise ChangedMeanwhile(
                "Other prices were put in force since it was proposed.", parameter="number"
            )
        after = {
            "proposal": number,
            "number": found.file,
            "place": found.seen + 1,
            "proposed_by": found.proposed_by,
            "reason": found.reason,
            "comment": comment,
            "last_days_more_microusd": more_of(await self.compared(found.file)),
        }
        before = {"number": now.number, "place": now.place}
        async with services.deeds.doing(
            person.name, "prices.approved", "", before=before, after=after
        ):
            return await self.proposals.approve(number, person.name, comment)

    async def decline(self, person: Person, number: int, comment: str) -> PriceProposal:
        """Leave the prices as they are; raises NotFoundException, Forbidden, RequestInvalid."""
        found = await self._found(person, number, Permission.PRICES_APPROVE)
        if same_person(person.name, found.proposed_by):
            raise Forbidden(PROPOSED)
        after = {"proposal": number, "number": found.file, "comment": reason_in(comment)}
        async with self._services.deeds.doing(person.name, "prices.declined", "", after=after):
            return await self.proposals.end(number, person.name, reason_in(comment), "declined")

    async def withdraw(self, person: Person, number: int) -> PriceProposal:
        """Take back what one proposed; raises NotFoundException, Forbidden, RequestInvalid."""
        found = await self._found(person, number, Permission.PRICES_PROPOSE)
        after = {"proposal": number, "number": found.file}
        async with self._services.deeds.doing(person.name, "prices.withdrawn", "", after=after):
            return await self.proposals.end(number, person.name, "", "withdrawn")

    async def _found(self, person: Person, number: int, wanted: Permission) -> PriceProposal:
        """The inbox belongs to an organisation, prices to all of them: it is asked again here."""
        if not allows(person, wanted):
            raise PermissionDeniedException("no role permits this")
        found = await self.proposals.proposal(number)
        if found is None:
            raise NotFoundException
        return found


def more_of(comparison: Comparison) -> int:
    """By how many micro-dollars the last days would have cost more.

    Raises:
        RequestInvalid: a worker would refuse such a file.
    """
    found = comparison.found
    if found is None:
        raise RequestInvalid(comparison.problem, parameter="text")
    if found.unserved:
        raise RequestInvalid(f"{', '.join(found.unserved)} would have no price", parameter="text")
    return found.would_microusd - found.paid_microusd
