"""Runs the GPU rows and prints them: some of them, within a budget, whatever fails.

Every row is cheap, says its line as soon as it is known, and may fail without taking the others
with it. `--device cpu --tiny` goes through all of them with models of a few thousand weights: a
rehearsal, whose figures mean nothing.
"""

import argparse
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import torch

from local_engine.bench.cpu import Row
from local_engine.bench.gpu import peer, profile, rows, workloads
from local_engine.bench.gpu.bench import Bench, TookTooLong, failures
from local_engine.bench.gpu.ceilings import wait_for
from local_engine.bench.gpu.models import FULL, TINY


@dataclass(frozen=True)
class Case:
    """Rows that are chosen together; `budget_s` is what they may take, their model included."""

    budget_s: float
    run: Callable[[Bench], Iterator[Row]]
    is_asked_for: bool = False
    """Run only where it is named."""


# In this order, so that a model is built once; without much time the first ones matter most.
CASES = {
    "ceilings": Case(20, rows.ceiling_rows),
    "attention": Case(30, rows.attention_rows),
    "decode": Case(75, rows.decode_rows),
    "decode-long": Case(40, rows.long_decode_rows),
    "prefill": Case(40, rows.prefill_rows),
    "prefix": Case(60, workloads.prefix_rows),
    "nano-large": Case(90, workloads.nano_large_rows),
    "nano-small": Case(90, workloads.nano_small_rows),
    "decode-small": Case(40, rows.small_decode_rows),
    "overlap": Case(40, rows.overlap_rows),
    "peer": Case(120, peer.peer_rows),
    "fp8": Case(75, rows.fp8_rows),
    "profile": Case(90, profile.profile_rows, is_asked_for=True),
}
_LAST_LINES = 6


def main(arguments: list[str]) -> int:
    """Print the rows; returns how many failed, 99 at most."""
    options = _parser().parse_args(arguments)
    wanted = options.rows or [name for name, case in CASES.items() if not case.is_asked_for]
    chosen = [name for name in CASES if name in wanted]
    device = torch.device(options.device)
    bench = Bench(device, TINY if options.tiny else FULL)
    ends_s = time.monotonic() + options.budget_s
    failed = 0
    for number, name in enumerate(chosen):
        left_s = ends_s - time.monotonic()
        case = CASES[name]
        if left_s < case.budget_s / 2:
            _print(f"{name}: left out, {left_s:.0f} s are too few")
            continue
        if _is_run(bench, name, min(left_s, 2 * case.budget_s)):
            continue
        failed += 1
        if not _is_usable(device):
            return min(99, failed + _go_on(options, chosen[number + 1 :], ends_s))
        bench.drop_engine()
    return min(99, failed)


def _is_run(bench: Bench, name: str, most_s: float) -> bool:
    started = time.monotonic()
    try:
        with _at_most(most_s):
            for row in CASES[name].run(bench):
                _print(row.line)
    except failures():
        lines = traceback.format_exc().strip().splitlines()[-_LAST_LINES:]
        _print("\n".join([f"{name}: FAILED after {time.monotonic() - started:.0f} s", *lines]))
        return False
    _print(f"  [{name}: {time.monotonic() - started:.1f} s]")
    return True


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises `TookTooLong` inside, once the main thread runs Python again."""

    def raise_it(_: int, __: FrameType | None) -> None:
        raise TookTooLong(f"more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, raise_it)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _is_usable(device: torch.device) -> bool:
    """After a bad memory access a process has lost its device for good."""
    try:
        wait_for(device)
        torch.ones(1, device=device).item()
    except RuntimeError:
        return False
    return True


def _go_on(options: argparse.Namespace, names: list[str], ends_s: float) -> int:
    """The remaining rows in a process of their own; how many failed there."""
    left_s = ends_s - time.monotonic()
    if not names or left_s < 1:
        return 0
    _print("the device is lost to this process; the others run in a new one")
    command = [sys.executable, "-m", "local_engine.bench.gpu", "--rows", ",".join(names)]
    command += ["--budget-s", f"{left_s:.0f}", "--device", options.device]
    command += ["--tiny"] if options.tiny else []
    return subprocess.run(command, check=False).returncode  # noqa: S603 - our own arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="local_engine bench (GPU)", description=__doc__)
    parser.add_argument("--rows", type=_names, help=f"some of {','.join(CASES)}; default: all")
    parser.add_argument("--budget-s", type=float, default=500.0, help="for all rows together")
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cuda", "cpu"), default=default)
    parser.add_argument("--tiny", action="store_true", help="a rehearsal with tiny models")
    return parser


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in CASES]:
        raise argparse.ArgumentTypeError(f"no such rows: {', '.join(unknown)}")
    return names


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
