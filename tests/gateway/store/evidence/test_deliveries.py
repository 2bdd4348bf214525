"""The log of deliveries, and going back: records come again, and none is passed over."""

from pathlib import Path

import pytest
from sqlalchemy import update

from gateway.clock import StoppedClock
from gateway.store.engine import Database
from gateway.store.evidence.deliveries import RUN_US, RUNS_KEPT, Deliveries, Run, note
from gateway.store.schema.audit import audit_records
from tests.gateway.store.evidence.test_shipping import ListSink, Log


pytestmark = pytest.mark.anyio
NOW_US = 1_800_000_000_000_000


def run(state: str, after_us: int = 0, *, lines: int = 5, reason: str = "") -> Run:
    at_us = NOW_US + after_us
    return Run("siem", at_us, at_us, state, 1, lines, "w0", reason)


async def noted(database: Database, *runs: Run) -> list[Run]:
    for each in runs:
        async with database.writing() as connection:
            await note(connection, each)
    return await Deliveries(database, StoppedClock(NOW_US)).runs(["siem"], 10_000)


async def test_deliveries_that_end_alike_are_one_line_for_an_hour(database: Database) -> None:
    found = await noted(
        database,
        run("taken"),
        run("taken", 1_000_000, lines=7),
        run("refused", 2_000_000, lines=0, reason="HTTP 503"),
        run("refused", 3_000_000, lines=0, reason="HTTP 500"),
        run("taken", 4_000_000),
        run("taken", RUN_US + 4_000_000),
    )

    assert [(each.state, each.tries, each.lines, each.reason) for each in found] == [
        ("taken", 1, 5, ""),
        ("taken", 1, 5, ""),
        ("refused", 1, 0, "HTTP 500"),
        ("refused", 1, 0, "HTTP 503"),
        ("taken", 2, 12, ""),
    ]
    assert found[-1].until_us == NOW_US + 1_000_000


async def test_two_runs_of_one_microsecond_stand_beside_each_other(database: Database) -> None:
    found = await noted(database, run("taken"), run("refused"), run("taken"))

    assert [each.state for each in found] == ["taken", "refused", "taken"]


