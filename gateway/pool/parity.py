"""Asks replicas of the same weights the same question: their greedy answers must agree.

This shows wrongly loaded weights, a broken kernel or a failing device before users notice. Where a
replica is does not matter: replicas of different pools, and engines in no pool, are compared if
their engines report the same digest. The question is ours and contains nobody's data, so each
replica can be asked in its own place. A replica that differs is asked once more: a tie between two
tokens may fall either way when other requests share the batch.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from gateway.errors import UpstreamFailed
from gateway.ports import ServedModel
from gateway.telemetry import Event, logger


QUESTION: Final = "Continue the series: one, two, three, four, five,"
ANSWER_TOKENS: Final = 24
EVERY_S: Final = 60.0

Weights = tuple[str, ...]
"""What replicas must have in common to give the same answers."""


class Greedy(Protocol):
    """A replica that can be asked."""

    @property
    def kind(self) -> str:
        """The kind of engine: only engines of one kind have to give identical answers."""
        ...

    async def greedy(self, model: str, question: str, tokens: int) -> str:
        """Its answer without sampling.

        Raises:
            UpstreamFailed: it does not answer, or its answer cannot be read.
        """
        ...


class Sibling(Struct, frozen=True):
    """One model at one replica."""

    provider: str
    """The pool that the replica is in, or the replica itself."""
    member: str
    model: str
    """The model's name there."""
    weights: Weights
    replica: Greedy


class Pool(Protocol):
    """A pool, as far as it reports which of its members can be asked."""

    def siblings(self) -> Sequence[Sibling]: ...


def sibling(provider: str, member: str, model: ServedModel, replica: Greedy) -> Sibling:
    """A model at a replica; without a digest, only its own pool has the same weights."""
    weights = (model.digest, model.precision) if model.digest else (provider, model.id)
    return Sibling(provider, member, model.id, (*weights, replica.kind), replica)


class Parity:
    """Compares all in-house replicas of one worker at intervals."""

    def __init__(
        self,
        pools: Sequence[Pool],
        engines: Callable[[], Mapping[str, Greedy]],
        serving: Callable[[str], Collection[ServedModel]],
        monotonic_s: Callable[[], float],
    ) -> None:
        """`engines` are those in no pool, by provider; `serving` returns the models of one."""
        self._pools, self._engines, self._serving = pools, engines, serving
        self._now_s = monotonic_s
        self._compared_s = float("-inf")
        self._log = logger()
        self.differing: Collection[str] = frozenset()
        """The members whose answers differed from the majority when last compared."""

    async def tend(self) -> None:
        """Compare, if it is time and there is anything to compare."""
        if self._now_s() - self._compared_s < EVERY_S:
            return
        groups = self._groups()
        if not groups:
            self.differing = frozenset()
            return
        self._compared_s = self._now_s()
        found: dict[str, str] = {}
        for group in groups:
            for name in await differing(group):
                found[name] = group[name].provider
        for name, provider in found.items():
            self._log.error(Event.MEMBER_DRIFTS, provider=provider, reason=name)
        self.differing = frozenset(found)

    def _groups(self) -> list[dict[str, Sibling]]:
        """Replicas that must agree, by member; none is asked twice for being in two pools."""
        siblings = [each for pool in self._pools for each in pool.siblings()]
        for name, engine in self._engines().items():
            siblings += [sibling(name, name, each, engine) for each in self._serving(name)]
        groups: dict[Weights, dict[str, Sibling]] = {}
        for each in siblings:
            groups.setdefault(each.weights, {}).setdefault(each.member, each)
        return [group for group in groups.values() if len(group) > 1]


async def differing(group: Mapping[str, Sibling]) -> Sequence[str]:
    """Names of those that twice differed from most; empty with fewer than two answers."""
    answers = await _asked(group)
    if len(answers) < 2:  # noqa: PLR2004 - one alone agrees with itself
        return ()
    usual, count = Counter(answers.values()).most_common(1)[0]
    if count * 2 <= len(answers):
        # No majority: all of them are suspect, since nobody knows which is right.
        suspects = sorted(answers)
        again = await _asked({name: group[name] for name in suspects})
        return suspects if len(set(again.values())) > 1 else ()
    suspects = sorted(name for name, answer in answers.items() if answer != usual)
    again = await _asked({name: group[name] for name in suspects})
    return [name for name, answer in again.items() if answer != usual]


async def _asked(group: Mapping[str, Sibling]) -> dict[str, str]:
    answers = await asyncio.gather(*(_ask(each) for each in group.values()))
    return {name: one for name, one in zip(group, answers, strict=True) if one is not None}


async def _ask(one: Sibling) -> str | None:
    try:
        return await one.replica.greedy(one.model, QUESTION, ANSWER_TOKENS)
    except UpstreamFailed:
        return None  # Its health is checked elsewhere.
