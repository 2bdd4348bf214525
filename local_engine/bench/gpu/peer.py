"""transformers' continuous batching on the same weights and requests, with torch's flash kernel.

Without the flash-attn package transformers masks one product over the keys of all requests, which
makes no fair comparison. So it is given the flash kernel that torch itself carries, over the keys
and values that it gathers.
"""

import importlib
import logging
import time
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from torch.nn import functional as F

from local_engine.bench.cpu import Row
from local_engine.bench.gpu.bench import Bench, TookTooLong, failures
from local_engine.bench.gpu.kernel_checks import Check, difference
from local_engine.bench.gpu.loop import Engine, greedy, new_engine
from local_engine.bench.gpu.models import random_weights
from local_engine.bench.gpu.workloads import random_ids
from local_engine.bench.peers import has_transformers
from local_engine.model.decoder import Decoder
from local_engine.model.spec import ModelSpec


LENT = "torch_varlen"
_PLAIN = "sdpa"
_BLOCK_TOKENS = 256
_BUDGET_TOKENS = 8192
# Of torch's operator: causal (aligned at the last token), and no mask returned for debugging.
_CAUSAL_ONLY = (True, False)


def peer_rows(bench: Bench) -> Iterator[Row]:
    """Output tokens per second of both, prompts included; whatever it was lent is said."""
    bench.drop_engine()
    assert has_transformers(), "transformers is not installed"
    scale, spec = bench.scale, bench.scale.large
    transformers: Any = importlib.import_module("transformers")
    decoder = random_weights(spec, bench.device)
    model = _same_model(transformers, decoder, bench.device)
    numbers = range(scale.peer_batch)
    prompts = [random_ids(spec, scale.peer_prompt, seed=number) for number in numbers]
    others = [random_ids(spec, scale.peer_prompt, seed=9000 + number) for number in numbers]
    tokens = 2 * scale.peer_batch * (scale.peer_prompt + scale.peer_output)
    engine = new_engine(decoder, bench.device, kv_tokens=tokens, most_rows=scale.peer_batch)
    ours_s, ours = _ours(engine, others, prompts, scale.peer_output)
    num_written = scale.peer_batch * scale.peer_output
    for attention, has_graphs in _choices(bench.device):
        peer = Peer(transformers, model, attention, tokens, has_graphs=has_graphs)
        try:
            theirs_s, theirs = peer.second_of(others, prompts, scale.peer_output)
        except TookTooLong:
            raise
        except failures() as error:
            yield Row(f"transformers, {peer.words}", f"failed: {str(error)[:160]}", 0.0, "-")
            continue
        finally:
            peer.close()
        agreed = sum(a[0] == b[0] for a, b in zip(ours, theirs, strict=True))
        measured = f"{num_written / ours_s:,.0f} and {num_written / theirs_s:,.0f} tokens/s;"
        measured += f" {scale.peer_batch} of {scale.peer_prompt} in, {scale.peer_output} out,"
        measured += f" the same first token in {agreed}"
        yield Row(f"8 B against transformers, {peer.words}", measured, theirs_s / ours_s, ">= 2")
        return


def _choices(device: torch.device) -> list[tuple[str, bool]]:
    """Attention and graphs to lend, the best first."""
    if device.type != "cuda":
        return [(LENT, False), (_PLAIN, False)]
    return [(LENT, True), (LENT, False), (_PLAIN, False)]


def _ours(
    engine: Engine, first: list[list[int]], prompts: list[list[int]], max_tokens: int
) -> tuple[float, list[list[int]]]:
    """The second of two rounds, as the peer's."""
    took_s, sequences = 0.0, []
    for requests in (first, prompts):
        loop = engine.loop(
            max_running=len(requests),
            token_budget=_BUDGET_TOKENS,
            prefill_chunk=_BUDGET_TOKENS,
            is_caching=False,
        )
        sequences = [loop.add(prompt, greedy(max_tokens)) for prompt in requests]
        took_s = loop.run()
        loop.close()
    return took_s, [list(sequence.output_token_ids) for sequence in sequences]


