"""The shared place over TLS: only a server whose certificate is vouched for is told anything."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.certificates import Authority, newer_default_context
from tests.contracts.test_shared_answers import KEY, WHOLE, World, kept
from tests.gateway.providers.egress.test_tls import certificate
from tests.redis_server import Server


pytestmark = pytest.mark.anyio
__all__ = ["certificate"]


@pytest.fixture
async def world(tmp_path: Path, certificate: Path) -> AsyncIterator[World]:
    server = Server(tmp_path, certificate)
    await server.start()
    async with AsyncExitStack() as parts:
        yield World(server, parts)
    await server.stop()


async def test_what_is_kept_over_tls_is_found_over_tls(world: World, certificate: Path) -> None:
    url = f"{world.server.url}?ssl_ca_certs={certificate}"
    await kept(world.worker(url))

    found = world.worker(url)

    assert await found.find("acme", KEY) == WHOLE
    assert found.is_there


async def test_what_is_trusted_is_read_once_and_not_while_somebody_waits(
    world: World, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Mock(side_effect=ssl.create_default_context)
    monkeypatch.setattr(ssl, "create_default_context", read)
    worker = world.worker(f"{world.server.url}?ssl_ca_certs={certificate}")
    assert read.call_count == 1
    await asyncio.gather(*(worker.find("acme", bytes([number])) for number in range(6)))

    assert worker.is_there
    assert (await worker._redis.info("clients"))["connected_clients"] > 1
    assert read.call_count == 1


async def test_an_authority_that_does_not_say_what_its_key_is_for_is_believed_by_newer_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssl, "create_default_context", newer_default_context)
    house = Authority(tmp_path, tells_use=False)
    shown = house.issue()
    both = tmp_path / "shown.pem"
    both.write_bytes(shown.key.read_bytes() + shown.chain.read_bytes())
    server = Server(tmp_path, both)
    await server.start()
    async with AsyncExitStack() as parts:
        parts.push_async_callback(server.stop)
        worker = World(server, parts).worker(f"{server.url}?ssl_ca_certs={house.file}")

        assert await worker.find("acme", KEY) is None
        assert worker.is_there


async def test_a_file_that_is_not_there_is_a_place_that_is_not_there(
    world: World, tmp_path: Path
) -> None:
    worker = world.worker(f"{world.server.url}?ssl_ca_certs={tmp_path / 'nowhere.pem'}")

    assert await worker.find("acme", KEY) is None
    assert not worker.is_there


@pytest.mark.parametrize(
    "of",
    [
        lambda server, file: server.url,
        lambda server, file: server.url.replace("rediss:", "redis:"),
        lambda server, file: f"rediss://localhost:{server.port}/0?ssl_ca_certs={file}",
    ],
    ids=["nobody vouches for it", "in clear", "for another name"],
)
async def test_a_server_that_cannot_be_trusted_is_left_alone(
    world: World, certificate: Path, of: Any
) -> None:
    good = f"{world.server.url}?ssl_ca_certs={certificate}"
    await kept(world.worker(good))
    worker = world.worker(of(world.server, certificate))

    assert await worker.find("acme", KEY) is None
    assert not worker.is_there
    await kept(worker, key=KEY[::-1])
    assert await world.worker(good).find("acme", KEY[::-1]) is None
