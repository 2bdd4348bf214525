"""Counts the tokens that a sequence has read and written, for its penalties and bad words.

Counting goes along with the tokens: a step costs no more after a long text than after a short one.
"""

from collections.abc import Sequence as Tokens
from dataclasses import InitVar, dataclass, field, replace

import numpy as np
import numpy.typing as npt

from local_engine.sampling_params import SamplingParams


_FIRST_PLACES = 64


@dataclass(slots=True)
class Seen:
    """The distinct tokens of one sequence, and how often each was written."""

    params: SamplingParams
    prompt: InitVar[Tokens[int]] = ()
    num_written: int = 0
    tail: list[int] = field(default_factory=list)
    """The last written tokens, as many as a bad word needs that lacks only its end."""
    _places: dict[int, int] = field(default_factory=dict)
    _token_ids: npt.NDArray[np.int32] = field(
        default_factory=lambda: np.zeros(_FIRST_PLACES, np.int32)
    )
    _counts: npt.NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(_FIRST_PLACES, np.int64)
    )

    def __post_init__(self, prompt: Tokens[int]) -> None:
        if self.params.repetition_penalty != 1.0:
            for token_id in prompt:
                self._place_of(token_id)

    def note(self, token_ids: Tokens[int]) -> None:
        """Add tokens that were written after the known ones."""
        self.num_written += len(token_ids)
        longest = max((len(word) - 1 for word in self.params.bad_token_ids), default=0)
        if longest:
            self.tail = [*self.tail, *token_ids][-longest:]
        if self.params.has_penalties:
            for token_id in token_ids:
                place = self._place_of(token_id)
                self._counts[place] += 1

    def followed_by(self, token_ids: Tokens[int]) -> "Seen":
        """A copy as if these tokens, which are only guessed, had been written."""
        places, numbers, counts = dict(self._places), self._token_ids.copy(), self._counts.copy()
        other = replace(self, prompt=(), _places=places, _token_ids=numbers, _counts=counts)
        other.note(token_ids)
        return other

    @property
    def token_ids(self) -> npt.NDArray[np.int32]:
        """Each token once, in no order; prompt tokens only if repetition is penalised."""
        return self._token_ids[: len(self._places)]

    def amounts(self, num_more: int = 0) -> npt.NDArray[np.float64]:
        """Amounts subtracted from `token_ids`' scores, as if written `num_more` more times."""
        return _lost(self.params, self._counts[: len(self._places)] + num_more)

    @property
    def first_amount(self) -> float:
        """What is subtracted from the score of a token written for the first time."""
        return float(_lost(self.params, np.ones(1, np.int64))[0])

    def _place_of(self, token_id: int) -> int:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._token_ids):
            self._token_ids = np.resize(self._token_ids, 2 * place)
            self._counts = np.concatenate([self._counts, np.zeros(place, np.int64)])
        self._token_ids[place] = token_id
        return place


def _lost(params: SamplingParams, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """By the presence and frequency penalties."""
    lost = params.presence_penalty + counts * params.frequency_penalty
    return np.where(counts > 0, lost, 0.0)
