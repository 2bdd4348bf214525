"""Structured log lines: one JSON object per event on standard output, never any prompt text."""

import sys

import msgspec

from local_engine.serve.clock import unix_time_s


def log_event(event: str, **fields: str | float | None) -> None:
    line = msgspec.json.encode({"event": event, "time_s": unix_time_s(), **fields})
    sys.stdout.write(line.decode() + "\n")
    sys.stdout.flush()
