"""Policy versions in a real database: their life, their history, and what workers hear of it."""

import asyncio

import msgspec
import pytest

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import Clock, StoppedClock
from gateway.configuration.guarding import DEEDS, GuardRules
from gateway.errors import AuditUnavailable, ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.identity import KeyTable, accounts_of
from gateway.oversight.deeds import Deeds, LateDeeds
from gateway.rollout.trials import Trials
from gateway.rollout.versions import PolicySet
from gateway.routing.board import TargetBoard
from gateway.snapshot import SnapshotKeeper
from gateway.store.engine import Database
from gateway.store.policies.documents import PolicyStore
from gateway.store.policies.guard import CanaryGuard
from gateway.store.revisions import current
from gateway.types import Principal
from tests.gateway.providers.samples import make_target
from tests.policies.worlds import document


pytestmark = pytest.mark.anyio

OLD = document({"name": "old", "no_cache": True})
NEW = document({"name": "new", "allow_only": {"in_house": True}})


async def approved(store: PolicyStore, level: str = "", policy: object = NEW) -> int:
    version = await store.draft(level, policy, "Ann", "a note")  # type: ignore[arg-type]
    await store.act(level, version.number, "approve", "Bob")
    return version.number


def watching(
    trials: Trials,
    store: PolicyStore,
    snapshots: SnapshotKeeper,
    log: MemoryAuditLog,
    clock: Clock | None = None,
) -> CanaryGuard:
    clock = clock or StoppedClock()
    return CanaryGuard(trials, store, snapshots, LateDeeds(Deeds(log, clock), clock))


async def test_a_version_goes_from_draft_to_live_and_back(database: Database) -> None:
    store = PolicyStore(database, StoppedClock())
    first = await approved(store, policy=OLD)
    await store.act("", first, "publish", "Bob")
    second = await approved(store)
    await store.act("", second, "shadow", "Bob")
    assert (await store.levels())[""].shadow is not None
    await store.act("", second, "canary", "Bob", percent=5.0)
    level = (await store.levels())[""]
    assert (level.canary_number, level.percent) == (second, 5.0)
    assert (level.live or NEW).digest == OLD.digest
    before = await current(database)
    await store.act("", second, "publish", "Bob", reason="It did well.")
    assert await current(database) > before
    assert ((await store.levels())[""].live or OLD).digest == NEW.digest

    back = await store.roll_back("", "Cleo", reason="It did not.")
    assert (back.number, back.state, back.digest) == (3, "live", OLD.digest)
    assert (back.author, back.approver) == ("Ann", "Bob")
    states = {each.number: each.state for each in await store.versions("")}
    assert states == {1: "retired", 2: "retired", 3: "live"}
    done = [(each.number, each.actor, each.action) for each in await store.history("")]
    assert done[:3] == [(1, "Ann", "draft"), (1, "Bob", "approve"), (1, "Bob", "publish")]
    assert done[-1] == (3, "Cleo", "roll_back")
    again = await store.roll_back("", "Cleo", to=2)
    assert again.digest == NEW.digest


async def test_the_first_version_of_a_level_is_rolled_back_to_none(database: Database) -> None:
    """And what is undone so comes back in the same way."""
    store, level = PolicyStore(database, StoppedClock()), "org:acme"
    first = await approved(store, level=level)
    await store.act(level, first, "publish", "Bob")
    second = await approved(store, level=level, policy=OLD)
    await store.act(level, second, "canary", "Bob", percent=5.0)
    with pytest.raises(ChangedMeanwhile):
        await store.roll_back(level, "Cleo", live=0)
    before = await current(database)

    gone = await store.roll_back(level, "Cleo", reason="It did harm.", live=first)

    assert await current(database) > before
    assert (gone.number, gone.state) == (first, "retired")
    assert await store.levels() == {}, "what was on trial against it ends"
    history = await store.history(level)
    assert (history[-1].number, history[-1].action, history[-1].actor) == (first, "retire", "Cleo")
    back = await store.roll_back(level, "Cleo", live=0)
    assert (back.number, back.state, back.digest) == (3, "live", NEW.digest)
    await store.roll_back(level, "Cleo")
    await store.act(level, second, "publish", "Bob")
    # Before it none was live: that comes back, not whatever was live some time ago.
    assert (await store.roll_back(level, "Cleo")).number == second
    assert await store.levels() == {}


