"""Reads long answers in threads, so that other requests are served meanwhile.

An upstream may answer with as many bytes as `limits.reply_bytes_max` says, and to inspect prose
takes a second per megabyte. What would take long to decode is refused before.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from gateway.admission.answer_bounds import SHORT_BYTES_MAX, weighed
from gateway.errors import UpstreamMalformed
from gateway.pacing.waiting_line import WaitingLine
from gateway.ports import Dialect
from gateway.types import Completion
from gateway.veiling.rewriting import AnswerRewriter


LOOKED_AT_BYTES_MAX: Final = 4 * 1024
"""Longer answers that have to be inspected are read in a thread, others from `SHORT_BYTES_MAX`:
inspection takes a hundred times as long, and 11 us a character if all are digits. The same holds
for what a stream brings at once."""
CALLS_MAX: Final = 10_000

LONG_BYTES_MAX: Final = 128 * 1024
"""For inspected answers: longer ones take a quarter of a second and more, and shorter ones do not
wait for them."""
LONGEST_BYTES: Final = 1024 * 1024

Done = TypeVar("Done")


class LongAnswers:
    """A worker's threads in which long answers are read, one after the other.

    Answers that have to be inspected have threads of their own, by length, in which upstreams take
    turns: one that answers at length delays only itself.
    """

    def __init__(self) -> None:
        self._plain = WaitingLine("answers")
        self._looked_at = WaitingLine("answers-looked-at")
        self._long = WaitingLine("answers-long")
        self._longest = WaitingLine("answers-longest")

    async def read(
        self, dialect: Dialect, raw: bytes, rewriting: AnswerRewriter | None, upstream: str
    ) -> Completion:
        """Read a complete answer of an upstream.

        Raises:
            UpstreamMalformed: it is none, or holds more than any answer does.
        """
        line = self._plain if rewriting is None else self._line_for(len(raw))
        return await line.do(upstream, partial(_read, dialect, raw, rewriting))

    async def look(self, upstream: str, length_bytes: int, work: Callable[[], Done]) -> Done:
        """Run `work` in the thread for inspections of this length."""
        return await self._line_for(length_bytes).do(upstream, work)

    def _line_for(self, length_bytes: int) -> WaitingLine:
        if length_bytes <= LONG_BYTES_MAX:
            return self._looked_at
        return self._long if length_bytes <= LONGEST_BYTES else self._longest

    @staticmethod
    def is_long(raw: bytes, rewriting: AnswerRewriter | None) -> bool:
        """Whether reading it on the loop would make others wait too long."""
        length_bytes = len(raw)
        if length_bytes <= LOOKED_AT_BYTES_MAX:
            return False
        return rewriting is not None or length_bytes > SHORT_BYTES_MAX

    async def encode(self, upstream: str, work: Callable[[], Done]) -> Done:
        """Run `work` in the thread for long answers."""
        return await self._plain.do(upstream, work)


def _read(dialect: Dialect, raw: bytes, rewriting: AnswerRewriter | None) -> Completion:
    if len(raw) > SHORT_BYTES_MAX:
        weight = weighed(raw)
        if rewriting is not None and not weight.is_light:
            # Others pass over what is told of tokens; whoever looks at all of it would not.
            raw = weight.without_tokens()
    completion = dialect.decode_reply(raw if rewriting is None else rewriting.unveiled(raw))
    if len(completion.tool_calls) > CALLS_MAX:
        raise UpstreamMalformed("The upstream's answer holds too many calls of tools.")
    return completion
