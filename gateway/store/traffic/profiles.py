"""Profiles of hours: gathered once from a bounded sample of records, and read to compare.

An hour is over when its time has passed, not when a clock was set past its end.

However much traffic there is, an hour of an organisation costs reading a bounded number of records:
they are drawn from its numbers, by a rule that every worker knows, which is enough for shares.
"""

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, delete, func, insert, or_, select, update

from gateway.audit.entries import decode_entry
from gateway.audit.projecting.projection import SequencedRecord
from gateway.clock import DAY_US, HOUR_US, Clock, UnhurriedClock
from gateway.drift.judging import DAYS
from gateway.drift.profiles import Kind, Profile, profiled
from gateway.store.claims import is_unclaimed
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.schema.audit import audit_records, audit_sequences
from gateway.store.schema.profiles import profile_cursors, profile_hours
from gateway.store.speech import insert_into


SAMPLE: Final = 4_000
"""Records per organisation and hour: about half of them are intents, half outcomes."""
LATE_US: Final = 5 * 60 * 1_000_000
"""An hour is complete this long after its end: everything is projected by then."""
KEPT_US: Final = 70 * DAY_US
"""An open drift is compared with the days before it began."""
SCOPES_MAX: Final = 64
SCOPE_CHARS: Final = 200
_PAGE: Final = 250
_CLAIM_US: Final = 5 * 60 * 1_000_000
_C = profile_cursors.c
_H = profile_hours.c


class Hour(Struct, frozen=True):
    """The next hour to profile."""

    organisation: str
    start_us: int
    is_newest: bool
    """Whether no later hour is over yet."""


