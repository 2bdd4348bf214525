"""Writes predictions and timings over a labelled set: `python -m classifiers.pii.evaluate`."""

import argparse
import gzip
import sys
import time
from pathlib import Path

import msgspec

from classifiers.pii.detect import find
from classifiers.pii.labels import DataClass, data_class_of


class Document(msgspec.Struct, frozen=True):
    id: str
    text: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a .jsonl or .jsonl.gz file")
    parser.add_argument("--out", type=Path, required=True, help="predictions, one JSON per line")
    arguments = parser.parse_args()
    raw = arguments.data.read_bytes()
    lines = (gzip.decompress(raw) if arguments.data.suffix == ".gz" else raw).splitlines()
    documents = msgspec.json.decode(b"[" + b",".join(lines) + b"]", type=list[Document])
    costs_us = []
    predictions = []
    for document in documents:
        begin = time.process_time_ns()
        findings = find(document.text)
        costs_us.append((time.process_time_ns() - begin) / 1000)
        predictions.append(
            {
                "id": document.id,
                "spans": [
                    {"start": f.start, "end": f.end, "label": f.label, "score": f.score}
                    for f in findings
                ],
                "pii": any(data_class_of(f.label) >= DataClass.S2 for f in findings),
            }
        )
    arguments.out.write_bytes(b"\n".join(map(msgspec.json.encode, predictions)) + b"\n")
    size_kib = sum(len(document.text) for document in documents) / 1024
    costs = sorted(costs_us)
    sys.stdout.write(
        f"{len(documents)} documents, {size_kib:.0f} KiB; CPU us per document: "
        f"p50 {costs[len(costs) // 2]:.1f}, p99 {costs[len(costs) * 99 // 100]:.1f}; "
        f"per KiB {sum(costs) / size_kib:.1f}\n"
    )


if __name__ == "__main__":
    main()
