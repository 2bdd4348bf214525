"""Counts the bytecodes and calls of our own code per request, by thread, task, file, function.

    python -m benchmarks.bytecodes                        a request of 1 KB
    python -m benchmarks.bytecodes --case stream          a streamed chunk; also: large, agent
    python -m benchmarks.bytecodes --case idle            a second in which nobody asks for anything
    python -m benchmarks.bytecodes --case padded          one that hides how long its words are
    python -m benchmarks.bytecodes --rows 40

Code that runs once per request has the same count in every run, whatever else the machine does: one
more bytecode in such a function is seen. Totals vary by some four in a hundred, since work done
once a second weighs more here than in service: counting makes a request thirty times slower. The
numbers do not say what a bytecode costs: a call into C is one.
"""

import argparse
import asyncio
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType

import msgspec

from benchmarks.bodies import BODIES
from benchmarks.processes import Contestant
from benchmarks.run import CASES, put_load
from benchmarks.traced import Ran, add_options, file_of, serve, watched_gateway


SECONDS = 3.0
IDLE = "idle"
STARTED_S = 13.0
"""A start has after-effects: for ten seconds a worker looks after the leases of batches."""
IDLE_S = 20.0
"""Long enough for duties of every five seconds to run as often as they should."""
CALLBACKS = "callbacks"
REQUESTS = "requests"


class Counts:
    """Bytecodes and calls of each function, by thread and task."""

    def __init__(self) -> None:
        self._bytecodes: Counter[tuple[str, str, CodeType]] = Counter()
        self._calls: Counter[tuple[str, str, CodeType]] = Counter()

    def begin(self) -> None:
        self._bytecodes.clear()
        self._calls.clear()

    def seen(self) -> list[Ran]:
        return [
            Ran(thread, task, code.co_filename, code.co_qualname, count, self._calls[key])
            for key, count in self._bytecodes.items()
            for thread, task, code in (key,)
        ]

    def enter(self, frame: FrameType) -> Callable[[], None]:
        key = (threading.current_thread().name, task_now(), frame.f_code)
        self._calls[key] += 1
        return partial(self._count, key)

    def _count(self, key: tuple[str, str, CodeType]) -> None:
        self._bytecodes[key] += 1


def task_now() -> str:
    """The task that this thread is running."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # A thread without an event loop.
        return ""
    if task is None:
        return CALLBACKS
    name = task.get_name()
    return REQUESTS if name.startswith("Task-") else name


def counted(case: str, work: Path, seconds: float) -> tuple[list[Ran], int]:
    """What ran for a case, and for how many requests, chunks or seconds."""
    out = work / "counted.json"
    with watched_gateway("benchmarks.bytecodes", out, work) as contestant:
        units = (
            _counted_at_rest(contestant)
            if case == IDLE
            else _counted(contestant, case, work, seconds)
        )
        contestant.wait_for(out)
    return msgspec.json.decode(out.read_bytes(), type=list[Ran]), max(units, 1)


def _counted(contestant: Contestant, case: str, work: Path, seconds: float) -> int:
    """Count under load; returns the number of requests or chunks."""
    to = (case, contestant.port, contestant.path, contestant.headers, work)
    put_load(*to, seconds=SECONDS)
    contestant.signal(signal.SIGUSR1)
    seen = put_load(*to, seconds=seconds)
    contestant.signal(signal.SIGUSR2)
    return seen.chunks if "chunks" in CASES[case] else seen.answers


def _counted_at_rest(contestant: Contestant) -> int:
    """Count at rest; returns the number of seconds."""
    time.sleep(STARTED_S)
    contestant.signal(signal.SIGUSR1)
    time.sleep(IDLE_S)
    contestant.signal(signal.SIGUSR2)
    return round(IDLE_S)


def task_of(ran: Ran) -> str:
    return ran.task or ran.thread


def table(title: str, ran: list[Ran], name_of: Callable[[Ran], str], units: int, rows: int) -> str:
    """One of the tables: each name with its bytecodes and calls per unit, the dearest first."""
    bytecodes: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for each in ran:
        bytecodes[name_of(each)] += each.bytecodes
        calls[name_of(each)] += each.calls
    lines = [
        f"{title}: bytecodes {bytecodes.total() / units:.0f}, calls {calls.total() / units:.0f}"
    ]
    lines += [
        f"{count / units:10.1f} {calls[name] / units:8.2f}  {name}"
        for name, count in bytecodes.most_common(rows)
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cases = [name for name in BODIES if name != "low"]
    parser.add_argument("--case", choices=[*cases, IDLE], default="small")
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of load")
    parser.add_argument("--task", help="only what ran for it; a name from the table by task")
    add_options(parser)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.out, Counts())
        return
    with tempfile.TemporaryDirectory(prefix="gatewright-bytecodes-") as folder:
        ran, units = counted(options.case, Path(folder), options.seconds)
    print(f"{units} counted")
    if options.task:
        ran = [each for each in ran if task_of(each) == options.task]
    for title, name_of in (
        ("by thread", lambda each: each.thread),
        ("by task", task_of),
        ("by file", file_of),
        ("by function", lambda each: f"{file_of(each)} {each.function}"),
    ):
        print(table(title, ran, name_of, units, options.rows))


if __name__ == "__main__":
    main()
