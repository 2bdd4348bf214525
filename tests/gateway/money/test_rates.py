"""Rate limits of one worker: what is remembered of accounts, and what of many may be forgotten."""

import pytest

from gateway.clock import StoppedClock
from gateway.errors import Exhausted
from gateway.money import rates
from gateway.money.rates import LocalRates, RateLimit
from gateway.ports import Allowance, Standing


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
    clock.advance(60.0)  # nothing is used up by now, yet one request of the busy one goes on
    local.take_back(await local.admit(("user:acme/new",), 1))
    assert len(local._meters) == 4, "a scan of all, and nobody new has come"
    await local.admit(("user:acme/last",), 1)
    assert set(local._meters) == {"user:acme/busy", "user:acme/last"}
    local.release(held, 60)
    assert local._meters["user:acme/busy"].concurrent == 0


KEY = "key:abc"


async def test_a_changed_limit_keeps_what_was_used_and_a_new_one_begins_whole() -> None:
    """A raised limit adds what it is more; what is set back to none and again forgets."""
    clock = StoppedClock()
    local = LocalRates(clock)

    async def standing(*limits: int | None) -> tuple[object, object]:
        local.publish([RateLimit(KEY, *limits)])
        permit = await local.admit((KEY,), 0)
        local.take_back(permit)
        assert permit.standing is not None
        return permit.standing.requests, permit.standing.tokens

    local.publish([RateLimit(KEY, 60, 600)])
    held = await local.admit((KEY,), 100)
    assert held.standing == Standing(Allowance(60, 59, 1.0), Allowance(600, 500, 10.0))
    assert await standing(60, 1200) == (Allowance(60, 58, 2.0), Allowance(1200, 1100, 5.0))
    assert await standing(60, 300) == (Allowance(60, 58, 2.0), Allowance(300, 200, 20.0))
    clock.advance(1.0)
    assert await standing(60, 300) == (Allowance(60, 59, 1.0), Allowance(300, 205, 19.0))
    assert await standing(None, 150) == (None, Allowance(150, 55, 38.0))
    assert await standing(30, None) == (Allowance(30, 29, 2.0), None)
    assert await standing(30, 600) == (Allowance(30, 29, 2.0), Allowance(600, 600, 0.0))
    local.release(held, 0)
    assert await standing(30, 600) == (Allowance(30, 29, 2.0), Allowance(600, 600, 0.0))


async def test_a_changed_limit_on_what_is_under_way_holds_at_once() -> None:
    local = LocalRates(StoppedClock())
    local.publish([RateLimit(KEY, concurrent_requests=1)])
    held = [await local.admit((KEY,), 0)]
    with pytest.raises(Exhausted, match="concurrent requests of this key") as refused:
        await local.admit((KEY,), 0)
    assert refused.value.retry_after_s == 1.0
    local.publish([RateLimit(KEY, concurrent_requests=3)])
    held += [await local.admit((KEY,), 0) for _ in range(2)]
    local.publish([RateLimit(KEY, concurrent_requests=2)])
    for permit in held[:2]:
        with pytest.raises(Exhausted):
            await local.admit((KEY,), 0)
        local.release(permit, 0)
    held.append(await local.admit((KEY,), 0))


async def test_what_is_used_up_comes_back_evenly_and_a_limit_of_nothing_never() -> None:
    clock = StoppedClock()
    local = LocalRates(clock)
    local.publish([RateLimit(KEY, 6, 60), RateLimit(ORGANISATION, 0)])
    for _ in range(6):
        local.release(await local.admit((KEY,), 10), 10)
    with pytest.raises(Exhausted, match="requests per minute of this key") as refused:
        await local.admit((KEY,), 10)
    assert refused.value.retry_after_s == 10.0
    assert refused.value.standing == Standing(Allowance(6, 0, 60.0), Allowance(60, 0, 60.0))
    clock.advance(9.5)
    with pytest.raises(Exhausted) as refused:
        await local.admit((KEY,), 10)
    assert refused.value.retry_after_s == 1.0
    clock.advance(0.5)
    permit = await local.admit((KEY,), 10)
    local.release(permit, 70)
    clock.advance(10.0)
    with pytest.raises(Exhausted, match="tokens per minute of this key") as refused:
        await local.admit((KEY,), 10)
    assert refused.value.retry_after_s == 60.0
    clock.advance(600.0)
    assert (await local.admit((KEY,), 1000)).standing == Standing(
        Allowance(6, 5, 10.0), Allowance(60, 0, 1000.0)
    )
    with pytest.raises(Exhausted, match="requests per minute of this organisation") as refused:
        await local.admit((ORGANISATION,), 0)
    assert refused.value.retry_after_s == 60.0


async def test_limits_of_end_users_are_told_by_organisation_and_paths_are_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rates, "_ACCOUNTS_MAX", 3)
    local = LocalRates(StoppedClock())
    local.publish([RateLimit(KEY, 6), RateLimit(ORGANISATION, 6), RateLimit(END_USERS, 6)])
    assert local.tells_end_users_apart == {"acme"}
    for number in range(7):
        await local.admit((f"user:globex/{number}",), 0)
        assert len(local._book._paths) == number % 3 + 1
