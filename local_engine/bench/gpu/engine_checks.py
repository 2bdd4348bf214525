"""Checks the engine on a device against the engine on the host, and against its other modes.

Scores are compared in one step that decodes and reads prompts at once; tokens must be equal in
float32, whichever way a step is computed: recorded or not, planned ahead or not, from the prefix
cache, from host memory, after preemption, in chunks.
"""

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import torch

from local_engine.bench.gpu.kernel_checks import (
    BLOCK_SIZE,
    CHUNKS,
    SINGLES,
    Check,
    difference,
    laid_out,
    pool_pair,
)
from local_engine.bench.gpu.loop import Engine, greedy, new_engine
from local_engine.bench.gpu.models import random_weights
from local_engine.kernels.paged_attention import choose_native
from local_engine.model.decoder import Decoder
from local_engine.model.spec import ModelSpec, MoeSpec
from local_engine.runner.batch import PagedAttention
from local_engine.runner.fusing import fuse
from local_engine.runner.kv_pool import FP8
from local_engine.sampling_params import SamplingParams


_CPU = torch.device("cpu")
_LLAMA = ModelSpec(
    vocab_size=2003,
    hidden_size=256,
    intermediate_size=384,
    num_layers=3,
    num_heads=8,
    num_kv_heads=2,
    head_dim=64,
    context_window=2048,
)
_SPECS = {
    "llama": _LLAMA,
    "qwen3": msgspec.structs.replace(_LLAMA, has_qk_norm=True, tie_word_embeddings=True),
    "sliding window": msgspec.structs.replace(_LLAMA, windows=(0, 100, 40)),
    "biases": msgspec.structs.replace(_LLAMA, attention_bias=True),
    "gemma": msgspec.structs.replace(
        _LLAMA,
        norm_is_offset=True,
        has_post_norms=True,
        has_qk_norm=True,
        embedding_scale=16.0,
        activation="gelu_pytorch_tanh",
    ),
    "experts": msgspec.structs.replace(
        _LLAMA, moe=MoeSpec(num_experts=8, num_chosen=2, intermediate_size=96)
    ),
}
_MOST_FP32, _MOST_BF16 = 1e-4, 2e-2
_MAX_TOKENS = 24


def engine_checks(device: torch.device) -> Iterator[Check]:
    for name, spec in _SPECS.items():
        yield _scores_check(device, name, spec, torch.float32, torch.float32, _MOST_FP32)
        yield _scores_check(device, name, spec, torch.bfloat16, torch.bfloat16, _MOST_BF16)
    yield _scores_check(device, "llama", _LLAMA, torch.bfloat16, FP8, _MOST_BF16)
    yield from _token_checks(device)


def _scores_check(
    device: torch.device,
    name: str,
    spec: ModelSpec,
    dtype: torch.dtype,
    kv_dtype: torch.dtype,
    most: float,
) -> Check:
    """Scores of a mixed step over known contexts; the host computes in float32, unfused."""
    wide = random_weights(spec, _CPU, dtype).float()
    ours = random_weights(spec, device, dtype)
    ours.load_state_dict(wide.state_dict())
    native = choose_native(device, dtype, spec.head_dim, BLOCK_SIZE, kv_dtype)
    fuse(ours, device, native)
    batch, num_blocks = laid_out((*SINGLES, *CHUNKS))
    pools = pool_pair(spec, num_blocks, batch, device, kv_dtype)
    with torch.inference_mode():
        there = batch.to(device)
        found = _scores(ours, PagedAttention(spec, pools[0], there, native), there)
        expected = _scores(wide, PagedAttention(spec, pools[1], batch, None), batch)
    kinds = [str(each).removeprefix("torch.") for each in (dtype, kv_dtype)]
    error = difference(found, expected)
    if spec.moe is not None and dtype is torch.bfloat16:
        # Rounded, two experts can be equals: a row that took the other one says nothing of ours.
        rows = [difference(a, b) for a, b in zip(found, expected, strict=True)]
        error = statistics.median(rows)
    return Check(f"scores of a mixed step, {name}, {' kv '.join(kinds)}", error, most)


def _scores(decoder: Decoder, attend: PagedAttention, batch: Any) -> torch.Tensor:
    hidden = decoder(batch.token_ids, batch.positions, attend)
    return decoder.logits(hidden[batch.scored_rows])


def _token_checks(device: torch.device) -> Iterator[Check]:
    prompts = [_ids(length, seed) for seed, length in enumerate((5, 40, 200, 333))]
    expected = _written(_engine(_CPU), prompts)
    yield _equal("greedy tokens, device and host", _written(_engine(device), prompts), expected)
    for name, make in _ways(device, prompts).items():
        yield _equal(f"greedy tokens, {name}", make(), expected)
    yield from _sampling_checks(device, prompts)
    yield from _cache_checks(device)
    yield from _pressure_checks(device)


def _ways(
    device: torch.device, prompts: list[list[int]]
) -> dict[str, Callable[[], list[list[int]]]]:
    return {
        "not recorded": lambda: _written(_engine(device, is_recorded=False), prompts),
        "not planned ahead": lambda: _written(_engine(device), prompts, is_ahead=False),
        "without the cache": lambda: _written(_engine(device), prompts, is_caching=False),
        "in chunks beside decoders": lambda: _written(
            _engine(device), prompts, token_budget=48, prefill_chunk=17
        ),
        "one after another": lambda: _written(_engine(device), prompts, max_running=1),
    }


