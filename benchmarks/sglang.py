"""Runs the `sglang-router` wheel (cache_aware) on the same trace and the same fakes.

It is a process that speaks HTTP, so the simulator's clock waits for it: a request is sent to the
router, the fake that gets it reports its place, and its answer is held back until the simulated
replica is done. The router knows as much about load and prefixes as it would know in service.
"""

import http.client
import json
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, Self

from msgspec import Struct


HTTP_OK = 200
START_S = 60.0
ANSWER_S = 30.0
BLOCK_REPEATS = 32
"""A block's 16-letter number is repeated this often: 512 letters, like the gateway's own blocks."""


class Asked(Protocol):
    """A request of the trace."""

    @property
    def blocks(self) -> tuple[int, ...]: ...


class Held(Struct):
    """A request under way."""

    release: threading.Event
    done: threading.Event


class SglangPolicy:
    """A context manager: the router and one fake engine per replica run while it is entered."""

    name = "sglang-router cache_aware"

    def __init__(self, interpreter: str, replicas: int) -> None:
        self._interpreter = interpreter
        self._arrived: queue.Queue[tuple[int, threading.Event]] = queue.Queue()
        self._servers = [self._fake(place) for place in range(replicas)]
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = _free_ports(2)
        self._port = ports[0]
        workers = [f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers]
        command = [self._interpreter, "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
        command += ["--port", str(ports[0]), "--prometheus-port", str(ports[1])]
        command += ["--policy", "cache_aware", "--log-level", "error", "--disable-retries"]
        self._process = subprocess.Popen(
            [*command, "--worker-urls", *workers],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def choose(self, turn: Asked, _: float) -> tuple[int, Held]:
        """Ask the router; the fake that receives the request reports which replica it chose."""
        done = threading.Event()
        body = json.dumps({"text": _text(turn.blocks), "sampling_params": {}}).encode()
        threading.Thread(target=self._post, args=(body, done), daemon=True).start()
        place, release = self._arrived.get(timeout=ANSWER_S)
        return place, Held(release, done)

    def first(self, handle: Held, now_s: float) -> None:
        """It sees only complete answers."""

    def end(self, handle: Held) -> None:
        """The answer goes back through the router, which counts it as ended."""
        handle.release.set()
        if not handle.done.wait(ANSWER_S):
            raise TimeoutError("the router did not pass an answer on")

    def _post(self, body: bytes, done: threading.Event) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=600)
        try:
            connection.request("POST", "/generate", body, {"content-type": "application/json"})
            connection.getresponse().read()
        except (http.client.HTTPException, OSError):
            return  # The run is over, and what was under way is cut.
        finally:
            connection.close()
        done.set()

    def _wait_until_ready(self) -> None:
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
            try:
                connection.request("GET", "/readiness")
                if connection.getresponse().status == HTTP_OK:
                    return
            except (http.client.HTTPException, OSError):
                pass
            finally:
                connection.close()
            time.sleep(0.2)
        raise TimeoutError("sglang-router did not start")

    def _fake(self, place: int) -> ThreadingHTTPServer:
        arrived = self._arrived

        class Fake(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer({"model_path": "fake", "data": [{"id": "fake"}], "status": "ok"})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", "0")))
                if self.path == "/generate":
                    release = threading.Event()
                    arrived.put((place, release))
                    release.wait(600)
                self._answer({"text": "ok", "meta_info": {"id": "1", "finish_reason": None}})

            def _answer(self, tree: dict[str, Any]) -> None:
                body = json.dumps(tree).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Fake)
        # The router is cut off at the end of a run, with calls under way.
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        return server


def _text(blocks: Sequence[int]) -> str:
    return "".join([f"{block:016x}" * BLOCK_REPEATS for block in blocks])


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
