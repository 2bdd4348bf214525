"""Asking tests about many mutants in one process: all are collected once, each mutant is a fork.

First a fork runs every test and says which functions each of them calls, and how long it takes. The
fork of a mutant gives the changed function its new body and runs the tests that call it, the
shortest first. Files stay as they are: a program that a test starts is not the mutant.
"""

import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout, suppress
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest
from hypothesis import Phase, settings

from tests.mutants.changes import Change
from tests.mutants.swapping import Place, bodies, functions_by_place, place_of, swaps
from tests.mutants.trying import KILLED, LATE, MARKS, SURVIVED, ended_with_this


UNREACHED: Final = "not reached"
REACHING_S: Final = 3600
Mutant = tuple[str, Change]
Tell = Callable[[Mutant, str], None]


def ask_in_forks(
    root: Path, mutants: Sequence[Mutant], tests: Sequence[str], limit_s: float, tell: Tell
) -> list[Mutant]:
    """Tell of each mutant what became of it, and give back those that are not in functions alone.

    Raises:
        RuntimeError: tests could not be collected.
    """
    forks = Forks(root, mutants, limit_s, tell)
    with tempfile.TemporaryDirectory() as folder:
        given = [f"--basetemp={folder}/t", "-m", MARKS, "-p", "no:cacheprovider"]
        # This module has Hypothesis before pytest could rewrite its assertions.
        given += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing):
            pytest.main([*given, *tests], plugins=[forks])
    if forks.left is None:
        raise RuntimeError("these tests could not be collected, or end the process that runs them")
    return forks.left


class Forks:
    """A plugin for pytest: instead of the tests, it runs mutants."""

    def __init__(self, root: Path, mutants: Sequence[Mutant], limit_s: float, tell: Tell) -> None:
        self._root, self._mutants, self._limit_s, self._tell = root, mutants, limit_s, tell
        self.left: list[Mutant] | None = None
        """Whom nobody asked, once all others were."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Let properties look for an example, and not for the smallest, nor keep it."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings(), phases=phases, database=None)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:
            return None  # pytest itself says so, and stops
        files = {str(self._root / module) for module, _ in self._mutants}
        answer = _in_fork(lambda: _reached(session.items, files), REACHING_S)
        if answer is None:
            return True
        tests = {item.nodeid: item for item in session.items}
        callers = {Place(*place): calling for place, calling in answer["callers"]}
        functions, left = functions_by_place(), []
        for mutant in self._mutants:
            file, change = self._root / mutant[0], mutant[1]
            changed = bodies(str(file), file.read_text(encoding="utf-8"), change.text)
            swapped = swaps(changed, functions)
            if not swapped:
                left.append(mutant)
                continue
            asked = {test for place in changed for test in callers.get(place, ())}
            nearest = sorted(asked & answer["took_s"].keys(), key=answer["took_s"].__getitem__)
            self._tell(mutant, self._became(swapped, [tests[each] for each in nearest]))
        self.left = left
        return True

    def _became(self, swapped: Sequence[tuple[Any, CodeType]], items: Sequence[pytest.Item]) -> str:
        def has_survived() -> bool:
            for function, body in swapped:
                function.__code__ = body
            return not any(_failed(item, next_) for item, next_ in _with_next(items))

        if not items:
            return UNREACHED
        try:
            return SURVIVED if _in_fork(has_survived, self._limit_s) else KILLED
        except TimeoutError:
            return LATE


def _reached(items: Sequence[pytest.Item], files: set[str]) -> dict[str, Any]:
    """Which tests call a function, of those that pass as it is, and how long each of them takes.

    What is called only once, for all tests or where an answer is kept, has one test.
    """
    calling: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename in files:
            calling.add(frame.f_code)

    threading.setprofile(note)
    callers: dict[Place, list[str]] = {}
    took_s: dict[str, float] = {}
    for item, next_ in _with_next(items):
        calling.clear()
        # Anew for each: one that recurs without end makes the note fail too, and Python drops it.
        sys.setprofile(note)
        began_s = time.perf_counter()
        if not _failed(item, next_):
            took_s[item.nodeid] = time.perf_counter() - began_s
            for code in [*calling]:
                callers.setdefault(place_of(code), []).append(item.nodeid)
    return {"callers": [*callers.items()], "took_s": took_s}


def _with_next(items: Sequence[pytest.Item]) -> Iterable[tuple[pytest.Item, Any]]:
    """Pytest takes down after a test what the next one does not use."""
    return zip_longest(items, items[1:])


def _failed(item: pytest.Item, next_: pytest.Item | None) -> bool:
    seen = Seen()
    item.config.pluginmanager.register(seen)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_)
    item.config.pluginmanager.unregister(seen)
    return seen.failed


class Seen:
    """Whether a part of one test failed."""

    failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed


def _in_fork(work: Callable[[], Any], limit_s: float) -> Any:
    """Give what a fork of this process made, None where it ended otherwise.

    Raises:
        TimeoutError: it took too long. All that it started is gone then, as always.
    """
    with tempfile.TemporaryFile("w+") as answer:
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                json.dump(work(), answer)
                answer.flush()
            finally:
                os._exit(0)
        process = os.pidfd_open(child)
        try:
            with ended_with_this(child):
                has_ended, _, _ = select.select([process], [], [], limit_s)
        finally:
            os.close(process)
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if not has_ended:
            raise TimeoutError
        answer.seek(0)
        return json.loads(answer.read() or "null")
