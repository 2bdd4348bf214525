"""The addresses of a listener: those that the machine has, or a line that says why none."""

import socket
import subprocess
import sys
from typing import Any

import httpx
import pytest

from gateway.cli.listening import ListenerTaken, bound_sockets
from gateway.configuration.settings import Listener


LOCALHOST = [
    (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
    (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
]
made = socket.socket


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Families that this machine is without; `localhost` has an address of each."""
    families: set[int] = set()

    def make(family: int, *more: Any) -> socket.socket:
        if family in families:
            raise OSError(97, "Address family not supported by protocol")
        return made(family, *more)

    monkeypatch.setattr(socket, "socket", make)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: LOCALHOST)
    return families


def test_a_machine_without_one_family_listens_on_the_other(lacking: set[int]) -> None:
    lacking.add(socket.AF_INET6)
    (bound,) = bound_sockets(Listener(host="localhost", port=0))
    with bound:
        assert bound.getsockname()[0] == "127.0.0.1"


def test_a_machine_with_neither_is_told_so(lacking: set[int]) -> None:
    lacking.update({socket.AF_INET6, socket.AF_INET})
    with pytest.raises(ListenerTaken, match="localhost:80 cannot be listened on: the machine has"):
        bound_sockets(Listener(host="localhost", port=80))


READS = """
from gateway.cli.listening import DIGITS_MAX, tune_interpreter
from gateway.dialects.bodies.strict_json import decode_object
from gateway.errors import RequestInvalid

tune_interpreter()
for more in (0, 1):
    for end in ("}", " }"):
        try:
            print(len(decode_object(b'{"seed":' + b"7" * (DIGITS_MAX + more) + end.encode())))
        except RequestInvalid as error:
            print(error.message)
"""


def test_a_worker_reads_no_number_that_would_take_long() -> None:
    told = subprocess.run([sys.executable, "-c", READS], check=True, capture_output=True, text=True)

    refused = "The body holds a number that is too long."
    assert told.stdout.splitlines() == ["1", "1", refused, refused]


SERVES = """
from gateway.cli import listening
from gateway.configuration.settings import Listener, Settings

async def application(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    print("shut down", flush=True)
    await send({"type": "lifespan.shutdown.complete"})

listening.TICK_S = 3600.0
where = Listener(host="127.0.0.1", port=0)
settings = Settings(source="gatewright.toml", folder=".")
listening.run_server(
    application,
    settings,
    where,
    lambda url: print(url, flush=True),
    leaves=lambda: print("told to end", flush=True),
)
"""


def test_a_signal_ends_a_server_between_two_of_its_ticks() -> None:
    server = subprocess.Popen([sys.executable, "-c", SERVES], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert httpx.get(url).status_code == 204, "it has come to its loop"
        server.terminate()
        said, _ = server.communicate(timeout=60)
        assert said == "told to end\nshut down\n"
    finally:
        server.kill()
        server.wait()
