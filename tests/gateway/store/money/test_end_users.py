"""Budgets of end users: a limit for each, from the first request on, forgotten when they are."""

import asyncio
import hashlib

import pytest

from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted
from gateway.identity import Peppers
from gateway.money.budgets import (
    Limit,
    MemoryLedger,
    account_of_end_user,
    end_user_reference,
    end_user_subject,
)
from gateway.store.engine import Database
from gateway.store.money import leases
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from tests.gateway.store.money.ledgers import LossyTable, started


pytestmark = pytest.mark.anyio
EACH = "user:acme/*"
DAY_S = 86_400.0


def path(user: str) -> tuple[str, ...]:
    return ("org:acme", "key:abc", f"user:acme/{user}")


@pytest.fixture
def table(database: Database, clock: StoppedClock) -> LeaseTable:
    return LeaseTable(database, clock)


async def rows(table: LeaseTable) -> dict[str, tuple[int, int]]:
    """Spent and leased of every end user."""
    return {
        budget.limit.account: (budget.spent_microusd, budget.leased_microusd)
        for budget in await table.budgets(None)
        if budget.limit.account.startswith("user:") and budget.limit.account != EACH
    }


async def admitted(ledger: LeasedLedger, user: str, amount: int) -> bool:
    try:
        ledger.settle(await ledger.reserve(path(user), amount), amount)
    except BudgetExhausted:
        return False
    return True


