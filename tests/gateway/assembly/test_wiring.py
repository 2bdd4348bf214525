"""What an adapter refuses is told with the file and the setting that it is about."""

from pathlib import Path

import pytest

from gateway.assembly.outlets import make_shipper
from gateway.assembly.places import make_hook
from gateway.assembly.wiring import IDLE_S, make_egress, make_ledger, make_providers
from gateway.clock import StoppedClock
from gateway.configuration.reading import parse_settings
from gateway.errors import ConfigurationInvalid
from gateway.metrics import Metrics
from gateway.money.budgets import Limit
from gateway.store.engine import Database, open_database
from gateway.store.money.leases import LeaseTable


pytestmark = pytest.mark.anyio
PROVIDER = "[providers.p]\njurisdiction = 'us'\nkind = {}\n"
REFUSED = {
    PROVIDER.format("'opnai'"): ("providers.p.kind", "must be one of"),
    PROVIDER.format("'openai'\nbase_url = 'http://models.example'"): (
        "providers.p.base_url",
        "plain http beyond loopback",
    ),
    PROVIDER.format("'engine'\nnative_batches = true\nbase_url = 'http://127.0.0.1:1'"): (
        "providers.p.native_batches",
        "no batch API",
    ),
    PROVIDER.format("'pool'\nmembers = ['q']"): ("providers.p.members", "`q` is no provider"),
    PROVIDER.format("'anthropic'\nmembers = ['q']"): ("providers.p.members", "of kind anthropic"),
    PROVIDER.format("'engine'\nbase_url = 'http://127.0.0.1:1'\nmembers = ['q']"): (
        "providers.p.members",
        "of kind engine",
    ),
    PROVIDER.format("'openai'\npriorities = true"): ("providers.p.priorities", "of kind openai"),
    PROVIDER.format("'openai'\nengine = 'vllm'"): ("providers.p.engine", "of kind openai"),
    PROVIDER.format("'openai'\nevents = 'ipc://x'"): ("providers.p.events", "of kind openai"),
    PROVIDER.format("'openai'\nevents_replay = 'ipc://x'"): (
        "providers.p.events_replay",
        "of kind openai",
    ),
    PROVIDER.format("'pool'\nmembers = ['q']\nbase_url = 'http://127.0.0.1:1'"): (
        "providers.p.base_url",
        "of kind pool",
    ),
    PROVIDER.format("'pool'\nmembers = ['q']\nnative_batches = true"): (
        "providers.p.native_batches",
        "of kind pool",
    ),
    PROVIDER.format("'pool'\nmembers = ['q']\ncredential = { env = 'A' }"): (
        "providers.p.credential",
        "of kind pool",
    ),
    "[alerts]\nurl = 'http://siem.example'": ("alerts.url", "plain http beyond loopback"),
    "[sinks.s]\nkind = 'http'\nurl = 'http://siem.example'": ("sinks.s.url", "plain http beyond"),
    "[sinks.s]\nkind = 'syslog'\nurl = 'tcp://siem.example:1'": ("sinks.s.url", "plain tcp beyond"),
    "[sinks.s]\nkind = 'otlp'": ("sinks.s.url", "is missing"),
    "[sinks.s]\nkind = 'jsonl'": ("sinks.s.file", "is missing"),
}


@pytest.mark.parametrize("text", REFUSED)
async def test_what_an_adapter_refuses_is_named_with_its_file(text: str, tmp_path: Path) -> None:
    settings = parse_settings(text, "gatewright.toml", tmp_path, {})
    clock = StoppedClock()
    egress, database = make_egress(settings), open_database(settings.database_url)
    key, reason = REFUSED[text]

    def build() -> None:
        make_providers(settings, egress, clock.monotonic_s)
        make_hook(settings, egress, clock)
        make_shipper(settings, egress, database, Metrics(), clock)

    with pytest.raises(ConfigurationInvalid) as refused:
        build()
    await egress.close()
    await database.close()

    assert refused.value.key == key
    assert reason in refused.value.reason
    assert refused.value.source == "gatewright.toml"


async def test_what_a_burst_left_is_back_after_two_seconds_on_either_database(
    database: Database,
) -> None:
    """Reports are five times rarer on SQLite; what a crash costs is the same."""
    clock = StoppedClock()
    ledger = make_ledger(parse_settings("", "gatewright.toml", Path.cwd(), {}), database, clock)
    table = LeaseTable(database, clock)
    await table.set_limit(Limit("org:acme", 50_000_000, "month"))
    await ledger.refresh()
    accounts = ("org:acme",)
    for reservation in [await ledger.reserve(accounts, 300_000) for _ in range(16)]:
        ledger.settle(reservation, 1)
    for _ in range(round(IDLE_S / ledger._flush_every_s)):
        ledger.settle(await ledger.reserve(accounts, 10), 10)
        await ledger.flush()
    (budget,) = await table.budgets_of(accounts)
    assert 0 < budget.leased_microusd <= 2_000_000
