"""Whether a person may do something somewhere, and which of their roles allow it. Pure."""

from msgspec import Struct

from gateway.oversight.access import (
    EVERYWHERE,
    ROLE_PERMISSIONS,
    ROLES,
    STEP_UP,
    Grant,
    Permission,
    Person,
    Role,
    allows,
)


class Verdict(Struct, frozen=True):
    """An answer to: can they do this there, and why?"""

    is_allowed: bool
    because: tuple[Grant, ...]
    """The grants that allow it."""
    would: tuple[Role, ...]
    """Roles that would allow it, where none does."""
    needs_proof: bool
    """Only within five minutes of a fresh proof of who they are."""


def verdict(person: Person, permission: Permission, organisation: str = "") -> Verdict:
    """The answer for an organisation; an empty one asks for everywhere."""
    grants = tuple(
        grant
        for grant in sorted(person.grants)
        if permission in ROLE_PERMISSIONS[grant.role]
        and grant.organisation in (EVERYWHERE, organisation or EVERYWHERE)
    )
    is_allowed = allows(person, permission, organisation or None)
    would = tuple(role for role in ROLES if permission in ROLE_PERMISSIONS[role])
    return Verdict(
        is_allowed=is_allowed,
        because=grants if is_allowed else (),
        would=() if is_allowed else would,
        needs_proof=permission in STEP_UP,
    )
