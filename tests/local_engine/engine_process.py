"""Starts `python -m local_engine serve` on a free port and waits until it says that it is ready."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class EngineProcess:
    process: "subprocess.Popen[str]"
    ready: dict[str, Any]

    @property
    def url(self) -> str:
        return f"{self.ready['scheme']}://127.0.0.1:{self.ready['port']}"

    @classmethod
    @contextmanager
    def started(
        cls, *arguments: str, env: dict[str, str] | None = None
    ) -> Iterator["EngineProcess"]:
        process = spawn(*arguments, env=env)
        try:
            assert process.stdout is not None
            yield cls(process, json.loads(process.stdout.readline()))
        finally:
            process.kill()
            process.communicate()


def spawn(*arguments: str, env: dict[str, str] | None = None) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "local_engine",
            "serve",
            "--port",
            "0",
            "--device",
            "cpu",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
