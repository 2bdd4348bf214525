"""A pytest plugin: who is stuck while clearing up after a failure is ended, too.

pytest's own watch (`faulthandler_timeout`) ends with the first exception of a test, for the sake of
debuggers, and pytest-timeout ends a test once: with neither left, a fixture that never came to its
end held a whole run until somebody gave up on it, and nothing said which it was.
"""

import faulthandler

import pytest
from _pytest.faulthandler import (
    fault_handler_stderr_fd_key,
    get_exit_on_timeout_config_value,
    get_timeout_config_value,
)


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
