"""Whether somebody was erased while a request was under way: nothing of it is kept then.

Each attempt at an erasure is noted before it destroys anything, so what it did not find because it
was not there yet is known by it when it comes. Both are dated by the database's clock, however far
those of the machines are apart.
"""

from collections.abc import Collection
from typing import Final

from msgspec import Struct
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import HOUR_US
from gateway.projects import Project
from gateway.store.schema.custody import erasure_attempts, erasure_cases


APART_US: Final = HOUR_US
"""By how much clocks may differ, and how long a request may have been under way before."""


class Begun(Struct, frozen=True):
    """A request that began at a moment by the database's clock, for an end user or for nobody."""

    project: Project
    asked_us: int
    subject: str = ""


async def erased_since(connection: AsyncConnection, begun: Begun) -> tuple[bool, bool]:
    """Whether its own subject was erased since, or everybody; and whether anybody may have been.

    In the second case something of what it goes on from is gone for that reason, if it is gone.
    """
    attempts, cases = erasure_attempts.c, erasure_cases.c
    found_since = (
        select(cases.subject, attempts.begun_us)
        .join(erasure_attempts, attempts.case_id == cases.id)
        .where(
            cases.organisation == begun.project.organisation,
            attempts.begun_us > begun.asked_us - APART_US,
        )
    )
    found = (await connection.execute(found_since)).all()
    covered: Collection[str] = {"", begun.subject}
    is_its = any(subject in covered and begun_us >= begun.asked_us for subject, begun_us in found)
    return is_its, bool(found)
