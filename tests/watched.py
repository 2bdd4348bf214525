"""A pytest plugin that also ends whatever a stuck test leaves behind.

When pytest-timeout fails a test by its signal in the middle of the event loop, anyio leaves the
test's coroutine there, and the next fixture to be cleared up waited for it for ever. pytest's own
watch (`faulthandler_timeout`) ends with the first exception of a test, for the sake of debuggers.
So such a run went on until somebody gave up on it, and nothing said where it was stuck.
"""

import asyncio
import faulthandler
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import anyio.pytest_plugin
import pytest
from _pytest.faulthandler import (
    fault_handler_stderr_fd_key,
    get_exit_on_timeout_config_value,
    get_timeout_config_value,
)


TIMED_OUT = "Timeout ("
"""How pytest-timeout's failures begin."""
CANCELLATIONS = 3


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """End a fixture that timed out before its test began."""
    with _ended(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """End a coroutine that timed out, with everything it has opened."""
    with _ended(pyfuncitem):
        return (yield)


@contextmanager
def _ended(item: pytest.Item) -> Iterator[None]:
    try:
        yield
    except pytest.fail.Exception as failure:
        if str(failure).startswith(TIMED_OUT):
            _end_what_runs(_timeout_s(item))
        raise


def _timeout_s(test: pytest.Item) -> float:
    marker = test.get_closest_marker("timeout")
    return float(marker.args[0] if marker else test.config.getini("timeout"))


def _end_what_runs(patience_s: float) -> None:
    """As anyio's runner does for an interrupt from the keyboard, but with limited patience.

    Something that a test has opened may never report its end (a browser in the middle of a page),
    and nothing watches then. Another cancellation ends the wait for it.
    """
    runner: Any = anyio.pytest_plugin._current_runner
    task = getattr(runner, "_runner_task", None)
    if task is None or task.done():
        return
    runner._send_stream.close()
    for _ in range(CANCELLATIONS):
        task.cancel()
        runner.get_loop().run_until_complete(asyncio.wait({task}, timeout=patience_s))
        if task.done():
            break
    runner._runner_task = None


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Start watching again where pytest has just stopped."""
    stuck_s = get_timeout_config_value(node.config)
    if stuck_s > 0:
        faulthandler.dump_traceback_later(
            stuck_s,
            file=node.config.stash[fault_handler_stderr_fd_key],
            exit=get_exit_on_timeout_config_value(node.config),
        )
