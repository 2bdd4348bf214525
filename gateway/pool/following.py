"""Follows the members of a pool that publish what their prefix caches hold.

It runs beside the traffic and never delays it: events are read in tasks of their own, and of the
prompts that go to such members one at a time is looked up in tokens, once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.errors import GatewrightError
from gateway.pool.exact import CacheTeller, ExactMirror
from gateway.pool.listening import EventListener
from gateway.pool.prefixes import PrefixIndex, Prompt
from gateway.pool.tokens import CacheMirror, TokenMap
from gateway.ports import UpstreamCall


class Publisher(CacheTeller, Protocol):
    """A member's adapter, as far as its cache is concerned."""

    @property
    def tells_cache(self) -> bool:
        """Whether it is an engine of ours, which reports exactly."""
        ...

    @property
    def event_addresses(self) -> tuple[str, str]:
        """Where it publishes events, and where it replays them; empty if nowhere."""
        ...

    def salt_of(self, call: UpstreamCall) -> str:
        """The salt that separates this caller's cached prefixes; empty if it takes none."""
        ...

    async def tokens_of(self, call: UpstreamCall) -> Sequence[int]:
        """The tokens of the call's conversation.

        Raises:
            GatewrightError: it does not report them, or may not be asked.
        """
        ...


class Following:
    """The mirrors of those members, and the tasks that update them."""

    def __init__(self, publishers: Mapping[str, Publisher], index: PrefixIndex) -> None:
        self._publishers = {
            name: each for name, each in publishers.items() if each.event_addresses[0]
        }
        self._tokens = TokenMap()
        self._mirrors = {name: CacheMirror(name, index, self._tokens) for name in self._publishers}
        self._exact = {
            name: ExactMirror(name, each, index)
            for name, each in publishers.items()
            if each.tells_cache
        }
        self._index = index
        self._listeners: dict[str, EventListener] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._learning: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen; further calls do nothing."""
        if self._tasks:
            return
        for name, publisher in self._publishers.items():
            mirror = self._mirrors[name]
            listener = EventListener(name, *publisher.event_addresses, self._index, mirror)
            self._listeners[name] = listener
            self._tasks.append(asyncio.create_task(listener.run(), name=f"events of {name}"))
        for name, exact in self._exact.items():
            self._tasks.append(asyncio.create_task(exact.run(), name=f"cache of {name}"))

    def renewed(self, member: str, publisher: Publisher) -> None:
        """Its adapter was rebuilt; what is known of its cache stays known."""
        if member in self._publishers:
            self._publishers[member] = publisher
        if exact := self._exact.get(member):
            exact.teller = publisher

    def lost(self, member: str) -> None:
        """It went down: its cache is empty when it comes back, unless it was only out of reach.

        So from then on it is asked for its complete contents, or for the events that it still has.
        """
        if mirror := self._mirrors.get(member):
            mirror.clear()
        if listener := self._listeners.get(member):
            listener.lost()
        if exact := self._exact.get(member):
            exact.clear()

    def sent(self, member: str, call: UpstreamCall, prompt: Prompt, length_bytes: float) -> None:
        """A prompt went there: find out which tokens its bytes stand for, if that is unknown."""
        exact, mirror = self._exact.get(member), self._mirrors.get(member)
        is_busy = self._learning is not None and not self._learning.done()
        if exact is not None and not is_busy and exact.wants(prompt):
            self._learning = asyncio.create_task(exact.learn(call, prompt, length_bytes))
            return
        if mirror is None or is_busy or not mirror.block_tokens or self._tokens.knows(prompt):
            return
        self._learning = asyncio.create_task(self._learn(member, call, prompt, length_bytes))

    async def close(self) -> None:
        tasks = [*self._tasks, *([self._learning] if self._learning is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _learn(
        self, member: str, call: UpstreamCall, prompt: Prompt, length_bytes: float
    ) -> None:
        publisher, mirror = self._publishers[member], self._mirrors[member]
        try:
            token_ids = await publisher.tokens_of(call)
        except GatewrightError:
            return  # Assumed to be there for a while, as without events.
        salt = publisher.salt_of(call) if mirror.tells_salts else ""
        hanging = self._tokens.learn(prompt, length_bytes, salt, token_ids, mirror.block_tokens)
        for each in self._mirrors.values():
            each.learnt(hanging)
