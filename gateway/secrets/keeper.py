"""Keeps secrets that may change while the process runs: reread regularly, kept through outages.

Users of a secret are told when it changed. While its source does not answer, the last value stays
good for a stated time; after that it is dropped, because nobody can say any more whether it was
revoked. Work under way keeps the value it began with.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, Protocol

from gateway.clock import Clock
from gateway.errors import ConfigurationInvalid
from gateway.secrets.secret import Secret
from gateway.secrets.sources import SecretSource


ANSWER_S: Final = 10.0
"""How long the other sources wait for one: a store that lets each of its secrets time out, or sends
a byte now and then, would otherwise delay news from all other sources."""


class SecretUnavailableError(Exception):
    """A source of secrets did not answer; `reason` names no secret and no address."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SecretPlace(Protocol):
    """The source of one secret, read anew each time."""

    async def read(self) -> Secret[str]:
        """The current secret.

        Raises:
            SecretUnavailableError: the source does not answer, or has no such secret.
        """
        ...


class LocalPlace:
    """A file or an environment variable as a source."""

    def __init__(self, source: SecretSource) -> None:
        self._source = source

    async def read(self) -> Secret[str]:
        try:
            return self._source.load()
        except ConfigurationInvalid as error:
            raise SecretUnavailableError(error.reason) from error


class _Kept:
    __slots__ = ("read_s", "value")

    def __init__(self, value: Secret[str] | None, read_s: float) -> None:
        self.value = value
        self.read_s = read_s


class SecretKeeper:
    """Watches the sources of named secrets; `changed` gets new values, and None for a lost one."""

    def __init__(
        self,
        places: Mapping[str, SecretPlace],
        clock: Clock,
        *,
        tolerate_s: float,
        changed: Callable[[str, Secret[str] | None], None],
        failed: Callable[[str, str], None],
        known: Mapping[str, Secret[str]] | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        """`known` are values already in use; `failed` gets a name and a reason, once.

        `changed` may raise SecretUnavailableError for a value that cannot be used: its source then
        counts as unavailable, and the previous value is not trusted for ever.
        """
        self._places = places
        self._clock = clock
        self._tolerate_s = tolerate_s
        self._changed = changed
        self._failed = failed
        now_s = clock.monotonic_s()
        self._kept = {name: _Kept((known or {}).get(name), now_s) for name in places}
        self._failing: set[str] = set()
        self._answer_s = answer_s
        self._asking: dict[str, asyncio.Task[None]] = {}

    def ages_s(self) -> dict[str, float]:
        """Seconds since each secret was last read; without those that were lost or never found."""
        now_s = self._clock.monotonic_s()
        return {name: now_s - kept.read_s for name, kept in self._kept.items() if kept.value}

    async def refresh(self) -> None:
        """Read every source once, all at the same time, so that none waits for a silent one.

        A source that has not answered within `answer_s` counts as unavailable, and is asked again
        only once it has answered; a late answer is used when it comes. Nobody waits for it a second
        time. A source that fails in an unforeseen way also counts as unavailable, and its error is
        raised after all others have been handled.
        """
        idle = [name for name in self._places if name not in self._asking]
        for name in idle:
            self._asking[name] = asyncio.create_task(self._ask(name, self._places[name]))
        if idle:
            await self._answers([self._asking[name] for name in idle])
        with ExitStack() as looks:
            for name in self._places:
                looks.callback(self._look, name)

    async def _answers(self, asked: Sequence[asyncio.Task[None]]) -> None:
        try:
            await asyncio.wait(asked, timeout=self._answer_s)
        except asyncio.CancelledError:
            for each in self._asking.values():
                each.cancel()
            self._asking.clear()
            raise

    def _look(self, name: str) -> None:
        """Handle the result of a source; raises its unforeseen errors."""
        if not self._asking[name].done():
            self._miss(name, "its place takes too long to answer")
            return
        error = self._asking.pop(name).exception()
        if error is None:
            return
        self._miss(name, "its place failed")
        raise error

    async def _ask(self, name: str, place: SecretPlace) -> None:
        kept = self._kept[name]
        try:
            value = await place.read()
            if kept.value != value:
                self._changed(name, value)
        except SecretUnavailableError as error:
            self._miss(name, error.reason)
            return
        self._failing.discard(name)
        kept.read_s = self._clock.monotonic_s()
        kept.value = value

    def _miss(self, name: str, reason: str) -> None:
        if name not in self._failing:
            self._failing.add(name)
            self._failed(name, reason)
        kept = self._kept[name]
        is_over = self._clock.monotonic_s() - kept.read_s > self._tolerate_s
        if is_over and kept.value is not None:
            # Forgotten only after the report: if reporting fails, the next look tries again.
            self._changed(name, None)
            kept.value = None