class Peer:
    """One model of theirs with one attention, and a cache of about so many tokens."""

    def __init__(
        self, transformers: Any, model: Any, attention: str, kv_tokens: int, *, has_graphs: bool
    ) -> None:
        self._transformers = transformers
        self._model = model
        # It warns that it keeps its manager, which is what we ask of it.
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
        # Newer versions have dropped the prefix that older ones look for.
        for name in (LENT, f"paged|{LENT}"):
            transformers.AttentionInterface.register(name, lent_attention)
        model.set_attn_implementation(attention)
        known = {field.name for field in fields(transformers.ContinuousBatchingConfig)}
        size = "page_size" if "page_size" in known else "block_size"
        self._config = transformers.ContinuousBatchingConfig(
            num_blocks=kv_tokens // _BLOCK_TOKENS + 2,
            max_batch_tokens=_BUDGET_TOKENS,
            use_cuda_graph=has_graphs,
            use_async_batching=has_graphs,
            **{size: _BLOCK_TOKENS},
        )
        name = "torch's flash kernel lent" if attention == LENT else "its masked sdpa"
        graphs = "with graphs" if has_graphs else "no graphs"
        self.words = f"{transformers.__version__}, {name}, {graphs}"

    def second_of(
        self, first: list[list[int]], prompts: list[list[int]], max_tokens: int
    ) -> tuple[float, list[list[int]]]:
        """Seconds for `prompts` after a round of others, and what it wrote."""
        self.written(first, max_tokens)
        started = time.perf_counter()
        found = self.written(prompts, max_tokens)
        return time.perf_counter() - started, found

    def close(self) -> None:
        """Have it give up its cache, so that the next one has room."""
        self._model.destroy_cached_continuous_batching_manager()

    def written(self, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
        """What it writes after each prompt; its manager is kept for the next call."""
        generation = self._transformers.GenerationConfig(
            max_new_tokens=max_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        outputs = self._model.generate_batch(
            inputs=prompts,
            generation_config=generation,
            continuous_batching_config=self._config,
            progress_bar=False,
            persistent_manager=True,
        )
        if errors := {str(each.error) for each in outputs.values() if each.error}:
            raise RuntimeError("; ".join(errors))
        by_prompt = {tuple(each.prompt_ids): each.generated_tokens for each in outputs.values()}
        found = [list(by_prompt.get(tuple(prompt), ())) for prompt in prompts]
        if any(len(tokens) != max_tokens for tokens in found):
            raise RuntimeError("it did not write all of its tokens")
        return found


def lent_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers' own functions for paged attention: [1, heads, tokens, dim] each."""
    assert attention_mask is None, "lengths say who sees what"
    k, v = _gathered(module, key, value, given)
    q = query.transpose(1, 2).squeeze(0).contiguous()
    ends_q, ends_k = given["cu_seq_lens_q"], given["cu_seq_lens_k"]
    longest = (_longest(given, "q"), _longest(given, "k"))
    out = varlen_attention(q, k, v, (ends_q, ends_k), longest, scaling)
    return out[None], None


def _longest(given: dict[str, Any], side: str) -> int:
    name = f"max_seqlen_{side}"
    return int(given[name] if name in given else given[f"max_length_{side}"])


def _gathered(
    module: Any, key: torch.Tensor, value: torch.Tensor, given: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """All keys and values of the batch as [tokens, kv_heads, dim], from either known interface."""
    cache, layer = given["cache"], module.layer_idx
    if "kwargs" in cache.update.__code__.co_varnames:
        key, value = cache.update(key, value, layer_idx=layer, kwargs=given)
        key, value = key[0].transpose(0, 1), value[0].transpose(0, 1)
        return key.contiguous(), value.contiguous()
    places = {name: given[name] for name in ("read_index", "write_index")}
    found = cache.update(key_states=key, value_states=value, layer_idx=layer, **places)
    return found[0].contiguous(), found[1].contiguous()


def varlen_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    ends: tuple[torch.Tensor, torch.Tensor],
    longest: tuple[int, int],
    scale: float | None,
) -> torch.Tensor:
    """Each sequence's last queries over all of its keys; [tokens, heads, dim]."""
    if q.device.type != "cuda":
        return varlen_reference(q, k, v, ends, scale)
    ends_q, ends_k = (each.to(torch.int32) for each in ends)
    found = torch.ops.aten._flash_attention_forward(  # noqa: SLF001 - as torch's sdpa does
        q, k, v, ends_q, ends_k, *longest, 0.0, *_CAUSAL_ONLY, scale=scale
    )
    out: torch.Tensor = found[0]
    return out


def varlen_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    ends: tuple[torch.Tensor, torch.Tensor],
    scale: float | None,
) -> torch.Tensor:
    """The same, sequence by sequence; rows that no sequence owns are zero."""
    out = torch.zeros_like(q)
    ends_q, ends_k = (each.tolist() for each in ends)
    for first, end, first_k, end_k in zip(
        ends_q[:-1], ends_q[1:], ends_k[:-1], ends_k[1:], strict=True
    ):
        here = torch.arange(end_k - first_k - (end - first), end_k - first_k, device=q.device)
        mask = torch.arange(end_k - first_k, device=q.device) <= here[:, None]
        rows, keys, values = (
            part.transpose(0, 1)[None]
            for part in (q[first:end], k[first_k:end_k], v[first_k:end_k])
        )
        answer = F.scaled_dot_product_attention(
            rows, keys, values, attn_mask=mask, scale=scale, enable_gqa=True
        )
        out[first:end] = answer[0].transpose(0, 1)
    return out


def _same_model(transformers: Any, decoder: Decoder, device: torch.device) -> Any:
    """Theirs, with a copy of our weights; raises `RuntimeError` if a name is missing."""
    spec: ModelSpec = decoder.spec
    config = transformers.LlamaConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=spec.num_heads,
        num_key_value_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        max_position_embeddings=spec.context_window,
        rms_norm_eps=spec.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": spec.rope_theta},
        tie_word_embeddings=spec.tie_word_embeddings,
    )
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(decoder.state_dict())
    return model.requires_grad_(requires_grad=False).eval()


def peer_checks(device: torch.device) -> Iterator[Check]:
    """That what is lent computes what is asked for, where queries are fewer than keys."""
    ends = [1, 31, 40, 170, 258]
    ends_k = torch.tensor([0, *ends]).cumsum(0).to(torch.int32)
    for name, counts in (("mixed", [1, 1, 40, 70, 1]), ("single tokens", [1] * len(ends))):
        ends_q = torch.tensor([0, *counts]).cumsum(0).to(torch.int32)
        q = torch.randn(sum(counts), 8, 64).to(torch.bfloat16)
        k, v = (torch.randn(sum(ends), 2, 64).to(torch.bfloat16) for _ in range(2))
        expected = varlen_reference(q.double(), k.double(), v.double(), (ends_q, ends_k), 0.125)
        found = varlen_attention(
            q.to(device),
            k.to(device),
            v.to(device),
            (ends_q.to(device), ends_k.to(device)),
            (max(counts), max(ends)),
            0.125,
        )
        error = difference(found, expected)
        yield Check(f"flash kernel lent to the peer, {name}", error, 2e-2)
