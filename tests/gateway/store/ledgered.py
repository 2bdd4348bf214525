"""A log with records, numbers, trees and checkpoints in a real database, for the proofs' tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

from gateway.audit.disk import Disk
from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.checkpoints import Signer, open_signer, origin_of
from gateway.audit.proving.exported import CheckpointFiles
from gateway.audit.proving.integrator import Integrator
from gateway.audit.proving.pack import PackRequest, write_pack
from gateway.clock import StoppedClock
from gateway.store.engine import Database, open_database
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees
from tests.gateway.audit.samples import KEYS, journeys, running


LOG = "gatewright-test"
POLICY = '{"name":"a policy"}'


class Ledgered:
    """One worker's evidence: `write`, `sign` and look."""

    def __init__(self, folder: Path, database: Database, clock: StoppedClock) -> None:
        self.directory = folder / "audit"
        self.database = database
        self.clock = clock
        self.sink = DatabaseAuditSink(database, self.directory)
        self.trees = DatabaseAuditTrees(database)
        self.files = CheckpointFiles(folder / "checkpoints", Disk())
        self.signer = open_signer(self.directory / "w0", f"{LOG}/w0", KEYS, clock, Disk())

    def integrator(self, signer: Signer | None = None) -> Integrator:
        """As it is after a start."""
        return Integrator(
            self.trees,
            signer or self.signer,
            self.files,
            self.clock,
            log_name=LOG,
            period_s=30.0,
        )

    async def write(self, first: int, requests: int) -> None:
        """Record whole requests at once, and project them."""
        async with running(self.directory, clock=self.clock) as log:
            await asyncio.gather(
                *(journeys(log, number, 1) for number in range(first, first + requests))
            )
        await self.project()

    async def project(self) -> None:
        await Projector(self.directory, self.sink).catch_up()

    async def sign(self) -> None:
        """A minute later."""
        self.clock.advance(60.0)
        await self.integrator().sign_due()

    async def pack(self, path: Path, first: int, last: int, organisation: str = "acme") -> None:
        checkpoints = await self.trees.between(organisation, 0, 2**62)
        request = PackRequest(
            origin=origin_of(LOG, organisation),
            organisation=organisation,
            first_sequence=first,
            last_sequence=last,
            keys=(self.signer.verifier_key,),
            policies={sha256(POLICY.encode()).hexdigest(): POLICY},
            created_us=self.clock.utc_us(),
        )
        rows = self.sink.records(AuditQuery(organisation=organisation), after=first - 1)
        await write_pack(path, request, rows, checkpoints, self.trees)


@asynccontextmanager
async def ledgered(folder: Path, url: str) -> AsyncIterator[Ledgered]:
    database = open_database(url)
    try:
        yield Ledgered(folder, database, StoppedClock())
    finally:
        await database.close()
