"""The cases of `test_triton`, run by it in a process of its own: `TRITON_INTERPRET=1` says how.

Every kernel is compared with its torch reference in float64, for float32 and float16.
"""

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.functional import rms_norm, silu

from local_engine.bench.gpu.loop import greedy, new_engine
from local_engine.kernels import (
    linear,
    paged_attention,
    quantised,
    triton_norms,
    triton_products,
)
from local_engine.kernels.fast import Chunks, HeadNorms
from local_engine.kernels.paged_attention import decode_reference, prefill_chunks_reference
from local_engine.kernels.quantised import (
    quantise_fp8,
    quantise_int4,
    quantise_int8,
    widen_int4,
)
from local_engine.kernels.reach import Reach
from local_engine.kernels.sampling_floors import floors_reference
from local_engine.kernels.sampling_noise import draw_reference, row_key
from local_engine.kernels.triton_attention import decode_triton, prefill_triton
from local_engine.kernels.triton_sample import draw_triton, floors_triton
from local_engine.model.moe import grouped_reference
from local_engine.model.rope import rotate
from local_engine.model.spec import ModelSpec
from local_engine.runner import choosing, fusing
from local_engine.runner.drawing import ReferenceDrawing, Row, TritonDrawing
from local_engine.runner.sampler import History, sample
from local_engine.sampling_params import SamplingParams
from tests.local_engine.late_device import LateTimeline
from tests.local_engine.models import random_decoder, tiny_spec


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
        q = torch.randn(14, heads, dim, dtype=dtype)
        chunks = Chunks(
            spans=[(20, 29), (0, 3), (30, 32)],
            first_rows=[0, 9, 12],
            table=torch.tensor([[3, 1, 6], [2, 6, 6], [4, 2, 6]], dtype=torch.int32),
            ends=torch.tensor([29, 3, 32], dtype=torch.int32),
            firsts=torch.tensor([0, 9, 12, 14], dtype=torch.int32),
        )
        found = prefill_triton(q, keys, values, chunks, reach)
        is_close(found, prefill_chunks_reference(q.double(), keys, values, chunks, reach), most)


def norms(dtype: torch.dtype, most: float) -> None:
    x, weight = torch.randn(3, 48, dtype=dtype), torch.rand(48, dtype=dtype) + 0.5
    expected = rms_norm(x.double(), (48,), weight.double(), 1e-6)
    is_close(triton_norms.rms_norm_triton(x, weight, 1e-6), expected, most)
    more = torch.randn(3, 48, dtype=dtype)
    total, found = triton_norms.add_rms_norm_triton(x, more, weight, 1e-6)
    assert torch.equal(total, x + more)
    is_close(found, rms_norm((x + more).double(), (48,), weight.double(), 1e-6), most)
    gate_up = torch.randn(3, 80, dtype=dtype)
    gate, up = gate_up.double().chunk(2, -1)
    is_close(triton_norms.silu_times_triton(gate_up), silu(gate) * up, most)


def turns(dtype: torch.dtype, most: float) -> None:
    turns_of_rows(dtype, most)
    few, triton_norms._FIRST_PROMPT = triton_norms._FIRST_PROMPT, 1
    turns_of_rows(dtype, most)
    triton_norms._FIRST_PROMPT = few


def turns_of_rows(dtype: torch.dtype, most: float) -> None:
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
    found = triton_products.product_fp8_triton(x[:1], packed, scale)
    is_close(found, expected[:1], most)
    bias = torch.randn(20, dtype=dtype)
    found = triton_products.product_one_triton(x[0], weight.to(dtype), None, bias)
    is_close(found, x[0].double() @ weight.to(dtype).double().t() + bias.double(), most)
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
    scores, far = torch.randn(5, 1500), -1e30
    places = torch.tensor([0, 4, 2, 3])
    inverse = torch.tensor([0.0, 1.0, 2.0, 1.0])
    floors = torch.tensor([far, far, far, 2.0])
    for position in range(4):
        keys = torch.tensor([row_key(row, position) for row in range(4)])
        found = draw_triton(scores, places, inverse, floors, keys)
        assert torch.equal(found, draw_reference(scores[places], inverse, floors, keys))
        assert int(found[0]) == int(scores[0].argmax())
        assert float(scores[3, found[3]]) >= 2.0


