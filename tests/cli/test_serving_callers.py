"""Listeners that ask callers for certificates, as an operator runs them: revocation, probes."""

import asyncio
import json
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from tests.certificates import Authority, Pair
from tests.cli.operator import Operator
from tests.free_ports import free_port


pytestmark = pytest.mark.anyio

LOOKS_OFTEN = """
from gateway.pacing import rhythm
rhythm.CERTIFICATES_S = 0.1
from gateway.__main__ import main
main()
"""
"""The gateway, which looks at its files more often than every five seconds."""
LISTENERS = [("serve",), ("admin", "serve")]


class Teams:
    """What a listener of the test is configured with, and who may come."""

    def __init__(self, operator: Operator) -> None:
        self.operator, self.probe_port = operator, free_port()
        self.own, self.teams = Authority(operator.folder), Authority(operator.folder, "teams")
        self.lists = operator.folder / "lists.pem"
        self.lists.write_bytes(self.teams.revoke())
        table = f"port = 0\n{self.own.issue().settings(self.teams.file, self.lists)}"
        table += f"probe_port = {self.probe_port}\n"
        self.text = f"[data_plane]\n{table}[admin]\n{table}[audit]\nfree_bytes_min = 1\n"
        operator.config_file.write_text(self.text)

    @asynccontextmanager
    async def running(self, command: tuple[str, ...]) -> AsyncIterator[str]:
        """The address of the listener."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", LOOKS_OFTEN, *command),
            *("--config", str(self.operator.config_file)),
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stderr is not None
            yield json.loads(await process.stderr.readline())["url"]
            process.send_signal(signal.SIGTERM)
            await process.communicate()
            assert process.returncode == -signal.SIGTERM
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    def as_caller(self, pair: Pair) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self.own.trusting(pair))
        return aiohttp.ClientSession(connector=connector)


@pytest.mark.parametrize("command", LISTENERS)
async def test_a_revoked_caller_loses_the_connection_that_he_keeps(
    operator: Operator, command: tuple[str, ...]
) -> None:
    teams = Teams(operator)
    pair = teams.teams.issue("caller")
    async with teams.running(command) as url:
        host, port = url.removeprefix("https://").split(":")
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=teams.own.trusting(pair)
        )
        writer.write(b"GET /health/ready HTTP/1.1\r\nhost: here\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        _replace(teams.lists, teams.teams.revoke(pair.chain))
        async with asyncio.timeout(30):
            await reader.read()  # To its end.
        writer.close()
        async with teams.as_caller(pair) as http:
            with pytest.raises(aiohttp.ClientError):
                await http.get(f"{url}/health/ready")


@pytest.mark.parametrize("command", LISTENERS)
async def test_probes_have_a_port_of_their_own_where_nothing_else_is_served(
    operator: Operator, command: tuple[str, ...]
) -> None:
    teams = Teams(operator)
    async with teams.running(command) as url, aiohttp.ClientSession() as http:
        place = f"http://127.0.0.1:{teams.probe_port}"
        with pytest.raises(aiohttp.ClientError):
            await http.get(f"{url}/health/ready", ssl=teams.own.trusting())
        found = {}
        for path in ("/health/live", "/health/ready", "/metrics"):
            async with http.get(place + path) as answer:
                found[path] = answer.status, await answer.text()
        refused = []
        for method, path in (
            ("POST", "/health/ready"),
            ("GET", "/health/ready/"),
            ("GET", "//metrics"),
            ("GET", "/"),
            ("GET", "/sign-in"),
            ("GET", "/v1/models"),
            ("POST", "/v1/chat/completions"),
            ("GET", "/metrics/../v1/models"),
        ):
            asked = http.request(method, URL(place + path, encoded=True))
            async with asked as answer:
                refused.append((answer.status, await answer.text()))

    assert [status for status, _ in found.values()] == [200] * 3
    assert json.loads(found["/health/ready"][1])["status"] == "ready"
    name = "data_plane" if command == ("serve",) else "admin"
    for what in ("certificate", "client_ca", "client_crl"):
        series = rf'^gatewright_{what}_seconds_left{{listener="{name}"}} (\S+)$'
        (left,) = re.findall(series, found["/metrics"][1], re.MULTILINE)
        assert 0 < float(left) <= 24 * 3600
    assert refused == [(404, "")] * len(refused)


@pytest.mark.parametrize("command", LISTENERS)
async def test_without_a_port_of_their_own_probes_have_none(
    operator: Operator, command: tuple[str, ...]
) -> None:
    teams = Teams(operator)
    text = teams.text.replace(f"probe_port = {teams.probe_port}\n", "")
    operator.config_file.write_text(text)
    async with teams.running(command):
        with pytest.raises(OSError, match=r"Connect call failed"):
            await asyncio.open_connection("127.0.0.1", teams.probe_port)


def test_a_port_for_probes_that_is_taken_is_refused_in_a_line(operator: Operator) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        operator.config_file.write_text(f"[data_plane]\nport = 0\nprobe_port = {port}\n")
        refused = operator.starts("serve", "--config", operator.config_file)

    assert refused.status == 3
    assert refused.errors == (
        f"gatewright: 127.0.0.1:{port} cannot be listened on: address already in use\n"
    )


def _replace(file: Path, content: bytes) -> None:
    new = file.with_suffix(".new")
    new.write_bytes(content)
    new.replace(file)
