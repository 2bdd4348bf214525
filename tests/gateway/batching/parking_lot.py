"""Workers on one database whose lines wait for a scripted vendor, each step taken by hand."""

import asyncio
import secrets
from typing import Any

import msgspec
from sqlalchemy import func, select

from gateway.audit.memory import MemoryAuditLog
from gateway.audit.reckoning import OpenIntent
from gateway.batches import Batch, Line
from gateway.batching.forgetting import Forgetting
from gateway.batching.intake import LineIntake
from gateway.batching.lines import LineJourneys, Parked
from gateway.batching.owed import Purse
from gateway.batching.parcel_journeys import ParcelJourneys
from gateway.batching.parcel_runner import ParcelRunner, ParcelShare
from gateway.batching.parked_lines import ParkedLines
from gateway.batching.parked_reservations import ParkedReservations
from gateway.batching.parking import deferred, ticket_of
from gateway.batching.parts import stake_of
from gateway.batching.pipeline import BatchPipeline
from gateway.batching.remnants import Remnants
from gateway.clock import StoppedClock
from gateway.conclusion import Conclusion
from gateway.configuration.settings import Limits, Settings
from gateway.dialects.registry import DIALECTS
from gateway.errors import UpstreamFailed
from gateway.identity import KeyTable
from gateway.intake import Stages
from gateway.metrics import Metrics
from gateway.money.budgets import Limit
from gateway.oversight.deeds import Deeds
from gateway.pacing.turns import Turns
from gateway.parcels import ParcelService, VendorBatch
from gateway.passage import NATIVE, Arrival, Errand, Passage
from gateway.ports import UpstreamBody
from gateway.projects import Project
from gateway.providers.parcels.scripted import ScriptedParcels
from gateway.providers.scripted import ScriptedProvider
from gateway.rollout.versions import PolicySet
from gateway.routing.board import TargetBoard
from gateway.routing.planning import gather, rule
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.snapshot import Snapshot, SnapshotKeeper
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.lines import Claim, LineStore
from gateway.store.batching.parcel_rows import ROW, ParcelRow, parcel_row
from gateway.store.batching.parcels import ParcelStore
from gateway.store.batching.parked_lines import ParkedLineStore
from gateway.store.batching.vendor_copies import VendorCopies
from gateway.store.engine import Database
from gateway.store.money.late_bookings import LateBookings
from gateway.store.money.leases import LeaseTable
from gateway.store.money.parked_money import ParkedMoney
from gateway.store.schema.tables import parked_money
from gateway.types import AuditRecord, Inspection, Principal
from tests.gateway.providers.samples import HOME, make_target
from tests.gateway.store.money.ledgers import ledger_on
from tests.policies.worlds import document


NOBODY: Any = None
PROJECT = Project("acme", "research", "x")
ACCOUNT = "org:acme"
LIMIT = 1_000_000
HELD = 1_000
"""What is set aside for each line."""
ENDPOINT = "/v1/chat/completions"
DIALECT = DIALECTS["openai_chat"]
DAY_US = 86_400_000_000
POLL_S = 15.0
RESERVED_S = 93_600.0
FLUSH_S = 25.0
PRINCIPAL = Principal("k1", "a key", *PROJECT, (), None, (ACCOUNT,))
INSPECTION = Inspection("S1", {}, True, (), 0.25, "mid", "v1", 10)
BOARD = TargetBoard({"scripted/one": make_target()}, {})
BODY = msgspec.json.encode({"model": "auto", "messages": [{"role": "user", "content": "Hi"}]})
SNAPSHOT = Snapshot("s1", KeyTable(1, {}), PolicySet(document()), BOARD)


class _Snapshots(SnapshotKeeper):
    def __init__(self) -> None:
        super().__init__(PolicySet(document()), BOARD, lambda: 0.0)

    def current(self) -> Snapshot:
        return SNAPSHOT


class _NoThreads:
    async def keep(self, passage: Passage, body: bytes) -> None:
        pass

    async def let_go(self, request_id: str) -> None:
        pass


class Vendor(ScriptedParcels):
    """One that cannot be asked while there is an error."""

    error: UpstreamFailed | None = None

    async def find(
        self, name: str, count: int, made_us: int, deadline_s: float
    ) -> VendorBatch | None:
        self._check()
        return await super().find(name, count, made_us, deadline_s)

    async def look(self, vendor_id: str, deadline_s: float) -> VendorBatch:
        self._check()
        return await super().look(vendor_id, deadline_s)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error


