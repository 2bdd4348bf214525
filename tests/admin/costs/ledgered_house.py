"""A small house whose money moves for some weeks: what is reserved, settled, recorded and counted.

Two organisations in different time zones, keys, end users, and two workers; requests end in every
way there is. Ledger, records, roll-up and counters are the real ones; only upstreams are played.
"""

import random
from collections import Counter
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import select

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.audit.reckoning import OpenIntent, closing
from gateway.clock import StoppedClock
from gateway.metrics import Metrics
from gateway.money.bills import Bill, charged
from gateway.money.budgets import WINDOWS, Limit, account_of_end_user
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.money.late_bookings import LateBookings, LateCost
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import HeldSlice, Lease
from gateway.store.schema.tables import budget_leases
from gateway.types import Attempt, AuditRecord, OutcomeStatus, Reservation, Target, Usage


PLENTY = 10**12
"""So much that no limit is ever tight."""
RESERVED = 5_000_000
FOREVER_S = 400 * 86_400.0
PLACES = (
    Place("acme", "research", "bot"),
    Place("acme", "research", "mail"),
    Place("acme", "sales", "bot"),
    Place("globex", "ops", "bot"),
)
ZONES = {"acme": "Asia/Kathmandu", "globex": "America/New_York"}
STATUSES = {"ok": 200, "failed": 502, "cancelled": 200, "incomplete": 200}


Idle = dict[tuple[str, str, int], int]
"""Micro-dollars by account, kind of window and when that began."""


class Asker(Struct, frozen=True):
    """A key, and perhaps the end user whom it names."""

    place: Place
    key_id: str
    subject: str

    @property
    def accounts(self) -> tuple[str, ...]:
        names = (self.place.organisation, self.place.workspace, self.place.project)
        path = ["/".join(names[:length]) for length in (1, 2, 3)]
        levels = [
            f"{level}:{name}" for level, name in zip(("org", "ws", "proj"), path, strict=True)
        ]
        user = account_of_end_user(names[0], self.subject) if self.subject else ""
        return (*levels, f"key:{self.key_id}", *([user] if user else []))


class Open(Struct, frozen=True):
    """A request that was let through."""

    asker: Asker
    intent: AuditRecord
    reservation: Reservation
    worker: int


