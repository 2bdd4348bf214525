"""Decides who waits for a busy database: background duties do, callers are told to come again."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


_MAY_WAIT = ContextVar("may_wait", default=False)


def may_wait() -> bool:
    """Whether the running code, or what started it, has declared that nobody waits for it."""
    return _MAY_WAIT.get()


@contextmanager
def patience() -> Iterator[None]:
    """Declares that nobody waits for the code inside, nor for tasks that it starts."""
    token = _MAY_WAIT.set(True)
    try:
        yield
    finally:
        _MAY_WAIT.reset(token)