class Lot:
    """A batch of lines, the workers that park them, and their vendor."""

    def __init__(self, database: Database) -> None:
        self.database, self.clock = database, StoppedClock()
        master = MasterKey(Secret(secrets.token_bytes(32)))
        self.batches = BatchStore(database, master, self.clock)
        self.lines = LineStore(database, self.clock)
        self.table = LeaseTable(database, self.clock)
        self.audit: Any = MemoryAuditLog()
        answer = ScriptedProvider("scripted", HOME, "openai_chat").parcels._answer
        self.vendor = Vendor(HOME, "openai_chat", answer)
        self.service: ParcelService | None = self.vendor
        self.batch: Batch = NOBODY
        self.accounts: tuple[str, ...] = (ACCOUNT,)
        """Who pays for lines."""
        self.key: Any = NOBODY
        self.workers: list[Worker] = []
        self.hides_outcomes = False
        """Whether what is in the log is not in the database yet."""

    async def begin(self, count: int) -> None:
        await self.audit.start()
        await self.table.set_limit(Limit(ACCOUNT, LIMIT))
        now_us = self.clock.utc_us()
        until_us = now_us + DAY_US
        made = Batch(
            *("batch_", "file", PROJECT, "k1", ENDPOINT, "in_progress"), now_us, until_us, until_us
        )
        self.batch = await self.batches.make(made)
        self.key = await self.batches.content_key(self.batch)
        rows = [Line(number, f"q-{number}", BODY) for number in range(1, count + 1)]
        await self.batches._move(self.batch.batch_id, ("in_progress",), state="validating")
        await self.lines.add(self.batch.batch_id, self.key, rows)
        await self.batches.begin(self.batch.batch_id, 0)

    async def worker(self, name: str) -> "Worker":
        worker = Worker(self, name)
        await worker.ledger.start()
        self.workers.append(worker)
        return worker

    async def wait(self, seconds: float) -> None:
        """All workers that are there report meanwhile, so that no lease of theirs is over."""
        while seconds > 0:
            self.clock.advance(min(seconds, FLUSH_S))
            seconds -= FLUSH_S
            for worker in self.workers:
                await worker.ledger.flush()

    async def outcome_of(self, organisation: str, request_id: str) -> AuditRecord | None:
        return None if self.hides_outcomes else self.outcomes(organisation).get(request_id)

    async def intent_of(self, organisation: str, batch: str, line: int) -> OpenIntent | None:
        found = None
        for each in self.audit.records if not self.hides_outcomes else ():
            detail = {"batch": batch, "line": str(line), "path": NATIVE}
            if (each.stage, each.organisation, each.detail) == ("intent", organisation, detail):
                found = OpenIntent(each, f"leaf of {each.request_id}")
        return found

    def outcomes(self, organisation: str = "acme") -> dict[str, AuditRecord]:
        ends = [each for each in self.audit.records if each.stage == "outcome"]
        found = {each.request_id: each for each in ends if each.organisation == organisation}
        assert len(found) == len(ends)
        return found

    def taken(self) -> list[Any]:
        """What the vendor was handed, in that order."""
        return list(self.vendor.taken.values())

    async def states(self) -> dict[int, str]:
        return await self.lines.states(self.batch.batch_id, range(1, 100))

    async def rows(self) -> list[ParcelRow]:
        """Parcels that are not let go of."""
        async with self.database.reading() as connection:
            found = (await connection.execute(select(*ROW))).mappings().all()
        return [parcel_row(each) for each in found]

    async def stakes(self) -> int:
        """How many are noted."""
        async with self.database.reading() as connection:
            query = select(func.count()).select_from(parked_money)
            return int((await connection.execute(query)).scalar_one())

    async def spent(self) -> tuple[int, int]:
        """Of the account, and what workers hold of it; what lies idle went back."""
        await self.wait(12 * FLUSH_S)
        (budget,) = await self.table.budgets()
        return budget.spent_microusd, budget.leased_microusd


