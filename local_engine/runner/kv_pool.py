"""Storage of keys and values: one pool of blocks per layer, and its copy space on the host."""

import torch

from local_engine.core.allocation import BlockCopy, CopyKind
from local_engine.model.spec import ModelSpec


FP8 = torch.float8_e4m3fn
_FP8_MOST = torch.finfo(FP8).max
# What `--kv-dtype` may say; `None`: the type of the weights.
KV_DTYPES: dict[str, torch.dtype | None] = {"auto": None, "fp8": FP8}


class KvPool:
    """Tensors for blocks 0 … `num_blocks`; block 0 belongs to nobody and takes padded writes.

    In fp8 one scale of 1 serves all: keys and values are of the order of one, and anything larger
    than 448 is stored as 448.
    """

    def __init__(
        self,
        spec: ModelSpec,
        num_blocks: int,
        block_size: int,
        *,
        device: torch.device,
        dtype: torch.dtype,
        num_host_blocks: int = 0,
    ) -> None:
        self.block_size = block_size
        heads, dim = spec.num_kv_heads, spec.head_dim
        keys = (num_blocks + 1, heads, dim, block_size)
        values = (num_blocks + 1, heads, block_size, dim)
        layers = range(spec.num_layers)
        self.keys = [torch.zeros(keys, device=device, dtype=dtype) for _ in layers]
        self.values = [torch.zeros(values, device=device, dtype=dtype) for _ in layers]
        is_pinned = device.type == "cuda"
        sides = 2 * spec.num_layers
        self._host = torch.empty(
            (num_host_blocks, sides, heads * dim * block_size), dtype=dtype, pin_memory=is_pinned
        )

    def write(
        self,
        layer: int,
        blocks: torch.Tensor,
        offsets: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
    ) -> None:
        """Store [tokens, kv_heads, dim] at the given places."""
        keys, values = self.keys[layer], self.values[layer]
        if keys.dtype == FP8:
            # Indexed writes do not support fp8; its bytes do as well.
            keys, values = keys.view(torch.uint8), values.view(torch.uint8)
            k, v = (x.clamp(-_FP8_MOST, _FP8_MOST).to(FP8).view(torch.uint8) for x in (k, v))
        keys[blocks, :, :, offsets] = k.to(keys.dtype)
        values[blocks, :, offsets] = v.to(values.dtype)

    def apply(self, copies: tuple[BlockCopy, ...]) -> None:
        """Do the copies that the scheduler ordered, in their order."""
        for copy in copies:
            if copy.kind is CopyKind.ZERO:
                for tensor in (*self.keys, *self.values):
                    tensor[copy.block_id].zero_()
                continue
            for side, tensor in enumerate((*self.keys, *self.values)):
                block = tensor[copy.block_id].view(-1)
                if copy.kind is CopyKind.TO_HOST:
                    self._host[copy.host_slot, side].copy_(block)
                else:
                    block.copy_(self._host[copy.host_slot, side])