async def test_of_two_who_publish_over_the_version_that_both_saw_one_does(
    database: Database,
) -> None:
    """The one that was seen is asked for where it is replaced: nobody comes in between."""
    store = PolicyStore(database, StoppedClock())
    first = await approved(store, policy=OLD)
    numbers = [await approved(store), await approved(store)]
    await store.act("", first, "publish", "Bob", live=0)
    done = await asyncio.gather(
        *(store.act("", each, "publish", "Bob", live=first) for each in numbers),
        store.roll_back("", "Cleo", to=first, live=0),
        return_exceptions=True,
    )
    refused = [each for each in done if isinstance(each, ChangedMeanwhile)]
    assert (len(refused), refused[0].status) == (2, 409)
    (live,) = [each for each in await store.versions("") if each.state == "live"]
    assert live in done
    for action in ("shadow", "canary"):
        with pytest.raises(ChangedMeanwhile, match=f"version {live.number} is live by now"):
            await store.act("", first, action, "Bob", percent=5.0, live=first)


async def test_four_eyes_and_the_order_of_steps_are_kept_in_the_database(
    database: Database,
) -> None:
    store = PolicyStore(database, StoppedClock())
    version = await store.draft("org:acme", NEW, "Ann")
    with pytest.raises(Forbidden):
        await store.act("org:acme", version.number, "approve", "ann ")
    for action in ("shadow", "canary", "publish", "stop"):
        with pytest.raises(RequestInvalid):
            await store.act("org:acme", version.number, action, "Bob", percent=5.0)
    for percent in (0.0, 101.0):
        with pytest.raises(RequestInvalid, match="percent"):
            await store.act("org:acme", version.number, "canary", "Bob", percent=percent)
    with pytest.raises(RequestInvalid, match="no version 9"):
        await store.act("org:acme", 9, "approve", "Bob")
    with pytest.raises(RequestInvalid, match="no version that was live before: have the document"):
        await store.roll_back("org:acme", "Bob")
    with pytest.raises(RequestInvalid, match="no version 9"):
        await store.roll_back("org:acme", "Bob", to=9)
    with pytest.raises(RequestInvalid, match="has an author"):
        await store.draft("org:acme", NEW, " ")
    assert await store.levels() == {}
    assert len(await store.history("org:acme")) == 1


async def test_of_writers_at_the_same_time_none_is_lost(database: Database) -> None:
    store = PolicyStore(database, StoppedClock())
    await asyncio.gather(*(store.draft("", NEW, f"author {n}") for n in range(6)))
    assert sorted(each.number for each in await store.versions()) == [1, 2, 3, 4, 5, 6]
    assert len(await store.history("")) == 6


async def test_documents_and_boards_are_kept_by_digest(database: Database) -> None:
    store = PolicyStore(database, StoppedClock())
    board = TargetBoard({"one": make_target("one")}, {"one": "it is down"})
    for _ in range(2):
        await store.keep(NEW)
        await store.boards.keep(board.digest, board.facts_for(None))
    fresh = PolicyStore(database, StoppedClock())
    found = await fresh.document(NEW.digest)
    assert found is not None
    assert found.digest == NEW.digest
    assert await fresh.document("unknown") is None
    kept = await fresh.boards.named([board.digest])
    assert kept == {board.digest: board.facts_for(None)}


