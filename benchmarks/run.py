"""`make bench` and `make faults`: Gatewright against nginx and a bare proxy in Python, in one run.

    python -m benchmarks.run                  the load comparison, about six minutes
    python -m benchmarks.run --faults         what a caller sees for each upstream fault
    python -m benchmarks.run --harness DIR    the same gateway file in a neutral harness (bench.py)

Upstream and load generator are this folder's own, on loopback, on another core than the gateway.
Read processor times and ratios; requests per second and latencies vary with the neighbours.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.bodies import BODIES, CHUNKS, request_body
from benchmarks.faults import faults_table
from benchmarks.load import Report
from benchmarks.processes import PROJECT, Contestant, ask, free_port, pinned


HERE = Path(__file__).resolve().parent
ROUNDS = 3
SETTLED_S = 2.0
Figures = dict[str, float]
Round = tuple[Figures, dict[str, int]]
"""The figures of a gateway, and the number of bad answers of each kind in each case."""

CASES: dict[str, dict[str, float]] = {
    "low": {"connections": 8, "seconds": 4, "rate": 40},
    "small": {"connections": 32, "seconds": 4},
    "large": {"connections": 16, "seconds": 3},
    "agent": {"connections": 16, "seconds": 3},
    "stream": {"connections": 8, "seconds": 4, "chunks": CHUNKS},
    "padded": {"connections": 8, "seconds": 4, "chunks": CHUNKS},
}
COMPARED = tuple(name for name in CASES if name != "padded")
"""For the other cases only bytecodes are counted."""
ROWS: tuple[tuple[str, str, int], ...] = (
    ("CPU per 1 KB request, µs", "small_cpu_us", 1),
    ("CPU per 64 KB request, µs", "large_cpu_us", 1),
    ("CPU per 108 KB request of an agent, µs", "agent_cpu_us", 1),
    ("CPU per streamed chunk, µs", "stream_cpu_us", 1),
    ("requests a second, 32 connections", "small_per_s", 0),
    ("added p50 at 40 a second, ms", "low_added_ms", 2),
    ("added time to first token p50, ms", "first_added_ms", 2),
    ("start to first 200, s", "start_s", 1),
    ("resident memory when idle, MiB", "idle_mib", 0),
    ("bad or incomplete answers", "bad", 0),
)
RATIOS = ("small_cpu_us", "large_cpu_us", "agent_cpu_us", "stream_cpu_us")


def put_load(
    case: str,
    port: int,
    path: str,
    headers: dict[str, str],
    work: Path,
    *,
    seconds: float | None = None,
    is_encrypted: bool = False,
) -> Report:
    """Run the load generator for one case, to its end or for a given time; returns its report."""
    plan = CASES[case] if seconds is None else {**CASES[case], "seconds": seconds}
    body_file = work / f"{case}.json"
    body_file.write_bytes(BODIES[case])
    options = [part for name, value in plan.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "benchmarks.load", "--port", str(port), "--path", path]
    command += ["--body", str(body_file), "--headers", json.dumps(headers), *options]
    command += ["--tls"] if is_encrypted else []
    done = subprocess.run(pinned(command, 1), cwd=PROJECT, check=True, capture_output=True)
    return msgspec.json.decode(done.stdout, type=Report)


def measure(contestant: Contestant, direct: dict[str, Report], work: Path) -> Round:
    """All figures of one gateway in one round."""
    figures: Figures = {"start_s": contestant.start(request_body(64))}
    try:
        time.sleep(1)
        figures["idle_mib"] = contestant.memory_mib()
        put_load("low", contestant.port, contestant.path, contestant.headers, work)  # warm-up
        time.sleep(SETTLED_S)
        resting_us = _rest_us(contestant)
        figures["bad"] = 0
        wrong: dict[str, int] = {}
        for case in COMPARED:
            before_us = contestant.cpu_us()
            seen = put_load(case, contestant.port, contestant.path, contestant.headers, work)
            units = seen.chunks if case == "stream" else seen.answers
            used_us = contestant.cpu_us() - before_us + _rest_us(contestant) - resting_us
            figures[f"{case}_cpu_us"] = used_us / max(units, 1)
            figures[f"{case}_per_s"] = seen.answers / seen.seconds
            figures["bad"] += seen.bad
            wrong |= {f"{case}: {kind}": count for kind, count in seen.wrong.items()}
            if case == "low":
                figures["low_added_ms"] = 1e3 * (seen.p50_s - direct["low"].p50_s)
            if case == "stream":
                first_s = seen.first_byte_p50_s - direct["stream"].first_byte_p50_s
                figures["first_added_ms"] = 1e3 * first_s
    finally:
        contestant.stop()
    return figures, wrong


def _rest_us(contestant: Contestant) -> float:
    """Processor time of the seconds after a load: the work left over, and the cost of rest.

    Otherwise the records of one case would be projected during the next, and count there.
    """
    before_us = contestant.cpu_us()
    time.sleep(SETTLED_S)
    return contestant.cpu_us() - before_us


@contextmanager
def running_upstream() -> Iterator[int]:
    """The fake upstream's port while it runs."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.upstream", "--port", str(port)]
    with subprocess.Popen(pinned(command, 1), cwd=PROJECT) as process:
        try:
            for _ in range(200):
                try:
                    ask(port, "GET", "/stats", None, {})
                    break
                except OSError:
                    time.sleep(0.02)
            yield port
        finally:
            process.terminate()


