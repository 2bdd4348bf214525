"""The cases of `test_triton`, run by it in a process of its own: `TRITON_INTERPRET=1` says how.

Every kernel is compared with its torch reference in float64, for float32 and float16.
"""

import sys

import torch
from torch.nn.functional import rms_norm, silu

from local_engine.kernels import triton_norms, triton_products
from local_engine.kernels.fast import HeadNorms
from local_engine.kernels.paged_attention import decode_reference, prefill_reference
from local_engine.kernels.quantised import (
    quantise_fp8,
    quantise_int4,
    quantise_int8,
    widen_int4,
)
from local_engine.kernels.reach import Reach
from local_engine.kernels.sampling_noise import draw_reference, row_key
from local_engine.kernels.triton_attention import decode_triton, prefill_triton
from local_engine.kernels.triton_sample import draw_triton
from local_engine.model.moe import grouped_reference
from local_engine.model.rope import rotate


FP8 = torch.float8_e4m3fn


def is_close(found: torch.Tensor, expected: torch.Tensor, most: float) -> None:
    difference = float((found.double() - expected).abs().max())
    assert difference <= most * max(1.0, float(expected.abs().max())), difference


def attention(dtype: torch.dtype, most: float) -> None:
    cases = ((4, 2, 32, 0, dtype), (6, 2, 16, 9, dtype), (2, 1, 16, 0, FP8))
    for heads, kv_heads, dim, window, kept_as in cases:
        keys = torch.randn(7, kv_heads, dim, 16, dtype=dtype).to(kept_as)
        values = torch.randn(7, kv_heads, 16, dim, dtype=dtype).to(kept_as)
        if kept_as != FP8:
            keys[6], values[6] = torch.nan, torch.nan
        reach = Reach(dim**-0.5, window)
        q = torch.randn(2, heads, dim, dtype=dtype)
        table = torch.tensor([[5, 6], [1, 4]], dtype=torch.int32)
        lengths = torch.tensor([16, 27], dtype=torch.int32)
        found = decode_triton(q, keys, values, table, lengths, reach)
        expected = decode_reference(q.double(), keys, values, table.long(), lengths, reach)
        is_close(found, expected, most)
        q = torch.randn(9, heads, dim, dtype=dtype)
        blocks = torch.tensor([3, 1, 6])
        found = prefill_triton(q, keys, values, blocks, 20, reach)
        is_close(found, prefill_reference(q.double(), keys, values, blocks[:2], 20, reach), most)


def norms(dtype: torch.dtype, most: float) -> None:
    x, weight = torch.randn(3, 48, dtype=dtype), torch.rand(48, dtype=dtype) + 0.5
    expected = rms_norm(x.double(), (48,), weight.double(), 1e-6)
    is_close(triton_norms.rms_norm_triton(x, weight, 1e-6), expected, most)
    gate_up = torch.randn(3, 80, dtype=dtype)
    gate, up = gate_up.double().chunk(2, -1)
    is_close(triton_norms.silu_times_triton(gate_up), silu(gate) * up, most)