class House:
    """`live` makes some history; `records` is what the log says of it."""

    def __init__(
        self, database: Database, clock: StoppedClock, keys: KeyStore, targets: dict[str, Target]
    ) -> None:
        self.clock = clock
        self.records: list[AuditRecord] = []
        self.metrics = [Metrics(), Metrics()]
        self.written_elsewhere: list[AuditRecord] = []
        """Outcomes that no worker counts: of what a crash left open, and of erased lines."""
        self.askers: list[Asker] = []
        self.table = LeaseTable(database, clock, lease_s=FOREVER_S)
        self._database = database
        self._keys = keys
        self._targets = targets
        self._late = LateBookings(database, clock)
        self._ledgers: list[LeasedLedger] = []
        self._stored = 0
        self._open: list[Open] = []

    async def found(self, zones: dict[str, str] = ZONES) -> None:
        """Organisations with keys, limits on every account from the beginning, two workers."""
        for number, place in enumerate(PLACES):
            labels = (f"cost:{number % 2}",) if number else ()
            new = NewKey(place, f"key {number}", "ann", labels)
            key_id = (await self._keys.issue(new)).key_id
            self.askers += [Asker(place, key_id, subject) for subject in ("", "5e" * 16, "a1" * 16)]
        for organisation, zone in zones.items():
            await self.table.set_time_zone(organisation, zone)
        accounts = {account for asker in self.askers for account in asker.accounts}
        users = {f"user:{name}/*" for name in zones}
        for account in sorted(users | {each for each in accounts if not each.startswith("user:")}):
            for window in WINDOWS:
                await self.table.set_limit(Limit(account, PLENTY, window))
        for number in range(2):
            self._ledgers.append(await self._started(f"w{number}"))

    async def _started(self, worker: str) -> LeasedLedger:
        ledger = LeasedLedger(
            self.table,
            self.clock,
            worker,
            reservation_lease_s=FOREVER_S,
            flush_every_s=3600.0,
            patience_s=0.0,
        )
        await ledger.start()
        return ledger

    def reprice(self, targets: dict[str, Target]) -> None:
        """Another price file is in force from now on."""
        self._targets = targets

    async def live(self, draw: random.Random, steps: int) -> None:
        """So many requests begin, and end in some order; time passes in between."""
        for _ in range(steps):
            await self.begin(draw)
            while self._open and draw.random() < 0.7:
                self.end(self._open.pop(draw.randrange(len(self._open))), draw)
            await self.pass_time(draw.choice([0.5, 40.0, 2000.0, 9 * 3600.0]))

    async def pass_time(self, seconds: float) -> None:
        for ledger in self._ledgers:
            await ledger.flush()
        self.clock.advance(seconds)

    async def begin(self, draw: random.Random, worker: int | None = None) -> Open:
        asker = draw.choice(self.askers)
        worker = draw.randrange(2) if worker is None else worker
        reservation = await self._ledgers[worker].reserve(asker.accounts, RESERVED)
        detail = {"batch": draw.choice(["batch_1", "batch_2"]), "line": "0"}
        intent = AuditRecord(
            stage="intent",
            request_id=f"req_{len(self.records)}",
            organisation=asker.place.organisation,
            utc_us=self.clock.utc_us(),
            workspace=asker.place.workspace,
            project=asker.place.project,
            key_id=asker.key_id,
            model_requested=draw.choice(["auto", "=cmd()"]),
            target=self._targets["house"].name,
            provider=self._targets["house"].provider,
            jurisdiction=self._targets["house"].jurisdiction,
            policy_digest=draw.choice(["a1" * 32, "b2" * 32]),
            data_class=draw.choice(["S0", "S3"]),
            findings=draw.choice([{}, {"card": 1}, {"card": 2, "email": 1}]),
            reserved_microusd=reservation.amount_microusd,
            subject=asker.subject,
            detail=detail if draw.random() < 0.2 else {},
        )
        self.records.append(intent)
        begun = Open(asker, intent, reservation, worker)
        self._open.append(begun)
        return begun

    def end(self, begun: Open, draw: random.Random) -> None:
        """As a request may: answered, streamed and left, failed, retried, cached, counted …"""
        ways: list[Callable[[random.Random], tuple[OutcomeStatus, list[Bill], dict[str, str]]]] = [
            lambda draw: ("ok", [self._bill(draw)], {}),
            lambda draw: ("ok", [self._bill(draw, "nothing"), self._bill(draw)], {}),
            lambda draw: ("ok", [self._bill(draw, "estimated"), self._bill(draw)], {"tier": "2"}),
            lambda draw: ("cancelled", [self._bill(draw, "estimated")], {}),
            lambda draw: ("failed", [self._bill(draw, "nothing")], {}),
            lambda draw: ("incomplete", [self._bill(draw, "estimated")], {}),
            lambda draw: ("ok", [], {"cache": draw.choice(["hit", "like"])}),
            lambda draw: ("ok", [], {"counted": "estimate"}),
            lambda draw: ("ok", [self._bill(draw, "embedded")], {}),
        ]
        status, bills, detail = draw.choice(ways)(draw)
        costs = charged(bills, begun.reservation.amount_microusd)
        answer = bills[-1] if bills else None
        usage = answer.usage if answer else None
        target = answer.target if answer and usage else self._targets["house"]
        now_us = self.clock.utc_us()
        record = replace(
            begun.intent,
            stage="outcome",
            utc_us=now_us,
            duration_us=now_us - begun.intent.utc_us,
            target=target.name,
            provider=target.provider,
            jurisdiction=target.jurisdiction,
            status=status,
            http_status=STATUSES[status],
            error="" if status == "ok" else "upstream_failed",
            usage=usage,
            cost_microusd=sum(costs),
            attempts=tuple(
                Attempt(bill.target.name, 200, "", 5, 5, cost, bill.is_estimated)
                for bill, cost in zip(bills, costs, strict=True)
            ),
            detail={**begun.intent.detail, **detail},
        )
        self._ledgers[begun.worker].settle(begun.reservation, record.cost_microusd)
        self.records.append(record)
        self.metrics[begun.worker].requests.add(
            (target.name, status, record.data_class, target.jurisdiction, record.endpoint),
            record.duration_us,
            *((usage.input_tokens, usage.output_tokens) if usage else (0, 0)),
            record.cost_microusd,
        )

    def _bill(self, draw: random.Random, how: str = "counted") -> Bill:
        if how == "nothing":
            return Bill(self._targets["claude"], None)
        target = self._targets["vectors" if how == "embedded" else draw.choice(["house", "claude"])]
        usage = Usage(
            draw.randrange(1, 40_000),
            0 if how == "embedded" else draw.randrange(5_000),
            estimated=how == "estimated",
            service_tier=draw.choice(["", "default", "flex"]) if how == "counted" else "",
        )
        return Bill(target, usage, is_batch=draw.random() < 0.2)

    async def refuse(self, draw: random.Random) -> None:
        """Nothing was let through, and nothing is owed."""
        asker = draw.choice(self.askers)
        self.records.append(
            AuditRecord(
                stage="outcome",
                request_id=f"req_{len(self.records)}",
                organisation=asker.place.organisation,
                utc_us=self.clock.utc_us(),
                workspace=asker.place.workspace,
                project=asker.place.project,
                key_id=asker.key_id,
                status="refused",
                http_status=403,
                error="policy_refused",
            )
        )

    async def book_late(self, draw: random.Random) -> None:
        """A line's money went back with its worker, and is owed in part a minute or a day later."""
        begun = await self.begin(draw)
        self._open.remove(begun)
        self._ledgers[begun.worker].release(begun.reservation)
        admitted_us = begun.intent.utc_us
        await self.pass_time(draw.choice([50.0, 30 * 3600.0]))
        owed = LateCost(begun.intent.request_id, begun.asker.accounts, 77_000, admitted_us)
        assert await self._late.book(owed)
        assert not await self._late.book(owed)
        now_us = self.clock.utc_us()
        lost = replace(
            closing(OpenIntent(begun.intent, ""), now_us, "content_erased", "cancelled"),
            cost_microusd=owed.cost_microusd,
            duration_us=now_us - admitted_us,
        )
        self.records.append(lost)
        self.written_elsewhere.append(lost)

    async def crash(self) -> Idle:
        """The first worker is gone with requests under way; its next run ends them.

        Gives what lay idle in its slices.
        """
        await self.pass_time(1.0)
        idle = await self._idle()
        lost = [each for each in self._open if each.worker == 0]
        self._open = [each for each in self._open if each.worker != 0]
        flusher = self._ledgers[0]._flusher
        assert flusher is not None
        flusher.cancel()
        self._ledgers[0] = await self._started("w0")
        self.clock.advance(5.0)
        for each in lost:
            ended = closing(OpenIntent(each.intent, "00"), self.clock.utc_us())
            self.records.append(ended)
            self.written_elsewhere.append(ended)
        return idle

    async def _idle(self) -> Idle:
        held: Counter[tuple[str, int]] = Counter()
        columns = budget_leases.c
        async with self._database.reading() as connection:
            query = select(budget_leases).where(columns.worker == "w0")
            leases = [Lease(**row) for row in (await connection.execute(query)).mappings()]
        for each in self._open:
            pots = self._ledgers[0].book.pots(each.reservation) if each.worker == 0 else ()
            for pot in pots:
                assert isinstance(pot, HeldSlice)
                held[pot.account + pot.limit.window, pot.window_start_us] += RESERVED
        return {
            (lease.account, lease.window_kind, lease.window_start_us): lease.outstanding_microusd
            - held[lease.account + lease.window_kind, lease.window_start_us]
            for lease in leases
        }

    async def close(self) -> None:
        """Whatever is under way ends; then workers report all they know, and leave."""
        draw = random.Random(len(self.records))
        while self._open:
            self.end(self._open.pop(), draw)
        for ledger in self._ledgers:
            await ledger.close()

    async def store(self) -> None:
        """Bring what was recorded into the database, as the projector does."""
        new = self.records[self._stored :]
        batch = [
            ProjectedRecord(
                "w0", 1, self._stored + at, b"{}", known_record=each, known_leaf="0" * 64
            )
            for at, each in enumerate(new)
        ]
        end = self._stored + len(new)
        sink = DatabaseAuditSink(self._database)
        assert await sink.store(batch, "w0", (1, self._stored), (1, end))
        self._stored = end

    @property
    def outcomes(self) -> list[AuditRecord]:
        return [each for each in self.records if each.stage == "outcome"]
