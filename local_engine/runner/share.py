"""A rank's share of a model: its decoder on a device, the kernels for it, its keys and values."""

from dataclasses import dataclass

import torch

from local_engine.kernels.linear import MakeLinear
from local_engine.kernels.paged_attention import choose_native
from local_engine.model.decoder import Decoder
from local_engine.runner.fusing import fuse
from local_engine.runner.kv_pool import KvPool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """Set once at the start, and the same on every rank."""

    num_blocks: int
    block_size: int = 16
    num_host_blocks: int = 0
    make_linear: MakeLinear | None = None
    """Replaces the device's own choice, e.g. for weights in fewer bits."""
    is_deterministic: bool = False
    kv_dtype: torch.dtype | None = None
    """The type of keys and values; None is that of the weights."""


class Share:
    """A rank's share of a model; all of it if there is only one rank."""

    def __init__(self, decoder: Decoder, device: torch.device, options: ShareOptions) -> None:
        """Takes over the decoder, which must not be used any more."""
        self.spec = decoder.spec
        self.dtype = decoder.model.norm.weight.dtype
        self.decoder = decoder.to(device).eval()
        shape = (self.spec.head_dim, options.block_size, options.kv_dtype)
        is_deterministic = options.is_deterministic
        self.native = choose_native(device, self.dtype, *shape, is_deterministic=is_deterministic)
        linear = options.make_linear
        fuse(self.decoder, device, self.native, linear, is_deterministic=is_deterministic)
        self.pool = KvPool(
            self.spec,
            options.num_blocks,
            options.block_size,
            device=device,
            dtype=options.kv_dtype or self.dtype,
            num_host_blocks=options.num_host_blocks,
        )
