"""What every keeper of rate limits promises: in memory, and shared in a real Redis or Valkey.

The shared ones need `redis-server` or `valkey-server` on the path; continuous integration installs
one and says so, so that they cannot be left out there.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.clock import StoppedClock, SystemClock
from gateway.errors import Exhausted
from gateway.money.rates import LocalRates, Permit, RateLimit, Rates
from gateway.ports import Standing
from gateway.store.money.shared_rates import RETRY_S, SharedRates
from tests.redis_server import SERVER, Server


pytestmark = pytest.mark.anyio
KINDS = ["memory", "shared"] if SERVER else ["memory"]
PATH = ("org:acme", "key:abc")


def test_continuous_integration_leaves_the_shared_limits_in() -> None:
    assert SERVER or "GATEWRIGHT_TEST_SERVERS" not in os.environ


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    yield server
    await server.stop()


@pytest.fixture(params=KINDS)
async def rates(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Rates]:
    if request.param == "memory":
        yield LocalRates(SystemClock())
        return
    await server.start()
    shared = SharedRates(server.url, SystemClock(), timeout_s=20.0)
    yield shared
    assert shared.is_shared
    await shared.close()


@asynccontextmanager
async def deaf_to_the_first(server: Server) -> AsyncIterator[str]:
    """The server behind a line that breaks when it first answers a script."""
    broken: list[bytes] = []

    async def pass_on(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            to.write(data)
        to.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, to_them = await asyncio.open_connection("127.0.0.1", server.port)
        asking = asyncio.create_task(pass_on(reader, to_them))
        while data := await theirs.read(65_536):
            if not broken and data.startswith(b"*"):
                broken.append(data)
                break
            writer.write(data)
        writer.close()
        await asking

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as line:
        yield f"redis://127.0.0.1:{line.sockets[0].getsockname()[1]}/0"
    assert broken


async def settled(rates: Rates) -> None:
    """Until what was given back has arrived."""
    while isinstance(rates, SharedRates) and rates._releasing:
        await asyncio.sleep(0.001)


async def refusal(rates: Rates, tokens: int = 1, accounts: tuple[str, ...] = PATH) -> Exhausted:
    with pytest.raises(Exhausted) as caught:
        await rates.admit(accounts, tokens)
    return caught.value


async def test_without_a_limit_everything_is_let_through(rates: Rates) -> None:
    rates.publish([RateLimit("org:other", 0)])
    for _ in range(50):
        assert await rates.admit(PATH, 10**9) == Permit((), 0)


async def test_requests_above_a_minutes_worth_are_told_when_to_come_back(rates: Rates) -> None:
    rates.publish([RateLimit("org:acme", requests_per_minute=6)])
    for _ in range(6):
        await rates.admit(PATH, 1)

    error = await refusal(rates)

    assert error.message == "The limit on requests per minute of this organisation is reached."
    assert error.retry_after_s == 10
    assert (error.code, error.http_status, error.retryable) == ("rate_limited", 429, True)


async def test_a_refused_request_takes_from_no_limit_of_its_path(rates: Rates) -> None:
    rates.publish(
        [RateLimit("org:acme", 10, 10_000, 10), RateLimit("key:abc", requests_per_minute=1)]
    )
    await rates.admit(PATH, 1000)
    for _ in range(30):
        assert "of this key" in (await refusal(rates, 1000)).message

    for _ in range(9):
        await rates.admit(("org:acme",), 1000)
    assert "of this organisation" in (await refusal(rates, 1, ("org:acme",))).message


async def test_tokens_are_charged_in_advance_and_corrected_at_the_end(rates: Rates) -> None:
    rates.publish([RateLimit("key:abc", tokens_per_minute=1000)])
    permit = await rates.admit(PATH, 900)
    assert "tokens per minute" in (await refusal(rates, 200)).message
    rates.release(permit, 100)
    await settled(rates)

    again = await rates.admit(PATH, 900)
    rates.release(again, 3000)  # More than was thought: the bucket is in debt.
    await settled(rates)
    assert (await refusal(rates, 1)).retry_after_s in range(100, 140)


async def test_a_request_larger_than_a_minutes_worth_waits_for_a_full_bucket_only(
    rates: Rates,
) -> None:
    rates.publish([RateLimit("key:abc", tokens_per_minute=1000)])
    await rates.admit(PATH, 5000)
    assert (await refusal(rates, 1)).retry_after_s in range(235, 245)


async def test_concurrent_requests_make_room_when_they_end(rates: Rates) -> None:
    rates.publish([RateLimit("org:acme", concurrent_requests=2)])
    first, second = await rates.admit(PATH, 1), await rates.admit(PATH, 1)
    assert "concurrent requests" in (await refusal(rates)).message
    rates.release(first, 1)
    rates.take_back(second)
    await settled(rates)
    await rates.admit(PATH, 1)
    await rates.admit(PATH, 1)
    await refusal(rates)


async def test_a_request_that_is_taken_back_was_never_made(rates: Rates) -> None:
    rates.publish([RateLimit("org:acme", 2, 100, 2)])
    for _ in range(20):
        rates.take_back(await rates.admit(PATH, 90))
        await settled(rates)
    await rates.admit(PATH, 90)


async def test_whoever_leaves_while_being_refused_gives_nothing_back(rates: Rates) -> None:
    """Else a caller without any room makes himself some by hanging up."""
    rates.publish([RateLimit("org:acme", requests_per_minute=2, tokens_per_minute=100)])
    for _ in range(2):
        await rates.admit(PATH, 50)
    for turns in range(40):
        asking = asyncio.ensure_future(rates.admit(PATH, 50))
        for _ in range(turns % 8 + 1):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await settled(rates)
        assert asking.cancelled() or isinstance(asking.exception(), Exhausted)
    await refusal(rates, 50)


async def test_whoever_leaves_while_being_let_in_was_never_there(rates: Rates) -> None:
    rates.publish([RateLimit("org:acme", tokens_per_minute=100, concurrent_requests=1)])
    for turns in range(40):
        asking = asyncio.ensure_future(rates.admit(PATH, 50))
        for _ in range(turns % 8 + 1):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        if not asking.cancelled():
            rates.take_back(asking.result())
        await settled(rates)
    await rates.admit(PATH, 100)


async def test_a_key_hears_how_its_own_limits_stand_and_nobody_elses(rates: Rates) -> None:
    rates.publish(
        [RateLimit("org:acme", 500, 50_000, 5), RateLimit("key:abc", 10, 1000), RateLimit("key:d")]
    )

    first = await rates.admit(PATH, 200)
    second = (await rates.admit(PATH, 300)).standing
    refused = (await refusal(rates, 900)).standing

    assert first.standing is not None
    assert second is not None
    for standing, requests, tokens in ((first.standing, 9, 800), (second, 8, 500)):
        assert standing.requests is not None
        assert standing.tokens is not None
        assert (standing.requests.limit, standing.tokens.limit) == (10, 1000)
        assert standing.requests.left in {requests, requests + 1}
        assert standing.tokens.left in range(tokens, tokens + 40)
        assert 0 < standing.tokens.full_in_s <= 60 - tokens * 0.06 + 0.1
    assert isinstance(refused, Standing)
    assert refused.tokens is not None
    assert refused.tokens.left in range(500, 540), "what is refused takes nothing"
    assert (await rates.admit(("org:acme", "key:other"), 1)).standing is None
    assert (await rates.admit(("org:acme", "key:d"), 1)).standing == Standing()


async def test_each_end_user_has_limits_of_its_own(rates: Rates) -> None:
    rates.publish([RateLimit("user:acme/*", requests_per_minute=1)])
    assert rates.tells_end_users_apart == {"acme"}
    for user in ("ann", "bob"):
        await rates.admit((f"user:acme/{user}",), 1)
        assert "end user" in (await refusal(rates, 1, (f"user:acme/{user}",))).message


async def test_many_at_once_are_let_through_as_often_as_the_limit_says(rates: Rates) -> None:
    rates.publish([RateLimit("org:acme", requests_per_minute=40)])
    asked = [rates.admit(PATH, 1) for _ in range(200)]
    answers = await asyncio.gather(*asked, return_exceptions=True)

    assert sum(isinstance(answer, Permit) for answer in answers) == 40


@pytest.mark.skipif(not SERVER, reason="needs redis-server or valkey-server")
async def test_a_shared_clock_that_was_set_back_holds_nobody_up_until_the_old_time_comes(
    server: Server,
) -> None:
    """As an hour later would have left it: an empty bucket, and the permit of a dead worker."""
    await server.start()
    rates, lease_s = SharedRates(server.url, SystemClock(), timeout_s=20.0), 0.05
    rates._lease_s = lease_s
    rates.publish([RateLimit("org:acme", 60_000, 60_000, 1)])
    ahead_s = SystemClock().utc_us() / 1_000_000 + 3600
    bucket, permits = (f"gatewright:rates:{kind}:{{org:acme}}" for kind in ("bucket", "open"))
    gone = {"r": 0, "rs": ahead_s, "t": 0, "ts": ahead_s}
    await rates._redis.hset(bucket, mapping=gone)
    await rates._redis.zadd(permits, {"dead": ahead_s})
    tries = 0
    while True:
        try:
            await rates.admit(("org:acme",), 1)
        except Exhausted:
            tries += 1
            assert tries < 500, "it is held up"
            await asyncio.sleep(0.01)
        else:
            break

    assert tries > 0
    await rates.close()


def test_whoever_owes_or_asks_is_not_forgotten_for_the_sake_of_those_who_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.money.rates._ACCOUNTS_MAX", 3)
    rates = LocalRates(StoppedClock())
    rates.publish([RateLimit("user:acme/*", None, 100, 1), RateLimit("user:acme/slow", 9, 9, 1)])

    async def play() -> int:
        owing = await rates.admit(("user:acme/owes",), 1)
        rates.release(owing, 1000)
        await rates.admit(("user:acme/asks",), 0)
        for number in range(20):
            rates.take_back(await rates.admit((f"user:acme/{number}",), 1))
        for account in ("user:acme/owes", "user:acme/asks"):
            await refusal(rates, 1, (account,))
        return len(rates._meters)

    assert asyncio.run(play()) <= 4


def test_buckets_refill_evenly_and_a_changed_limit_forgives_nothing() -> None:
    clock = StoppedClock()
    rates = LocalRates(clock)

    async def admitted() -> int:
        count = 0
        try:
            while True:
                await rates.admit(PATH, 1)
                count += 1
        except Exhausted:
            return count

    async def play() -> list[int]:
        seen = []
        rates.publish([RateLimit("org:acme", 60)])
        seen.append(await admitted())
        clock.advance(7.0)
        seen.append(await admitted())
        rates.publish([RateLimit("org:acme", 120)])
        seen.append(await admitted())
        clock.advance(-3600.0)  # no wall clock, but no machine is perfect either
        clock.advance(3600.0 + 600.0)
        seen.append(await admitted())
        return seen

    assert asyncio.run(play()) == [60, 7, 60, 120]


if SERVER:

    async def test_two_workers_share_one_limit(server: Server) -> None:
        await server.start()
        workers = [SharedRates(server.url, SystemClock(), timeout_s=20.0) for _ in range(2)]
        for worker in workers:
            worker.publish([RateLimit("org:acme", 20, None, 20)])
        asked = [worker.admit(PATH, 1) for worker in workers for _ in range(20)]
        answers = await asyncio.gather(*asked, return_exceptions=True)

        assert sum(isinstance(answer, Permit) for answer in answers) == 20
        for worker in workers:
            await worker.close()

    async def test_a_debt_is_remembered_until_it_is_paid(server: Server) -> None:
        """A key that ran out of memory after a minute would forgive what a long answer took."""
        await server.start()
        rates = SharedRates(server.url, SystemClock(), timeout_s=20.0)
        rates.publish([RateLimit("org:acme", tokens_per_minute=1000)])
        rates.release(await rates.admit(PATH, 1), 3_000)
        await settled(rates)
        assert await rates._redis.ttl("gatewright:rates:bucket:{org:acme}") in range(170, 182)
        await rates.close()

    async def test_an_answer_that_outlives_its_bucket_is_charged_all_the_same(
        server: Server,
    ) -> None:
        await server.start()
        rates = SharedRates(server.url, SystemClock(), timeout_s=20.0)
        rates.publish([RateLimit("org:acme", tokens_per_minute=1000)])
        permit, other = await rates.admit(PATH, 1), await rates.admit(PATH, 1)
        await rates._redis.delete("gatewright:rates:bucket:{org:acme}")
        rates.release(other, 0)
        await settled(rates)
        assert not await rates._redis.exists("gatewright:rates:bucket:{org:acme}")

        rates.release(permit, 3_001)
        await settled(rates)

        assert (await refusal(rates, 1)).retry_after_s in range(90, 122)
        await rates.close()

    async def test_permits_of_a_worker_that_died_run_out(server: Server) -> None:
        await server.start()
        dead = SharedRates(server.url, SystemClock(), permit_lease_s=0.05, timeout_s=20.0)
        other = SharedRates(server.url, SystemClock(), timeout_s=20.0)
        for worker in (dead, other):
            worker.publish([RateLimit("org:acme", concurrent_requests=1)])
        await dead.admit(PATH, 1)
        async with asyncio.timeout(10):
            while True:
                try:
                    await other.admit(PATH, 1)
                    break
                except Exhausted:
                    await asyncio.sleep(0.02)
        for worker in (dead, other):
            await worker.close()

    async def test_a_request_whose_admission_was_counted_unheard_holds_no_place_of_others(
        server: Server,
    ) -> None:
        """The connection broke before the answer came: each such place was lost for minutes."""
        await server.start()
        async with deaf_to_the_first(server) as url:
            broken = SharedRates(url, SystemClock(), timeout_s=20.0)
            other = SharedRates(server.url, SystemClock(), timeout_s=20.0)
            for worker in (broken, other):
                worker.publish([RateLimit("org:acme", 10, None, 1)])
            other.release(await other.admit(PATH, 1), 1)
            await settled(other)

            await broken.admit(PATH, 1)
            assert not broken.is_shared, "it was let in by this worker alone"
            await settled(broken)

            await other.admit(PATH, 1)
            await refusal(other)
            for worker in (broken, other):
                await worker.close()

    async def test_without_the_server_each_worker_limits_by_itself_and_then_shares_again(
        server: Server,
    ) -> None:
        await server.start()
        clock = StoppedClock()
        rates = SharedRates(server.url, clock, timeout_s=5.0)
        rates.publish([RateLimit("org:acme", requests_per_minute=3)])
        held = await rates.admit(PATH, 1)
        await server.stop()

        with capture_logs() as lines:
            for _ in range(3):
                await rates.admit(PATH, 1)
        (line,) = lines
        assert "Connect" in line["reason"] or "onnection" in line["reason"]
        await refusal(rates)
        alone = rates.is_shared
        rates.release(held, 1)  # It is given back to nobody, and nobody minds.
        await server.start()
        clock.advance(RETRY_S + 0.1)
        await rates.admit(PATH, 1)
        assert (alone, rates.is_shared) == (False, True)
        await rates.close()

    async def test_an_answer_that_was_under_way_when_the_server_was_lost_does_not_find_it_again(
        server: Server,
    ) -> None:
        """It was called back within a millisecond; the worker limited by itself for a second."""
        await server.start()
        clock = StoppedClock()
        rates = SharedRates(server.url, clock, timeout_s=5.0)
        rates.publish([RateLimit("org:acme", requests_per_minute=3)])
        with capture_logs() as lines:
            under_way = asyncio.create_task(rates.admit(PATH, 1))
            await asyncio.sleep(0)
            rates._lose(ConnectionError("it was lost for another request"))
            await under_way
            lost = rates.is_shared
            clock.advance(RETRY_S + 0.1)
            await rates.admit(PATH, 1)
        assert (lost, rates.is_shared) == (False, True)
        assert [line["event"] for line in lines] == ["rates:degraded", "rates:recovered"]
        await rates.close()


async def test_who_goes_on_for_long_keeps_its_permit_until_it_is_given_back(
    rates: Rates,
) -> None:
    rates.publish([RateLimit("key:abc", concurrent_requests=1)])
    usual_s = getattr(rates, "_lease_s", 0.0)
    if isinstance(rates, SharedRates):
        rates._lease_s = 0.5
    permit = await rates.admit(PATH, 1)
    if isinstance(rates, SharedRates):
        rates._lease_s = usual_s
    rates.renew(permit)
    await asyncio.sleep(0.6)  # Its first lease is over.
    with pytest.raises(Exhausted):
        await rates.admit(PATH, 1)
    rates.release(permit, 1)
    other = await admitted(rates)
    rates.renew(permit)
    rates.release(other, 1)
    await admitted(rates)


async def admitted(rates: Rates) -> Permit:
    """A permit, once what was given back has come there."""
    while True:
        try:
            return await rates.admit(PATH, 1)
        except Exhausted:
            await asyncio.sleep(0.01)
