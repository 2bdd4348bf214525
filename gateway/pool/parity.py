"""Asks replicas of one model the same question and compares: greedy answers must agree.

Weights that were loaded wrongly, a broken kernel or a failing device show here before users notice.
The question is ours and holds nothing of anybody. Who differs is asked once more: a tie between two
tokens may fall either way when other requests share the batch.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from gateway.errors import UpstreamFailed


QUESTION: Final = "Continue the series: one, two, three, four, five,"
ANSWER_TOKENS: Final = 24


class Greedy(Protocol):
    """A replica that can be asked."""

    async def greedy(self, model: str, question: str, tokens: int) -> str:
        """What it answers without drawing lots.

        Raises:
            UpstreamFailed: it does not answer, or not in a form that can be understood.
        """
        ...


async def differing(model: str, replicas: Mapping[str, Greedy]) -> Sequence[str]:
    """Names of those that answer otherwise than most, twice; nobody among fewer than two."""
    answers = await _asked(model, replicas)
    if len(answers) < 2:  # noqa: PLR2004 - one alone agrees with itself
        return ()
    usual, count = Counter(answers.values()).most_common(1)[0]
    if count * 2 <= len(answers):
        # No majority: all of them are suspect, and nobody says who is right.
        suspects = sorted(answers)
        again = await _asked(model, {name: replicas[name] for name in suspects})
        return suspects if len(set(again.values())) > 1 else ()
    suspects = sorted(name for name, answer in answers.items() if answer != usual)
    again = await _asked(model, {name: replicas[name] for name in suspects})
    return [name for name, answer in again.items() if answer != usual]


async def _asked(model: str, replicas: Mapping[str, Greedy]) -> dict[str, str]:
    names = list(replicas)
    answers = await asyncio.gather(*(_ask(model, replicas[name]) for name in names))
    return {name: one for name, one in zip(names, answers, strict=True) if one is not None}


async def _ask(model: str, replica: Greedy) -> str | None:
    try:
        return await replica.greedy(model, QUESTION, ANSWER_TOKENS)
    except UpstreamFailed:
        return None  # Whether it is well is asked elsewhere.
