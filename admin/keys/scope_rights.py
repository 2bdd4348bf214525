"""Who may let a key do more, where somebody proposed it. Pure."""

from typing import Final

from gateway.actors import same_person
from gateway.oversight.access import Permission, Person, allows
from gateway.store.identity.key_scopes import KeyProposal


OWN: Final = "You proposed this: somebody else decides."
NO_ROLE: Final = "No role of yours lets keys do more here."


def refused_widening(person: Person, proposal: KeyProposal) -> str:
    """Why somebody may not decide about a proposal; empty where they may."""
    if not allows(person, Permission.KEYS_APPROVE, proposal.organisation):
        return NO_ROLE
    return OWN if same_person(person.name, proposal.proposed_by) else ""