def compare(files: list[Path], work: Path) -> str:
    """The table of all gateways, medians over the rounds; below it the bad answers."""
    rounds: dict[str, list[Figures]] = {}
    below: list[str] = []
    with running_upstream() as upstream:
        for number in range(ROUNDS):
            direct = {
                case: put_load(case, upstream, "/v1/chat/completions", {}, work)
                for case in ("low", "stream")
            }
            for file in files:
                contestant = Contestant(file, work / f"{file.stem}{number}", upstream)
                figures, wrong = measure(contestant, direct, work)
                rounds.setdefault(file.stem, []).append(figures)
                below += [
                    f"bad: {file.stem}, round {number + 1}, {kind}: {count}"
                    for kind, count in wrong.items()
                ]
    return "\n".join([table(rounds), *below])


def table(rounds: dict[str, list[Figures]]) -> str:
    names = list(rounds)
    lines = [f"| median of {ROUNDS} | {' | '.join(names)} |", "|---|" + "---|" * len(names)]

    def row(title: str, digits: int, value: Callable[[str, int], float]) -> None:
        cells = [
            f"{statistics.median([value(name, at) for at in range(ROUNDS)]):.{digits}f}"
            for name in names
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")

    for title, key, digits in ROWS:
        row(title, digits, lambda name, at, key=key: rounds[name][at][key])  # type: ignore[misc]
        if key in RATIOS and "nginx" in rounds:
            row(
                "… as a multiple of nginx",
                1,
                lambda name, at, key=key: rounds[name][at][key] / rounds["nginx"][at][key],  # type: ignore[misc]
            )
    return "\n".join(lines)


def in_harness(folder: Path, *, faults: bool) -> None:
    """Run a neutral harness with our gateway file, in a copy: it compiles into its own folder."""
    with tempfile.TemporaryDirectory(prefix="gatewright-harness-") as scratch:
        copy = shutil.copytree(folder, Path(scratch, "bench"))
        command = [sys.executable, "bench.py", "faults" if faults else "run", "-g"]
        command.append(f"direct,nginx,{HERE / 'gatewright.toml'}".removeprefix("direct," * faults))
        command += [] if faults else ["--rounds", str(ROUNDS)]
        environment = os.environ | {"PROJECT": str(PROJECT)}
        subprocess.run(command, cwd=copy, env=environment, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--harness", type=Path, help="a folder with bench.py; default: our own")
    arguments = parser.parse_args()
    if arguments.harness is not None:
        in_harness(arguments.harness, faults=arguments.faults)
        return
    files = [HERE / "gatewright.toml"]
    if not arguments.faults:
        files.insert(0, HERE / "bare.toml")
    if shutil.which("nginx"):
        files.insert(0, HERE / "nginx.toml")
    else:
        print("nginx is not on the PATH: no floor, no ratios")
    with tempfile.TemporaryDirectory(prefix="gatewright-bench-") as folder:
        work = Path(folder)
        if arguments.faults:
            with running_upstream() as upstream:
                print(faults_table(files, work, upstream, request_body))
        else:
            print(compare(files, work))


if __name__ == "__main__":
    main()
