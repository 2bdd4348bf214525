"""A SQLite database at the newest schema, made once per process: migrating takes half a second."""

import asyncio
import tempfile
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from gateway.store.migrate import migrate


Told = TypeVar("Told")


@cache
def newest_sqlite() -> bytes:
    """The content of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        run_apart(migrate(f"sqlite+aiosqlite:///{path}"))
        return path.read_bytes()


def run_apart(work: Coroutine[Any, Any, Told]) -> Told:
    """Run on a loop and in a thread of its own: fixtures may be requested while a loop runs."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
