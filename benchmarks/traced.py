"""A data plane that reports its every bytecode, in a process controlled by two signals.

It is watched from `SIGUSR1` to `SIGUSR2`; then the result is written to a file.
"""

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from benchmarks.bodies import request_body
from benchmarks.processes import PROJECT, Contestant
from benchmarks.run import HERE, running_upstream


PACKAGES = "site-packages"


class Ran(Struct, frozen=True):
    """One function in one thread: what of it ran while it was observed."""

    thread: str
    task: str
    """The name of a duty; `requests` for all requests, `callbacks` for code in no task."""
    file: str
    function: str
    bytecodes: int
    calls: int
    """How often it was entered; a coroutine is entered anew each time it resumes."""


def file_of(ran: Ran) -> str:
    """Our files by their path in the project, others by their package."""
    path = Path(ran.file)
    if PACKAGES in path.parts:
        return path.parts[path.parts.index(PACKAGES) + 1]
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else path.name


class Watcher(Protocol):
    """Receives the reports."""

    def begin(self) -> None:
        """Forget everything seen."""

    def seen(self) -> Sequence[Struct]:
        """Everything seen since `begin`."""

    def enter(self, frame: FrameType) -> Callable[[], None] | None:
        """A function is entered or resumed; returns what to call at each bytecode, if anything."""


class _Watched:
    """This process, as `sys.settrace` needs it."""

    def __init__(self, watcher: Watcher, out: Path) -> None:
        self._watcher = watcher
        self._out = out
        self._is_on = False

    def begin(self, *_: object) -> None:
        self._watcher.begin()
        self._is_on = True

    def end(self, *_: object) -> None:
        self._is_on = False
        part = self._out.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(self._watcher.seen()))
        part.rename(self._out)

    def trace(self, frame: FrameType, _event: str, _arg: Any) -> Callable[..., Any] | None:
        if not self._is_on or frame.f_code.co_filename == __file__:
            return None
        count = self._watcher.enter(frame)
        if count is None:
            return None

        def at_bytecode(_: FrameType, event: str, __: object) -> object:
            if event == "opcode":
                count()
            return at_bytecode

        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return at_bytecode


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options with which a benchmark starts itself as the observed process."""
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)


def serve(config: str, out: Path, watcher: Watcher) -> None:
    """The data plane in this process, observed in all of its threads."""
    from gateway.cli.serve import serve as command  # noqa: PLC0415 - only in that process

    watched = _Watched(watcher, out)
    signal.signal(signal.SIGUSR1, watched.begin)
    signal.signal(signal.SIGUSR2, watched.end)
    threading.settrace(watched.trace)
    sys.settrace(watched.trace)
    command(["--config", config])


@contextmanager
def watched_gateway(benchmark: str, out: Path, work: Path) -> Iterator[Contestant]:
    """A gateway before a fake upstream; `benchmark` names the module that starts it."""
    with running_upstream() as upstream:
        contestant = Contestant(HERE / "gatewright.toml", work / "gateway", upstream)
        contestant.plan["cmd"] = (
            f"{sys.executable} -m {benchmark} --serve $WORK/gatewright.toml --out {out}"
        )
        contestant.start(request_body(64))
        try:
            yield contestant
        finally:
            contestant.stop()
