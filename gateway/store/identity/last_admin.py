"""Ensures that somebody can run the platform: the last administrator keeps account and role.

Invited people who have not signed in yet do not count: their link may end unused, and is worth
nothing once its maker may do less. Nor do people who hold the role by a group of the OpenID
provider, which may end it at any time.
"""

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import RequestInvalid
from gateway.oversight.access import EVERYWHERE, Grant
from gateway.store.schema.tables import people, role_grants


FIRST_ROLE = Grant("platform_admin", EVERYWHERE)
"""Somebody able to sign in always holds it; only the operator at the machine may end that."""


async def require_another_admin(connection: AsyncConnection, name: str) -> None:
    """Raise RequestInvalid unless somebody else who may sign in runs the platform everywhere.

    It locks rows of people in their one order, so call it before the transaction locks any.
    """
    holders = select(role_grants.c.person).where(
        role_grants.c.role == FIRST_ROLE.role,
        role_grants.c.organisation == EVERYWHERE,
        role_grants.c.by_group == "",
    )
    able = select(people.c.name).where(
        people.c.name.in_(holders),
        people.c.disabled_us.is_(None),
        or_(people.c.password_hash.is_not(None), people.c.subject.is_not(None)),
    )
    # Counted only afterwards: two who disable each other do it one after the other.
    await connection.execute(able.order_by(people.c.name).with_for_update())
    left = set((await connection.execute(able)).scalars())
    if left == {name}:
        reason = (
            f"{name} is the last who runs the platform: give somebody else platform_admin first"
        )
        raise RequestInvalid(reason, parameter="name")
