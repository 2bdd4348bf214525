"""Cost of the classifiers and, with the shared data, their accuracy: one table.

`python -m benchmarks.classifiers [--data DIR]`. Processor times of one thread, over texts that were
not read before; the last row is a fixed loop, to compare machines and moments by.
"""

import argparse
import gzip
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from classifiers.complexity.model import load as load_complexity
from classifiers.injection.model import load as load_injection
from classifiers.injection.train import TEXTS_FILE
from classifiers.pii.detect import look
from classifiers.pii.scanner import Scanner
from classifiers.pii.scanner import load as load_scanner
from classifiers.units import Unit
from classifiers.verdicts import judge


KIB = 1024
TEXTS = 300
LOOP = 1_000_000
_CHOICE = re.compile(r"\[([^\[\]]*\|[^\[\]]*)\]")
_MEMORY = "int(open('/proc/self/statm').read().split()[1]) * 4"
_BARE = f"import asyncio, msgspec; print(0, {_MEMORY})"
_LOADED = (
    "import asyncio, msgspec, time; began = time.process_time();"
    "from classifiers.pii.scanner import load as load_scanner;"
    "from classifiers.complexity.model import load as load_complexity;"
    f"load_scanner(), load_complexity(); print(time.process_time() - began, {_MEMORY})"
)
# Of the table of reach: what is judged, and the options for score.py.
S3_S4 = (
    "CREDIT_CARD,IBAN,BANK_ACCOUNT,US_SSN,US_ITIN,IN_AADHAAR,IN_PAN,IN_GSTIN,IN_VOTER_ID,PASSPORT,"
    "DRIVER_LICENSE,UK_NINO,UK_NHS,CA_SIN,NATIONAL_ID,MRN,SECRET,JWT,PRIVATE_KEY,PASSWORD,CRYPTO_WALLET"
)
BUSINESS = frozenset({"presidio-research", "gateway-synth-a", "nannigalaxy"})
PII = BUSINESS | {"gitleaks-sampled", "neg-frr", "neg-humaneval-a"}
SELECTIONS: tuple[tuple[str, frozenset[str], tuple[str, ...]], ...] = (
    ("all sources", frozenset(), ()),
    ("sources with identifiers", PII, ()),
    ("S3 and S4, undisguised", frozenset(), ("--labels", S3_S4, "--skip-tags", "obf,spoken")),
    ("business texts", BUSINESS, ()),
    ("Hindi", frozenset({"hiner"}), ()),
    ("secrets", frozenset({"gitleaks-sampled"}), ()),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of the shared data: accuracy as well")
    arguments = parser.parse_args()
    scanner = load_scanner()
    for name, value in (*_costs(scanner), *_loading()):
        print(f"{name:<52} {value}")
    if arguments.data is not None:
        for line in _accuracy(scanner, arguments.data / "pii"):
            print(line)


def _costs(scanner: Scanner) -> Iterator[tuple[str, str]]:
    rng = random.Random(17)
    plain = [_text(rng, 0) for _ in range(2 * TEXTS)]
    dense = [_text(rng, 4) for _ in range(TEXTS)]
    for text in plain[TEXTS : TEXTS + 30]:  # Automata grow with what they have seen.
        scanner.scan(text)
    yield "patterns, 1 KiB of requests (p50, p99)", _spent(look, plain[:TEXTS])
    yield "patterns, 1 KiB with four identifiers", _spent(look, dense)
    yield "both stages, 1 KiB of requests", _spent(scanner.scan, plain[:TEXTS])
    yield "both stages, 1 KiB with four identifiers", _spent(scanner.scan, dense)
    long = [Unit("\n".join(_text(rng, 1) for _ in range(32))) for _ in range(10)]
    yield "both stages, 32 KiB in chunks", _spent(lambda unit: judge(unit, scanner), long)
    complexity, injection = load_complexity(), load_injection()
    prompts = [_text(rng, 0)[:500] for _ in range(TEXTS)]
    yield "complexity, a prompt of 500 characters", _spent(complexity.assess, prompts)
    yield "injection, a result of 500 characters", _spent(injection.score, prompts)
    began = time.process_time()
    for _ in range(LOOP):
        pass
    yield "an empty loop of a million turns", f"{(time.process_time() - began) * 1000:.1f} ms"


def _text(rng: random.Random, identifiers: int) -> str:
    """About a KiB of this project's own requests, with card numbers and names mixed in."""
    lines = [
        line
        for line in TEXTS_FILE.read_text(encoding="utf-8").splitlines()
        if line.isascii() and line and line[0] not in "#="
    ]
    text = ""
    while len(text) < KIB:
        text += _CHOICE.sub(lambda match: rng.choice(match[1].split("|")), rng.choice(lines)) + "\n"
    text = text[:KIB]
    for _ in range(identifiers):
        at = rng.randrange(len(text))
        number = " ".join(str(rng.randrange(1000, 10_000)) for _ in range(4))
        text = f"{text[:at]} {number}, jo{rng.randrange(99)}.berg@kunde.de {text[at:]}"
    return text


def _spent(call: Callable[[Any], object], items: Sequence[Any]) -> str:
    each = []
    for item in items:
        began = time.process_time()
        call(item)
        each.append((time.process_time() - began) * 1000)
    each.sort()
    return f"{each[len(each) // 2]:.3f}, {each[len(each) * 99 // 100]:.3f} ms"


def _loading() -> Iterator[tuple[str, str]]:
    """Loading time, and memory beyond that of a process with only an event loop."""
    (_, bare), (spent_s, loaded) = (_printed(program) for program in (_BARE, _LOADED))
    yield "loading detector, tagger and complexity", f"{spent_s * 1000:.0f} ms"
    yield "memory that they take", f"{(loaded - bare) / KIB:.0f} MiB"


def _printed(program: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    seconds, kib = done.stdout.split()
    return float(seconds), float(kib)


def _accuracy(scanner: Scanner, folder: Path) -> Iterator[str]:
    """The result of the data's `score.py` for its dev part, for the rows of the reach table."""
    packed = (folder / "dev.jsonl.gz").read_bytes()
    gold = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
    with tempfile.TemporaryDirectory() as room:
        predicted = Path(room) / "predicted.jsonl"
        found = ({"id": row["id"], "spans": _spans(scanner, row["text"])} for row in gold)
        predicted.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in found))
        for name, sources, more in SELECTIONS:
            chosen = Path(room) / "gold.jsonl"
            rows = [row for row in gold if not sources or row["source"] in sources]
            chosen.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
            command = [sys.executable, str(folder / "score.py"), str(chosen), str(predicted)]
            command += ["--coverage", str(folder / "coverage.json"), *more]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            for line in done.stdout.splitlines():
                if line.startswith(("CORE", "char leak", "DOC", "PERSON", "ADDRESS")):
                    yield f"{name}: {line}"


def _spans(scanner: Scanner, text: str) -> list[dict[str, object]]:
    found = judge(Unit(text), scanner).findings
    return [{"start": f.start, "end": f.end, "label": f.label} for f in found]


if __name__ == "__main__":
    main()
