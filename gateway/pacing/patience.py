"""Decides who waits for a busy database: background duties do, callers are told to come again."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


_MAY_WAIT = ContextVar("may_wait", default=False)


def may_wait() -> bool:
    """Whether what runs now, or what began it, has said that nobody waits for it."""
    return _MAY_WAIT.get()


@contextmanager
def patience() -> Iterator[None]:
    """Nobody waits for what is done inside, nor for tasks that it begins."""
    token = _MAY_WAIT.set(True)
    try:
        yield
    finally:
        _MAY_WAIT.reset(token)
