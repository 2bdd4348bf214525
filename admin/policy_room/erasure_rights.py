"""Who may agree to an erasure that somebody asks for. Pure."""

from typing import Final

from gateway.actors import same_person
from gateway.oversight.access import Permission, Person, allows
from gateway.store.custody.erasure_cases import ErasureCase


OWN: Final = "You asked for this: somebody else decides."
NO_ROLE: Final = "No role of yours agrees to erasures here."


def refused_erasure(person: Person, case: ErasureCase) -> str:
    """Why somebody may not decide about a case; empty where they may."""
    if not allows(person, Permission.CONTENT_APPROVE_ERASURE, case.organisation):
        return NO_ROLE
    return OWN if same_person(person.name, case.asked_by) else ""
