"""Reads long answers beside the loop: of megabytes it takes seconds, in which others are served.

An upstream may answer with as many bytes as `limits.reply_bytes_max` says. To decode them takes up
to some seconds, and to look at what they say a second for each megabyte of prose.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from gateway.errors import UpstreamMalformed
from gateway.pacing.waiting_line import WaitingLine
from gateway.ports import Dialect
from gateway.types import Completion
from gateway.veiling.rewriting import AnswerRewriter


SHORT_BYTES_MAX: Final = 256 * 1024
"""Shorter answers, nearly all, are read on the loop: nobody waits long for those."""
LOOKED_AT_BYTES_MAX: Final = 8 * 1024
"""The same of those that have to be looked at, which takes a hundred times as long."""
OBJECTS_MAX: Final = 500_000
"""More than the probabilities of any answer are made of. Nothing else runs in a worker while these
are made, not even beside the loop."""
CALLS_MAX: Final = 10_000

Done = TypeVar("Done")


class LongAnswers:
    """The threads of a worker in which long answers are read, one after the other.

    Those that have to be looked at have one of their own, and of several upstreams all get their
    turn: one that answers at length makes nobody wait but itself.
    """

    def __init__(self) -> None:
        self._plain = WaitingLine("answers")
        self._looked_at = WaitingLine("answers-looked-at")

    async def read(
        self, dialect: Dialect, raw: bytes, rewriting: AnswerRewriter | None, upstream: str
    ) -> Completion:
        """A whole answer of an upstream.

        Raises:
            UpstreamMalformed: it is none, or holds more than any answer does.
        """
        if raw.count(b"{") > OBJECTS_MAX:
            raise _too_many("objects")
        line = self._plain if rewriting is None else self._looked_at
        return await line.do(upstream, partial(_read, dialect, raw, rewriting))

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
    completion = dialect.decode_reply(raw if rewriting is None else rewriting.unveiled(raw))
    if len(completion.tool_calls) > CALLS_MAX:
        raise _too_many("calls of tools")
    return completion


def _too_many(what: str) -> UpstreamMalformed:
    return UpstreamMalformed(f"The upstream's answer holds too many {what}.")
