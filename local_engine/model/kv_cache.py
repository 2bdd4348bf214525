"""Keys and values of one sequence, kept per layer so that a decode step computes one token only."""

import torch

from local_engine.model.spec import ModelSpec


_FIRST_CAPACITY = 256


class LayerCache:
    """A view of one layer's keys and values, written behind what the cache already holds."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, num_tokens: int) -> None:
        self._keys = keys
        self._values = values
        self._num_tokens = num_tokens

    def extend(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Store new [1, kv_heads, tokens, head_dim] entries; returns all entries so far."""
        end = self._num_tokens + keys.shape[2]
        self._keys[:, :, self._num_tokens : end] = keys
        self._values[:, :, self._num_tokens : end] = values
        return self._keys[:, :, :end], self._values[:, :, :end]


class KvCache:
    """Contiguous storage for one sequence; it doubles when it is full."""

    def __init__(self, spec: ModelSpec, *, device: torch.device, dtype: torch.dtype) -> None:
        self._context_window = spec.context_window
        capacity = min(_FIRST_CAPACITY, spec.context_window)
        # [layers, keys and values, batch of one, heads, tokens, channels]
        shape = (spec.num_layers, 2, 1, spec.num_kv_heads, capacity, spec.head_dim)
        self._entries = torch.empty(shape, device=device, dtype=dtype)
        self._num_tokens = 0

    @property
    def num_tokens(self) -> int:
        return self._num_tokens

    def reserve(self, num_tokens: int) -> None:
        """Make room for `num_tokens` more."""
        needed = self._num_tokens + num_tokens
        assert needed <= self._context_window, "a sequence outgrew the context window"
        capacity = self._entries.shape[4]
        if needed <= capacity:
            return
        grown = min(max(needed, 2 * capacity), self._context_window)
        shape = (*self._entries.shape[:4], grown, self._entries.shape[5])
        entries = self._entries.new_empty(shape)
        entries[..., : self._num_tokens, :] = self._entries[..., : self._num_tokens, :]
        self._entries = entries

    def layer(self, index: int) -> LayerCache:
        return LayerCache(self._entries[index, 0], self._entries[index, 1], self._num_tokens)

    def advance(self, num_tokens: int) -> None:
        self._num_tokens += num_tokens