class Worker:
    """One of several."""

    def __init__(self, lot: Lot, name: str) -> None:
        self.lot, self.name, self.holder = lot, name, f"{name}.{secrets.token_hex(4)}"
        self.ledger = ledger_on(lot.table, lot.clock, name)
        clock, metrics = lot.clock, Metrics()
        threads: Any = _NoThreads()
        stages = Stages(
            **dict.fromkeys(("peppers", "inspector", "rates", "dispatcher", "answers"), NOBODY),
            ledger=self.ledger,
            audit=lot.audit,
            conclusion=Conclusion(self.ledger, lot.audit, clock, metrics),
            clock=clock,
            threads=threads,
            turns=Turns(),
            settings=Settings(source="a test", folder="."),
        )
        pipeline = BatchPipeline(stages, LineIntake(stages, lambda *_: True))
        self.journeys = LineJourneys(pipeline, _Snapshots(), clock, {ENDPOINT: DIALECT}, 1000)
        self.store = ParcelStore(lot.database, clock)
        self.money = ParkedMoney(lot.database, clock, self.ledger.holder)
        self.late = LateBookings(lot.database, clock)
        purse = Purse(self.late, self.money, lambda *given: stake_of(self.ledger, *given))
        self.reservations = ParkedReservations(self.ledger, purse, clock, lot.outcome_of)
        self.waiting = ParkedLineStore(lot.database, clock)
        self.parked = ParkedLines(
            self.waiting,
            self.journeys,
            self.reservations,
            clock,
            metrics=metrics,
            outcome_of=lot.outcome_of,
            remnants=Remnants(
                self.reservations,
                clock,
                intent_of=lot.intent_of,
                outcome_of=lot.outcome_of,
                new_request_id=lambda: f"req-{secrets.token_hex(4)}",
            ),
        )
        deeds, copies = Deeds(lot.audit, clock), VendorCopies(lot.database, clock)
        journeys = ParcelJourneys(
            *(self.store, lot.batches, self.parked, self.reservations, lambda _: lot.service),
            clock,
            forgetting=Forgetting(self.store, copies, deeds, clock, poll_s=POLL_S),
            poll_s=POLL_S,
        )
        self.runner = ParcelRunner(
            *(self.store, journeys, self.reservations, clock),
            share=ParcelShare(name, self.holder, 100),
            wake=asyncio.Event(),
        )

    async def park(self, count: int = 1, held: int = HELD) -> list[str]:
        """Claim lines and park them; their requests."""
        lot = self.lot
        claims = await lot.lines.claim(lot.batch, lot.key, self.holder, count)
        assert len(claims) == count
        return [await self._park(claim, held) for claim in claims]

    async def _park(self, claim: Claim, held: int) -> str:
        parked = await self.parkable(claim, held)
        await self.parked.park(claim, self.lot.key, parked)
        return parked.ticket.request_id

    async def parkable(self, claim: Claim, held: int = HELD) -> Parked:
        """A line that was let through, its money set aside and its intent written."""
        lot = self.lot
        request_id = f"req-{claim.line.number}-{secrets.token_hex(4)}"
        errand = Errand(claim.batch.batch_id, claim.line.number, "k1", claim.batch.expires_us)
        now_us = lot.clock.utc_us()
        arrival = Arrival(request_id, ENDPOINT, DIALECT, [], now_us, SNAPSHOT, errand)
        request = DIALECT.decode_request(claim.line.body, request_id)
        facts = gather(request, PRINCIPAL, INSPECTION, LIMIT, now_us, BOARD)
        ruling = rule(document(), facts, request, BOARD, Limits())
        arrival, ruling = deferred(
            arrival, errand, request, ruling, UpstreamBody(BODY, ()), RESERVED_S
        )
        reservation = await self.ledger.reserve(lot.accounts, held, RESERVED_S)
        begun = AuditRecord(
            request_id=request_id,
            stage="intent",
            utc_us=now_us,
            organisation=PROJECT[0],
            workspace=PROJECT[1],
            project=PROJECT[2],
            key_id="k1",
            reserved_microusd=held,
            detail=arrival.detail,
        )
        intent = await lot.audit.append(begun)
        passage = Passage(arrival, PRINCIPAL, request, INSPECTION, ruling, reservation, intent)
        return Parked(passage, ticket_of(passage, "openai_chat"))

    async def tend(self, times: int = 1) -> None:
        """Take so many steps of all parcels, each to its end, and as late as it takes to be due."""
        for _ in range(times):
            await self.step()
            await self.lot.wait(POLL_S)

    async def step(self) -> None:
        """The same, of those that are due now."""
        await self.runner.tend()
        assert await self.failures() == []

    async def failures(self) -> list[BaseException]:
        """Of the steps that have begun, once they are over; none of them holds its place."""
        tasks = list(self.runner._moving._tasks.values())
        done = await asyncio.gather(*tasks, return_exceptions=True)
        self.runner._moving.reap()
        return [each for each in done if isinstance(each, BaseException)]

    async def ended(self, what: list[str]) -> None:
        """Lines of these requests are answered, and their parcel is let go of."""
        while not self.lot.outcomes().keys() >= set(what):
            await self.tend()
        await self.tend(2)