class ProfileHours:
    """Profiles of one database; any number of workers may gather, each hour counts once."""

    def __init__(self, database: Database, sink: DatabaseAuditSink, clock: Clock) -> None:
        self._database = database
        self._sink = sink
        self._clock = UnhurriedClock(clock)
        self._run = random.SystemRandom().randbytes(16).hex()

    async def due(self, count_max: int) -> list[str]:
        """Organisations with a finished hour not profiled yet, that nobody is working on."""
        now_us = self._clock.utc_us()
        name = audit_sequences.c.organisation
        # A clock that was ahead claimed an hour that is not over.
        is_next = (_C.next_us <= now_us - HOUR_US - LATE_US) | (_C.next_us > now_us + HOUR_US)
        is_free = is_next & _is_unclaimed(now_us)
        query = (
            select(name)
            .join(profile_cursors, _C.organisation == name, isouter=True)
            .where(or_(_C.organisation.is_(None), is_free), ~name.like("-%"))
            .order_by(_C.next_us, name)
            .limit(count_max)
        )
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def claim(self, organisation: str) -> Hour | None:
        """The hour that this worker profiles next; None if another is doing it, or none is due."""
        now_us = self._clock.utc_us()
        newest_us = (now_us - LATE_US) // HOUR_US * HOUR_US - HOUR_US
        async with self._database.writing() as connection:
            row = (
                await connection.execute(select(_C.next_us).where(_C.organisation == organisation))
            ).first()
            if row is None:
                oldest = select(func.min(audit_records.c.utc_us)).where(
                    audit_records.c.organisation == organisation
                )
                first_us = (await connection.execute(oldest)).scalar_one() or now_us
                start = {"next_us": first_us // HOUR_US * HOUR_US, "holder": "", "until_us": 0}
                await connection.execute(
                    self._insert(profile_cursors)
                    .values(organisation=organisation, **start)
                    .on_conflict_do_nothing()
                )
            mine = (
                update(profile_cursors)
                .where(_C.organisation == organisation, _is_unclaimed(now_us))
                .values(holder=self._run, until_us=now_us + _CLAIM_US)
                .returning(_C.next_us)
            )
            found = (await connection.execute(mine)).scalar_one_or_none()
        if found is None:
            return None
        # What is older than any reference is of no use.
        start_us = max(int(found), newest_us - DAYS * DAY_US - DAY_US)
        if start_us > newest_us:
            is_ahead = start_us > now_us + HOUR_US
            await self.give_back(organisation, newest_us + HOUR_US if is_ahead else start_us)
            return None
        return Hour(organisation, start_us, start_us == newest_us)

    async def give_back(self, organisation: str, next_us: int) -> None:
        """Give the organisation back, to go on with that hour."""
        change = update(profile_cursors).where(
            _C.organisation == organisation, _C.holder == self._run
        )
        async with self._database.writing() as connection:
            await connection.execute(change.values(next_us=next_us, until_us=0))

    async def gather(self, hour: Hour) -> bool:
        """Profile a claimed hour; returns whether nobody else did so meanwhile.

        Raises:
            NotReady: the database does not answer.
        """
        found = await self._profiles_of(hour)
        rows = [
            {
                "organisation": hour.organisation,
                "hour_us": hour.start_us,
                "kind": kind,
                "scope": scope[:SCOPE_CHARS],
                "count": profile.count,
                "bins": msgspec.json.encode(profile.bins).decode(),
            }
            for (kind, scope), profile in _largest(found)
        ]
        async with self._database.writing() as connection:
            moved = await connection.execute(
                update(profile_cursors)
                .where(_C.organisation == hour.organisation, _C.holder == self._run)
                .where(_C.next_us <= hour.start_us)
                .values(next_us=hour.start_us + HOUR_US, until_us=0)
            )
            if not moved.rowcount:
                return False
            here = (_H.organisation == hour.organisation) & (_H.hour_us == hour.start_us)
            await connection.execute(delete(profile_hours).where(here))
            if rows:
                await connection.execute(insert(profile_hours), rows)
        return True

    async def until_us(self, organisation: str) -> int:
        """The end of the last profiled hour; 0 without one."""
        query = select(_C.next_us).where(_C.organisation == organisation)
        async with self._database.reading() as connection:
            return int((await connection.execute(query)).scalar_one_or_none() or 0)

    async def tidy(self, organisation: str) -> None:
        """Forget hours that are too old for any reference."""
        first_us = self._clock.utc_us() - KEPT_US
        old = (_H.organisation == organisation) & (_H.hour_us < first_us)
        async with self._database.writing() as connection:
            await connection.execute(delete(profile_hours).where(old))

    async def counts(
        self, organisation: str, since_us: int, until_us: int
    ) -> dict[tuple[Kind, str], dict[int, int]]:
        """How many requests each profile has in each hour of a period."""
        query = select(_H.kind, _H.scope, _H.hour_us, _H.count).where(
            _H.organisation == organisation, _H.hour_us >= since_us, _H.hour_us < until_us
        )
        found: dict[tuple[Kind, str], dict[int, int]] = {}
        async with self._database.reading() as connection:
            for kind, scope, hour_us, count in await connection.execute(query):
                found.setdefault((kind, scope), {})[int(hour_us)] = int(count)
        return found

    async def read(
        self, organisation: str, kind: Kind, scopes: Collection[str], hours: Collection[int]
    ) -> dict[str, dict[int, Profile]]:
        """Profiles of these hours, by scope."""
        query = select(_H.scope, _H.hour_us, _H.count, _H.bins).where(
            _H.organisation == organisation,
            _H.hour_us.in_(sorted(hours)),
            _H.kind == kind,
            _H.scope.in_(sorted(scopes)),
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return await asyncio.to_thread(_decoded, rows)

    async def _profiles_of(self, hour: Hour) -> Mapping[tuple[Kind, str], Profile]:
        span = await self._sink.span(hour.organisation, hour.start_us, hour.start_us + HOUR_US)
        if span is None:
            return {}
        numbers = _drawn(hour, *span)
        whole: dict[tuple[Kind, str], Profile] = {}
        for start in range(0, len(numbers), _PAGE):
            page = numbers[start : start + _PAGE]
            records = await self._sink.numbered(hour.organisation, page)
            for key, profile in (await asyncio.to_thread(_seen, records, hour)).items():
                whole.setdefault(key, Profile()).add(profile)
        return whole

    def _insert(self, table: Any) -> Any:
        return insert_into(self._database.kind, table)


def _is_unclaimed(now_us: int) -> ColumnElement[bool]:
    return is_unclaimed(_C.until_us, now_us + _CLAIM_US, _CLAIM_US)


def _drawn(hour: Hour, first: int, last: int) -> list[int]:
    """Numbers of the sample: the same in every process."""
    if last - first < SAMPLE:
        return list(range(first, last + 1))
    draw = random.Random(f"{hour.organisation} {hour.start_us}")
    return sorted(draw.sample(range(first, last + 1), SAMPLE))


def _seen(records: Sequence[SequencedRecord], hour: Hour) -> dict[tuple[Kind, str], Profile]:
    """Profiles of the hour; some records by number may be of a neighbouring hour."""
    decoded = (
        decode_entry(each.projected.raw_json).record
        for each in records
        if each.projected.raw_json and not each.is_again
    )
    end_us = hour.start_us + HOUR_US
    return profiled(each for each in decoded if hour.start_us <= each.utc_us < end_us)


def _largest(
    found: Mapping[tuple[Kind, str], Profile],
) -> list[tuple[tuple[Kind, str], Profile]]:
    """Keep a limited number of scopes per kind, since callers name them."""
    ordered = sorted(found.items(), key=lambda each: (-each[1].count, each[0]))
    kept: dict[Kind, int] = {}
    rows: dict[tuple[Kind, str], Profile] = {}
    for (kind, scope), profile in ordered:
        kept[kind] = kept.get(kind, 0) + 1
        key = (kind, scope[:SCOPE_CHARS])
        if kept[kind] <= SCOPES_MAX and key not in rows:
            rows[key] = profile
    return list(rows.items())


def _decoded(rows: Sequence[Any]) -> dict[str, dict[int, Profile]]:
    found: dict[str, dict[int, Profile]] = {}
    for scope, hour_us, count, bins in rows:
        profile = Profile(int(count), _BINS.decode(bins))
        found.setdefault(scope, {})[int(hour_us)] = profile
    return found


_BINS: Final = msgspec.json.Decoder(dict[str, dict[str, int]])
