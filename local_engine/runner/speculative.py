"""Guesses the next tokens, so that one step can check several of them.

A guess is never trusted: the runner chooses each token from the true distribution, and a draft only
stands if it is the token that was chosen. So a drafter changes speed and nothing else, and its own
keys and values never leave the sequence's own blocks.
"""

from collections.abc import Sequence as Many
from typing import Protocol

import torch

from local_engine.core.allocation import BlockCopy, CopyKind
from local_engine.core.sequence import Sequence
from local_engine.core.step import Item, Step
from local_engine.kernels.linear import choose_linear
from local_engine.kernels.paged_attention import choose_native
from local_engine.model.decoder import Decoder
from local_engine.runner.batch import PagedAttention, flatten
from local_engine.runner.kv_pool import KvPool


# With more sequences than this a step is full enough; drafts would only take their room.
MAX_SPECULATING = 8
_LONGEST, _SHORTEST = 4, 2


class Drafter(Protocol):
    """Fills `draft_token_ids` of sequences that are ready for their next token."""

    def propose(self, sequences: Many[Sequence]) -> None: ...

    def apply(self, copies: Many[BlockCopy]) -> None:
        """Follow the copies of a step, before it is computed."""

    def free(self, sequence_id: str) -> None: ...


def may_speculate(sequence: Sequence) -> bool:
    """Whether a sequence lacks only its next token, with room for more after it."""
    return (
        not sequence.is_finished
        and sequence.num_output_tokens > 0
        and sequence.num_missing == 1
        and _room(sequence) > 0
    )


def _room(sequence: Sequence) -> int:
    return sequence.max_tokens - sequence.num_output_tokens - 1


class NgramDrafter:
    """Guesses what followed when the last few tokens occurred earlier in the same text; no weights.

    Saxena, "Prompt lookup decoding" (2023). Each sequence has an index from its n-grams to the
    place after them, extended as the text grows.
    """

    def __init__(self, num_drafts: int) -> None:
        self._num_drafts = num_drafts
        self._indices: dict[str, tuple[int, dict[tuple[int, ...], int]]] = {}

    def propose(self, sequences: Many[Sequence]) -> None:
        for sequence in sequences:
            count = min(self._num_drafts, _room(sequence))
            sequence.draft_token_ids = self._guess(sequence, count)

    def apply(self, copies: Many[BlockCopy]) -> None:
        """Does nothing: it keeps no keys and values."""

    def free(self, sequence_id: str) -> None:
        self._indices.pop(sequence_id, None)

    def _guess(self, sequence: Sequence, count: int) -> list[int]:
        tokens = sequence.token_ids
        done, index = self._indices.get(sequence.sequence_id, (_SHORTEST, {}))
        # The very last n-gram is the one looked up; it must not find itself.
        for end in range(done, len(tokens)):
            for size in range(_SHORTEST, min(_LONGEST, end) + 1):
                index[tuple(tokens[end - size : end])] = end
        self._indices[sequence.sequence_id] = (len(tokens), index)
        for size in range(min(_LONGEST, len(tokens)), _SHORTEST - 1, -1):
            at = index.get(tuple(tokens[-size:]))
            if at is not None:
                return tokens[at : at + count]
        return []


class ModelDrafter:
    """A small model that guesses greedily, with keys and values in the sequence's own blocks."""

    def __init__(
        self,
        decoder: Decoder,
        device: torch.device,
        *,
        num_drafts: int,
        num_blocks: int,
        block_size: int = 16,
    ) -> None:
        dtype = decoder.model.norm.weight.dtype
        self._decoder = decoder.to(device).eval()
        self._native = choose_native(device, dtype, decoder.spec.head_dim, block_size)
        self._decoder.fuse(choose_linear(device, dtype), self._native)
        self._device = device
        self._num_drafts = num_drafts
        self._block_size = block_size
        self._pool = KvPool(decoder.spec, num_blocks, block_size, device=device, dtype=dtype)
        self._computed: dict[str, tuple[int, int]] = {}

    @torch.inference_mode()
    def propose(self, sequences: Many[Sequence]) -> None:
        for _ in range(self._num_drafts):
            items = [item for sequence in sequences if (item := self._item(sequence)) is not None]
            if not items:
                return
            batch = flatten(Step(items), self._block_size).to(self._device)
            attend = PagedAttention(self._decoder.spec, self._pool, batch, self._native)
            hidden = self._decoder(batch.token_ids, batch.positions, attend)
            # The last row of each text, even of prompts for which others need every row.
            ends = torch.tensor([*batch.first_rows[1:], len(hidden)], device=self._device)
            likeliest = self._decoder.logits(hidden[ends - 1]).argmax(dim=-1).tolist()
            for item, token_id in zip(batch.items, likeliest, strict=True):
                sequence = item.sequence
                sequence.draft_token_ids = [*sequence.draft_token_ids, token_id]
                self._computed[sequence.sequence_id] = (sequence.epoch, item.end)

    def apply(self, copies: Many[BlockCopy]) -> None:
        """Erase here too what must leave no trace; nothing else outlives its sequence."""
        self._pool.apply(tuple(copy for copy in copies if copy.kind is CopyKind.ZERO))

    def free(self, sequence_id: str) -> None:
        self._computed.pop(sequence_id, None)

    def _item(self, sequence: Sequence) -> Item | None:
        """What the small model has not read yet; None if there is no block for its guess."""
        drafts = sequence.draft_token_ids
        epoch, computed = self._computed.get(sequence.sequence_id, (sequence.epoch, 0))
        if epoch != sequence.epoch:
            computed = 0
        if not drafts:
            # From the last token but one on, keys and values may belong to wrong guesses.
            computed = min(computed, len(sequence.token_ids) - 1)
        end = len(sequence.token_ids) + len(drafts)
        has_block = end <= len(sequence.block_ids) * self._block_size
        if len(drafts) >= _room(sequence) or not has_block or end <= computed:
            return None
        return Item(sequence, computed, end, sequence.epoch)
