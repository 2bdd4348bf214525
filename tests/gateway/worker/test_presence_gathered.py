"""What a worker gathers of itself: each thing from its part, also while one has nothing to say."""

import pytest
from msgspec import structs

from gateway.clock import StoppedClock
from gateway.configuration.settings import Settings
from gateway.dispatch.health import TargetHealth
from gateway.errors import NotReady, UpstreamUnpaid, UpstreamUnreachable
from gateway.identity import KeyTable
from gateway.metrics import Metrics
from gateway.oversight.workers import decoded, encoded
from gateway.pool.figures import Figures
from gateway.rollout.versions import PolicySet
from gateway.routing.board import TargetBoard
from gateway.snapshot import SnapshotKeeper
from gateway.store.engine import open_database
from gateway.store.workers import WorkerTable
from gateway.worker.presence import Parts, Presence, added_up, prices_digest
from tests.gateway.providers.samples import make_target
from tests.policies.worlds import document


pytestmark = pytest.mark.anyio


class Engine:
    """Of one's own, in no pool; it answers while it has figures."""

    kind = "gatewright"

    def __init__(self) -> None:
        self.told: Figures | None = Figures(waiting=4.0)
        self.is_away = False

    async def figures(self) -> Figures | None:
        if self.is_away:
            raise UpstreamUnreachable("it is away")
        return self.told


class Worker:
    def __init__(self, database_url: str) -> None:
        self.clock, self.metrics, self.engine = StoppedClock(), Metrics(), Engine()
        self.age_s, self.said = 0.0, None
        self.database = open_database(database_url)
        board = TargetBoard({"one": make_target("one")}, {"one": "it is down"})
        self.snapshots = SnapshotKeeper(PolicySet(document()), board, lambda: self.age_s)
        parts = Parts(
            *(self.snapshots, TargetHealth(), self.metrics),
            pools=(),
            engines=lambda: {"engine": self.engine},
            differing=tuple,
            said=lambda _: self.said,
            problems=lambda: ("The disk is full.",),
        )
        settings = Settings("gatewright.toml", "/srv/gate")
        self.presence = Presence(settings, WorkerTable(self.database), parts, self.clock)


@pytest.fixture
def worker(sqlite_url: str) -> Worker:
    return Worker(sqlite_url)


def test_a_target_whose_account_is_not_served_is_told_as_open(worker: Worker) -> None:
    assert worker.presence.gathered().breakers == {"one": "closed"}
    unpaid = UpstreamUnpaid("pay", upstream_status=429)
    accounts = worker.presence._parts.health.accounts
    accounts.record(make_target("one").provider, 0.0, 0.0, unpaid)
    assert worker.presence.gathered().breakers == {"one": "open"}


def test_prices_that_have_changed_are_told_by_the_next_report(worker: Worker) -> None:
    before = worker.presence.gathered().prices_digest
    assert worker.presence.gathered().prices_digest == before

    target = make_target("one")
    dearer = structs.replace(target.price, output_microusd_per_mtok=7)
    dear = {"one": structs.replace(target, price=dearer)}
    worker.snapshots.publish_board(TargetBoard(dear, {}))
    assert worker.presence.gathered().prices_digest == prices_digest(dear) != before


def test_only_a_revision_that_is_another_one_wakes_the_report(worker: Worker) -> None:
    worker.presence.published(4)
    assert worker.presence.wake.is_set()
    worker.presence.wake.clear()
    worker.clock.advance(5.0)
    worker.presence.published(4)
    assert not worker.presence.wake.is_set()
    worker.presence.published(5)

    applied = worker.presence.gathered().applied
    assert [(each.revision, each.since_us - applied[0].since_us) for each in applied] == [
        *((4, 0), (5, 5_000_000))
    ]


def test_a_worker_without_a_snapshot_it_may_use_says_why_beside_what_is_wrong_else(
    worker: Worker,
) -> None:
    nothing_yet = worker.presence.gathered()
    assert nothing_yet.snapshot_digest == ""
    assert nothing_yet.problems == (
        *("The disk is full.", "This worker has no configuration yet."),
    )
    worker.snapshots.publish(KeyTable(1, {}), {})
    worker.age_s = 7.5
    serving = worker.presence.gathered()
    assert (serving.problems, serving.stale_s) == (("The disk is full.",), 7.5)
    assert (len(serving.snapshot_digest), serving.unavailable) == (32, {"one": "it is down"})


async def test_an_engine_that_says_nothing_keeps_its_old_figures(worker: Worker) -> None:
    await worker.presence.look()
    for _ in range(2):
        worker.clock.advance(5.0)
        await worker.presence.look()
        worker.engine.told = None
    worker.engine.is_away = True
    await worker.presence.look()

    (member,) = worker.presence.gathered().members
    assert (member.waiting, member.figures_age_s) == (4, 5.0)


@pytest.mark.parametrize(
    ("said", "state"),
    [(None, "unknown"), (("", ("m",)), "up"), (("it is down", ()), "down")],
)
def test_an_engine_is_unknown_until_it_was_asked(
    worker: Worker, said: tuple[str, tuple[str, ...]] | None, state: str
) -> None:
    worker.said = said  # type: ignore[assignment]

    assert worker.presence.gathered().members[0].state == state


def test_metrics_are_added_up_in_one_report_of_five_and_without_what_is_no_sum(
    worker: Worker,
) -> None:
    seen = []
    for number in range(6):
        worker.metrics.drifts_open("prompts", number)
        seen.append(worker.presence.gathered().metrics["gatewright_drifts_open"])
    assert seen == [0, 0, 0, 0, 0, 5]
    assert not [name for name in added_up(worker.metrics) if name.endswith("_bucket")]


async def test_who_leaves_while_the_database_is_away_is_not_held_up(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise NotReady("the database does not answer")

    monkeypatch.setattr(WorkerTable, "leave", away)

    await worker.presence.leave()


def test_a_certificate_that_cannot_be_read_leaves_the_report_readable(worker: Worker) -> None:
    """JSON has no word for what is no number: the whole report was lost on its reader."""
    worker.metrics.certificates.provider("vault", "ca_file", lambda: None)
    report = worker.presence.gathered()

    assert decoded(encoded(report), report.worker, report.seen_us) == report
