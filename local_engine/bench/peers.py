"""transformers' continuous batching on the same weights in the same run, where it is installed."""

import importlib.util
from typing import Any

from local_engine.bench.subject import SPEC, cpu_us, random_prompt
from local_engine.model.decoder import Decoder


PAGE_SIZE, NUM_BLOCKS = 32, 512


def has_transformers() -> bool:
    return importlib.util.find_spec("transformers") is not None


class TransformersPeer:
    """Its continuous batching, pages tuned."""

    def __init__(self, decoder: Decoder) -> None:
        self._transformers: Any = importlib.import_module("transformers")
        self._model = _same_model(self._transformers, decoder)

    def us_per_token(self, batch: int, max_tokens: int) -> float:
        """CPU time per output token of `batch` requests, their prompts included."""
        transformers = self._transformers
        config = transformers.ContinuousBatchingConfig(page_size=PAGE_SIZE, num_blocks=NUM_BLOCKS)
        generation = transformers.GenerationConfig(
            max_new_tokens=max_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
        prompts = [random_prompt(96, number) for number in range(batch)]
        started = cpu_us()
        outputs = self._model.generate_batch(
            inputs=prompts,
            generation_config=generation,
            continuous_batching_config=config,
            progress_bar=False,
        )
        spent = cpu_us() - started
        return spent / sum(len(output.generated_tokens) for output in outputs.values())


def _same_model(transformers: Any, decoder: Decoder) -> Any:
    config = transformers.Qwen3Config(
        vocab_size=SPEC.vocab_size,
        hidden_size=SPEC.hidden_size,
        intermediate_size=SPEC.intermediate_size,
        num_hidden_layers=SPEC.num_layers,
        num_attention_heads=SPEC.num_heads,
        num_key_value_heads=SPEC.num_kv_heads,
        head_dim=SPEC.head_dim,
        max_position_embeddings=SPEC.context_window,
        tie_word_embeddings=True,
    )
    config._attn_implementation = "sdpa"  # noqa: SLF001 - the way transformers offers
    model = transformers.Qwen3ForCausalLM(config)
    model.load_state_dict(decoder.state_dict(), strict=False)
    return model.eval()
