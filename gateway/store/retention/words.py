"""Retention times that each process of an audit folder states, in a file of the folder.

Two processes of one folder may have two files of settings. The one with the shorter classes learns
of the longer ones here, before it destroys what the other would keep.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import msgspec
from msgspec import Struct

from gateway.audit.disk import Disk
from gateway.clock import DAY_US, Clock
from gateway.configuration.sections import RetentionSettings
from gateway.errors import ToldToOperators


WORDS_NAME: Final = "retention-words"
HOLDS_US: Final = 2 * DAY_US
"""How long a statement holds: live processes repeat theirs each day, others do not."""
_AGAIN_US: Final = DAY_US // 2
_KEPT_US: Final = 30 * DAY_US
"""A clock that is ahead for an hour makes nobody's statement be forgotten."""


class RetentionDoubted(ToldToOperators):
    """Nothing is destroyed, since it is not certain that it should be."""


class KeptFor(Struct, frozen=True):
    """The last statement of one process; 0 days means for ever."""

    told_us: int
    usual_days: int
    days: dict[str, int]
    """For organisations that have a class of their own."""

    def of(self, organisation: str) -> int:
        return self.days.get(organisation, self.usual_days)

    def is_within(self, time_us: int, earlier: Self) -> bool:
        """Whether another was stated recently, or by a clock that is ahead."""
        return self.told_us - earlier.told_us < time_us


class RetentionWords:
    """The statements of one process in its folder. Both methods block."""

    def __init__(
        self, directory: Path, worker: str, retention: RetentionSettings, clock: Clock
    ) -> None:
        self._path, self._worker, self._clock = directory / WORDS_NAME, worker, clock
        classes, named = retention.classes, retention.organisations
        self._usual = classes.get(retention.default, 0)
        self._days = {name: classes.get(named[name], 0) for name in sorted(named)}

    def say(self) -> Mapping[str, KeptFor]:
        """State how long this process keeps content; returns the others' by worker.

        Raises:
            OSError: it cannot be written, or the others cannot be read.
            RetentionDoubted: what lies there is not a statement.
        """
        disk, now_us = Disk(), self._clock.utc_us()
        disk.make_folder(self._path.parent)
        lock = disk.lock(self._path.with_suffix(".lock"), wait=True)
        try:
            said = self._said()
            mine = KeptFor(now_us, self._usual, self._days)
            if self._is_old(said.pop(self._worker, None), mine):
                known = {
                    name: each for name, each in said.items() if mine.is_within(_KEPT_US, each)
                }
                self._write(disk, known | {self._worker: mine})
        finally:
            disk.close(lock)
        return {name: each for name, each in said.items() if mine.is_within(HOLDS_US, each)}

    def _said(self) -> dict[str, KeptFor]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, KeptFor])
        except FileNotFoundError:
            return {}
        except (msgspec.MsgspecError, UnicodeDecodeError):
            said = "cannot be read, so nothing is destroyed: remove it"
            raise RetentionDoubted(f"retention: {self._path}: {said}") from None

    def _is_old(self, before: KeptFor | None, now: KeptFor) -> bool:
        if before is None or (before.usual_days, before.days) != (now.usual_days, now.days):
            return True
        # A clock that was set back says nothing about ages.
        return not 0 <= now.told_us - before.told_us < _AGAIN_US

    def _write(self, disk: Disk, words: Mapping[str, KeptFor]) -> None:
        draft = self._path.with_suffix(".draft")
        disk.remove(draft)
        disk.append_durably(draft, msgspec.json.encode(words, order="sorted"))
        disk.replace(draft, self._path)
        disk.sync_folder(self._path.parent)


def require_no_longer(mine: Mapping[str, int], others: Mapping[str, KeptFor]) -> None:
    """Raise RetentionDoubted if others keep an organisation's content longer than `mine` says.

    `mine` has the organisations with a limit, and their days.
    """
    for worker, kept in sorted(others.items()):
        for name, days in sorted(mine.items()):
            theirs = kept.of(name)
            if not 0 < theirs <= days:
                longer = f"for {theirs} days" if theirs else "for ever"
                raise RetentionDoubted(
                    f"retention: {worker}, which has this audit folder too, keeps content of {name}"
                    f" {longer}, and this process for {days}, so nothing is destroyed: give both"
                    " the same classes"
                )