async def test_a_canary_of_little_traffic_is_found_out_by_all_workers_together(
    database: Database,
) -> None:
    store = PolicyStore(database, StoppedClock())
    own = GuardRules(requests_min=20, on_harm="halt")
    version = await store.draft("", NEW, "Ann", guard=own)
    assert version.guard == own == (await store.version("", version.number)).guard
    number = version.number
    await store.act("", number, "approve", "Bob")
    await store.act("", number, "canary", "Bob", percent=50.0)
    snapshots = SnapshotKeeper(PolicySet(OLD), TargetBoard({}, {}), lambda: 0.0)
    snapshots.publish(KeyTable(1, {}), await store.levels())
    accounts = accounts_of("acme", "lab", "x", "k")
    snapshots.policies.document_for(Principal("k", "", "acme", "lab", "x", (), None, accounts))
    log = MemoryAuditLog()
    await log.start()
    for _ in range(2):
        trials = Trials()
        guard = watching(trials, store, snapshots, log)
        await guard.tend()
        for _ in range(12):
            trials.count(NEW.digest, failed=True, refused=False, duration_us=1, cost_microusd=1)
        assert (await store.version("", number)).state == "canary"
        await guard.tend()

    assert (await store.version("", number)).state == "approved"
    last = (await store.history(""))[-1]
    assert (last.actor, last.action) == ("guard", "stop")
    assert last.reason.startswith("failures: 100% of 24 requests")
    assert log.records[-1].action == "policy.stop"
    assert "halted and stays approved" in log.records[-1].detail["after"]
    # Tried again it begins at nothing.
    await store.act("", number, "canary", "Bob", percent=5.0)
    assert (await store.figures.measured("", number)).canary.requests == 0


async def test_a_harmful_canary_is_withdrawn_by_the_first_worker_that_sees_it(
    database: Database,
) -> None:
    store = PolicyStore(database, StoppedClock())
    await store.act("", await approved(store, policy=OLD), "publish", "Bob")
    number = await approved(store)
    await store.act("", number, "canary", "Bob", percent=100.0)
    snapshots = SnapshotKeeper(PolicySet(OLD), TargetBoard({}, {}), lambda: 0.0)
    snapshots.publish(KeyTable(1, {}), await store.levels())
    accounts = accounts_of("acme", "lab", "x", "k")
    asker = Principal("k", "", "acme", "lab", "x", (), None, accounts)
    assert snapshots.policies.document_for(asker).digest == NEW.digest
    log = MemoryAuditLog()
    await log.start()
    guards = []
    for _ in range(2):
        trials = Trials()
        guard = watching(trials, store, snapshots, log)
        await guard.tend()
        for _ in range(20):
            trials.count(NEW.digest, failed=True, refused=False, duration_us=1, cost_microusd=1)
        guards.append(guard)

    for guard in guards:
        await guard.tend()

    assert (await store.version("", number)).state == "withdrawn"
    last = (await store.history(""))[-1]
    assert (last.actor, last.action, last.number) == ("guard", "withdraw", number)
    assert last.reason.startswith("failures: 100%")
    deeds = [record for record in log.records if record.stage == "admin"]
    assert [(each.actor, each.action) for each in deeds] == [("guard", "policy.withdraw")]
    measured = await store.figures.measured("", number)
    assert (measured.canary.failures, measured.workers) == (40, 2)
    snapshots.publish(KeyTable(2, {}), await store.levels())
    assert snapshots.policies.document_for(asker).digest == OLD.digest


async def test_a_canary_that_is_begun_again_begins_at_nothing_on_every_worker(
    database: Database,
) -> None:
    """Also where a worker hears of both deeds at once, or only when it has judged by the first."""
    store = PolicyStore(database, StoppedClock())
    await store.act("", await approved(store, policy=OLD), "publish", "Bob")
    number = await approved(store)
    await store.act("", number, "canary", "Bob", percent=100.0)
    asker = Principal("k", "", "acme", "lab", "x", (), None, accounts_of("acme", "lab", "x", "k"))
    log, workers = MemoryAuditLog(), []
    await log.start()
    for _ in range(2):
        snapshots = SnapshotKeeper(PolicySet(OLD), TargetBoard({}, {}), lambda: 0.0)
        snapshots.publish(KeyTable(1, {}), await store.levels())
        snapshots.policies.document_for(asker)
        trials = Trials()
        guard = watching(trials, store, snapshots, log)
        await guard.tend()
        workers.append((snapshots, trials, guard))
    for _, trials, _ in workers:
        for _ in range(20):
            trials.count(NEW.digest, failed=True, refused=False, duration_us=1, cost_microusd=1)
    await store.act("", number, "stop", "Cleo")
    await store.act("", number, "canary", "Cleo", percent=100.0)

    (hears, trials, guard), (_, _, deaf) = workers
    await deaf.tend()  # Its snapshot is of before, and so is what it reports.
    hears.publish(KeyTable(2, {}), await store.levels())
    hears.policies.document_for(asker)
    await guard.tend()
    trials.count(NEW.digest, failed=False, refused=False, duration_us=1, cost_microusd=1)
    await guard.tend()

    assert (await store.version("", number)).state == "canary"
    assert (await store.history(""))[-1].actor == "Cleo"
    measured = await store.figures.measured("", number)
    assert (measured.canary.requests, measured.canary.failures, measured.workers) == (1, 0, 1)
    # More of the same trial keeps what was counted.
    await store.act("", number, "canary", "Cleo", percent=50.0)
    hears.publish(KeyTable(3, {}), await store.levels())
    await guard.tend()
    assert (await store.figures.measured("", number)).canary.requests == 1


