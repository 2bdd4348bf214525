"""Joins a decoder's products and gives each a kernel: chosen once, the same on every rank."""

import torch

from local_engine.kernels.fast import FastKernels
from local_engine.kernels.linear import (
    MakeLinear,
    choose_linear,
    in_tiles,
    plain_linear,
    triton_products,
)
from local_engine.model.decoder import Decoder


def fuse(
    decoder: Decoder,
    device: torch.device,
    native: FastKernels | None,
    make_linear: MakeLinear | None = None,
    *,
    is_deterministic: bool = False,
) -> None:
    """Join products that share their input, and give each the kernel of this device.

    `make_linear` replaces the device's own choice, e.g. for weights in fewer bits.
    """
    make = make_linear or choose_linear(device, decoder.model.norm.weight.dtype)
    products = triton_products(device)
    if is_deterministic:
        decoder.fuse(in_tiles(make), native, in_tiles(plain_linear))
    elif products is not None and make_linear is None:
        decoder.fuse(make, native, grouped=products.grouped_triton)
    else:
        decoder.fuse(make, native)


def is_recordable(
    decoder: Decoder,
    device: torch.device,
    make_linear: MakeLinear | None,
    *,
    is_deterministic: bool,
) -> bool:
    """Whether a step needs nothing back from the device, as experts run one by one do."""
    is_grouped = triton_products(device) is not None and make_linear is None
    return decoder.spec.moe is None or (is_grouped and not is_deterministic)
