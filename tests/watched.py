"""A pytest plugin: whatever a test that is stuck leaves behind is ended, too.

A test that pytest-timeout ends by its signal is failed in the middle of the event loop, and anyio
leaves its coroutine there: the next fixture to be cleared up waited for it, for ever. pytest's own
watch (`faulthandler_timeout`) ends with the first exception of a test, for the sake of debuggers,
so that such a run went on until somebody gave up on it, and nothing said where it stood.
"""

import asyncio
import faulthandler
from collections.abc import Generator
from contextlib import suppress
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


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """End a coroutine that was timed out, with what it has opened."""
    try:
        return (yield)
    except pytest.fail.Exception as failure:
        if str(failure).startswith(TIMED_OUT):
            _end_what_runs()
        raise


def _end_what_runs() -> None:
    """As anyio's runner does for an interrupt from the keyboard."""
    runner: Any = anyio.pytest_plugin._current_runner
    task = getattr(runner, "_runner_task", None)
    if task is None or task.done():
        return
    task.cancel()
    runner._send_stream.close()
    with suppress(asyncio.CancelledError):
        runner.get_loop().run_until_complete(task)
    runner._runner_task = None


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Begin to watch anew, where pytest has just stopped."""
    stuck_s = get_timeout_config_value(node.config)
    if stuck_s > 0:
        faulthandler.dump_traceback_later(
            stuck_s,
            file=node.config.stash[fault_handler_stderr_fd_key],
            exit=get_exit_on_timeout_config_value(node.config),
        )
