"""Who may agree that a gone worker's name be retired, where somebody asked for it. Pure."""

from typing import Final

from gateway.actors import same_person
from gateway.oversight.access import Permission, Person, allows
from gateway.store.evidence.retirements import Retirement


OWN: Final = "You asked for this: somebody else decides."
NO_ROLE: Final = "No role of yours agrees to this, which concerns all organisations."


def refused_retirement(person: Person, retirement: Retirement) -> str:
    """Why somebody may not decide; empty where they may."""
    if same_person(person.name, retirement.asked_by):
        return OWN
    return "" if allows(person, Permission.WORKERS_APPROVE_RETIREMENT) else NO_ROLE
