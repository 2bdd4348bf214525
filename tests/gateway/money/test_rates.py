"""Rate limits of one worker: what is remembered of accounts, and what of many may be forgotten."""

import pytest

from gateway.clock import StoppedClock
from gateway.errors import Exhausted
from gateway.money import rates
from gateway.money.rates import LocalRates, RateLimit


pytestmark = pytest.mark.anyio
ORGANISATION, END_USERS = "org:acme", "user:acme/*"


@pytest.mark.parametrize("users", range(5))
async def test_what_a_request_holds_is_counted_however_many_accounts_there_were_before(
    monkeypatch: pytest.MonkeyPatch, users: int
) -> None:
    """An organisation at rest was forgotten in the middle of a request for it and a new user."""
    monkeypatch.setattr(rates, "_ACCOUNTS_MAX", 3)
    clock = StoppedClock()
    local = LocalRates(clock)
    local.publish([RateLimit(ORGANISATION, 60, 600, 1), RateLimit(END_USERS, 60, 600, 1)])
    for number in range(users):
        local.release(await local.admit((ORGANISATION, f"user:acme/{number}"), 10), 10)
    clock.advance(60.0)
    held = await local.admit((ORGANISATION, "user:acme/new"), 10)
    for user in ("user:acme/other", "user:acme/third"):
        with pytest.raises(Exhausted, match="concurrent requests of this organisation"):
            await local.admit((ORGANISATION, user), 10)
    local.release(held, 10)
    again = await local.admit((ORGANISATION, "user:acme/new"), 10)
    with pytest.raises(Exhausted, match="concurrent requests of this organisation"):
        await local.admit((ORGANISATION, "user:acme/other"), 10)
    local.release(again, 10)


async def test_accounts_at_rest_are_forgotten_and_those_in_use_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rates, "_ACCOUNTS_MAX", 3)
    clock = StoppedClock()
    local = LocalRates(clock)
    local.publish([RateLimit(END_USERS, 6, 60, 2)])
    held = await local.admit(("user:acme/busy",), 60)
    for number in range(2):
        local.release(await local.admit((f"user:acme/{number}",), 1), 1)
    clock.advance(5.0)
    local.take_back(await local.admit(("user:acme/new",), 1))
    assert sorted(local._meters) == [f"user:acme/{name}" for name in ("0", "1", "busy", "new")]
    clock.advance(5.0)
    local.take_back(await local.admit(("user:acme/new",), 1))
    assert len(local._meters) == 4, "a scan of all, and nobody new has come"
    await local.admit(("user:acme/last",), 1)
    assert set(local._meters) == {"user:acme/busy", "user:acme/last"}
    local.release(held, 60)
    assert local._meters["user:acme/busy"].concurrent == 0
