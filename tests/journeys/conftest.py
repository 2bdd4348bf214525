"""A running gateway on each database; what needs a Redis server is left out without one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.redis_server import SERVER
from tests.running_gateway import RunningGateway, Upstreams


OF_SEVERAL_WORKERS = [
    "test_application_team_asks_another_worker.py",
    "test_operator_limits_two_workers_together.py",
]
collect_ignore = [] if SERVER else OF_SEVERAL_WORKERS


@pytest.fixture
async def gateway_on_each_database(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    async with RunningGateway(tmp_path, database_url, upstreams) as running:
        yield running
