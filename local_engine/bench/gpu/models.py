"""The models of the GPU benchmarks: two public shapes with random weights, made on the device."""

from dataclasses import dataclass, replace

import torch

from local_engine.model.decoder import Decoder
from local_engine.model.spec import ModelSpec


QWEN = ModelSpec(
    vocab_size=151_936,
    hidden_size=1024,
    intermediate_size=3072,
    num_layers=28,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    context_window=40_960,
    rope_theta=1e6,
    has_qk_norm=True,
    tie_word_embeddings=True,
)
LLAMA = ModelSpec(
    vocab_size=128_256,
    hidden_size=4096,
    intermediate_size=14_336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    context_window=131_072,
    rms_norm_eps=1e-5,
    rope_theta=5e5,
)
_TINY_SMALL = ModelSpec(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    context_window=1024,
    has_qk_norm=True,
    tie_word_embeddings=True,
)
_TINY_LARGE = ModelSpec(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=96,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    context_window=1024,
)
_STD = 0.02


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large everything is; lengths in tokens, memory in bytes."""

    small: ModelSpec = QWEN
    large: ModelSpec = LLAMA
    batches: tuple[int, ...] = (1, 32, 256)
    context: int = 1024
    long_context: int = 8192
    long_batch: int = 32
    decode_steps: int = 48
    kv_tokens: int = 300_000
    """Room of a pool: 256 sequences of the nano-vllm workload, all at once."""
    prefill_repeats: int = 5
    workload_sequences: int = 256
    workload_shortest: int = 100
    workload_longest: int = 1024
    workload_ids: int = 10_000
    prefix_sequences: int = 128
    prefix_prompt: int = 2000
    prefix_shared: int = 1800
    prefix_output: int = 64
    peer_batch: int = 32
    peer_prompt: int = 512
    peer_output: int = 256
    copy_bytes: int = 4 << 30
    product_side: int = 8192
    repeats: int = 20


FULL = Scale()
TINY = replace(
    FULL,
    small=_TINY_SMALL,
    large=_TINY_LARGE,
    batches=(1, 3, 20),
    context=48,
    long_context=96,
    long_batch=3,
    decode_steps=5,
    kv_tokens=4096,
    prefill_repeats=2,
    workload_sequences=12,
    workload_shortest=4,
    workload_longest=24,
    workload_ids=500,
    prefix_sequences=6,
    prefix_prompt=80,
    prefix_shared=64,
    prefix_output=4,
    peer_batch=3,
    peer_prompt=24,
    peer_output=6,
    copy_bytes=1 << 22,
    product_side=128,
    repeats=3,
)


def random_weights(
    spec: ModelSpec, device: torch.device, dtype: torch.dtype = torch.bfloat16
) -> Decoder:
    """A decoder whose weights never were anywhere but on `device`; norms scale by one."""
    with torch.device("meta"):
        decoder = Decoder(spec).to(dtype)
    decoder.to_empty(device=device)
    if spec.tie_word_embeddings:
        # Emptying gives each name a tensor of its own.
        decoder.lm_head.weight = decoder.model.embed_tokens.weight
    generator = torch.Generator(device).manual_seed(0)
    decoder.requires_grad_(requires_grad=False)
    for name, parameter in decoder.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(0.0 if spec.norm_is_offset else 1.0)
        else:
            parameter.normal_(std=_STD, generator=generator)
    return decoder.eval()
