"""Products in Triton: with weights in fewer bits, and with the weights of many experts at once.

Weights are read in their small form and widened in registers: reading them is what takes the time
with small batches. int8 multiplies integers with integers, scaled per token and per output; int4
has one scale per group of inputs, two values in a byte. References: `quantised.py`,
`moe.grouped_reference`.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


_ROWS, _OUTS, _INS = 16, 32, 32
# Fewer outputs than this are divided more finely, so that every multiprocessor has some.
_FEW_OUTS = 2048


@dataclass(frozen=True, slots=True)
class _Tiling:
    """Rows, outputs and inputs per tile of one product, and how it is run."""

    rows: int
    outs: int
    ins: int
    stages: int
    warps: int


def _tiling(rows: int, ins: int) -> _Tiling:
    """With few rows memory limits: small tiles, many of them; with many rows, arithmetic does."""
    if ins < 128:
        return _Tiling(_ROWS, _OUTS, _INS, 2, 4)
    if rows <= 16:
        return _Tiling(16, 32, 128, 5, 4)
    if rows <= 64:
        return _Tiling(64, 64, 128, 3, 4)
    return _Tiling(128, 128, 64, 3, 8)


@triton.jit(do_not_specialize=["rows"])
def _product_8bit(
    x, weight, scale, row_scale, out, rows, outs, ins,
    ROWS: tl.constexpr, OUTS: tl.constexpr, INS: tl.constexpr, IS_WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTS + tl.arange(0, OUTS)
    at = tl.arange(0, INS)
    acc = tl.zeros((ROWS, OUTS), tl.int32 if IS_WHOLE else tl.float32)
    for tile in tl.range(0, tl.cdiv(ins, INS), num_stages=STAGES):
        inputs = tile * INS + at
        known = inputs < ins
        left_at = x + row[:, None].to(tl.int64) * ins + inputs[None, :]
        right_at = weight + output[None, :].to(tl.int64) * ins + inputs[:, None]
        is_left = (row < rows)[:, None] & known[None, :]
        is_right = (output < outs)[None, :] & known[:, None]
        if IS_WHOLE:
            left = tl.load(left_at, mask=is_left, other=0)
            right = tl.load(right_at, mask=is_right, other=0)
            acc += tl.dot(left, right, out_dtype=tl.int32)
        else:
            left = tl.load(left_at, mask=is_left, other=0.0)
            right = tl.load(right_at, mask=is_right, other=0.0).to(left.dtype)
            acc += tl.dot(left, right, input_precision="ieee")
    found = acc.to(tl.float32) * tl.load(scale + output, mask=output < outs, other=0.0)[None, :]
    if IS_WHOLE:
        found *= tl.load(row_scale + row, mask=row < rows, other=0.0)[:, None]
    at_out = out + row[:, None].to(tl.int64) * outs + output[None, :]
    mask = (row < rows)[:, None] & (output < outs)[None, :]
    tl.store(at_out, found.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _product_one(
    x, weight, scale, bias, out, outs, ins,
    OUTS: tl.constexpr, INS: tl.constexpr, HAS_SCALE: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    output, at = tl.program_id(0) * OUTS + tl.arange(0, OUTS), tl.arange(0, INS)
    is_out = output < outs
    rows = weight + output[:, None].to(tl.int64) * ins
    acc = tl.zeros((OUTS, INS), tl.float32)
    for tile in tl.range(0, tl.cdiv(ins, INS)):
        inputs = tile * INS + at
        known = inputs < ins
        mask = is_out[:, None] & known[None, :]
        weights = tl.load(rows + inputs[None, :], mask=mask, other=0.0)
        values = tl.load(x + inputs, mask=known, other=0.0).to(tl.float32)
        acc += weights.to(tl.float32) * values[None, :]
    found = tl.sum(acc, axis=1)
    if HAS_SCALE:
        found *= tl.load(scale + output, mask=is_out, other=0.0)
    if HAS_BIAS:
        found += tl.load(bias + output, mask=is_out, other=0.0).to(tl.float32)
    tl.store(out + output, found.to(out.dtype.element_ty), mask=is_out)


def product_one_triton(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """One row [..., in] times [out, in] in any float type; limited by memory's speed alone."""
    outs, ins = weight.shape
    assert x.numel() == ins, "one row, not several and not none"
    out = x.new_empty((*x.shape[:-1], outs))
    share, warps = (4, 8) if outs < _FEW_OUTS else (8, 4)
    _product_one[(triton.cdiv(outs, share),)](
        x.contiguous(), weight, weight if scale is None else scale, x if bias is None else bias,
        out, outs, ins, OUTS=share, INS=min(1024, triton.next_power_of_2(ins)),
        HAS_SCALE=scale is not None, HAS_BIAS=bias is not None, num_warps=warps,
    )  # fmt: skip
    return out


