"""One-time links that create the first person: short-lived, single-use, void once anybody exists.

Only a digest of a link is kept. It is made by somebody who can read the configuration's secrets,
printed to their terminal, and worth nothing as soon as there is a person.
"""

import asyncio
import hashlib
import hmac
import secrets
from typing import Final

from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.errors import RequestInvalid, Unauthenticated
from gateway.oversight.access import EVERYWHERE, Role
from gateway.secrets.passwords import hash_password
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.identity.names import checked_name, visible
from gateway.store.schema.tables import people, role_grants, setup_links


GOOD_FOR_S: Final = 3600.0
CODE_BYTES: Final = 32
FIRST_ROLES: Final[tuple[Role, ...]] = ("platform_admin", "security_admin")
"""The first person runs the platform and gives roles; approving and revealing is for others."""
REFUSAL: Final = (
    "this link is not good any more: it was used, it is older than an hour, or somebody exists; "
    "“gatewright admin setup” on the machine prints a new one"
)


class SetupLinks:
    """Links of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def is_open(self) -> bool:
        """Whether no person exists yet."""
        async with self._database.reading() as connection:
            return not await _people_in(connection)

    async def make(self) -> str | None:
        """Make a code, shown once; None if a person exists. Earlier codes stay valid."""
        code = secrets.token_urlsafe(CODE_BYTES)
        now_us = self._clock.utc_us()
        row = {"digest": _digest(code), "until_us": now_us + round(GOOD_FOR_S * 1_000_000)}
        async with self._database.writing() as connection:
            if await _people_in(connection):
                return None
            await connection.execute(delete(setup_links).where(setup_links.c.until_us <= now_us))
            await connection.execute(setup_links.insert(), row)
        return code

    async def require(self, code: str) -> None:
        """Raise Unauthenticated if a code is not valid, for every reason with the same words."""
        async with self._database.reading() as connection:
            await self._require(connection, code)

    async def redeem(self, code: str, name: str, title: str, password: Secret[str]) -> None:
        """Add the first person, with the roles that set an installation up; all links end.

        Raises:
            Unauthenticated: the code is not valid, for every reason with the same words.
            RequestInvalid: the name is not possible, or the password is too short.
        """
        # Before the costly hashing: nobody makes us do it without a code.
        await self.require(code)
        name = checked_name(name)
        hashed = await asyncio.to_thread(hash_password, password)
        row = {
            "name": name,
            "title": visible(title, "title")[:200],
            "password_hash": hashed,
            "subject": None,
            "created_us": self._clock.utc_us(),
            "disabled_us": None,
        }
        try:
            async with self._database.writing() as connection:
                # All of them in one order, since all end: two with a link each do not deadlock.
                digests = select(setup_links.c.digest).order_by(setup_links.c.digest)
                await connection.execute(digests.with_for_update())
                await self._require(connection, code)
                # Only the one who deletes it has it: of two at the same time, one finds nothing.
                gone = delete(setup_links).where(setup_links.c.digest == _digest(code))
                if not (await connection.execute(gone)).rowcount:
                    raise Unauthenticated(REFUSAL)
                await connection.execute(delete(setup_links))
                await connection.execute(people.insert(), row)
                for role in FIRST_ROLES:
                    grant = {"person": name, "role": role, "organisation": EVERYWHERE}
                    await connection.execute(role_grants.insert(), grant)
        except IntegrityError:
            raise RequestInvalid("there is such a person already", parameter="name") from None

    async def _require(self, connection: AsyncConnection, code: str) -> None:
        digest, now_us = _digest(code), self._clock.utc_us()
        rows = (await connection.execute(select(setup_links))).all()
        is_known = False
        for row in rows:
            is_same = hmac.compare_digest(bytes(row.digest), digest)
            is_known |= is_same and now_us < row.until_us
        if not is_known or await _people_in(connection):
            raise Unauthenticated(REFUSAL)


async def _people_in(connection: AsyncConnection) -> int:
    return int((await connection.execute(select(func.count()).select_from(people))).scalar_one())


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.strip().encode()).digest()
