"""Lets commands tidy up when they are stopped or their terminal is closed.

A signal that kills at once would leave half an export under the name of a complete one, or the
claim to an erasure that nobody carries out.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import current_thread, main_thread
from types import FrameType
from typing import Final, ParamSpec, TypeVar


_HEEDED: Final = (signal.SIGTERM, signal.SIGHUP)
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def orderly(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does; then it dies of that signal.

    For commands without standard input: otherwise a signal would wait for the line being typed.
    """

    @wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with _heeding() as received:
            try:
                return command(*args, **kwargs)
            except KeyboardInterrupt:
                for number in received[:1]:
                    signal.signal(number, signal.SIG_DFL)
                    signal.raise_signal(number)
                raise

    return run


@contextmanager
def _heeding() -> Iterator[list[int]]:
    """The signals that came; those that a shell or `nohup` has the process ignore stay ignored."""
    received: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        received.append(number)
        if is_deaf:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    # A shell without job control lets what it starts in the background ignore Ctrl-C alone.
    is_deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    is_heard = is_deaf or signal.getsignal(signal.SIGINT) is signal.default_int_handler
    is_heard = is_heard and current_thread() is main_thread()
    heeded = [each for each in _HEEDED if is_heard and signal.getsignal(each) is signal.SIG_DFL]
    for number in heeded:
        signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_DFL)
