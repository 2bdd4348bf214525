"""Weights in fewer bits: int8 and fp8 with one scale per output, int4 with one per 128 inputs.

The torch functions are the reference. int8 multiplies in integers, with each token's activations
scaled to int8 on the way; fp8 and int4 are stored small and widened for the product, which saves
memory everywhere, and time where a kernel reads the small form directly, as Triton's do on a GPU.
"""

import torch
from torch.nn import functional as F

from local_engine.kernels.linear import Linear, MakeLinear, triton_products


GROUP = 128


def quantise_int8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[out, in] to int8 of the same shape, and one scale per output."""
    scale = weight.float().abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127.0
    return (weight.float() / scale).round().clamp(-127, 127).to(torch.int8), scale[:, 0]


def int8_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Integer product of int8 weights with int8 activations, one scale per token and output."""
    packed, scale = quantise_int8(weight)
    columns = packed.t().contiguous()
    triton = triton_products(weight.device)

    def multiply(x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        whole, per_token = quantise_int8(rows)
        if triton is not None:
            out: torch.Tensor = triton.product_int8_triton(whole, per_token, packed, scale)
        else:
            product = torch._int_mm(whole, columns).float()  # noqa: SLF001 - torch's only one
            out = product * per_token[:, None] * scale
        out = out if bias is None else out + bias
        return out.to(x.dtype).view(*x.shape[:-1], len(scale))

    return multiply


def quantise_fp8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[out, in] to float8_e4m3fn, and one scale per output."""
    most = torch.finfo(torch.float8_e4m3fn).max
    scale = weight.float().abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / most
    return (weight.float() / scale).to(torch.float8_e4m3fn), scale[:, 0]


def fp8_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    packed, scale = quantise_fp8(weight)
    triton = triton_products(weight.device)

    def multiply(x: torch.Tensor) -> torch.Tensor:
        if triton is not None:
            rows = triton.product_fp8_triton(x.reshape(-1, x.shape[-1]), packed, scale)
            out: torch.Tensor = rows.view(*x.shape[:-1], len(scale))
        else:
            out = F.linear(x, packed.to(x.dtype)) * scale.to(x.dtype)
        return out if bias is None else out + bias

    return multiply


def quantise_int4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[out, in] to two values per byte [out, in / 2], and scales [out, in / group].

    Values are -8 … 7 around zero, stored plus eight; the even input is in the low half.
    """
    outputs, inputs = weight.shape
    grouped = weight.float().view(outputs, -1, group_of(inputs))
    scale = grouped.abs().amax(dim=2, keepdim=True).clamp_min(1e-12) / 7.0
    whole = ((grouped / scale).round().clamp(-8, 7) + 8).to(torch.uint8).view(outputs, inputs)
    return whole[:, 0::2] | whole[:, 1::2] << 4, scale[:, :, 0]


def widen_int4(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The float32 weights that the packed ones represent."""
    whole = torch.stack((packed & 15, packed >> 4), dim=2).flatten(1).float() - 8.0
    grouped = whole.view(whole.shape[0], scale.shape[1], -1)
    return (grouped * scale[:, :, None]).flatten(1)


def int4_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    packed, scale = quantise_int4(weight)
    triton = triton_products(weight.device)

    def multiply(x: torch.Tensor) -> torch.Tensor:
        if triton is None:
            return F.linear(x, widen_int4(packed, scale).to(x.dtype), bias)
        rows = triton.product_int4_triton(x.reshape(-1, x.shape[-1]), packed, scale)
        out: torch.Tensor = rows.view(*x.shape[:-1], len(scale))
        return out if bias is None else out + bias

    return multiply


def group_of(inputs: int) -> int:
    """Inputs that share a scale: 128, or all of them if that does not divide."""
    return GROUP if inputs % GROUP == 0 else inputs


QUANTISED: dict[str, MakeLinear] = {"int8": int8_linear, "fp8": fp8_linear, "int4": int4_linear}
