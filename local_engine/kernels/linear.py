"""Products with fixed weights: packed once for the machine, or stored in fewer bits."""

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

from local_engine.kernels.native import native_kernels


Linear = Callable[[torch.Tensor], torch.Tensor]
# Small enough to waste little on a few rows, large enough for an efficient product.
TILE_ROWS = 16
MakeLinear = Callable[[torch.Tensor, torch.Tensor | None], Linear]


def plain_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Torch's own product."""
    return lambda x: F.linear(x, weight, bias)


def triton_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Torch's product, except for a single row, where ours is nearer to memory's speed."""
    triton = triton_products(weight.device)
    if triton is None:
        return plain_linear(weight, bias)

    def multiply(x: torch.Tensor) -> torch.Tensor:
        # A step in which nobody needs scores has no rows at all.
        if x.numel() != x.shape[-1]:
            return F.linear(x, weight, bias)
        out: torch.Tensor = triton.product_one_triton(x, weight, None, bias)
        return out

    return multiply


def packed_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """OneDNN's product with weights in its own order: no reordering at every call.

    The operators are private to torch; if they are gone, `has_packed_linear` says so.
    """
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)  # noqa: SLF001 - see above

    def multiply(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(  # noqa: SLF001 - see above
            x, packed, bias, "none", [], ""
        )
        return out

    return multiply


def has_packed_linear(dtype: torch.dtype) -> bool:
    """Whether the packed product exists here and agrees with the plain one."""
    weight = torch.linspace(-1.0, 1.0, 64 * 32).view(64, 32).to(dtype)
    x = torch.linspace(-2.0, 2.0, 3 * 32).view(3, 32).to(dtype)
    try:
        found = packed_linear(weight, None)(x)
    except (AttributeError, RuntimeError):
        return False
    return torch.allclose(found.float(), F.linear(x, weight).float(), rtol=2e-2, atol=2e-2)


def in_tiles(make: MakeLinear) -> MakeLinear:
    """Products of a fixed number of rows: a row's bits do not depend on how many come with it."""

    def make_tiled(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
        multiply, outs = make(weight, bias), weight.shape[0]

        def multiply_tiles(x: torch.Tensor) -> torch.Tensor:
            rows = x.reshape(-1, x.shape[-1])
            padded = F.pad(rows, (0, 0, 0, -len(rows) % TILE_ROWS))
            parts = [multiply(tile) for tile in torch.split(padded, TILE_ROWS)]
            return torch.cat(parts)[: len(rows)].view(*x.shape[:-1], outs)

        return multiply_tiles

    return make_tiled


@cache
def triton_products(device: torch.device) -> Any:
    """Triton's products for this device, imported if they can run; otherwise None."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return None
    return importlib.import_module("local_engine.kernels.triton_products")


def native_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """Our own product, for a few rows much nearer to memory's speed than oneDNN's; one thread.

    Shapes that it does not support are packed.
    """
    native = native_kernels()
    if native is None or weight.shape[0] % native.product_columns:
        return packed_linear(weight, bias)
    return native.linear(weight, bias)


def has_native_linear(dtype: torch.dtype) -> bool:
    """Whether our own product can run here: float32, its registers, and one thread."""
    if dtype is not torch.float32 or torch.get_num_threads() > 1:
        return False
    native = native_kernels()
    return native is not None and native.has_product


def choose_linear(device: torch.device, dtype: torch.dtype) -> MakeLinear:
    """On a CPU our own or a packed one, if it works; on a GPU torch's, except for single rows."""
    if device.type == "cuda":
        return triton_linear
    if device.type == "cpu" and has_packed_linear(dtype):
        return native_linear if has_native_linear(dtype) else packed_linear
    return plain_linear
