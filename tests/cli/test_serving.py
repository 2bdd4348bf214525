"""`gatewright serve` as an operator runs it: a process that starts, answers, drains and ends."""

import asyncio
import json
import re
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.certificates import Authority
from tests.cli.operator import Operator
from tests.cli.test_policy import DOUBTFUL
from tests.free_ports import free_port


pytestmark = pytest.mark.anyio

CONFIG = """
[data_plane]
port = {port}
[admin]
port = {port}
[audit]
free_bytes_min = 1
"""
PLACE = ("--organisation", "acme", "--workspace", "research", "--project", "bot", "--name", "a key")
SERVES_NOTHING = """
import gc
import uvicorn
from gateway.__main__ import main

def run(server, sockets):
    built = vars(server.config.app)["_application"]
    found = any(each is built for each in gc.get_objects())
    print("tracked:", gc.is_tracked(built), "found:", found)

uvicorn.Server.run = run
main()
"""


HURRIES = """
from gateway.cli import listening
listening.SHUTDOWN_S = 1
from gateway.__main__ import main
main()
"""
"""The gateway, which does not wait ten seconds for what is under way at its end."""


@asynccontextmanager
async def _running(
    config_file: Path, port: int, *command: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A listener that is ready; killed if the test did not end it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *command, "--config", str(config_file)),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with aiohttp.ClientSession() as http:
            while not await _is_ready(http, port):
                assert process.returncode is None, "it ended instead of getting ready"
                await asyncio.sleep(0.05)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _is_ready(http: aiohttp.ClientSession, port: int) -> bool:
    try:
        async with http.get(f"http://127.0.0.1:{port}/health/ready") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False


@pytest.mark.parametrize("command", [("serve",), ("admin", "serve")])
async def test_a_listener_gets_ready_and_ends_on_sigterm_with_json_lines_only(
    operator: Operator, command: tuple[str, ...]
) -> None:
    port = free_port()
    operator.config_file.write_text(CONFIG.format(port=port))
    async with _running(operator.config_file, port, *command) as process:
        process.send_signal(signal.SIGTERM)
        _, errors = await process.communicate()

    events = [json.loads(line)["event"] for line in errors.decode().splitlines()]
    assert process.returncode == -signal.SIGTERM
    assert (events[0], events[-1]) == ("process:started", "process:stopped")


@pytest.mark.parametrize("command", [("serve",), ("admin", "serve")])
async def test_a_terminal_that_is_closed_ends_a_listener_in_good_order_unless_told_not_to(
    operator: Operator, command: tuple[str, ...]
) -> None:
    port = free_port()
    operator.config_file.write_text(CONFIG.format(port=port))
    # A process hands on that it is deaf to the signal; this suite may be so itself.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        async with _running(operator.config_file, port, *command) as process:
            process.send_signal(signal.SIGHUP)
            _, errors = await process.communicate()
        assert process.returncode == -signal.SIGHUP
        assert json.loads(errors.splitlines()[-1])["event"] == "process:stopped"

        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # As `nohup` does.
        async with _running(operator.config_file, port, *command) as process:
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            await process.communicate()
        assert process.returncode == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("command", [("serve",), ("admin", "serve")])
async def test_who_reads_that_it_started_is_answered_at_the_address_it_says(
    operator: Operator, command: tuple[str, ...]
) -> None:
    """Also at port 0, where nobody else knows which one was free."""
    operator.config_file.write_text(CONFIG.format(port=0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *command, "--config", str(operator.config_file)),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said = json.loads(await process.stderr.readline())
        async with aiohttp.ClientSession() as http, http.get(said["url"] + "/health/ready") as it:
            status = it.status
    finally:
        process.kill()
        await process.communicate()

    assert (said["event"], status) == ("process:started", 200)


@pytest.mark.parametrize("command", [("serve",), ("admin", "serve")])
async def test_with_a_certificate_a_listener_says_https_and_answers_who_trusts_it(
    operator: Operator, command: tuple[str, ...]
) -> None:
    authority = Authority(operator.folder)
    table = f"port = 0\n{authority.issue().settings()}"
    operator.config_file.write_text(CONFIG.replace("port = {port}\n", table))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *command, "--config", str(operator.config_file)),
        stderr=asyncio.subprocess.PIPE,
    )
    connector = aiohttp.TCPConnector(ssl=authority.trusting())
    try:
        assert process.stderr is not None
        said = json.loads(await process.stderr.readline())
        async with aiohttp.ClientSession(connector=connector) as http:
            async with http.get(said["url"] + "/health/ready") as answer:
                status, strict = answer.status, answer.headers.get("strict-transport-security")
            async with http.get(said["url"] + "/metrics") as answer:
                metrics = await answer.text()
        process.send_signal(signal.SIGTERM)
    finally:
        _, errors = await process.communicate()

    assert said["url"].startswith("https://127.0.0.1:")
    assert (status, strict) == (200, None)
    if command == ("serve",):
        (left,) = re.findall(r'certificate_seconds_left{listener="data_plane"} (\S+)', metrics)
        assert 0 < float(left) < 3600
    assert [json.loads(line)["event"] for line in errors.splitlines()] == ["process:stopped"]


