"""`gatewright inspect …`: shows what classifiers find in texts, one JSON per line in and out."""

import sys
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

import click
import msgspec

from classifiers.injection.model import load as load_injection
from classifiers.inspection import MAX_LENGTH
from classifiers.pii.labels import MOST_SENSITIVE, SOFT
from classifiers.pii.scanner import load as load_scanner
from classifiers.units import Unit
from classifiers.verdicts import judge
from gateway.cli.groups import Commands
from gateway.cli.inspect_complexity import inspect_complexity


BYTES_PER_KIB = 1024
NS_PER_US = 1000
Answer = dict[str, object]


class Document(msgspec.Struct, frozen=True):
    """A line of input; other members are ignored."""

    id: str | int
    text: str


stats_option = click.option(
    "--stats", is_flag=True, help="Print CPU time per document and per KiB on standard error."
)


@click.group(cls=Commands)
def inspect() -> None:
    """Run one classifier over JSON lines from standard input."""


inspect.add_command(inspect_complexity)


@inspect.command("pii")
@stats_option
def inspect_pii(*, stats: bool) -> None:
    """`{id, text}` → `{id, spans: [{start, end, label, score}], pii, data_class}`.

    `pii` is true when anything found says something about a person or opens a door; a line that
    cannot be read is answered with the most sensitive class.
    """
    scanner = load_scanner(soft=True)

    def answer(document: Document) -> Answer:
        too_long = len(document.text) > MAX_LENGTH
        verdict = judge(Unit(document.text[:MAX_LENGTH]), scanner)
        spans = [
            {"start": f.start, "end": f.end, "label": f.label, "score": round(f.score, 4)}
            for f in verdict.findings
        ]
        closed = too_long or bool(verdict.reasons)
        return {
            "id": document.id,
            "spans": spans,
            "pii": closed or any(f.label not in SOFT for f in verdict.findings),
            "data_class": (MOST_SENSITIVE if closed else verdict.found_class).name,
        }

    run(answer, {"spans": [], "pii": True, "data_class": MOST_SENSITIVE.name}, stats=stats)


@inspect.command("injection")
@stats_option
def inspect_injection(*, stats: bool) -> None:
    """`{id, text}` → `{id, score, injection}`: how much a text reads like orders to a model."""
    model = load_injection()

    def answer(document: Document) -> Answer:
        score = model.score(document.text)
        found = score >= model.threshold
        return {"id": document.id, "score": round(score, 4), "injection": found}

    run(answer, {"score": 1.0, "injection": True}, stats=stats)


def run(answer: Callable[[Document], Answer], unreadable: Answer, *, stats: bool) -> None:
    """Answer every line of standard input; an unreadable one gets the answer that closes."""
    costs: list[tuple[int, int]] = []
    decoder = msgspec.json.Decoder(Document)
    for number, line in enumerate(_lines(sys.stdin.buffer), 1):
        try:
            document = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            written: Answer = {"id": number, **unreadable}
        else:
            began_ns = time.process_time_ns()
            written = answer(document)
            spent_ns = time.process_time_ns() - began_ns
            costs.append((spent_ns, len(document.text.encode("utf-8", "surrogatepass"))))
        sys.stdout.buffer.write(msgspec.json.encode(written) + b"\n")
    sys.stdout.buffer.flush()
    if stats:
        click.echo(_summary(costs), err=True)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    return (line for line in stream if line.strip())


def _summary(costs: list[tuple[int, int]]) -> str:
    """CPU time of all lines, and of those around one KiB, where a call's own cost hardly counts."""
    if not costs:
        return "no documents"
    each = sorted(ns / NS_PER_US for ns, _ in costs)
    rates = sorted(
        ns / NS_PER_US / (size / BYTES_PER_KIB) for ns, size in costs if size >= BYTES_PER_KIB // 4
    )
    total_kib = sum(size for _, size in costs) / BYTES_PER_KIB
    lines = [
        f"{len(costs)} documents, {total_kib:.1f} KiB",
        f"CPU us per document: p50 {_at(each, 50):.0f}, p99 {_at(each, 99):.0f}",
        f"CPU us per KiB, all: {sum(each) / max(total_kib, 1e-9):.0f}",
    ]
    if rates:
        lines.append(
            f"CPU us per KiB, {len(rates)} documents of at least 256 bytes: "
            f"p50 {_at(rates, 50):.0f}, p99 {_at(rates, 99):.0f}"
        )
    return "\n".join(lines)


def _at(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
