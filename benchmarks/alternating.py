"""Compares checkouts in alternating rounds: what a change costs, on a machine with neighbours.

    python -m benchmarks.alternating small OLD NEW      also: large, agent, stream, idle

Each folder has its own `.venv`; a link to another's will do. All servers run for as long as the
comparison takes; nginx is one of them if it is found. A round puts load on one after the other, or
on nobody; read the ratios to the first one of the same round.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.bodies import BODIES, request_body
from benchmarks.processes import Contestant
from benchmarks.run import HERE, put_load, running_upstream


IDLE = "idle"
SETTLED_S = 5.0


def loaded_us(contestant: Contestant, case: str, work: Path, seconds: float) -> float:
    """Processor time per request or chunk under load."""
    before_us = contestant.cpu_us()
    seen = put_load(
        case,
        contestant.port,
        contestant.path,
        contestant.headers,
        work,
        seconds=seconds,
        is_encrypted=contestant.is_encrypted,
    )
    units = seen.chunks if case == "stream" else seen.answers
    return (contestant.cpu_us() - before_us) / max(units, 1)


def idle_us(contestants: list[Contestant], seconds: float) -> list[float]:
    """Processor time of each in a second without requests."""
    before_us = [each.cpu_us() for each in contestants]
    started_s = time.monotonic()
    time.sleep(seconds)
    passed_s = time.monotonic() - started_s
    return [
        (each.cpu_us() - before) / passed_s
        for each, before in zip(contestants, before_us, strict=True)
    ]


def compare(
    contestants: list[Contestant], case: str, rounds: int, seconds: float, work: Path
) -> list[list[float]]:
    """The figures of each round; every other round goes through them backwards."""
    found: list[list[float]] = []
    if case == IDLE:
        time.sleep(SETTLED_S)
        return [idle_us(contestants, seconds) for _ in range(rounds)]
    for each in contestants:
        loaded_us(each, case, work, seconds)  # warm-up
    for number in range(rounds):
        order = contestants if number % 2 else contestants[::-1]
        figures = [loaded_us(each, case, work, seconds) for each in order]
        found.append(figures if number % 2 else figures[::-1])
    return found


def told(name: str, figures: list[float], first: list[float]) -> str:
    """One line: microseconds, and the ratio to the first contestant with its quartiles."""
    ratios = [mine / theirs for mine, theirs in zip(figures, first, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    spread = f"{min(figures):.1f} to {max(figures):.1f}"
    return (
        f"{name}: {statistics.median(figures):.1f} µs ({spread}), "
        f"{middle:.3f} ({low:.3f} to {high:.3f}) of the first"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=(IDLE, *(name for name in BODIES if name != "low")))
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each round")
    parser.add_argument("--tls", action="store_true", help="the first one over TLS as well")
    parser.add_argument("--database", default="", help="the first one over it too: URL, empty")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gatewright-bench-") as folder:
        work = Path(folder)
        with running_upstream() as upstream:
            contestants = [
                Contestant(HERE / "gatewright.toml", work / str(at), upstream, project.resolve())
                for at, project in enumerate(options.checkouts)
            ]
            names = [str(project) for project in options.checkouts]
            plan, first = HERE / "gatewright.toml", options.checkouts[0].resolve()
            if options.tls:
                own = Contestant(plan, work / "tls", upstream, first, is_encrypted=True)
                contestants.append(own)
                names.append(f"{names[0]} over TLS")
            if url := options.database:
                own = Contestant(plan, work / "database", upstream, first, database_url=url)
                contestants.append(own)
                names.append(f"{names[0]} over {url.partition('+')[0]}")
            if shutil.which("nginx"):
                contestants.append(Contestant(HERE / "nginx.toml", work / "nginx", upstream))
                names.append("nginx")
            try:
                for each in contestants:
                    each.start(request_body(64))
                found = compare(contestants, options.case, options.rounds, options.seconds, work)
            finally:
                for each in contestants:
                    each.stop()
    columns = [list(column) for column in zip(*found, strict=True)]
    for name, column in zip(names, columns, strict=True):
        print(told(name, column, columns[0]))


if __name__ == "__main__":
    main()
