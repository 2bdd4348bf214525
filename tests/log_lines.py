"""What the process says in its log, as a test sees it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gateway.telemetry import OUTPUT


@contextmanager
def as_before() -> Iterator[None]:
    """Afterwards lines go where they went before."""
    least, take = OUTPUT.least, OUTPUT.take
    try:
        yield
    finally:
        OUTPUT.least, OUTPUT.take = least, take


@contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """The fields of every line, at whatever level; nothing is written meanwhile."""
    lines: list[dict[str, Any]] = []
    with as_before():
        OUTPUT.least = 0
        OUTPUT.take = lambda _, fields: lines.append(dict(fields))
        yield lines
