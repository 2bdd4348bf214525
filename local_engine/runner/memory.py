"""Computes how many blocks fit: weights, bytes per token, what is left for keys and values."""

import msgspec
import torch

from local_engine.model.decoder import Decoder
from local_engine.model.errors import ModelRefused


BLOCK_SIZE = 16
_DEFAULT_CPU_KV_BYTES = 1 << 30
_GPU_SHARE = 0.85


class KvBudget(msgspec.Struct, frozen=True):
    """The calculation, in bytes and blocks, as printed at start."""

    weight_bytes: int
    kv_bytes_per_token: int
    block_size: int
    num_blocks: int
    num_host_blocks: int
    longest_context_tokens: int
    full_sessions: int
    """How many sessions of the longest context fit at once."""


def plan_memory(
    decoder: Decoder,
    device: torch.device,
    *,
    max_running: int,
    kv_memory_bytes: int = 0,
    host_kv_bytes: int = 0,
    kv_dtype: torch.dtype | None = None,
) -> KvBudget:
    """Blocks for this model on this device; raises `ModelRefused` if not even one session fits.

    With 0 bytes given, the device's memory decides.
    """
    spec = decoder.spec
    dtype = kv_dtype or decoder.model.norm.weight.dtype
    weights = {p.data_ptr(): p.numel() * p.element_size() for p in decoder.parameters()}
    weight_bytes = sum(weights.values())
    per_token = spec.kv_bytes_per_token(dtype.itemsize)
    per_block = per_token * BLOCK_SIZE
    # More than every place filled completely is of no use.
    most = max_running * -(-spec.context_window // BLOCK_SIZE)
    num_blocks = min(most, (kv_memory_bytes or _kv_bytes(device, weight_bytes)) // per_block)
    if num_blocks < 2:
        raise ModelRefused("there is no memory for keys and values")
    longest = min(spec.context_window, num_blocks * BLOCK_SIZE)
    return KvBudget(
        weight_bytes=weight_bytes,
        kv_bytes_per_token=per_token,
        block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
        num_host_blocks=host_kv_bytes // per_block,
        longest_context_tokens=longest,
        full_sessions=num_blocks * BLOCK_SIZE // longest,
    )


def _kv_bytes(device: torch.device, weight_bytes: int) -> int:
    if device.type != "cuda":
        return _DEFAULT_CPU_KV_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * _GPU_SHARE) - weight_bytes
