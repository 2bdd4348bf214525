"""Who may approve prices that somebody proposed. Pure."""

from typing import Final

from gateway.actors import same_person
from gateway.oversight.access import Permission, Person, allows
from gateway.store.money.price_proposals import PriceProposal


OWN: Final = "You proposed this: somebody else decides."
NO_ROLE: Final = "No role of yours approves prices, which hold for all organisations."


def refused_prices(person: Person, proposal: PriceProposal) -> str:
    """Why somebody may not approve a proposal; empty where they may."""
    if not allows(person, Permission.PRICES_APPROVE):
        return NO_ROLE
    return OWN if same_person(person.name, proposal.proposed_by) else ""
