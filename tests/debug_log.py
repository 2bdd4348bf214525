"""Captures what a process at debug level writes to standard error."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from gateway.telemetry import configure_logging


@contextmanager
def debug_log() -> Iterator[io.BytesIO]:
    """Everything logged while it is entered, by any logger."""
    written = io.BytesIO()
    before = sys.stderr
    sys.stderr = io.TextIOWrapper(written, write_through=True)
    try:
        configure_logging("debug")
        yield written
    finally:
        sys.stderr = before
        structlog.reset_defaults()
