"""Turns a worker's options into types, quantisation and memory: the same on every rank."""

import msgspec
import torch

from local_engine.kernels.linear import MakeLinear
from local_engine.kernels.quantised import QUANTISED
from local_engine.model.decoder import Decoder
from local_engine.model.errors import ModelRefused
from local_engine.runner.kv_pool import KV_DTYPES
from local_engine.runner.memory import KvBudget, plan_memory
from local_engine.runner.parallel import fewest
from local_engine.runner.share import ShareOptions
from local_engine.serve.options import WorkerOptions


_DTYPES: dict[str, torch.dtype | None] = {
    "auto": None,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def dtype_of(options: WorkerOptions) -> torch.dtype | None:
    """The type of the weights; None is what `config.json` says. Raises `ModelRefused`."""
    if options.dtype not in _DTYPES:
        raise ModelRefused(f"--dtype {options.dtype} is none of {', '.join(_DTYPES)}")
    return _DTYPES[options.dtype]


def kv_dtype_of(options: WorkerOptions) -> torch.dtype | None:
    """The type of keys and values; None is the weights'. Raises `ModelRefused`."""
    if options.kv_dtype not in KV_DTYPES:
        raise ModelRefused(f"--kv-dtype {options.kv_dtype} is none of {', '.join(KV_DTYPES)}")
    return KV_DTYPES[options.kv_dtype]


def quantiser_of(options: WorkerOptions) -> MakeLinear | None:
    """How weights are kept in fewer bits; None: as they are. Raises `ModelRefused`."""
    if not options.quantise:
        return None
    if options.quantise not in QUANTISED:
        raise ModelRefused(f"--quantise {options.quantise} is none of {', '.join(QUANTISED)}")
    return QUANTISED[options.quantise]


def budget_of(decoder: Decoder, device: torch.device, options: WorkerOptions) -> KvBudget:
    """How many blocks this rank has memory for; raises `ModelRefused`."""
    return plan_memory(
        decoder,
        device,
        max_running=options.max_running,
        kv_memory_bytes=options.kv_memory_bytes,
        host_kv_bytes=options.host_kv_bytes,
        kv_dtype=kv_dtype_of(options),
    )


def agreed(budget: KvBudget) -> KvBudget:
    """A budget that every rank can keep; all of them have to ask."""
    num_blocks, num_host_blocks = fewest(budget.num_blocks, budget.num_host_blocks)
    longest = min(budget.longest_context_tokens, num_blocks * budget.block_size)
    return msgspec.structs.replace(
        budget,
        num_blocks=num_blocks,
        num_host_blocks=num_host_blocks,
        longest_context_tokens=longest,
        full_sessions=num_blocks * budget.block_size // longest,
    )


def share_options(options: WorkerOptions, budget: KvBudget) -> ShareOptions:
    """How a rank keeps and multiplies; raises `ModelRefused`."""
    return ShareOptions(
        num_blocks=budget.num_blocks,
        block_size=budget.block_size,
        num_host_blocks=budget.num_host_blocks,
        make_linear=quantiser_of(options),
        is_deterministic=options.is_deterministic,
        kv_dtype=kv_dtype_of(options),
    )
