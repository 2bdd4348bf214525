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
"""Longer answers that have to be looked at are read beside the loop, others from
`SHORT_BYTES_MAX`: to look takes a hundred times as long, and of nothing but digits 11 us a letter.
The same of what a stream brings at once."""
CALLS_MAX: Final = 10_000

LONG_BYTES_MAX: Final = 128 * 1024
"""Of those that are looked at: longer ones take a quarter of a second and more, and nobody waits
for those whose answer is shorter."""
LONGEST_BYTES: Final = 1024 * 1024

Done = TypeVar("Done")


class LongAnswers:
    """The threads of a worker in which long answers are read, one after the other.

    Those that have to be looked at have some of their own, by their length, and of several
    upstreams all get their turn: one that answers at length makes nobody wait but itself.
    """

    def __init__(self) -> None:
        self._plain = WaitingLine("answers")
        self._looked_at = WaitingLine("answers-looked-at")
        self._long = WaitingLine("answers-long")
        self._longest = WaitingLine("answers-longest")

    async def read(
        self, dialect: Dialect, raw: bytes, rewriting: AnswerRewriter | None, upstream: str
    ) -> Completion:
        """A whole answer of an upstream.

        Raises:
            UpstreamMalformed: it is none, or holds more than any answer does.
        """
        line = self._plain if rewriting is None else self._line_for(len(raw))
        return await line.do(upstream, partial(_read, dialect, raw, rewriting))

    async def look(self, upstream: str, length_bytes: int, work: Callable[[], Done]) -> Done:
        """What `work` makes of so much that is looked at."""
        return await self._line_for(length_bytes).do(upstream, work)

    def _line_for(self, length_bytes: int) -> WaitingLine:
        if length_bytes <= LONG_BYTES_MAX:
            return self._looked_at
        return self._long if length_bytes <= LONGEST_BYTES else self._longest

    @staticmethod
    def is_long(raw: bytes, rewriting: AnswerRewriter | None) -> bool:
        """Whether others would wait too long for it to be read on the loop."""
        length_bytes = len(raw)
        if length_bytes <= LOOKED_AT_BYTES_MAX:
            return False
        return rewriting is not None or length_bytes > SHORT_BYTES_MAX

    async def encode(self, upstream: str, work: Callable[[], Done]) -> Done:
        """What `work` makes of such an answer."""
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
