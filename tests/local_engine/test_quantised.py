"""Weights in fewer bits: close to the real ones, and served."""

from pathlib import Path

import pytest
import torch

from local_engine.kernels.quantised import QUANTISED, quantise_int4, widen_int4
from tests.local_engine.served import client_of, served


@pytest.mark.parametrize(("kind", "most"), [("int8", 0.02), ("fp8", 0.04), ("int4", 0.15)])
@pytest.mark.parametrize("inputs", [256, 96])
def test_the_product_stays_close_to_the_real_one(kind: str, most: float, inputs: int) -> None:
    torch.manual_seed(1)
    weight, bias, x = torch.randn(64, inputs), torch.randn(64), torch.randn(20, inputs)
    expected = torch.nn.functional.linear(x, weight, bias)
    multiply = QUANTISED[kind](weight, bias)
    assert float((multiply(x) - expected).norm() / expected.norm()) < most
    assert multiply(x[:0]).shape == (0, 64)


def test_int4_takes_an_eighth_of_float32_and_keeps_what_fits() -> None:
    weight = torch.randint(-7, 8, (8, 256)).float()
    weight[:, ::128] = 7.0
    packed, scale = quantise_int4(weight)
    assert packed.numel() * 8 == weight.numel() * 4
    assert torch.equal(widen_int4(packed, scale), weight)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", list(QUANTISED))
async def test_a_model_is_served_in_fewer_bits(tiny_model: Path, kind: str) -> None:
    # A prompt of several steps: in the first ones nobody's scores are asked for.
    body = {"model": "tiny", "prompt": "one two " * 10, "max_tokens": 4, "temperature": 0}
    chosen = {"quantise": kind, "token_budget": 8, "max_running": 1}
    async with served(tiny_model, **chosen) as place, client_of(place.engine) as client:
        response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200
    assert response.json()["usage"]["completion_tokens"] >= 1