async def test_each_end_user_has_the_limit_and_none_has_anothers(
    table: LeaseTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger = await started(table, clock)

    assert [await admitted(ledger, "ann", amount) for amount in (60, 41, 40)] == [True, False, True]
    assert await admitted(ledger, "bob", 100)
    assert not await admitted(ledger, "bob", 1)
    await ledger.close()
    assert await rows(table) == {"user:acme/ann": (100, 0), "user:acme/bob": (100, 0)}


async def test_first_requests_of_an_unknown_end_user_at_once_on_several_workers_do_not_overspend(
    table: LeaseTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(EACH, 1000, "day"))
    ledgers = [await started(table, clock, f"w{number}") for number in range(4)]

    asked = [admitted(ledger, "new", 100) for ledger in ledgers for _ in range(50)]
    let_through = sum(await asyncio.gather(*asked))
    for ledger in ledgers:
        await ledger.close()

    assert 7 <= let_through <= 10
    assert await rows(table) == {"user:acme/new": (100 * let_through, 0)}


async def test_a_changed_limit_holds_for_end_users_who_are_known_already(
    table: LeaseTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger = await started(table, clock)
    assert await admitted(ledger, "ann", 100)
    await table.set_limit(Limit(EACH, 150, "day"))
    await ledger.refresh()

    assert not await admitted(ledger, "ann", 51)
    assert await admitted(ledger, "ann", 50)
    await ledger.close()


async def test_who_is_on_their_way_while_a_limit_changes_pays_and_a_worker_holds_no_strangers(
    table: LeaseTable, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_NAMES_MAX", 2)
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger, other = await started(table, clock), await started(table, clock, "w2")
    assert await admitted(other, "stranger", 1)
    users = [f"u{number}" for number in range(5)]
    held = [await ledger.reserve(path(user), 60) for user in users]
    await table.set_limit(Limit(EACH, 90, "day"))
    await ledger.refresh()

    assert len(ledger._held.by_key) == len(users)
    for reservation in held:
        ledger.settle(reservation, 50)
    await ledger.close()
    await other.close()
    found = await rows(table)
    assert found.pop("user:acme/stranger") == (1, 0)
    assert found == {f"user:acme/{user}": (50, 0) for user in users}


async def test_without_a_limit_end_users_leave_no_trace(
    table: LeaseTable, clock: StoppedClock
) -> None:
    ledger = await started(table, clock)
    assert await admitted(ledger, "ann", 10**9)
    await table.set_limit(Limit(EACH, 5))
    await ledger.refresh()
    assert not await admitted(ledger, "ann", 6)
    await table.remove_limit(EACH)
    assert await admitted(ledger, "bob", 5)  # Who comes before that is heard has it heard.
    assert await admitted(ledger, "ann", 10**9)
    await ledger.close()
    assert await rows(table) == {}


async def test_quiet_end_users_are_forgotten_by_the_worker_and_keep_what_they_spent(
    table: LeaseTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger = await started(table, clock)
    for number in range(50):
        assert await admitted(ledger, f"u{number}", 70)
    for _ in range(15):
        await ledger.flush()

    assert not [account for account, _ in ledger._held.by_key if account.startswith("user:")]
    assert set((await rows(table)).values()) == {(70, 0)}
    # What holds nothing needs no slice to begin with, and costs something all the same.
    ledger.settle(await ledger.reserve(path("u49"), 0), 20)
    await ledger.flush()
    assert (await rows(table))["user:acme/u49"] == (90, 0)
    assert not await admitted(ledger, "u7", 31)
    assert await admitted(ledger, "u7", 30)
    await ledger.close()


async def test_rows_of_end_users_go_when_their_day_is_over_unless_somebody_uses_them(
    table: LeaseTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger = await started(table, clock)
    for user in ("ann", "bob"):
        assert await admitted(ledger, user, 10)
    await ledger.close()
    assert await table.forget_past_users() == 0
    clock.advance(DAY_S)
    later = await started(table, clock, "w2")
    held = await later.reserve(path("ann"), 10)

    assert await table.forget_past_users() == 1
    assert set(await rows(table)) == {"user:acme/ann"}
    later.settle(held, 10)
    await later.close()


async def test_a_clock_that_was_set_forgets_nobodys_day(
    table: LeaseTable, clock: StoppedClock
) -> None:
    """Were it set right again, there would be nothing left of what was spent."""
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger = await started(table, clock)
    assert await admitted(ledger, "ann", 60)
    await ledger.close()
    clock.jump(DAY_S)
    assert await table.forget_past_users() == 0
    clock.jump(-DAY_S)
    assert await rows(table) == {"user:acme/ann": (60, 0)}


async def test_an_end_user_may_have_a_limit_in_every_kind_of_window(
    table: LeaseTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(EACH, 100, "day"))
    await table.set_limit(Limit(EACH, 150, "month"))
    ledger = await started(table, clock)
    assert await admitted(ledger, "ann", 100)
    assert not await admitted(ledger, "ann", 1)
    clock.advance(DAY_S)
    assert not await admitted(ledger, "ann", 51)
    assert await admitted(ledger, "ann", 50)
    assert await admitted(ledger, "bob", 100)
    await ledger.close()
    await table.remove_limit(EACH, "day")
    assert {budget.limit.window for budget in await table.budgets(None)} == {"month"}


async def test_invented_end_users_make_no_rows_without_bound_and_gain_nothing(
    database: Database, clock: StoppedClock
) -> None:
    table = LeaseTable(database, clock, end_users_max=20)
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger, other = await started(table, clock), await started(table, clock, "w2")
    assert await admitted(ledger, "ann", 60)

    let_through = [await admitted(ledger, f"invented{n}", 10) for n in range(200)]
    let_through += [await admitted(other, f"more{n}", 10) for n in range(50)]

    # Those who had room have a budget of their own; all others together have one of the same size.
    found = await rows(table)
    assert "user:acme/others" in found
    assert len(found) == 20 + 1
    assert sum(let_through) == len(found) - 2 + 10
    assert await admitted(ledger, "ann", 40)
    await ledger.close()
    await other.close()
    clock.advance(DAY_S)
    assert await table.forget_past_users() == 21
    tomorrow = await started(table, clock)
    assert await admitted(tomorrow, "invented150", 100)
    await tomorrow.close()
    assert await rows(table) == {"user:acme/invented150": (100, 0)}


async def test_to_who_is_one_too_many_is_left_what_is_left_to_all_of_those(
    database: Database, clock: StoppedClock
) -> None:
    """A policy decides by it, and by the whole limit would let each invented name pass."""
    table = LeaseTable(database, clock, end_users_max=1)
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger, other = await started(table, clock), await started(table, clock, "w2")
    for user in ("ann", "bob"):
        assert await admitted(ledger, user, 70)
    await ledger.close()

    assert await other.left_now_microusd(path("cid")) == 30
    assert await other.left_now_microusd(path("ann")) == 30
    await other.close()


async def test_so_many_end_users_fit_in_each_kind_of_window(
    database: Database, clock: StoppedClock
) -> None:
    table = LeaseTable(database, clock, end_users_max=2)
    await table.set_limit(Limit(EACH, 100, "day"))
    await table.set_limit(Limit(EACH, 100, "month"))
    ledger = await started(table, clock)
    for user in ("ann", "bob"):
        assert await admitted(ledger, user, 100)
    await ledger.close()
    kept = [budget.limit for budget in await table.budgets(None)]
    found = sorted((each.account, each.window) for each in kept if each.account != EACH)
    users = ("user:acme/ann", "user:acme/bob")
    assert found == [(user, window) for user in users for window in ("day", "month")]


async def test_in_memory_the_same_limit_holds_for_each(clock: StoppedClock) -> None:
    ledger = MemoryLedger([Limit(EACH, 10)], clock)
    for user in ("ann", "bob"):
        ledger.settle(await ledger.reserve(path(user), 10), 10)
        with pytest.raises(BudgetExhausted, match="end user"):
            await ledger.reserve(path(user), 1)


@pytest.mark.parametrize(
    ("tree", "reference"),
    [
        ({"user": "ann"}, "ann"),
        ({"safety_identifier": "a", "user": "b"}, "a"),
        ({"safety_identifier": "", "user": "b"}, "b"),
        ({"metadata": {"user_id": "ann"}}, "ann"),
        ({"metadata": {"user_id": 7}}, ""),
        ({"user": ["ann"]}, ""),
        ({"user": ""}, ""),
        ({}, ""),
        ({"user": "x" * 10_000}, "x" * 512),
    ],
)
def test_a_request_names_its_end_user_in_the_fields_of_either_vendor(
    tree: dict[str, object], reference: str
) -> None:
    assert end_user_reference(tree) == reference


def test_an_account_of_an_end_user_does_not_show_who_that_is() -> None:
    account, other = (
        account_of_end_user(
            name, end_user_subject(name, "ann@example.org", lambda text: text.encode()[::-1])
        )
        for name in ("acme", "other")
    )

    assert account.startswith("user:acme/")
    assert "ann" not in account
    assert account != other


def test_a_new_version_knows_end_users_by_the_names_that_their_rows_and_records_have() -> None:
    """Under another name they would have all of their limit again, and no past."""
    subject = end_user_subject(
        "acme", "ann@example.org", lambda text: hashlib.sha256(text.encode()).digest()
    )
    assert subject == "0c9020bcad8a59e4eb8adaca302ad08d"


def test_nobody_is_followed_from_one_organisation_into_another() -> None:
    """Records name an end user by this: whoever sees those of both must not see that it is one."""
    keyed = Peppers({1: b"p" * 32}).keyed
    subjects = {end_user_subject(name, "ann@example.org", keyed) for name in ("acme", "other")}
    assert len(subjects) == 2


async def test_whoever_asks_before_a_worker_heard_that_their_limit_is_gone_is_let_through(
    database: Database, clock: StoppedClock
) -> None:
    """It asks for the user, for those who are too many, and then what limits there are."""
    table = LossyTable(database, clock)
    await table.set_limit(Limit("org:acme", 1000))
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger = await started(table, clock)
    assert await admitted(ledger, "ann", 60)
    await ledger.flush()
    await table.remove_limit(EACH)
    table.exchanges = 0

    assert [await admitted(ledger, user, 70) for user in ("bob", "ann", "bob")] == [True] * 3
    assert table.exchanges <= 4
    await table.set_limit(Limit(EACH, 100, "day"))
    await ledger.refresh()
    assert [await admitted(ledger, user, 70) for user in ("bob", "bob", "ann")] == [
        True,
        False,
        True,
    ]
    await ledger.close()
    assert await rows(table) == {"user:acme/ann": (70, 0), "user:acme/bob": (70, 0)}
