"""Is it right on this device? `python -m local_engine.bench.gpu.checks [--groups kernels,engine]`.

One line per check with its error; the last line counts, and the exit status is how many failed.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator

import torch

from local_engine.bench.gpu.bench import failures
from local_engine.bench.gpu.engine_checks import engine_checks
from local_engine.bench.gpu.kernel_checks import Check, kernel_checks, poisoned
from local_engine.bench.gpu.peer import peer_checks


Checks = Callable[[torch.device], Iterator[Check]]


def _poisoned_kernels(device: torch.device) -> Iterator[Check]:
    with poisoned():
        yield from kernel_checks(device)


_GROUPS: dict[str, Checks] = {
    "kernels": _poisoned_kernels,
    "engine": engine_checks,
    "peer": peer_checks,
}
_LAST_LINES = 6


def main(arguments: list[str]) -> int:
    """Returns how many failed, 99 at most."""
    parser = argparse.ArgumentParser(prog="local_engine.bench.gpu.checks", description=__doc__)
    parser.add_argument("--groups", default=",".join(_GROUPS), help="some of them, with commas")
    parser.add_argument("--seed", type=int, default=None, help="default: another one every time")
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cuda", "cpu"), default=default)
    options = parser.parse_args(arguments)
    seed = torch.seed() if options.seed is None else options.seed
    torch.manual_seed(seed)
    _print(f"seed {seed}, {options.device}")
    done = failed = 0
    for name in options.groups.split(","):
        more, worse = _run(name, torch.device(options.device))
        done, failed = done + more, failed + worse
    _print(f"{done} checks, {failed} failures")
    return min(99, failed)


def _run(name: str, device: torch.device) -> tuple[int, int]:
    """How many checks of a group were made, and how many of them failed."""
    started, done, failed = time.monotonic(), 0, 0
    try:
        for check in _GROUPS[name](device):
            done, failed = done + 1, failed + (not check.is_passed)
            verdict = "ok    " if check.is_passed else "FAILED"
            _print(f"{verdict} {check.error:9.2e} <= {check.most:7.1e}  {check.name}")
    except failures():
        lines = traceback.format_exc().strip().splitlines()[-_LAST_LINES:]
        _print("\n".join([f"FAILED {name} broke off", *lines]))
        done, failed = done + 1, failed + 1
    _print(f"  [{name}: {time.monotonic() - started:.1f} s]")
    return done, failed


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
