"""Starts servers to compare, on loopback with one thread each, and reads each one's CPU clock."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import msgspec


# Not the network's, the machine's: a server that compiles first takes minutes on a busy one.
_READY_WITHIN_S = 420.0
_END_WITHIN_S = 20.0
_LOOK_EVERY_S = 0.5
_ONE_THREAD = ("OMP_NUM_THREADS=1", "OMP_WAIT_POLICY=passive", "HF_HUB_OFFLINE=1")
# A clock id of the kernel's: the complement of a process in the upper bits, "scheduled" below.
_SCHEDULED = 2


class ServerFailed(RuntimeError):
    """A server ended, or was not ready in time."""


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


@dataclass(frozen=True)
class Server:
    """A server that answers; `model` is what it calls the measured one."""

    name: str
    port: int
    model: str
    pids: tuple[int, ...]

    def cpu_us(self) -> float:
        """CPU time of all its processes so far, to the nanosecond."""
        return sum(time.clock_gettime_ns(~pid << 3 | _SCHEDULED) for pid in self.pids) / 1000


def our_command(directory: Path, port: int) -> list[str]:
    """One tenant, so whoever names none may share prefixes; everything else as it comes."""
    command = [sys.executable, "-m", "local_engine", "serve", "--model", str(directory)]
    return [*command, "--port", str(port), "--device", "cpu", "--threads", "1", "--share-prefixes"]


def vllm_command(python: Path, directory: Path, port: int) -> list[str]:
    """In the weights' own type, without a line of log for each request, and at its cheapest.

    As it comes it computes in a process of its own, for which another one spins: on one thread that
    is billed as twice the work. Scheduling and computing in one process is the fair opponent.
    """
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(directory)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--max-model-len", "4096", "--max-num-seqs", "64", "--disable-uvicorn-access-log"]
    command += ["--distributed-executor-backend", "uni"]
    settings = ("VLLM_CPU_KVCACHE_SPACE=2", "VLLM_CPU_OMP_THREADS_BIND=nobind")
    return ["env", *settings, "VLLM_ENABLE_V1_MULTIPROCESSING=0", "VLLM_NO_USAGE_STATS=1", *command]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def started(name: str, command: list[str], port: int, log: Path) -> Iterator[Server]:
    """The server, once it answers; its whole process group is ended on the way out."""
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - no shell, the operator's own interpreter
            ["/usr/bin/env", *_ONE_THREAD, *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        model = _ready(process, port, log)
        yield Server(name, port, model, tuple(_tree(process.pid)))
    finally:
        _end(process)


def _ready(process: "subprocess.Popen[bytes]", port: int, log: Path) -> str:
    until_s = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < until_s:
        if process.poll() is not None:
            raise ServerFailed(f"it ended with {process.returncode}: {_last_line(log)}")
        model = _served_model(port)
        if model is not None:
            return model
        time.sleep(_LOOK_EVERY_S)
    raise ServerFailed(f"not ready after {_READY_WITHIN_S:.0f} s: {_last_line(log)}")


def _served_model(port: int) -> str | None:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/v1/models")
        answer = connection.getresponse()
        body = answer.read()
    except OSError:
        return None
    finally:
        connection.close()
    if answer.status != 200:
        return None
    return msgspec.json.decode(body, type=_Models).data[0].id


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def _tree(pid: int) -> Iterator[int]:
    """A process and everything it started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            yield from _tree(int(child))


def _end(process: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_END_WITHIN_S)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()
