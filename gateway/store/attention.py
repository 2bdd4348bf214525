"""Finds what waits for a person: drafts, reveals and erasures to approve, undelivered records."""

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct
from sqlalchemy import ColumnElement, RowMapping, exists, func, not_, select

from gateway.rollout.versions import PolicyEvent
from gateway.store.engine import Database
from gateway.store.policies.guard import ACTOR as GUARD
from gateway.store.schema.audit import audit_cursors, audit_records, audit_sequences
from gateway.store.schema.custody import audit_reveals, erasure_cases
from gateway.store.schema.policies import policy_events, policy_schedules, policy_versions


CHANGES: Final = ("publish", "roll_back", "retire", "canary", "shadow", "stop", "withdraw")
"""Actions on a policy that change how requests are decided."""
_RECORDS: Final = "records"


class Waiting(Struct, frozen=True):
    """A policy version that waits for somebody's action."""

    level: str
    number: int
    author: str
    created_us: int


class Asked(Struct, frozen=True):
    """A reveal or an erasure that nobody has approved."""

    id: str
    organisation: str
    asked_by: str
    asked_us: int


class Delay(Struct, frozen=True):
    """Records of an organisation that a sink has not taken."""

    sink: str
    organisation: str
    records: int
    oldest_us: int


class Attention(Struct, frozen=True):
    """Reads one database; each result is limited."""

    database: Database

    async def changes(self, since_us: int, count_max: int) -> list[PolicyEvent]:
        """The latest changes of policies since then, newest first."""
        columns = policy_events.c
        query = (
            select(policy_events)
            .where(columns.utc_us >= since_us, columns.action.in_(CHANGES))
            .order_by(columns.utc_us.desc())
            .limit(count_max)
        )
        async with self.database.reading() as connection:
            return [_event(row) for row in (await connection.execute(query)).mappings()]

    async def withdrawn(self, since_us: int, count_max: int) -> list[PolicyEvent]:
        """Trials that the guard ended since then, newest first, if nobody has acted since."""
        columns, later = policy_events.c, policy_events.alias("later").c
        query = (
            select(policy_events)
            .where(
                columns.utc_us >= since_us,
                columns.actor == GUARD,
                columns.action.in_(("withdraw", "stop")),
                not_(exists().where(later.level == columns.level, later.place > columns.place)),
            )
            .order_by(columns.utc_us.desc())
            .limit(count_max)
        )
        async with self.database.reading() as connection:
            return [_event(row) for row in (await connection.execute(query)).mappings()]

    async def drafts(self, since_us: int, count_max: int) -> list[Waiting]:
        """Versions since then that nobody has approved or rejected, newest first."""
        columns = policy_versions.c
        is_draft = (columns.state == "draft") & (columns.created_us >= since_us)
        return await self._versions(is_draft, count_max)

    async def approved(self, since_us: int, count_max: int) -> list[Waiting]:
        """Approved since then, but neither in force nor scheduled, newest first.

        Without those after which a later version of their level came into force.
        """
        columns, done, left = policy_versions.c, policy_events.c, policy_schedules.c
        later = policy_versions.alias("later").c
        is_approved = exists().where(
            done.level == columns.level,
            done.number == columns.number,
            done.action == "approve",
            done.utc_us >= since_us,
        )
        is_left = exists().where(
            left.level == columns.level,
            left.number == columns.number,
            left.state == "waiting",
        )
        is_past = exists().where(
            later.level == columns.level,
            later.number > columns.number,
            later.state.in_(("live", "retired")),
        )
        acts_nowhere = (columns.state == "approved") & is_approved & ~is_left & ~is_past
        return await self._versions(acts_nowhere, count_max)

    async def _versions(self, which: ColumnElement[bool], count_max: int) -> list[Waiting]:
        columns = policy_versions.c
        query = (
            select(columns.level, columns.number, columns.author, columns.created_us)
            .where(which)
            .order_by(columns.created_us.desc())
            .limit(count_max)
        )
        async with self.database.reading() as connection:
            return [Waiting(*row) for row in (await connection.execute(query)).all()]

    async def reveals(self, since_us: int, count_max: int) -> list[Asked]:
        """Reveals that were requested since then and wait, newest first."""
        columns = audit_reveals.c
        query = (
            select(columns.id, columns.organisation, columns.asked_by, columns.asked_us)
            .where(
                (columns.approved_by == "") & (columns.ended_by == ""), columns.asked_us >= since_us
            )
            .order_by(columns.asked_us.desc())
            .limit(count_max)
        )
        async with self.database.reading() as connection:
            return [Asked(*row) for row in (await connection.execute(query)).all()]

    async def erasures(self, since_us: int, count_max: int) -> list[Asked]:
        """Erasures that were requested since then and not decided, newest first."""
        columns = erasure_cases.c
        query = (
            select(columns.id, columns.organisation, columns.asked_by, columns.asked_us)
            .where(columns.state == "open", columns.asked_by != "", columns.asked_us >= since_us)
            .order_by(columns.asked_us.desc())
            .limit(count_max)
        )
        async with self.database.reading() as connection:
            return [Asked(*row) for row in (await connection.execute(query)).all()]

    async def delays(self, sinks: Collection[str], count_max: int) -> Sequence[Delay]:
        """What these sinks have still to take, the most first."""
        found = []
        for sink in sorted(sinks):
            found += await self._delays_of(sink, count_max)
        return sorted(found, key=lambda delay: -delay.records)[:count_max]

    async def _delays_of(self, sink: str, count_max: int) -> list[Delay]:
        sizes, cursors = audit_sequences.c, audit_cursors.c
        taken = func.coalesce(cursors.position, 0)
        lacking = (sizes.next_sequence - 1 - taken).label("lacking")
        is_own = (
            (cursors.organisation == sizes.organisation)
            & (cursors.sink == sink)
            & (cursors.kind == _RECORDS)
        )
        query = (
            select(sizes.organisation, lacking, taken)
            .join(audit_cursors, is_own, isouter=True)
            .where(lacking > 0)
            .order_by(lacking.desc())
            .limit(count_max)
        )
        async with self.database.reading() as connection:
            rows = (await connection.execute(query)).all()
            found = []
            for organisation, count, position in rows:
                oldest = select(audit_records.c.utc_us).where(
                    audit_records.c.organisation == organisation,
                    audit_records.c.sequence == position + 1,
                )
                oldest_us = (await connection.execute(oldest)).scalar_one_or_none() or 0
                found.append(Delay(sink, organisation, int(count), int(oldest_us)))
        return found


def _event(row: RowMapping) -> PolicyEvent:
    return PolicyEvent(**{name: row[name] for name in PolicyEvent.__struct_fields__})