def _sampling_checks(device: torch.device, prompts: list[list[int]]) -> Iterator[Check]:
    """Noise is that of a seed, a position and a token: the same draws on any machine."""
    wide = msgspec.structs.replace(_SPECS["qwen3"], vocab_size=151_936, hidden_size=128)
    ways: tuple[tuple[str, dict[str, Any]], ...] = (
        ("whole", {}),
        ("top-k", {"top_k": 40}),
        ("top-p", {"top_p": 0.9}),
        ("min-p", {"min_p": 0.05}),
        ("all three", {"top_k": 50, "top_p": 0.8, "min_p": 0.02}),
        ("asked about", {"logit_bias": {7: 2.0}, "min_tokens": 5, "logprobs": True}),
    )
    for name, choices in ways:
        params = _sampled(**choices)
        # Of the host itself the narrow one says as much, ten times sooner.
        is_wide = len(choices) != 1 and device.type != "cpu"
        specs = {"": _SPECS["qwen3"]} | ({" of 151,936": wide} if is_wide else {})
        for words, spec in specs.items():
            expected = _written(_engine(_CPU, spec=spec), prompts, params=params)
            found = _written(_engine(device, spec=spec), prompts, params=params)
            yield _equal(f"sampled tokens{words}, {name}, device and host", found, expected)
    expected = _written(_engine(_CPU), prompts, params=_sampled())
    plain = _engine(device, is_recorded=False)
    found = _written(plain, prompts, params=_sampled(), is_ahead=False)
    yield _equal("sampled tokens, not recorded, not ahead", found, expected)


def _sampled(**choices: Any) -> SamplingParams:
    return SamplingParams(
        temperature=0.6, seed=5, max_tokens=_MAX_TOKENS, ignore_eos=True, **choices
    )


def _cache_checks(device: torch.device) -> Iterator[Check]:
    """Prompts that share a prefix, after one another, with the cache and without."""
    shared = _ids(150, 90)
    prompts = [[*shared, *_ids(20, 91 + number)] for number in range(3)]
    expected = _written(_engine(device), prompts, is_caching=False)
    engine = _engine(device)
    loop = engine.loop(token_budget=512)
    found, num_cached = [], 0
    for prompt in prompts:
        sequence = loop.add(prompt, greedy(_MAX_TOKENS))
        loop.run()
        found.append(list(sequence.output_token_ids))
        num_cached += sequence.num_cached_tokens
    loop.close()
    yield _equal("greedy tokens from the prefix cache", found, expected)
    yield Check("tokens found in the cache, of 288 missing", float(288 - num_cached), 0.0)


def _pressure_checks(device: torch.device) -> Iterator[Check]:
    """Too few blocks: some start over; and what is evicted comes back from host memory."""
    prompts = [_ids(60, 70 + number) for number in range(4)]
    expected = _written(_engine(device), prompts)
    engine = _engine(device, kv_tokens=240)
    loop = engine.loop(token_budget=512)
    sequences = [loop.add(prompt, greedy(_MAX_TOKENS)) for prompt in prompts]
    loop.run()
    loop.close()
    found = [list(sequence.output_token_ids) for sequence in sequences]
    yield _equal("greedy tokens after preemption", found, expected)
    was_needed = float(loop.scheduler.num_preemptions == 0)
    yield Check("preemption did not happen", was_needed, 0.0)
    engine = _engine(device, kv_tokens=128, num_host_blocks=32)
    loop = engine.loop(token_budget=512, num_host_blocks=32)
    found, num_cached = [], 0
    for prompt in [*prompts, *prompts]:
        sequence = loop.add(prompt, greedy(_MAX_TOKENS))
        loop.run()
        found.append(list(sequence.output_token_ids))
        num_cached += sequence.num_cached_tokens
    loop.close()
    yield _equal("greedy tokens from host memory", found, [*expected, *expected])
    yield Check("nothing came back from host memory", float(num_cached == 0), 0.0)


def _engine(
    device: torch.device,
    kv_tokens: int = 4096,
    spec: ModelSpec = _SPECS["qwen3"],
    **choices: Any,
) -> Engine:
    """The same float32 weights on any device."""
    decoder = random_weights(spec, device, torch.float32)
    decoder.load_state_dict(_wide_state(spec))
    return new_engine(decoder, device, kv_tokens=kv_tokens, most_rows=8, **choices)


def _wide_state(spec: ModelSpec) -> dict[str, torch.Tensor]:
    """Weights with scores far enough apart that rounding decides nothing."""
    decoder = random_weights(spec, _CPU, torch.float32)
    return {
        name: tensor * 4 if tensor.dim() > 1 else tensor
        for name, tensor in decoder.state_dict().items()
    }


def _written(
    engine: Engine,
    prompts: list[list[int]],
    params: SamplingParams | None = None,
    *,
    is_ahead: bool = True,
    **limits: Any,
) -> list[list[int]]:
    loop = engine.loop(is_ahead=is_ahead, **{"token_budget": 512, **limits})
    sequences = [loop.add(prompt, params or greedy(_MAX_TOKENS)) for prompt in prompts]
    loop.run()
    loop.close()
    return [list(sequence.output_token_ids) for sequence in sequences]


def _equal(name: str, found: list[list[int]], expected: list[list[int]]) -> Check:
    """The error is how many sequences differ."""
    differing = sum(a != b for a, b in zip(found, expected, strict=True))
    return Check(name, float(differing), 0.0)


def _ids(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    found: list[int] = torch.randint(0, _LLAMA.vocab_size, (length,), generator=generator).tolist()
    return found