async def test_a_sink_that_takes_and_refuses_in_turn_does_not_fill_the_database(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert RUNS_KEPT >= 100
    monkeypatch.setattr("gateway.store.evidence.deliveries.RUNS_KEPT", 4)
    turns = [run("taken" if number % 2 else "refused", number) for number in range(9)]
    found = await noted(database, *turns)

    assert [each.since_us - NOW_US for each in found] == [8, 7, 6, 5]


@pytest.fixture
async def log(tmp_path: Path, database: Database) -> Log:
    return Log(tmp_path / "audit", database)


async def test_what_was_taken_and_refused_stands_in_the_log_with_the_reason(log: Log) -> None:
    sink = ListSink()
    deliveries = Deliveries(log.database, log.clock)
    shipper = log.shipper(siem=sink)
    await log.add(0, 6)
    sink.refuses = True
    assert await shipper.perform() == 0
    (state,) = await deliveries.states(["siem"])
    assert (state.records_behind, state.taken_us) == (12, 0)
    assert state.newest is not None
    assert (state.newest.state, state.newest.reason) == ("refused", "it is told to refuse")

    sink.refuses = False
    assert await shipper.perform() == 12
    (state,) = await deliveries.states(["siem"])
    assert (state.records_behind, state.oldest_us) == (0, 0)
    assert state.newest is not None
    assert (state.newest.state, state.newest.lines, state.newest.who) == ("taken", 12, "w0")
    assert state.taken_us == state.newest.until_us


async def test_a_refusal_is_noted_although_the_clock_was_set_back(log: Log) -> None:
    sink = ListSink()
    sink.refuses = True
    shipper = log.shipper(siem=sink)
    await log.add(0, 1)
    for ahead_us in (3 * RUN_US, 0):
        log.clock.ahead_us = ahead_us
        await shipper.perform()

    found = await Deliveries(log.database, log.clock).runs(["siem"], 9)
    assert [each.state for each in found] == ["refused", "refused"]


async def test_going_back_sends_the_same_records_again_in_order(log: Log) -> None:
    sink = ListSink()
    deliveries = Deliveries(log.database, log.clock)
    await log.add(0, 8)
    assert await log.shipper(siem=sink).perform() == 16
    first = sink.numbers("acme")
    would = await deliveries.would_send("siem", 0)

    assert await deliveries.send_back("siem", 0, "mira") == sum(would.values()) == 16
    assert await log.shipper(siem=sink).perform() == 16
    assert sink.numbers("acme") == [*first, *first]
    newest = (await deliveries.runs(["siem"], 9))[1]
    assert (newest.state, newest.who, newest.lines) == ("sent_back", "mira", 16)
    assert await deliveries.would_send("siem", 2**60) == {}


async def test_going_back_passes_over_nothing_that_was_numbered_before_it_was_written(
    log: Log,
) -> None:
    """Of two workers the one that wrote a moment later may be projected first."""
    deliveries = Deliveries(log.database, log.clock)
    await log.add(0, 6)
    await log.shipper(siem=ListSink()).perform()
    moved = audit_records.c.sequence
    late = update(audit_records).where(audit_records.c.organisation == "acme")
    async with log.database.writing() as connection:
        # As if after an idle night the numbers 4, 5 and 6 of 8 were written in the opposite order.
        for number in range(1, 7):
            at_us = NOW_US - number if number > 3 else 0
            await connection.execute(late.where(moved == number).values(utc_us=at_us))

    assert (await deliveries.would_send("siem", NOW_US - 6))["acme"] == 5


async def test_a_cursor_that_was_moved_back_during_a_delivery_is_not_moved_on(log: Log) -> None:
    """The delivery under way began before the order; what was ordered comes all the same."""
    deliveries = Deliveries(log.database, log.clock)

    class SentBackMeanwhile(ListSink):
        async def deliver(self, lines: object) -> bool:
            taken = await super().deliver(lines)  # type: ignore[arg-type]
            if self.deliveries == 3:
                await deliveries.send_back("siem", 0, "mira")
            return taken

    sink = SentBackMeanwhile()
    shipper = log.shipper(siem=sink)
    await log.add(0, 4)
    assert await shipper.perform() == 8
    await log.add(4, 4)
    while await shipper.perform():
        pass
    for organisation in ("acme", "globex"):
        numbers = sink.numbers(organisation)
        assert set(numbers) == set(range(1, max(numbers) + 1))
        assert numbers.count(1) == 2, "the first came again"


async def test_a_sink_that_never_took_anything_has_nothing_to_send_again(log: Log) -> None:
    await log.add(0, 2)
    deliveries = Deliveries(log.database, log.clock)

    assert await deliveries.would_send("siem", 0) == {}
    assert await deliveries.send_back("siem", 0, "mira") == 0


async def test_checkpoints_come_again_also_of_logs_in_which_nothing_happened_since(
    log: Log,
) -> None:
    """They prove that nothing did; and whoever goes back is sent no other sink's lines."""
    sink, other, since_us = ListSink(), ListSink(), NOW_US + 10**14
    deliveries = Deliveries(log.database, log.clock)
    await log.add(0, 2)
    for ahead_us in (0, 3 * 10**14):
        log.clock.ahead_us = ahead_us
        await log.sign()
        await log.shipper(siem=sink, archive=other).perform()
    before, signed = list(sink.lines), [line for line in sink.lines if "signed_us" in line]
    late = [line for line in signed if line["signed_us"] >= since_us]
    assert {line["organisation"] for line in late} == {"acme", "globex"}
    assert len(late) < len(signed)

    assert await deliveries.send_back("siem", since_us, "mira") == 0
    await log.shipper(siem=sink, archive=other).perform()

    assert sink.lines == [*before, *late]
    assert len(other.lines) == len(before)
