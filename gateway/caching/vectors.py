"""Vectors of questions, from an in-house embedding model, through the one dispatcher and egress.

What is embedded is part of a request that was inspected and decided on before, and the clearance of
that decision applies here too. If anything goes wrong there is no vector, and the answer is made
anew.
"""

from typing import Final

import msgspec
from msgspec import Struct, structs

from gateway.caching.likeness import Vector, vector_of
from gateway.dispatch.attempts import AttemptLog
from gateway.dispatch.dispatcher import Dispatcher
from gateway.errors import GatewrightError
from gateway.passage import Passage
from gateway.ports import Dialect
from gateway.types import Candidate


VECTOR_S: Final = 2.0
"""A vector that takes longer is not worth the wait."""


class _Item(Struct):
    embedding: list[float]


class _Vectors(Struct):
    data: list[_Item]


_VECTORS: Final = msgspec.json.Decoder(_Vectors)


class Vectors:
    """Asks one in-house target; holds the dispatcher."""

    def __init__(self, dispatcher: Dispatcher, dialect: Dialect, target: str) -> None:
        """`target` is empty where nothing is compared."""
        self._dispatcher = dispatcher
        self._dialect = dialect
        self._target = target

    async def vector(self, passage: Passage, text: str) -> Vector | None:
        """None where the decision does not let the text go there, or nothing useful came back."""
        board, plan = passage.arrival.snapshot.board, passage.ruling.plan
        target = board.targets.get(self._target)
        if target is None or board.unavailable_reason(self._target):
            return None
        if not target.in_house or target.jurisdiction not in plan.clearance:
            return None
        wanted = {"model": target.name, "input": text, "encoding_format": "float"}
        try:
            request = self._dialect.decode_request(
                msgspec.json.encode(wanted), passage.request.request_id
            )
            asked = structs.replace(
                plan,
                candidates=(Candidate(target, 1, 0),),
                deadline_s=VECTOR_S,
                hedge_after_s=None,
                cascade_above=None,
            )
            answered = await self._dispatcher.complete(request, asked, AttemptLog())
            found = _VECTORS.decode(answered.completion.raw)
        except (GatewrightError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return vector_of(found.data[0].embedding) if found.data else None