def chosen() -> None:
    """A GPU's products: a step of one, one of several, and a chunk whose scores nobody asks for."""
    weight, bias = torch.randn(20, 64), torch.randn(20)
    with patch.object(linear, "triton_products", return_value=triton_products):
        multiply = linear.triton_linear(weight, bias)
    for rows in (0, 1, 3):
        x = torch.randn(rows, 64)
        found = multiply(x)
        assert found.shape == (rows, 20)
        assert torch.allclose(found, x @ weight.t() + bias, atol=1e-5)
    with patch.object(quantised, "triton_products", return_value=triton_products):
        makers = [make(weight, bias) for make in quantised.QUANTISED.values()]
    for multiply in makers:
        found, none = multiply(torch.randn(1, 64)), multiply(torch.randn(0, 64))
        assert (found.shape, none.shape) == ((1, 20), (0, 20))


def drawing() -> None:
    """What all rows need to know travels in one piece: each number must arrive where it belongs."""
    scores = torch.randn(6, 700) * 2
    whole = [
        SamplingParams(temperature=0.0, top_p=0.5),
        SamplingParams(temperature=0.7),
        SamplingParams(temperature=1.3, min_p=0.2),
        SamplingParams(temperature=1e-6),
    ]
    cut = [
        SamplingParams(temperature=1.5, top_k=3),
        SamplingParams(temperature=1.5, top_p=0.3),
        SamplingParams(temperature=1.5, top_k=40, top_p=0.6, min_p=0.01),
    ]
    for position in range(6):
        rows = [Row(5 - at, params, 90 + at, position) for at, params in enumerate(whole)]
        found = TritonDrawing().draw(scores, rows)
        assert torch.equal(found, ReferenceDrawing().draw(scores, rows))
        rows = [Row(at + 1, params, at, position) for at, params in enumerate(cut)]
        for row, token in zip(rows, TritonDrawing().draw(scores, rows).tolist(), strict=True):
            assert token == sample(scores[row.at], row.params, _at(position), row.seed).token_id


def _at(position: int) -> History:
    return History(num_written=position)


# Scores that a model gives seldom, and a mask often.
EDGES = {
    "equal": torch.zeros(300),
    "one": torch.tensor([2.5]),
    "two alike": torch.tensor([1.0, 7.0, 7.0, -3.0]),
    "forbidden": torch.where(torch.arange(300) % 7 == 0, torch.arange(300) / 50, -torch.inf),
    "all but one": torch.where(torch.arange(300) == 41, -9.0, -torch.inf),
    "nothing": torch.full((300,), -torch.inf),
    "far apart": torch.tensor([3e38, -3e38, 0.0, -0.0]),
}
CUTS: list[dict[str, Any]] = [
    {"top_p": 1e-46},
    {"top_p": 1e-9},
    {"top_p": 1.0 - 1e-9},
    {"top_k": 1},
    {"top_k": 299},
    {"top_k": 1 << 31},
    {"min_p": 1.0},
    {"min_p": 5e-324},
    {"top_k": 2, "top_p": 0.5, "min_p": 0.5},
]
TEMPERATURES = (1e-6, 1.0, 2.0)
EVERY_CUT = bool(os.environ.get("GATEWRIGHT_TEST_EVERY_CUT"))


def edge_cases() -> Iterator[tuple[str, torch.Tensor, float, dict[str, Any]]]:
    """Each cut of each edge at one temperature, in turn; at all of them in the long run.

    A draw takes a tenth of a second in the interpreter.
    """
    for at, (name, row) in enumerate(EDGES.items()):
        for turn, kept in enumerate(CUTS, at):
            some = TEMPERATURES if EVERY_CUT else (TEMPERATURES[turn % 3],)
            for temperature in some:
                yield name, row, temperature, kept


