"""Ledgers on a real database that report when told to, a table that loses answers, and sums."""

from collections.abc import Sequence

from gateway.clock import StoppedClock
from gateway.errors import NotReady
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Claim, Grant, LeaseHolder


ORG = ("org:acme",)


class LossyTable(LeaseTable):
    """A lease table whose next answers are lost after their transaction took effect."""

    losses = exchanges = 0

    async def exchange(self, holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        self.exchanges += 1
        grants = await super().exchange(holder, claims)
        if self.losses:
            self.losses -= 1
            raise NotReady("the database does not answer")
        return grants


def ledger_on(
    table: LeaseTable,
    clock: StoppedClock,
    worker: str = "w1",
    slice_microusd: int = 0,
    *,
    pauses: int = 0,
) -> LeasedLedger:
    """A ledger that reports only when it is told to, and waits for others so often."""
    return LeasedLedger(
        table,
        clock,
        worker,
        slice_microusd=slice_microusd,
        flush_every_s=0.08 if pauses else 3600.0,
        patience_s=0.01 * pauses,
    )


async def started(table: LeaseTable, clock: StoppedClock, worker: str = "w1") -> LeasedLedger:
    ledger = ledger_on(table, clock, worker)
    await ledger.start()
    return ledger


async def spend(ledger: LeasedLedger, amount: int, accounts: tuple[str, ...] = ORG) -> None:
    ledger.settle(await ledger.reserve(accounts, amount), amount)


async def sums(table: LeaseTable, account: str = ORG[0]) -> tuple[int, int]:
    """Spent and leased of an account."""
    (budget,) = await table.budgets_of([account])
    return budget.spent_microusd, budget.leased_microusd
