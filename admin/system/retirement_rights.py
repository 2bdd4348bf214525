"""Who may agree that a gone worker's name be retired, where somebody asked for it. Pure."""

from typing import Final

from gateway.oversight.access import Permission, Person, allows
from gateway.rollout.versions import same_person
from gateway.store.evidence.retirements import Retirement


OWN: Final = "You asked for this: somebody else decides."
NO_ROLE: Final = "No role of yours agrees to this, which concerns all organisations."


def refused_retirement(person: Person, retirement: Retirement) -> str:
    """Why somebody may not decide; empty where they may."""
    if not allows(person, Permission.WORKERS_APPROVE_RETIREMENT):
        return NO_ROLE
    return OWN if same_person(person.name, retirement.asked_by) else ""
