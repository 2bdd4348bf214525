"""Settings → the parts that make and read background answers."""

from typing import NamedTuple

from gateway.background.following import Followers
from gateway.background.runner import Runner
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.continuing.threads import Threads
from gateway.metrics import Metrics
from gateway.money.rates import Rates
from gateway.secrets.credentials import master_key
from gateway.store.background_runs import DatabaseRuns
from gateway.store.database_clock import DatabaseClock
from gateway.store.engine import Database


class Apart(NamedTuple):
    """Who makes them, and who reads them."""

    runner: Runner
    followers: Followers


def make_apart(
    settings: Settings,
    database: Database,
    clocks: tuple[Clock, DatabaseClock],
    threads: Threads,
    rates: Rates,
    *,
    metrics: Metrics,
) -> Apart:
    """One worker's share of them, kept in the database, whose clock is the second one."""
    clock, shared = clocks
    store = DatabaseRuns(database, master_key(settings), shared)
    runner = Runner(
        store,
        threads,
        clocks=clocks,
        settings=settings.responses,
        rates=rates,
        metrics=metrics,
        worker=settings.audit.worker,
    )
    ping_every_s = settings.limits.ping_every_s
    return Apart(runner, Followers(store, threads, runner, clock, ping_every_s))
