"""The decoder computes what a slow, independent reading of the Llama equations computes."""

import math

import pytest
import torch

from local_engine.model.decoder import Decoder
from local_engine.model.rope import inverse_frequencies
from local_engine.model.spec import ModelSpec, RopeScaling
from tests.local_engine.models import LLAMA3_SCALING, random_decoder, tiny_spec


SPECS = {
    "grouped": tiny_spec(),
    "multi-head": tiny_spec(num_kv_heads=4),
    "single kv head": tiny_spec(num_kv_heads=1),
    "tied": tiny_spec(tie_word_embeddings=True),
    "scaled rope": tiny_spec(rope_scaling=LLAMA3_SCALING, rope_theta=500000.0),
    "biases": tiny_spec(attention_bias=True, output_bias=True, mlp_bias=True),
    "wide heads": tiny_spec(head_dim=16),
}
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


def oracle_logits(decoder: Decoder, tokens: list[int]) -> torch.Tensor:
    """Position by position and head by head, in float64, with complex rotations."""
    spec = decoder.spec
    weights = {name: tensor.double() for name, tensor in decoder.state_dict().items()}

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = weights[f"{name}.weight"] @ x
        return out + weights[f"{name}.bias"] if f"{name}.bias" in weights else out

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        size = math.sqrt(float((x * x).mean()) + spec.rms_norm_eps)
        out: torch.Tensor = weights[f"{name}.weight"] * x / size
        return out

    def turned(head: torch.Tensor, position: int) -> torch.Tensor:
        half = spec.head_dim // 2
        turns = torch.polar(torch.ones(half).double(), position * oracle_frequencies(spec))
        out = torch.complex(head[:half], head[half:]) * turns
        return torch.cat((out.real, out.imag))

    xs = [weights["model.embed_tokens.weight"][token] for token in tokens]
    for index in range(spec.num_layers):
        at = f"model.layers.{index}"
        normed = [norm(f"{at}.input_layernorm", x) for x in xs]
        qs, ks, vs = (
            [linear(f"{at}.self_attn.{name}_proj", x).view(-1, spec.head_dim) for x in normed]
            for name in "qkv"
        )
        for position in range(len(xs)):
            heads = []
            for head in range(spec.num_heads):
                shared = head // (spec.num_heads // spec.num_kv_heads)
                query = turned(qs[position][head], position)
                scores = torch.stack(
                    [query @ turned(ks[past][shared], past) for past in range(position + 1)]
                )
                shares = (scores / math.sqrt(spec.head_dim)).softmax(0)
                heads.append(
                    torch.stack([s * vs[past][shared] for past, s in enumerate(shares)]).sum(0)
                )
            x = xs[position] + linear(f"{at}.self_attn.o_proj", torch.cat(heads))
            inner = norm(f"{at}.post_attention_layernorm", x)
            gate = linear(f"{at}.mlp.gate_proj", inner)
            gated = gate * torch.sigmoid(gate) * linear(f"{at}.mlp.up_proj", inner)
            xs[position] = x + linear(f"{at}.mlp.down_proj", gated)
    head_weight = weights["lm_head.weight"]
    return torch.stack([head_weight @ norm("model.norm", x) for x in xs])


def oracle_frequencies(spec: ModelSpec) -> torch.Tensor:
    """Meta's published rule: wavelengths decide, with a smooth passage between."""
    out = []
    for channel in range(0, spec.head_dim, 2):
        frequency = spec.rope_theta ** (-channel / spec.head_dim)
        scaling = spec.rope_scaling
        if isinstance(scaling, RopeScaling):
            length = scaling.original_max_position_embeddings
            wavelength = 2 * math.pi / frequency
            if wavelength > length / scaling.low_freq_factor:
                frequency /= scaling.factor
            elif wavelength >= length / scaling.high_freq_factor:
                smooth = (length / wavelength - scaling.low_freq_factor) / (
                    scaling.high_freq_factor - scaling.low_freq_factor
                )
                frequency = (1 - smooth) * frequency / scaling.factor + smooth * frequency
        out.append(frequency)
    return torch.tensor(out, dtype=torch.float64)


@each_spec
def test_the_decoder_agrees_with_the_slow_oracle(spec: ModelSpec) -> None:
    decoder = random_decoder(spec)
    tokens = [5, 900, 17, 17, 1200, 3, 42]
    with torch.inference_mode():
        logits = decoder.logits(decoder(torch.tensor([tokens])))[0]
    expected = oracle_logits(decoder, tokens)
    assert torch.allclose(
        logits.double(), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max())
    )


def test_a_later_token_changes_no_earlier_position() -> None:
    decoder = random_decoder(tiny_spec())
    with torch.inference_mode():
        one = decoder(torch.tensor([[1, 2, 3, 4]]))
        other = decoder(torch.tensor([[1, 2, 3, 900]]))
    assert torch.equal(one[:, :3], other[:, :3])
    assert not torch.equal(one[:, 3], other[:, 3])


def test_scaled_frequencies_follow_the_published_rule() -> None:
    spec = tiny_spec(head_dim=64, rope_scaling=LLAMA3_SCALING)
    assert torch.allclose(
        inverse_frequencies(spec.ropes[0], spec.head_dim).double(),
        oracle_frequencies(spec),
        rtol=1e-5,
    )
