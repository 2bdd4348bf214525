"""Drifts of profiles: suspected once, open when seen again, ended by themselves or by a person.

A drift that somebody accepts is the new normal: its reference begins where the drift began.
Promises about the traffic before it stay withdrawn until they are made anew.
"""

import secrets
from collections.abc import Collection
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, update

from gateway.clock import Clock
from gateway.drift.judging import Verdict
from gateway.drift.profiles import Kind
from gateway.errors import RequestInvalid
from gateway.money.alerting import AT_ONCE, CLAIM_US
from gateway.store.claims import is_unclaimed
from gateway.store.engine import Database
from gateway.store.schema.profiles import drifts


DriftState = Literal["suspected", "open", "ended", "accepted"]
CALM_LEAST: Final = 6
"""A drift is over once it was not seen this many times in a row."""
_LASTING: Final = ("suspected", "open")
_D = drifts.c


class Drift(Struct, frozen=True):
    """A drift of one profile."""

    id: str
    organisation: str
    kind: Kind
    scope: str
    """The requested model, or the target that answers."""
    state: DriftState
    began_us: int
    """The start of the first window in which it was seen."""
    found_us: int
    seen_us: int
    said: str
    calm: int = 0
    guarantee: str = ""
    """Digest of the guarantee for the cheap tier when the drift was found; empty without one."""
    ended_us: int = 0
    ended_by: str = ""
    """Who accepted it; empty if it ended by itself."""
    reason: str = ""
    claimed_us: int = 0
    told_us: int = 0
    """When the web hook accepted it."""


def stepped(drift: Drift, verdict: Verdict, now_us: int) -> Drift | None:
    """A drift after another look; None if it was only suspected, and wrongly."""
    if verdict.state == "drifted":
        return replace(drift, state="open", seen_us=now_us, calm=0, said=verdict.said)
    if verdict.state != "steady":
        return drift
    if drift.state == "suspected":
        return None
    calm = drift.calm + 1
    if calm < CALM_LEAST:
        return replace(drift, calm=calm)
    return replace(drift, calm=calm, state="ended", ended_us=now_us)


class DriftTable:
    """Drifts of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def of(self, organisation: str) -> list[Drift]:
        """All drifts of an organisation, newest first."""
        query = select(drifts).where(_D.organisation == organisation)
        return await self._found(query.order_by(_D.found_us.desc(), _D.id).limit(1_000))

    async def acting(self) -> list[Drift]:
        """Open drifts, and those that were accepted while a guarantee was in force."""
        kept = and_(_D.state == "accepted", _D.guarantee != "")
        return await self._found(
            select(drifts).where(or_(_D.state == "open", kept)).order_by(_D.found_us, _D.id)
        )

    async def open(self, organisations: Collection[str] | None, count_max: int) -> list[Drift]:
        """Open drifts, of these organisations or of all, newest first."""
        query = select(drifts).where(_D.state == "open")
        if organisations is not None:
            query = query.where(_D.organisation.in_(sorted(organisations)))
        return await self._found(query.order_by(_D.found_us.desc(), _D.id).limit(count_max))

    async def look(
        self,
        known: Drift | None,
        new: tuple[str, Kind, str],
        verdict: Verdict,
        began_us: int,
        guarantee: str,
    ) -> Drift | None:
        """Store the verdict on a profile; returns its present drift, if any."""
        now_us = self._clock.utc_us()
        if known is None:
            if verdict.state != "drifted":
                return None
            organisation, kind, scope = new
            known = Drift(
                secrets.token_hex(6),
                organisation,
                kind,
                scope,
                "suspected",
                began_us,
                now_us,
                now_us,
                verdict.said,
                guarantee=guarantee,
            )
            async with self._database.writing() as connection:
                await connection.execute(insert(drifts), asdict(known))
            return known
        after = stepped(known, verdict, now_us)
        same = and_(_D.id == known.id, _D.state == known.state)
        async with self._database.writing() as connection:
            if after is None:
                await connection.execute(delete(drifts).where(same))
                return None
            changed = await connection.execute(update(drifts).where(same).values(asdict(after)))
        # Somebody may have accepted it meanwhile.
        return after if changed.rowcount else None

    async def accept(self, organisation: str, drift_id: str, by: str, reason: str) -> Drift:
        """Accept a drift: from its beginning on, traffic like this is the reference.

        Raises:
            RequestInvalid: there is no such drift, or it is over.
        """
        now_us = self._clock.utc_us()
        here = and_(_D.id == drift_id, _D.organisation == organisation, _D.state == "open")
        change = update(drifts).where(here)
        async with self._database.writing() as connection:
            done = await connection.execute(
                change.values(state="accepted", ended_us=now_us, ended_by=by, reason=reason)
            )
        if not done.rowcount:
            raise RequestInvalid("this drift is over already", parameter="drift")
        return (await self._found(select(drifts).where(_D.id == drift_id)))[0]

    async def counts(self) -> dict[str, int]:
        """How many open drifts there are, by kind."""
        query = select(_D.kind, func.count()).where(_D.state == "open").group_by(_D.kind)
        async with self._database.reading() as connection:
            return {kind: int(count) for kind, count in await connection.execute(query)}

    async def due(self) -> list[Drift]:
        """Drifts that were not sent to a web hook; see `gateway.money.alerting.Alerts`."""
        now_us = self._clock.utc_us()
        is_free = is_unclaimed(_D.claimed_us, now_us, CLAIM_US)
        untold = (_D.state == "open") & (_D.told_us == 0) & is_free
        found = await self._found(select(drifts).where(untold).order_by(_D.found_us).limit(AT_ONCE))
        return [each for each in found if await self._claimed(each, now_us)]

    async def sent(self, alert: Drift) -> None:
        change = update(drifts).where(_D.id == alert.id).values(told_us=self._clock.utc_us())
        async with self._database.writing() as connection:
            await connection.execute(change)

    async def _claimed(self, drift: Drift, now_us: int) -> bool:
        same: ColumnElement[bool] = and_(_D.id == drift.id, _D.claimed_us == drift.claimed_us)
        async with self._database.writing() as connection:
            change = update(drifts).where(same).values(claimed_us=now_us)
            return bool((await connection.execute(change)).rowcount)

    async def _found(self, query: object) -> list[Drift]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()  # type: ignore[call-overload]
        return [Drift(**row) for row in rows]


def lasting(found: Collection[Drift], kind: Kind, scope: str) -> Drift | None:
    """The drift of a profile that is suspected or open."""
    return next(
        (
            each
            for each in found
            if (each.kind, each.scope) == (kind, scope) and each.state in _LASTING
        ),
        None,
    )
