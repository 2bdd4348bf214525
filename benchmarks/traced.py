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
    """One function in one thread: what of it ran while it was watched."""

    thread: str
    task: str
    """A duty by its name; `requests` for all of those, `callbacks` for what is in no task."""
    file: str
    function: str
    bytecodes: int
    calls: int
    """How often it was entered; a coroutine is entered anew each time it goes on."""


def file_of(ran: Ran) -> str:
    """Ours by its path in the project, others' by their package."""
    path = Path(ran.file)
    if PACKAGES in path.parts:
        return path.parts[path.parts.index(PACKAGES) + 1]
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else path.name


class Watcher(Protocol):
    """Who is told."""

    def begin(self) -> None:
        """Forget what was seen."""

    def seen(self) -> Sequence[Struct]:
        """What was seen since then."""

    def enter(self, frame: FrameType) -> Callable[[], None] | None:
        """A function is entered, or goes on; what to do at each of its bytecodes, if anything."""


class _Watched:
    """This process, as `sys.settrace` wants it."""

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
    """Those with which a benchmark starts itself as the process that is watched."""
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)


def serve(config: str, out: Path, watcher: Watcher) -> None:
    """The data plane in this process, watched in all of its threads."""
    from gateway.cli.serve import serve as command  # noqa: PLC0415 - only in that process

    watched = _Watched(watcher, out)
    signal.signal(signal.SIGUSR1, watched.begin)
    signal.signal(signal.SIGUSR2, watched.end)
    threading.settrace(watched.trace)
    sys.settrace(watched.trace)
    command(["--config", config])


@contextmanager
def watched_gateway(benchmark: str, out: Path, work: Path) -> Iterator[Contestant]:
    """A gateway before a fake upstream; `benchmark` is the module that starts it, by name."""
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
