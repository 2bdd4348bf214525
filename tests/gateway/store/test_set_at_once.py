"""Two who set the same thing for the first time in the same moment: it is set, and nobody fails."""

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest

from gateway.clock import StoppedClock
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.identity import Peppers
from gateway.money.budgets import Limit
from gateway.money.rates import RATE_MAX, RateLimit
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.engine import Database, open_database
from gateway.store.identity.keys import KeyStore, Place
from gateway.store.identity.views import ViewStore
from gateway.store.money.leases import LeaseTable
from gateway.store.money.rate_limits import RateLimitTable, rate_mark
from gateway.store.policies.documents import PolicyStore
from gateway.store.pool_drains import DrainTable
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from tests.policies.worlds import document


pytestmark = pytest.mark.anyio
AMOUNTS = (1_000_000, 2_000_000, 3_000_000)
OTHERS_REFUSED = ["ChangedMeanwhile", "ChangedMeanwhile", "NoneType"]


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = open_database(database_url)
    peppers = Peppers({1: secrets.token_bytes(32)})
    await KeyStore(database, peppers, StoppedClock()).ensure_place(Place("acme", "a", "b"))
    yield database
    await database.close()


@pytest.mark.parametrize("account", ["org:acme", "user:acme/*"])
async def test_the_later_of_the_first_limits_of_an_account_holds(
    database: Database, account: str
) -> None:
    table = LeaseTable(database, StoppedClock())
    await asyncio.gather(*(table.set_limit(Limit(account, each, "month")) for each in AMOUNTS))
    (first,) = await table.budgets()
    await table.set_limit(Limit(account, 7, "month"))

    assert first.limit.limit_microusd in AMOUNTS
    assert (first.limit.time_zone, first.spent_microusd, first.leased_microusd) == ("UTC", 0, 0)
    assert [each.limit.limit_microusd for each in await table.budgets()] == [7]


async def test_the_later_of_the_first_rates_of_an_account_holds_whole(database: Database) -> None:
    table = RateLimitTable(database)
    rates = [RateLimit("org:acme", 5), RateLimit("org:acme", None, 900), RateLimit("org:acme", 7)]
    await asyncio.gather(*map(table.set, rates))
    (first,) = await table.all()
    await table.set(RateLimit("org:acme", None, None, 3))

    assert first in rates
    assert await table.all() == [RateLimit("org:acme", None, None, 3)]
    await table.set(RateLimit("org:acme", tokens_per_minute=RATE_MAX))
    for number in (-1, RATE_MAX + 1, 2**70):
        with pytest.raises(RequestInvalid):
            await table.set(RateLimit("org:acme", tokens_per_minute=number))


async def test_workers_that_start_together_keep_what_they_all_know(database: Database) -> None:
    stores = [PolicyStore(database, StoppedClock()) for _ in AMOUNTS]
    for number in range(3):
        kept = document({"name": f"policy {number}", "no_cache": True})
        await asyncio.gather(*(each.keep(kept) for each in stores))
        found = await PolicyStore(database, StoppedClock()).document(kept.digest)
        assert found is not None
        assert found.digest == kept.digest
        await asyncio.gather(*(each.boards.keep(f"board {number}", ()) for each in stores))
    names = ["board 0", "board 1", "board 2"]
    assert sorted(await stores[0].boards.named(names)) == names


async def test_a_member_is_drained_by_the_later_of_two_who_order_it(database: Database) -> None:
    table = DrainTable(database, StoppedClock())
    for member in ("one", "other"):
        done = await asyncio.gather(*(table.drain(member, f"p{each}") for each in AMOUNTS))
        assert next(each for each in await table.all() if each.member == member) in done


async def test_of_those_who_seal_the_first_version_of_a_secret_one_does(
    database: Database,
) -> None:
    sealed = SealedSecretTable(database, MasterKey(Secret(secrets.token_bytes(32))), StoppedClock())
    for name in ("one", "other"):
        ways = (sealed.seal(name, Secret(f"v{each}"), "Ann", expected=0) for each in AMOUNTS)
        done = await asyncio.gather(*ways, return_exceptions=True)
        assert sorted(type(each).__name__ for each in done) == [
            "ChangedMeanwhile",
            "ChangedMeanwhile",
            "int",
        ]
        assert (await sealed.open(name)).reveal() == f"v{AMOUNTS[done.index(1)]}"


async def test_of_those_who_saw_one_limit_of_an_account_one_changes_it(database: Database) -> None:
    table = LeaseTable(database, StoppedClock())
    seen = "none"
    for _ in range(2):
        done = await asyncio.gather(
            *(table.set_limit(Limit("org:acme", each, "month"), seen) for each in AMOUNTS),
            return_exceptions=True,
        )
        assert sorted(type(each).__name__ for each in done) == OTHERS_REFUSED
        (budget,) = await table.budgets()
        assert budget.limit.limit_microusd == AMOUNTS[done.index(None)]
        await table.set_limit(Limit("org:acme", 7, "month"), str(AMOUNTS[done.index(None)]))
        seen = "7"
    for wrong in ("none", "8"):
        with pytest.raises(ChangedMeanwhile):
            await table.remove_limit("org:acme", "month", wrong)
    with pytest.raises(ChangedMeanwhile):
        await table.remove_limit("org:acme", "day", "7")
    await table.remove_limit("org:acme", "month", "7")
    assert await table.budgets() == []


async def test_of_those_who_saw_one_rate_of_an_account_one_changes_it(database: Database) -> None:
    table, seen = RateLimitTable(database), "none"
    rates = [RateLimit("org:acme", 5), RateLimit("org:acme", None, 900), RateLimit("org:acme", 7)]
    for _ in range(2):
        done = await asyncio.gather(
            *(table.set(each, seen) for each in rates), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in done) == OTHERS_REFUSED
        (kept,) = await table.all()
        assert kept == rates[done.index(None)]
        await table.set(RateLimit("org:acme", 9), rate_mark(kept))
        seen = rate_mark(RateLimit("org:acme", 9))
    for wrong in ("none", rate_mark(rates[0])):
        with pytest.raises(ChangedMeanwhile):
            await table.remove("org:acme", wrong)
    await table.remove("org:acme", seen)
    assert await table.all() == []


async def test_a_view_whose_form_is_sent_twice_is_kept_once(database: Database) -> None:
    views = ViewStore(database, StoppedClock())
    sent = (views.keep("ann", "acme", "traffic", "mine", text) for text in ("a", "b", "c"))
    await asyncio.gather(*sent)
    (kept,) = await views.views("ann", "acme", "traffic")

    assert (kept.name, kept.filter in ("a", "b", "c")) == ("mine", True)
