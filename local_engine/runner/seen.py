"""What a sequence has read and written, as far as its penalties and bad words ask.

Counted as it comes: a step costs no more after a long text than after a short one.
"""

from collections.abc import Sequence as Tokens

import numpy as np
import numpy.typing as npt

from local_engine.sampling_params import SamplingParams


class Seen:
    """Of one sequence; each token stands in it once, and how often it was written."""

    def __init__(self, params: SamplingParams, prompt: Tokens[int]) -> None:
        self._params = params
        self._places: dict[int, int] = {}
        self._token_ids = np.zeros(64, np.int32)
        self._counts = np.zeros(64, np.int64)
        self._tail_length = max((len(word) - 1 for word in params.bad_token_ids), default=0)
        self.num_written = 0
        self.tail: list[int] = []
        """The last ones written, as many as a bad word needs that lacks its end."""
        if params.repetition_penalty != 1.0:
            for token_id in prompt:
                self._place_of(token_id)

    def note(self, token_ids: Tokens[int]) -> None:
        """These were written after those that are known."""
        self.num_written += len(token_ids)
        if self._tail_length:
            self.tail = [*self.tail, *token_ids][-self._tail_length :]
        if self._params.has_penalties:
            for token_id in token_ids:
                place = self._place_of(token_id)
                self._counts[place] += 1

    @property
    def token_ids(self) -> npt.NDArray[np.int32]:
        """Each once, in no order; of a prompt only where repetition is penalised."""
        return self._token_ids[: len(self._places)]

    @property
    def amounts(self) -> npt.NDArray[np.float64]:
        """What the scores of `token_ids` lose for presence and frequency."""
        counts, params = self._counts[: len(self._places)], self._params
        lost = params.presence_penalty + counts * params.frequency_penalty
        return np.where(counts > 0, lost, 0.0)

    def _place_of(self, token_id: int) -> int:
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._token_ids):
            self._token_ids = np.resize(self._token_ids, 2 * place)
            self._counts = np.concatenate([self._counts, np.zeros(place, np.int64)])
        self._token_ids[place] = token_id
        return place
