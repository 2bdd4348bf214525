"""The processes of a comparison: started on a core of their own, measured, stopped."""

import http.client
import json
import os
import shlex
import signal
import socket
import string
import subprocess
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


PROJECT = Path(__file__).resolve().parent.parent
START_S = 60.0
STOP_S = 10.0
MIB = 1024 * 1024


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pinned(command: list[str], core: int) -> list[str]:
    """On one core if there are two: the load must not run on the gateway's."""
    return ["taskset", "-c", str(core), *command] if (os.cpu_count() or 1) > 1 else command


def ask(
    port: int, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class Contestant:
    """One gateway under test, from a file in the format of benchmarks/gatewright.toml."""

    def __init__(
        self,
        file: Path,
        work: Path,
        upstream_port: int,
        project: Path = PROJECT,
        *,
        is_encrypted: bool = False,
        database_url: str = "",
    ) -> None:
        """`project` is the measured checkout; with encryption it gets a certificate of its own.

        `database_url` names an empty database that replaces the file's own.
        """
        self.is_encrypted = is_encrypted
        self._database_url = database_url
        self.name = file.stem
        self.plan: dict[str, Any] = tomllib.loads(file.read_text())
        self.port = free_port()
        self.path = self.plan.get("path", "/v1/chat/completions")
        self.headers: dict[str, str] = {}
        self._work = work
        self._names = {
            "PORT": str(self.port),
            "UP": f"http://127.0.0.1:{upstream_port}",
            "UPPORT": str(upstream_port),
            "WORK": str(work),
            "PROJECT": str(project),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def _certified(self) -> dict[str, str]:
        """A certificate for the run, as the variables that name it."""
        chain, key = self._work / "own.crt", self._work / "own.key"
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        made += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-out", str(chain)]
        subprocess.run([*made, "-keyout", str(key)], check=True, capture_output=True)
        prefix = "GATEWRIGHT_DATA_PLANE__TLS_"
        return {f"{prefix}CERTIFICATE_FILE": str(chain), f"{prefix}KEY_FILE": str(key)}

    def _ask(self, body: bytes) -> int:
        """The status of one request; for an encrypted gateway, only whether it listens."""
        if not self.is_encrypted:
            return ask(self.port, "POST", self.path, body, self.headers)[0]
        with socket.create_connection(("127.0.0.1", self.port), 5):
            return 200

    def start(self, body: bytes) -> float:
        """Prepare and start it; returns the seconds from the start to the first 200."""
        self._work.mkdir(parents=True)
        for name, text in self.plan.get("files", {}).items():
            (self._work / name).write_text(self._filled(text))
        environment = os.environ | {"PYTHONPATH": self._names["PROJECT"]}
        for name, value in self.plan.get("env", {}).items():
            environment[name] = self._filled(value)
        if self._database_url:
            environment["GATEWRIGHT_DATABASE__URL"] = self._database_url
        for line in self.plan.get("prepare", ()):
            command = ["sh", "-c", self._filled(line)]
            subprocess.run(
                command, cwd=self._work, env=environment, check=True, stdout=subprocess.DEVNULL
            )
        if self.is_encrypted:
            environment |= self._certified()
        made = self._work / "headers.json"
        self.headers = json.loads(made.read_text()) if made.exists() else {}
        start_s = time.monotonic()
        with (self._work / "log").open("wb") as log:
            self._process = subprocess.Popen(
                pinned(shlex.split(self._filled(self.plan["cmd"])), 0),
                cwd=self._work,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        while time.monotonic() - start_s < START_S and self._process.poll() is None:
            try:
                if self._ask(body) == 200:
                    return time.monotonic() - start_s
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.02)
        raise RuntimeError(
            f"{self.name} did not start:\n{(self._work / 'log').read_text()[-2000:]}"
        )

    def stop(self) -> None:
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(STOP_S)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self._process = None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait_for(self, file: Path, patience_s: float = STOP_S) -> None:
        """Wait until it has made a file.

        Raises:
            TimeoutError: the file was not made in time.
        """
        end_s = time.monotonic() + patience_s
        while not file.exists():
            if time.monotonic() > end_s:
                raise TimeoutError(f"{self.name} has not made {file.name}")
            time.sleep(0.02)

    def cpu_us(self) -> float:
        """Processor time of every thread of its tree so far, user and system."""
        files = [
            file for pid in self._tree() for file in Path(f"/proc/{pid}/task").glob("*/schedstat")
        ]
        return sum(int(file.read_text().split()[0]) for file in files) / 1000

    def memory_mib(self) -> float:
        """Resident memory of its tree."""
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._tree()]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE") / MIB

    def _tree(self) -> list[int]:
        assert self._process is not None
        found = todo = [self._process.pid]
        while todo:
            children = [
                Path(f"/proc/{pid}/task/{pid}/children").read_text().split() for pid in todo
            ]
            todo = [int(child) for each in children for child in each]
            found = [*found, *todo]
        return found

    def _filled(self, text: str) -> str:
        return string.Template(text).safe_substitute(self._names)
