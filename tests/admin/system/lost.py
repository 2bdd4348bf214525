"""A worker on another machine, whose disk nobody here can read."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from gateway.audit.projecting.projector import Projector
from gateway.oversight.access import Grant, Role
from gateway.oversight.workers import WorkerReport
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.identity.people import PeopleStore
from gateway.store.workers import WorkerTable
from gateway.types import AuditRecord
from tests.admin import seeding
from tests.admin.listener import Browser, Listener, browsing
from tests.gateway.audit.samples import record, running


HOUR_S = 3600.0
NAME = "w2"
RESERVED_MICROUSD = 77
FIRST_LINE = 100


class LostWorker:
    """`w2`: it began requests and was never heard of again."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.there = listener.folder / "there"

    def _begun(self, number: int) -> AuditRecord:
        """From 100 on, lines of the batch `b`."""
        ago_us = round((HOUR_S + 60) * 1e6)
        at_us = self._listener.clock.utc_us() - ago_us + number
        detail = {"batch": "b", "line": str(number)} if number >= FIRST_LINE else {}
        changes = {"utc_us": at_us, "reserved_microusd": RESERVED_MICROUSD, "detail": detail}
        return msgspec.structs.replace(record(number), **changes)

    async def begin(self, *numbers: int) -> None:
        """Requests of these numbers, which reach the database."""
        listener = self._listener
        async with (
            listener.database() as database,
            running(self.there, NAME, clock=listener.clock) as log,
        ):
            for number in numbers:
                await log.append(self._begun(number))
            await Projector(self.there, DatabaseAuditSink(database, self.there)).catch_up()

    async def speak(self, ago_s: float = HOUR_S) -> None:
        """It was heard of so long ago."""
        seen_us = self._listener.clock.utc_us() - round(ago_s * 1e6)
        async with self._listener.database() as database:
            await WorkerTable(database).put(WorkerReport(NAME, seen_us))

    async def leave(self, *numbers: int) -> None:
        """What it began is open, and its disk is lost."""
        await self.begin(*numbers)
        await self.speak()
        shutil.rmtree(self.there)

    async def outcomes(self) -> list[AuditRecord]:
        """Of its requests."""
        async with self._listener.database() as database:
            sink = DatabaseAuditSink(
                database, self._listener.settings.path(self._listener.settings.audit.directory)
            )
            rows = sink.records(AuditQuery(stage="outcome"))
            return [row.projected.record async for row in rows]


@asynccontextmanager
async def person(listener: Listener, name: str, *roles: Role) -> AsyncIterator[Browser]:
    """Somebody with roles that hold everywhere, signed in."""
    await seeding.person(listener, name, roles[0])
    async with listener.database() as database:
        for role in roles[1:]:
            await PeopleStore(database, listener.clock).grant(name, Grant(role, "*"))
    async with browsing(listener) as browser:
        await browser.sign_in_as(name, seeding.PASSWORD)
        yield browser