def product_int8_triton(
    whole: torch.Tensor, per_token: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """int8 [rows, in] and [out, in] with their scales to float32 [rows, out]."""
    rows, ins, outs = whole.shape[0], whole.shape[1], weight.shape[0]
    out = torch.empty((rows, outs), device=whole.device, dtype=torch.float32)
    cut = _tiling(rows, ins)
    _product_8bit[triton.cdiv(rows, cut.rows), triton.cdiv(outs, cut.outs)](
        whole, weight, scale, per_token, out, rows, outs, ins,
        ROWS=cut.rows, OUTS=cut.outs, INS=cut.ins, IS_WHOLE=True, STAGES=cut.stages,
        num_warps=cut.warps,
    )  # fmt: skip
    return out


def product_fp8_triton(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """[rows, in] times fp8 [out, in] with a scale per output, in the type of `x`."""
    rows, ins, outs = x.shape[0], x.shape[1], weight.shape[0]
    if rows == 1:
        return product_one_triton(x, weight, scale)
    out = x.new_empty((rows, outs))
    cut = _tiling(rows, ins)
    _product_8bit[triton.cdiv(rows, cut.rows), triton.cdiv(outs, cut.outs)](
        x.contiguous(), weight, scale, scale, out, rows, outs, ins,
        ROWS=cut.rows, OUTS=cut.outs, INS=cut.ins, IS_WHOLE=False, STAGES=cut.stages,
        num_warps=cut.warps,
    )  # fmt: skip
    return out


@triton.jit
def _product_int4(
    x, packed, scale, out, rows, outs, ins, group,
    ROWS: tl.constexpr, OUTS: tl.constexpr, BYTES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTS + tl.arange(0, OUTS)
    at = tl.arange(0, BYTES)
    half, groups = ins // 2, ins // group
    acc = tl.zeros((ROWS, OUTS), tl.float32)
    start = 0
    while start < half:
        byte = start + at
        known = byte < half
        two = tl.load(
            packed + output[None, :].to(tl.int64) * half + byte[:, None],
            mask=(output < outs)[None, :] & known[:, None], other=136,
        )  # fmt: skip
        # The even input is in the low half of a byte, the odd one in the high half.
        places = row[:, None].to(tl.int64) * ins + 2 * byte[None, :]
        mask = (row < rows)[:, None] & known[None, :]
        even = tl.load(x + places, mask=mask, other=0.0)
        odd = tl.load(x + places + 1, mask=mask, other=0.0)
        low = ((two & 15).to(tl.float32) - 8.0).to(even.dtype)
        high = ((two >> 4).to(tl.float32) - 8.0).to(odd.dtype)
        # A group is a whole number of these tiles, so a tile has one scale per output.
        weigh = tl.load(scale + output * groups + 2 * start // group, mask=output < outs, other=0.0)
        both = tl.dot(even, low, input_precision="ieee") + tl.dot(odd, high, input_precision="ieee")
        acc += both * weigh[None, :]
        start += BYTES
    at_out = out + row[:, None].to(tl.int64) * outs + output[None, :]
    mask = (row < rows)[:, None] & (output < outs)[None, :]
    tl.store(at_out, acc.to(out.dtype.element_ty), mask=mask)


def product_int4_triton(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """[rows, in] times int4 [out, in / 2] with scales [out, groups], in the type of `x`."""
    rows, ins, outs = x.shape[0], x.shape[1], packed.shape[0]
    group = ins // scale.shape[1]
    tile = 16
    assert scale.shape[1] == 1 or group % (2 * tile) == 0, "a tile has one scale"
    out = x.new_empty((rows, outs))
    _product_int4[triton.cdiv(rows, _ROWS), triton.cdiv(outs, _OUTS)](
        x.contiguous(), packed, scale, out, rows, outs, ins, group,
        ROWS=_ROWS, OUTS=_OUTS, BYTES=tile,
    )  # fmt: skip
    return out


@triton.jit
def _product_experts(
    x, weights, out, order, tile_experts, tile_starts, tile_ends, outs, ins, num_chosen,
    ROWS: tl.constexpr, OUTS: tl.constexpr, INS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    expert = tl.load(tile_experts + tile).to(tl.int64)
    at_row = tl.load(tile_starts + tile) + tl.arange(0, ROWS)
    is_row = at_row < tl.load(tile_ends + tile)
    place = tl.load(order + at_row, mask=is_row, other=0)
    source = place // num_chosen
    output = tl.program_id(1) * OUTS + tl.arange(0, OUTS)
    at = tl.arange(0, INS)
    acc = tl.zeros((ROWS, OUTS), tl.float32)
    start = 0
    while start < ins:
        inputs = start + at
        known = inputs < ins
        left = tl.load(
            x + source[:, None] * ins + inputs[None, :],
            mask=is_row[:, None] & known[None, :], other=0.0,
        )  # fmt: skip
        right = tl.load(
            weights + (expert * outs + output[None, :]) * ins + inputs[:, None],
            mask=(output < outs)[None, :] & known[:, None], other=0.0,
        )  # fmt: skip
        acc += tl.dot(left, right, input_precision="ieee")
        start += INS
    at_out = out + place[:, None] * outs + output[None, :]
    mask = is_row[:, None] & (output < outs)[None, :]
    tl.store(at_out, acc.to(out.dtype.element_ty), mask=mask)


def grouped_triton(
    x: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor, num_chosen: int
) -> torch.Tensor:
    """As `moe.grouped_reference`: place p is row p // num_chosen times its expert's weights.

    `x` [rows, in], `weights` [experts, out, in], `experts` [places] to [places, out]. Places are
    sorted by expert and cut into tiles that never cross from one to the next. There are at most
    `places / ROWS + experts` of them, so nothing has to be read back from the device.
    """
    num_experts, outs, ins = weights.shape
    order = experts.argsort(stable=True)
    counts = torch.zeros(num_experts, device=x.device, dtype=torch.int64)
    counts.scatter_add_(0, experts, torch.ones_like(experts))
    ends = counts.cumsum(0)
    tiles_of = (counts + _ROWS - 1) // _ROWS
    tiles_end = tiles_of.cumsum(0)
    most = len(experts) // _ROWS + num_experts
    number = torch.arange(most, device=x.device)
    expert = torch.searchsorted(tiles_end, number, right=True).clamp(max=num_experts - 1)
    first = number - (tiles_end - tiles_of)[expert]
    start = (ends - counts)[expert] + first * _ROWS
    out = x.new_empty((len(experts), outs))
    _product_experts[most, triton.cdiv(outs, _OUTS)](
        x.contiguous(), weights, out, order, expert, start, ends[expert], outs, ins, num_chosen,
        ROWS=_ROWS, OUTS=_OUTS, INS=_INS,
    )  # fmt: skip
    return out