async def test_a_guard_that_was_paused_ends_nothing_but_a_canary(database: Database) -> None:
    """Its snapshot is of before: by then the version was stopped, and decides in the shadow."""
    store = PolicyStore(database, StoppedClock())
    await store.act("", await approved(store, policy=OLD), "publish", "Bob")
    number = await approved(store)
    await store.act("", number, "canary", "Bob", percent=100.0)
    snapshots = SnapshotKeeper(PolicySet(OLD), TargetBoard({}, {}), lambda: 0.0)
    snapshots.publish(KeyTable(1, {}), await store.levels())
    asker = Principal("k", "", "acme", "lab", "x", (), None, accounts_of("acme", "lab", "x", "k"))
    assert snapshots.policies.document_for(asker).digest == NEW.digest
    log, trials = MemoryAuditLog(), Trials()
    await log.start()
    guard = watching(trials, store, snapshots, log)
    await guard.tend()
    for _ in range(20):
        trials.count(NEW.digest, failed=True, refused=False, duration_us=1, cost_microusd=1)
    await store.act("", number, "stop", "Cleo")
    await store.act("", number, "shadow", "Cleo")

    await guard.tend()

    assert (await store.version("", number)).state == "shadow"
    assert (await store.history(""))[-1].actor == "Cleo"
    assert log.records == []


async def test_what_the_guard_did_while_the_log_was_away_is_recorded_when_it_is_back(
    database: Database,
) -> None:
    clock, log = StoppedClock(), MemoryAuditLog()
    await log.start()
    store = PolicyStore(database, clock)
    levels = ("org:acme", "org:other")
    for level in levels:
        await store.act(level, await approved(store, level, OLD), "publish", "Bob")
        await store.act(level, await approved(store, level), "canary", "Bob", percent=100.0)
    snapshots = SnapshotKeeper(PolicySet(OLD), TargetBoard({}, {}), lambda: 0.0)
    snapshots.publish(KeyTable(1, {}), await store.levels())
    tried = []
    for name in ("acme", "other"):
        accounts = accounts_of(name, "lab", "x", "k")
        asker = Principal("k", "", name, "lab", "x", (), None, accounts)
        tried.append(snapshots.policies.document_for(asker).digest)
    trials = Trials()
    guard = watching(trials, store, snapshots, log, clock)
    await guard.tend()
    for digest in tried * 20:
        trials.count(digest, failed=True, refused=False, duration_us=1, cost_microusd=1)

    log.failing = True
    for _ in range(2):
        with pytest.raises(AuditUnavailable):
            await guard.tend()
    # A log that is away lets no harm go on, at any level.
    states = [each.state for each in await store.versions() if each.digest == NEW.digest]
    assert states == ["withdrawn", "withdrawn"]
    log.failing = False
    clock.advance(90.0)
    for _ in range(2):
        await guard.tend()

    said = [msgspec.json.decode(each.detail["after"]) for each in log.records]
    assert [each.action for each in log.records] == ["policy.withdraw", "policy.withdraw"]
    assert {each["level"] for each in said} == set(levels)
    assert [(each["late_s"], each["became"]) for each in said] == [(90, DEEDS["withdraw"])] * 2
    assert said[0]["at_us"] == clock.utc_us() - 90_000_000
