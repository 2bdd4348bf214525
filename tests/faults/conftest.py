"""One running gateway per module; a module defines its settings in `SETTINGS`."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.collectors import Collectors, collecting
from tests.faults.envelopes import Caller
from tests.faults.machines import Machines
from tests.faults.patience import wait_for_answers
from tests.faults.restoring import KINDS, Store, opened_store
from tests.running_gateway import RunningGateway, Upstreams
from tests.upstreams import Answer


@pytest.fixture(scope="module")
async def shared_upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as running:
        yield running


@pytest.fixture(scope="module")
async def shared_gateway(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    sqlite_template: Path,
    shared_upstreams: Upstreams,
) -> AsyncIterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    shutil.copyfile(sqlite_template, folder / "gateway.db")
    url = f"sqlite+aiosqlite:///{folder / 'gateway.db'}"
    more = getattr(request.module, "SETTINGS", "")
    async with RunningGateway(folder, url, shared_upstreams, more=more) as running:
        wait_for_answers(running, shared_upstreams)
        yield running


@pytest.fixture(scope="module")
async def shared_key(shared_gateway: RunningGateway) -> str:
    return await shared_gateway.issue_key()


@pytest.fixture
def upstreams(shared_upstreams: Upstreams) -> Upstreams:
    """The module's upstreams, with nothing recorded and good answers."""
    for upstream in (shared_upstreams.engine, *shared_upstreams.managed):
        upstream.forget()
        upstream.answer(Answer())
    return shared_upstreams


@pytest.fixture
def gateway(shared_gateway: RunningGateway, upstreams: Upstreams) -> RunningGateway:
    return shared_gateway


@pytest.fixture
async def own_upstreams() -> AsyncIterator[Upstreams]:
    """For a test that stops one of them, or whose gateway is its own."""
    async with Upstreams() as running:
        yield running


@pytest.fixture
def caller(gateway: RunningGateway, shared_key: str, http: aiohttp.ClientSession) -> Caller:
    """A caller with a good key."""
    return Caller(gateway, http, shared_key)


@pytest.fixture
async def collectors() -> AsyncIterator[Collectors]:
    async with collecting() as running:
        yield running


@pytest.fixture
def machine(database_url: str, tmp_path: Path, own_upstreams: Upstreams) -> Machines:
    """Machines of a test, by the names of their workers."""
    return Machines(tmp_path, database_url, own_upstreams)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, sqlite_url: str, tmp_path: Path) -> Iterator[Store]:
    """A database that can be looked into, copied and put back."""
    with opened_store(request.param, sqlite_url, tmp_path) as store:
        yield store