@pytest.mark.parametrize("command", [("serve",), ("admin", "serve")])
async def test_a_listener_opens_as_many_files_as_the_machine_lets_it(
    operator: Operator, command: tuple[str, ...]
) -> None:
    operator.config_file.write_text(CONFIG.format(port=0))
    gateway = (sys.executable, "-m", "gateway", *command, "--config", str(operator.config_file))
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'ulimit -Sn 512; ulimit -Hn 1024; exec "$@"', "sh", *gateway),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said = json.loads(await process.stderr.readline())
        permitted = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    finally:
        process.kill()
        await process.communicate()

    assert (said["event"], permitted) == ("process:started", (1024, 1024))


@pytest.mark.parametrize("command", [("serve",), ("admin", "serve")])
async def test_a_listener_that_may_open_too_few_files_does_not_start(
    operator: Operator, command: tuple[str, ...]
) -> None:
    """With 64 it answered nobody any more as soon as sixty connected, and said nothing of it."""
    operator.config_file.write_text(CONFIG.format(port=0))
    gateway = (sys.executable, "-m", "gateway", *command, "--config", str(operator.config_file))
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", 'ulimit -n 100; exec "$@"', "sh", *gateway), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert errors.decode().startswith("gatewright: may open 100 files and needs 128: ")


async def test_what_is_no_request_leaves_a_line_like_any_other(operator: Operator) -> None:
    """A scanner of ports, or a client that speaks TLS, wrote bare text among the JSON."""
    port = free_port()
    operator.config_file.write_text(CONFIG.format(port=port))
    async with _running(operator.config_file, port, "serve") as process:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01\x02\x00\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        process.send_signal(signal.SIGTERM)
        _, errors = await process.communicate()

    lines = [json.loads(line) for line in errors.decode().splitlines()]
    (said,) = [line for line in lines if line["event"] == "server:said"]
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert said["reason"] == "Invalid HTTP request received."


async def test_a_second_worker_of_the_same_name_and_a_taken_port_are_refused_in_a_line(
    operator: Operator,
) -> None:
    port = free_port()
    operator.config_file.write_text(CONFIG.format(port=port))
    async with _running(operator.config_file, port, "serve"):
        taken = operator.starts("admin", "serve", "--config", operator.config_file)
        operator.config_file.write_text(CONFIG.format(port=free_port()))
        twin = operator.starts("serve", "--config", operator.config_file)

    port_line = f"gatewright: 127.0.0.1:{port} cannot be listened on: address already in use\n"
    assert (twin.status, taken.status) == (2, 3)
    assert twin.errors == "gatewright: audit worker w0: another process writes its segments\n"
    assert taken.errors == port_line


def test_a_worker_on_an_old_schema_says_so_and_leaves_the_database_alone(
    operator: Operator,
) -> None:
    """What it gave back then was written into the old tables, and its failure said instead."""
    operator.config_file.write_text(CONFIG.format(port=free_port()))
    issued = operator.config("keys", "issue", *PLACE)
    assert operator.config("database", "migrate", "--revision", "0045").status == 0
    refused = operator.starts("serve", "--config", operator.config_file)

    assert issued.status == 0
    assert refused.status == 2
    assert refused.errors.startswith("gatewright: the database has schema 0045, this program needs")
    assert refused.errors.endswith("run `gatewright database migrate`\n")


@pytest.mark.parametrize("command", [("serve",), ("admin", "serve")])
async def test_what_was_built_at_the_start_is_not_looked_through_for_garbage_again(
    operator: Operator, command: tuple[str, ...]
) -> None:
    operator.config_file.write_text(CONFIG.format(port=free_port()))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVES_NOTHING, *command, "--config", str(operator.config_file)),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()

    assert said.split() == [b"tracked:", b"True", b"found:", b"False"]


async def test_a_request_that_is_cut_off_at_the_end_is_no_defect_in_the_log(
    operator: Operator,
) -> None:
    operator.config_file.write_text(CONFIG.format(port=0))
    issued = operator.starts("keys", "issue", *PLACE, "--config", operator.config_file)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HURRIES, "serve", "--config", str(operator.config_file)),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    port = int(json.loads(await process.stderr.readline())["url"].rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n"
        f"authorization: Bearer {issued.last_line}\r\nexpect: 100-continue\r\n\r\n"
    )
    writer.write(head.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 100")  # It waits for the body.
    process.send_signal(signal.SIGTERM)
    _, errors = await process.communicate()
    writer.close()

    lines = [json.loads(line) for line in errors.splitlines()]
    said = [line["reason"] for line in lines if line["event"] == "server:said"]
    assert said == ["Cancel 1 running task(s), timeout graceful shutdown exceeded"]


async def test_a_start_says_what_its_document_cannot_have_meant_and_serves(
    operator: Operator,
) -> None:
    file = operator.folder / "doubtful.toml"
    file.write_text(DOUBTFUL)
    text = f'{CONFIG.format(port=0)}\n[policy]\nfile = "{file.name}"\n'
    operator.config_file.write_text(text)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "serve", "--config", str(operator.config_file)),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said = [json.loads(await process.stderr.readline()) for _ in range(3)]
    finally:
        process.kill()
        await process.communicate()

    events = [line["event"] for line in said]
    assert sorted(events) == ["policy:doubted", "policy:doubted", "process:started"]
    reasons = " ".join(line.get("reason", "") for line in said)
    assert "nothing is ever found as 'HEALTH'" in reasons
    assert "policy.headers does not list 'x_team'" in reasons
