"""Tells whether a person was erased while a request was running; then nothing of it is kept.

Each attempt at an erasure is noted before it destroys anything. So content that was not there yet,
and that the attempt could not find, is recognised when it arrives. Both are dated by the database's
clock, however far the machines' clocks are apart.
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
"""How far clocks may differ, and how long a request may have been under way before."""


class Begun(Struct, frozen=True):
    """A request's start by the database's clock, and its end user, if any."""

    project: Project
    asked_us: int
    subject: str = ""


async def erased_since(connection: AsyncConnection, begun: Begun) -> tuple[bool, bool]:
    """Whether its own subject, or everybody, was erased since; and whether anybody may have been.

    In the second case, if something that it continues is missing, that may be the reason.
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
