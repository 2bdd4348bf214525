"""One running gateway for all agents, in a network namespace that has loopback only."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agents.scripted import ScriptedUpstreams
from tests.running_gateway import RunningGateway


FOR_AGENTS = """
[models."in-house"]
vendor = "in-house"
tier = "cheap"
input_microusd_per_mtok = 0
output_microusd_per_mtok = 0
cache_read_microusd_per_mtok = 0
cache_write_microusd_per_mtok = 0
cache_write_1h_microusd_per_mtok = 0
batch_percent = 100
context_window_tokens = 131072
output_tokens_max = 32768
capabilities = ["json_schema", "streaming", "tools"]
source = "a test"
as_of = "2026-11-21"
"""
"""A model in the house that calls tools, in a window into which an agent's instructions fit."""
SETTINGS = """
[inspection]
deadline_s = 5.0
[prices]
file = "prices.toml"
[targets.gpt-6-astra]
provider = "engine"
model = "fake-model"
catalogue = "in-house"
[targets.gpt-6-sol]
provider = "openai"
model = "gpt-6-sol"
[targets.gpt-6-luna]
provider = "anthropic"
model = "claude-haiku-5-5"
"""
"""Besides those that every gateway has, targets with names of models that Codex knows."""


@pytest.fixture(scope="session", autouse=True)
def loopback_only() -> None:
    """Loopback has no route of its own, and whatever else is up has one."""
    _, *routes = Path("/proc/net/route").read_text(encoding="ascii").splitlines()
    if routes:
        pytest.exit("There is a way out of this machine here: use `make agents`.", 1)


@pytest.fixture(scope="session")
async def upstreams() -> AsyncIterator[ScriptedUpstreams]:
    async with ScriptedUpstreams() as running:
        yield running


@pytest.fixture(scope="session")
async def gateway(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, upstreams: ScriptedUpstreams
) -> AsyncIterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    shutil.copyfile(sqlite_template, folder / "gateway.db")
    url = f"sqlite+aiosqlite:///{folder / 'gateway.db'}"
    folder.joinpath("prices.toml").write_text(FOR_AGENTS)
    async with RunningGateway(folder, url, upstreams, more=SETTINGS) as running:
        yield running
