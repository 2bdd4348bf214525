"""Traces one request of 1 KB, alone, on the event loop: its calls in order, and their bytecodes.

    python -m benchmarks.journey                  the request as a tree
    python -m benchmarks.journey --case stream    one whose answer is a stream of three chunks
    python -m benchmarks.journey --deep 3         only calls that lie at most so deep

In front of each call are its own bytecodes, and those including all that it called. Of several
requests, one after the other, it shows the one with the fewest, which no periodic duty of the
worker disturbed: it is the same in every run, so that a change shows to the single bytecode. A
coroutine that goes on after a wait begins a tree of its own.
"""

import argparse
import http.client
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import msgspec
from msgspec import Struct

from benchmarks.bodies import request_body
from benchmarks.traced import Ran, add_options, file_of, serve, watched_gateway


WARM_REQUESTS = 20
"""Requests sent first: afterwards everything kept of texts and decisions is in place."""
BODIES = {
    "whole": request_body(1024),
    "stream": request_body(1024, stream=True, marker="chunks=3,gap_ms=5"),
}
"""Streams with few chunks: what matters is how they begin and end."""
SETTLED_S = 1.0
LOOKED_AT = 10
APART_S = 0.05


class Call(Struct):
    """One entry into a function, in the order of the calls."""

    depth: int
    ran: Ran


class Calls:
    """Each call of the main thread, one by one."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, FrameType, list[int]]] = []

    def begin(self) -> None:
        self._calls = []

    def seen(self) -> list[Call]:
        return [
            Call(depth, Ran("", "", each.f_code.co_filename, each.f_code.co_qualname, count[0], 1))
            for depth, each, count in self._calls
        ]

    def enter(self, frame: FrameType) -> Callable[[], None] | None:
        if threading.current_thread() is not threading.main_thread():
            return None
        own = [0]
        self._calls.append((_depth(frame), frame, own))

        def count() -> None:
            own[0] += 1

        return count


def _depth(frame: FrameType | None) -> int:
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def calls_of_one(case: str, work: Path) -> list[Call]:
    """The calls for one request of a caller who has asked before."""
    out = work / "calls.json"
    with watched_gateway("benchmarks.journey", out, work) as contestant:
        caller = http.client.HTTPConnection("127.0.0.1", contestant.port)
        headers = {"content-type": "application/json", **contestant.headers}

        def ask() -> None:
            caller.request("POST", contestant.path, BODIES[case], headers)
            assert caller.getresponse().read()

        for _ in range(WARM_REQUESTS):
            ask()
        time.sleep(SETTLED_S)
        seen: list[list[Call]] = []
        for _ in range(LOOKED_AT):
            contestant.signal(signal.SIGUSR1)
            time.sleep(APART_S)
            ask()
            time.sleep(APART_S)
            contestant.signal(signal.SIGUSR2)
            contestant.wait_for(out)
            seen.append(msgspec.json.decode(out.read_bytes(), type=list[Call]))
            out.unlink()
    return min(seen, key=bytecodes_of)


def bytecodes_of(calls: list[Call]) -> int:
    return sum(call.ran.bytecodes for call in calls)


def lines(calls: list[Call], deep: int) -> Iterator[str]:
    """The tree, one line per call, followed by the total."""
    least = min([call.depth for call in calls], default=0)
    for at, call in enumerate(calls):
        level = call.depth - least
        below = call.ran.bytecodes
        for inner in calls[at + 1 :]:
            if inner.depth <= call.depth:
                break
            below += inner.ran.bytecodes
        if level <= deep:
            name = f"{file_of(call.ran)} {call.ran.function}"
            yield f"{call.ran.bytecodes:6d} {below:6d}  {'  ' * level}{name}"
    yield f"{bytecodes_of(calls)} bytecodes in {len(calls)} calls"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", choices=[*BODIES], default="whole")
    parser.add_argument("--deep", type=int, default=99)
    add_options(parser)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.out, Calls())
        return
    with tempfile.TemporaryDirectory(prefix="gatewright-journey-") as folder:
        calls = calls_of_one(options.case, Path(folder))
    print("\n".join(lines(calls, options.deep)))


if __name__ == "__main__":
    main()