def turns(dtype: torch.dtype, most: float) -> None:
    heads, kv_heads, dim, rows = 4, 2, 16, 3
    q_weight, k_weight = torch.rand(2, dim, dtype=dtype) + 0.5
    angles = torch.rand(rows, 1, dim // 2) * 6
    cos, sin = (torch.cat([part] * 2, -1).to(dtype) for part in (angles.cos(), angles.sin()))
    blocks, offsets = torch.tensor([1, 3, 3]), torch.tensor([15, 0, 7])
    places = (blocks, offsets)
    for norms_given in (True, False):
        qkv = torch.randn(rows, (heads + 2 * kv_heads) * dim, dtype=dtype)
        keys = torch.zeros(4, kv_heads, dim, 16, dtype=dtype)
        values = torch.zeros(4, kv_heads, 16, dim, dtype=dtype)
        given = HeadNorms(q_weight, k_weight, 1e-6) if norms_given else None
        found = triton_norms.norm_turn_store_triton(qkv, given, (cos, sin), places, (keys, values))
        q, k, v = (part.double() for part in parted(qkv, heads, kv_heads, dim))
        if norms_given:
            q = rms_norm(q, (dim,), q_weight.double(), 1e-6)
            k = rms_norm(k, (dim,), k_weight.double(), 1e-6)
        is_close(found, rotate(q, cos.double(), sin.double()), most)
        is_close(keys[blocks, :, :, offsets], rotate(k, cos.double(), sin.double()), most)
        is_close(values[blocks, :, offsets], v, most)
    # The interpreter rounds to fp8 wrongly at powers of two: what needs no rounding is compared.
    qkv = torch.randn(rows, (heads + 2 * kv_heads) * dim).to(FP8).to(dtype) * 64
    qkv[0] = 1000.0
    keys = torch.zeros(4, kv_heads, dim, 16, dtype=FP8)
    values = torch.zeros(4, kv_heads, 16, dim, dtype=FP8)
    unturned = (torch.ones_like(cos), torch.zeros_like(sin))
    triton_norms.norm_turn_store_triton(qkv, None, unturned, places, (keys, values))
    _, k, v = (part.clamp(-448, 448) for part in parted(qkv, heads, kv_heads, dim))
    assert torch.equal(keys.to(dtype)[blocks, :, :, offsets], k)
    assert torch.equal(values.to(dtype)[blocks, :, offsets], v)


def parted(qkv: torch.Tensor, heads: int, kv_heads: int, dim: int) -> list[torch.Tensor]:
    parts = torch.split(qkv, [heads * dim, kv_heads * dim, kv_heads * dim], -1)
    return [part.view(len(qkv), -1, dim) for part in parts]


def products(dtype: torch.dtype, most: float) -> None:
    most *= 4
    weight, x = torch.randn(20, 64), torch.randn(5, 64, dtype=dtype)
    packed, scale = quantise_fp8(weight)
    expected = (x.double() @ packed.double().t()) * scale.double()
    is_close(triton_products.product_fp8_triton(x, packed, scale), expected, most)
    packed, scale = quantise_int8(weight)
    whole, per_token = quantise_int8(x)
    expected = (whole.double() @ packed.double().t()) * scale.double() * per_token.double()[:, None]
    is_close(triton_products.product_int8_triton(whole, per_token, packed, scale), expected, 1e-5)
    for inputs in (64, 256):
        x = torch.randn(3, inputs, dtype=dtype)
        packed, scale = quantise_int4(torch.randn(20, inputs))
        expected = x.double() @ widen_int4(packed, scale).double().t()
        is_close(triton_products.product_int4_triton(x, packed, scale), expected, most)
    experts = torch.tensor([2, 0, 2, 2, 0, 1, 2, 2] * 5)
    x, weights = torch.randn(20, 24, dtype=dtype), torch.randn(4, 12, 24, dtype=dtype)
    expected = grouped_reference(x.double(), weights.double(), experts, 2)
    is_close(triton_products.grouped_triton(x, weights, experts, 2), expected, most)


def draws() -> None:
    scores, far = torch.randn(4, 1500), -1e30
    inverse = torch.tensor([0.0, 1.0, 2.0, 1.0])
    floors = torch.tensor([far, far, far, 2.0])
    for position in range(4):
        keys = torch.tensor([row_key(row, position) for row in range(4)])
        found = draw_triton(scores, inverse, floors, keys)
        assert torch.equal(found, draw_reference(scores, inverse, floors, keys))
        assert int(found[0]) == int(scores[0].argmax())
        assert float(scores[3, found[3]]) >= 2.0


def main(name: str) -> None:
    torch.manual_seed(0)
    if name == "draws":
        draws()
        return
    case = {"attention": attention, "norms": norms, "turns": turns, "products": products}[name]
    for dtype, most in ((torch.float32, 1e-5), (torch.float16, 2e-3)):
        case(dtype, most)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        main(name)
        print(name)  # noqa: T201 - what the test reads
