"""Sums recorded traffic over spans of time at one level of policy, to compare then and now."""

from math import ceil
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import case, func, select

from gateway.oversight.homes import Homes
from gateway.store.engine import Database
from gateway.store.schema.audit import audit_records
from gateway.store.schema.audit_columns import is_home
from gateway.store.schema.rollup import traffic_hours
from gateway.store.schema.tables import virtual_keys


SAMPLE: Final = 2_000
"""At most this many answers in a span are read for their duration."""
_SLOW: Final = 0.95
_H = traffic_hours.c
_R = audit_records.c


class SpanSums(Struct, frozen=True):
    """Sums of what ended in a span of whole hours."""

    since_us: int
    until_us: int
    requests: int = 0
    refused: int = 0
    failed: int = 0
    cost_microusd: int = 0
    in_house: int = 0
    """How many of those that reached a target stayed in-house."""
    answered: int = 0
    """Requests that reached a target and did not fail."""
    reached: int = 0
    p95_ms: int | None = None
    """None if it was not asked for, or nothing was answered."""
    sampled: int = 0


class TrafficSpans:
    """Reads sums and a bounded sample of one database."""

    def __init__(self, database: Database, homes: Homes) -> None:
        self._database = database
        self._homes = homes

    async def span(
        self,
        organisation: str,
        place: tuple[str, ...],
        since_us: int,
        until_us: int,
        *,
        with_times: bool = False,
    ) -> SpanSums:
        """What ended between two full hours.

        Args:
            organisation: whose requests are counted.
            place: a workspace of it, or a workspace and a project; empty for all.
            since_us: included.
            until_us: not included.
            with_times: whether to read records for p95 as well.
        """
        sums = [
            func.coalesce(func.sum(column), 0)
            for column in (
                _H.requests,
                _H.refused,
                _H.failed,
                _H.cost_microusd,
                case((is_home(self._homes, _H), _H.requests), else_=0),
                case((_H.jurisdiction != "", _H.requests), else_=0),
                case((_H.jurisdiction != "", _H.requests - _H.failed), else_=0),
            )
        ]
        query = select(*sums).where(
            _H.organisation == organisation, _H.hour_us >= since_us, _H.hour_us < until_us
        )
        if place:
            query = query.where(_H.key_id.in_(_keys_of(organisation, place)))
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one()
            found = [int(value) for value in row]
            times: list[int] = []
            if with_times and found[0]:
                times = await self._times(connection, organisation, place, since_us, until_us)
        return SpanSums(
            since_us=since_us,
            until_us=until_us,
            requests=found[0],
            refused=found[1],
            failed=found[2],
            cost_microusd=found[3],
            in_house=found[4],
            reached=found[5],
            answered=max(found[6], 0),
            p95_ms=round(times[ceil(_SLOW * len(times)) - 1] / 1_000) if times else None,
            sampled=len(times),
        )

    async def _times(
        self,
        connection: Any,
        organisation: str,
        place: tuple[str, ...],
        since_us: int,
        until_us: int,
    ) -> list[int]:
        """The durations of the newest answers in a span, shortest first."""
        query = select(_R.duration_us).where(
            _R.organisation == organisation,
            _R.utc_us >= since_us,
            _R.utc_us < until_us,
            _R.stage == "outcome",
            _R.status == "ok",
        )
        for column, value in zip((_R.workspace, _R.project), place, strict=False):
            query = query.where(column == value)
        query = query.order_by(_R.utc_us.desc()).limit(SAMPLE)
        return sorted(int(took) for (took,) in await connection.execute(query))


def _keys_of(organisation: str, place: tuple[str, ...]) -> Any:
    columns = virtual_keys.c
    query = select(columns.id).where(columns.organisation == organisation)
    for column, value in zip((columns.workspace, columns.project), place, strict=False):
        query = query.where(column == value)
    return query
