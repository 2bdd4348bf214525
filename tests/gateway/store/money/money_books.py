"""Books kept beside the ledger's own: what is true of budgets, and what their tables say of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import RowMapping, select

from gateway.money.budgets import BudgetKey, template_of
from gateway.store.engine import Database
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.slices import Claim, Grant, HeldSlice, LeaseHolder
from gateway.store.schema.tables import budget_leases, budgets, parked_money
from gateway.types import Reservation
from tests.gateway.store.money.ledgers import LossyTable


Place = tuple[BudgetKey, str, str, int]
"""A lease: of which budget, by which worker and run, and when its window began."""


class WatchedTable(LossyTable):
    """Remembers which leases their holders gave back for good."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.last_claims: dict[tuple[BudgetKey, str, str], Claim] = {}

    async def exchange(self, holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        for claim in claims:
            place = (claim.key, holder.worker, holder.incarnation)
            if claim.is_last:
                self.last_claims[place] = claim
            else:
                self.last_claims.pop(place, None)
        return await super().exchange(holder, claims)


class LeaseRow(Struct, frozen=True):
    key: BudgetKey
    worker: str
    incarnation: str
    window_start_us: int
    outstanding: int
    spent: int
    parked: int
    """What lines hold of it that are not about to end."""

    @property
    def place(self) -> Place:
        return self.key, self.worker, self.incarnation, self.window_start_us


class NoteRow(Struct, frozen=True):
    """What a line holds of a lease."""

    request_id: str
    place: Place
    amount: int


class Books:
    """Of all budgets, each in its present window and under its present limit."""

    def __init__(self, database: Database, table: WatchedTable) -> None:
        self._database, self._table = database, table
        self.limits: dict[BudgetKey, int] = {}
        """Of end users those of their template, under their own accounts."""
        self.true: dict[BudgetKey, int] = {}
        """What was spent."""
        self.above: dict[BudgetKey, int] = {}
        """How much of it was more than had been set aside for it."""
        self.under_way: dict[BudgetKey, int] = {}
        """What was reserved when its run crashed: nobody knows what became of it."""
        self.counted: dict[BudgetKey, int] = {}
        """What is spent by no lease that there is: given back, written off, or booked late."""
        self.window: dict[BudgetKey, int] = {}
        self.rows: dict[BudgetKey, tuple[int, int, int]] = {}
        """What the table says is spent and leased, and since when there is a limit."""
        self.leases: dict[Place, LeaseRow] = {}
        self.notes: list[NoteRow] = []
        """Of lines that nobody is about to end."""
        self._generation: dict[BudgetKey, int] = {}
        """How often its limit was removed."""
        self._born: dict[int, tuple[HeldSlice, int]] = {}
        self._spent_on: dict[int, int] = {}
        self._where: dict[str, tuple[HeldSlice, ...]] = {}

    # What is done

    def limit(self, key: BudgetKey, limit_microusd: int) -> None:
        if key not in self.limits:
            self._begin(key, 0)
        self.limits[key] = limit_microusd

    def unlimit(self, key: BudgetKey) -> None:
        del self.limits[key]
        self._generation[key] = self._generation.get(key, 0) + 1
        self.leases = {place: each for place, each in self.leases.items() if each.key != key}

    def _begin(self, key: BudgetKey, window_start_us: int) -> None:
        self.window[key] = window_start_us
        for sums in (self.true, self.above, self.under_way, self.counted):
            sums[key] = 0

    def expected(self, accounts: Iterable[str]) -> set[BudgetKey]:
        """The budgets that a request of these accounts draws on."""
        return {key for key in self.limits if key.account in set(accounts)}

    def reserves(self, ledger: LeasedLedger, reservation: Reservation) -> None:
        """Each level that has a limit holds it, and nothing else does."""
        keys = self._holds(ledger, reservation)
        assert keys == self.expected(reservation.accounts), (keys, reservation.accounts)

    def holds(self, ledger: LeasedLedger, held: Reservation, first: Reservation) -> None:
        """What a line holds that was let through at first with another reservation, perhaps.

        Each level holds it whose window and limit had begun by then; the others do where a clock
        was set, and where nothing has taken away what was held at first.
        """
        keys = self._holds(ledger, held)
        every = self.expected(held.accounts)
        owing = {each for each in every if self._began_us(each) <= first.admitted_us}
        assert owing <= keys, (keys, owing)
        if held != first and held.accounts:
            assert keys == owing, (keys, owing)

    def _began_us(self, key: BudgetKey) -> int:
        return max(self.window[key], self.rows[key][2] if key in self.rows else 0)

    def _holds(self, ledger: LeasedLedger, reservation: Reservation) -> set[BudgetKey]:
        found = [each for each in ledger.book.pots(reservation) if isinstance(each, HeldSlice)]
        keys = [each.limit.key for each in found]
        assert len(keys) == len(set(keys))
        self._where[reservation.reservation_id] = tuple(found)
        for each in found:
            generation = self._generation.get(each.limit.key, 0)
            self._born.setdefault(id(each), (each, generation))
        return set(keys)

    def pots(self, reservation: Reservation) -> list[HeldSlice]:
        """Where it was set aside, of present windows and limits."""
        return [
            each
            for each in self._where.get(reservation.reservation_id, ())
            if self._is_present(each)
        ]

    def _is_present(self, part: HeldSlice) -> bool:
        key = part.limit.key
        _, generation = self._born.get(id(part), (part, -1))
        is_same = generation == self._generation.get(key, 0)
        return is_same and part.window_start_us == self.window.get(key, 0)

    def settles(self, reservation: Reservation, cost: int) -> None:
        for part in self.pots(reservation):
            key = part.limit.key
            self.true[key] += cost
            self.above[key] += max(cost - reservation.amount_microusd, 0)
            self._spent_on[id(part)] = self.mine(part) + cost

    def books_late(self, accounts: Iterable[str], cost: int, admitted_us: int) -> None:
        """To be called when the tables were read again: it may have begun another window."""
        for key in self.expected(accounts):
            if template_of(key.account) and key not in self.rows:
                continue  # Whoever was never seen shares a budget that nobody limits here.
            if admitted_us >= max(self.window[key], self.rows[key][2]):
                self.true[key] += cost
                self.counted[key] += cost

    def crashes(self, reservation: Reservation) -> None:
        for part in self.pots(reservation):
            self.under_way[part.limit.key] += reservation.amount_microusd

    def mine(self, part: HeldSlice) -> int:
        """What was truly spent of a slice."""
        return self._spent_on.get(id(part), 0)

    # What the tables say of it

    async def look(self) -> None:
        """Read them, and count what became of leases that are gone."""
        now_us = self._table._clock.utc_us()
        before, self.leases = self.leases, {}
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(budgets))).mappings().all()
            leases = (await connection.execute(select(budget_leases))).mappings().all()
            noted = (await connection.execute(select(parked_money))).mappings().all()
        self.rows = {}
        for row in rows:
            key = BudgetKey(row["account"], row["window_kind"])
            self.rows[key] = row["spent_microusd"], row["leased_microusd"], row["begun_us"]
            if key in self.limits and row["window_start_us"] != self.window[key]:
                assert row["window_start_us"] > self.window[key], "an earlier window came back"
                self._begin(key, row["window_start_us"])
        self.notes = [
            _note(each) for each in noted if not each["is_ending"] and each["until_us"] > now_us
        ]
        for found in leases:
            lease = _lease(found, self.notes)
            self.leases[lease.place] = lease
        for place, lease in before.items():
            is_present = lease.window_start_us == self.window.get(lease.key, -1)
            if place not in self.leases and is_present and lease.key in self.limits:
                self.counted[lease.key] += self._became(lease)

    def _became(self, lease: LeaseRow) -> int:
        """What its holder said last; of one that was written off also what it had not said."""
        claim = self._table.last_claims.get((lease.key, lease.worker, lease.incarnation))
        if claim is None:
            return lease.spent + max(lease.outstanding - lease.parked, 0)
        # Of one that it never heard of, nothing was used.
        is_same = claim.window_start_us == lease.window_start_us
        return claim.spent_microusd if is_same else lease.spent

    def lease_of(self, ledger: LeasedLedger, part: HeldSlice) -> LeaseRow | None:
        holder, start_us = ledger.holder, part.window_start_us
        return self.leases.get((part.limit.key, holder.worker, holder.incarnation, start_us))

    def check(self, reserved: Mapping[BudgetKey, int]) -> None:
        """What holds at any time; `reserved` is by runs that are alive."""
        for key, (spent, leased, _) in self.rows.items():
            if key not in self.limits:
                continue
            start_us = self.window[key]
            held = [
                each
                for each in self.leases.values()
                if each.key == key and each.window_start_us == start_us
            ]
            assert leased == sum(each.outstanding for each in held), (key, leased, held)
            due = self.true[key] + reserved.get(key, 0) + self.under_way[key] - self.above[key]
            assert spent + leased >= due, (key, spent, leased, due)
            known = sum(each.spent for each in held) + self.counted[key]
            assert spent == known, (key, spent, known)
        for note in self.notes:
            key, _, _, start_us = note.place
            is_present = key in self.limits and start_us == self.window[key]
            assert not is_present or note.place in self.leases, note

    def check_reported(self, ledger: LeasedLedger, *, is_all: bool) -> None:
        """No lease says more than was spent of it, and after a report none says less."""
        for part in ledger._held.by_key.values():
            lease = self.lease_of(ledger, part)
            if lease is not None and self._is_present(part):
                assert lease.spent <= self.mine(part), (part.limit, lease, self.mine(part))
                assert not is_all or lease.spent == self.mine(part), (lease, self.mine(part))

    def fits(
        self,
        ledger: LeasedLedger,
        accounts: Iterable[str],
        amount: int,
        reserved: Mapping[BudgetKey, int],
    ) -> bool:
        """Whether there is room where no other run gives anything back.

        `reserved` is by this run.
        """
        return all(
            self._room(ledger, key) - reserved.get(key, 0) >= amount
            for key in self.expected(accounts)
        )

    def _room(self, ledger: LeasedLedger, key: BudgetKey) -> int:
        spent, leased, _ = self.rows.get(key, (0, 0, 0))
        left = self.limits[key] - spent - leased
        part = ledger._held.by_key.get(key)
        lease = self.lease_of(ledger, part) if part is not None else None
        if part is None or lease is None:
            return left
        return left + lease.outstanding - (self.mine(part) - lease.spent)


def _note(row: RowMapping) -> NoteRow:
    place = (
        BudgetKey(row["account"], row["window_kind"]),
        row["worker"],
        row["incarnation"],
        row["window_start_us"],
    )
    return NoteRow(row["request_id"], place, row["amount_microusd"])


def _lease(row: RowMapping, notes: Sequence[NoteRow]) -> LeaseRow:
    spent = row["spent_microusd"]
    place = (
        BudgetKey(row["account"], row["window_kind"]),
        row["worker"],
        row["incarnation"],
        row["window_start_us"],
    )
    parked = sum(note.amount for note in notes if note.place == place)
    return LeaseRow(*place, max(row["amount_microusd"] - spent, 0), spent, parked)