def floors() -> None:
    # Rounded ones have equals at every edge.
    scores = torch.cat([torch.randn(4, 300) * 3, (torch.randn(4, 300) * 3).round()])
    places, rows = torch.arange(8).flip(0), len(scores)
    inverse = torch.rand(rows) + 0.5
    for top_k, top_p, depth in ((0, 1.0, -torch.inf), (7, 1.0, -torch.inf), (0, 0.8, -2.5)):
        top_ks, top_ps = torch.full((rows,), top_k), torch.full((rows,), top_p)
        given = (inverse, torch.full((rows,), depth), top_ks, top_ps)
        found = floors_triton(scores, places, *given)
        expected = floors_reference(scores[places], *given)
        # Which scores stay is what counts: without a cut the lowest of them or none is as good.
        assert torch.equal(scores[places] >= found[:, None], scores[places] >= expected[:, None])
    for name, row, temperature, kept in edge_cases():
        params = SamplingParams(temperature=temperature, **kept)
        token = int(TritonDrawing().draw(row[None], [Row(0, params, 5, 0)]))
        expected_token = sample(row, params, _at(0), 5).token_id
        assert token == expected_token, (name, temperature, kept, token, expected_token)
    mixed = (inverse, torch.zeros(rows) - 30, torch.arange(rows) * 5, torch.rand(rows))
    found = floors_triton(scores, places, *mixed)
    assert torch.equal(found, floors_reference(scores[places], *mixed))


def broken() -> None:
    """Of scores that are no numbers one of those is chosen, whatever is cut off: it tells."""
    inf, nan = torch.inf, torch.nan
    rows_of = {
        "nothing but": torch.full((300,), nan),
        "one": torch.where(torch.arange(300) == 41, nan, torch.randn(300)),
        "behind the highest": torch.where(torch.arange(300) == 299, inf, torch.randn(300)),
        "nothing at all": torch.full((300,), -inf),
    }
    ways = ({"temperature": 0.0}, {"temperature": 1.0}, *CUTS[1::3])
    for (name, scores), way in itertools.product(rows_of.items(), ways):
        rows = [Row(0, SamplingParams(**way), 5, 0), Row(1, SamplingParams(**way), 5, 0)]
        whole = torch.randn(300)
        found, beside = TritonDrawing().draw(torch.stack([scores, whole]), rows).tolist()
        assert not scores[found].isfinite(), (name, way, found)
        assert beside == int(TritonDrawing().draw(whole[None], [rows[1]._replace(at=0)])), name


def engine() -> None:
    """A whole engine on these kernels, launched ahead, against one on torch's references.

    Steps hold decoding rows and chunks at once, and chunks whose scores nobody asks for.
    """
    spec = tiny_spec(head_dim=16, num_layers=1, vocab_size=64, context_window=48)
    prompts = [list(range(10, 30)), [5, 6, 7], list(range(50, 62))]
    params = [greedy(3), greedy(2), SamplingParams(seed=3, top_p=0.9, max_tokens=2)]
    with ExitStack() as patches:
        for place, name, there in (
            (paged_attention, "has_triton", lambda _: True),
            (linear, "triton_products", lambda _: triton_products),
            (fusing, "triton_products", lambda _: triton_products),
            (fusing, "choose_linear", lambda *_: linear.triton_linear),
            (choosing, "choose_drawing", lambda _: TritonDrawing()),
        ):
            patches.enter_context(patch.object(place, name, there))
        found = written(spec, prompts, params, LateTimeline())
    with patch.object(choosing, "choose_drawing", lambda _: ReferenceDrawing()):
        assert found == written(spec, prompts, params, None)


def written(
    spec: ModelSpec,
    prompts: list[list[int]],
    params: list[SamplingParams],
    timeline: LateTimeline | None,
) -> list[list[int]]:
    made = new_engine(
        random_decoder(spec),
        torch.device("cpu"),
        kv_tokens=512,
        most_rows=2,
        is_recorded=timeline is not None,
        timeline=timeline,
    )
    loop = made.loop(is_ahead=timeline is not None, token_budget=16, prefill_chunk=16)
    first, *others = zip(prompts, params, strict=True)
    sequences = [loop.add(*first)]
    # Alone, so that its first chunk is a step of its own, and nobody asks for any scores.
    loop.advance()
    sequences += [loop.add(*each) for each in others]
    loop.run()
    loop.close()
    return [list(sequence.output_token_ids) for sequence in sequences]


ALONE = {
    "chosen": chosen,
    "draws": draws,
    "drawing": drawing,
    "floors": floors,
    "broken": broken,
    "engine": engine,
}


def main(name: str) -> None:
    torch.manual_seed(0)
    if name in ALONE:
        ALONE[name]()
        return
    case = {"attention": attention, "norms": norms, "turns": turns, "products": products}[name]
    for dtype, most in ((torch.float32, 1e-5), (torch.float16, 2e-3)):
        case(dtype, most)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        main(name)
        print(name)  # noqa: T201 - what the test reads
