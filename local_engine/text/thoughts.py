"""Rules for the text before a grammar begins: reasoning, and only one way to end it.

Reasoning ends with a token of its own. Readers of the answer look for its text, which other tokens
could spell, too; an answer behind those would follow no grammar, so they are not allowed. An end of
the whole answer is not allowed either: it would look finished and have nothing of what was asked
for.
"""

from collections.abc import Callable
from collections.abc import Sequence as Many

import torch

from local_engine.text.output_parser import END_THINK


_END = END_THINK.encode()


class Ends:
    """Tokens that would spell the end of reasoning without being its token; one per vocabulary."""

    def __init__(self, spelt: Many[bytes], end_token: int, eos_token_ids: Many[int]) -> None:
        """`spelt` has the bytes of each token, `end_token` is the one that may end reasoning."""
        self.end_token = end_token
        self.spelt = spelt
        self._eos_token_ids = list(eos_token_ids)
        self._masks: dict[int, torch.Tensor] = {}

    def allowed(self, num_spelt: int) -> torch.Tensor:
        """True for each token that may follow when this many bytes of the end are written."""
        found = self._masks.get(num_spelt)
        if found is None:
            rest = _END[num_spelt:]
            completes = bytes.startswith if num_spelt else bytes.__contains__
            allowed = [not completes(each, rest) for each in self.spelt]
            allowed[self.end_token] = True
            found = self._masks[num_spelt] = torch.tensor(allowed)
            found[self._eos_token_ids] = False
        return found


class Thoughts:
    """The position of one sequence in its reasoning."""

    def __init__(self, ends: Ends, opens_with: int | None) -> None:
        """`opens_with` is the token that begins reasoning; None if the prompt has begun it."""
        self._ends = ends
        self._opens_with = opens_with
        self._tail = b""
        self.are_over = False

    def allowed(self, without: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What may come next; `without` gives what may come if the model does not think."""
        if self._opens_with is None:
            return self._ends.allowed(_num_spelt(self._tail))
        allowed = without().clone()
        allowed[self._opens_with] = True
        return allowed

    def accept(self, token_id: int) -> bool:
        """Step over a token; False if it does not begin reasoning, but an answer without any."""
        if self._opens_with is not None:
            is_opened = token_id == self._opens_with
            self._opens_with = None
            return is_opened
        self.are_over = token_id == self._ends.end_token
        self._tail = (self._tail + self._ends.spelt[token_id])[-len(_END) :]
        return True


def _num_spelt(tail: bytes) -> int:
    """How many bytes of the end of reasoning a text ends with."""
    return next(size for size in range(len(_END) - 1, -1, -1) if tail.endswith(_END[:size]))
