"""Reads tensors out of a verified safetensors file, with every offset checked before it is used.

Format: eight bytes little-endian header length, a JSON header, then the tensors' bytes without gaps
or overlaps (https://github.com/huggingface/safetensors, "Format").
"""

import math
import mmap

import msgspec
import torch

from local_engine.model.errors import ModelRefused
from local_engine.model.json_file import decode_json, decode_part
from local_engine.model.manifest import ModelFiles


# Each tensor is an object here: the largest known models have some 70,000 in all their files.
MAX_TENSORS = 1 << 17
MAX_HEADER_BYTES = 32 << 20
_MOST_ELEMENTS = 1 << 48
_MOST_DIMENSIONS = 8
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_tensors(files: ModelFiles, name: str) -> dict[str, torch.Tensor]:
    """All tensors of one file, backed by the file's pages; raises `ModelRefused`."""
    mapped = files.map(name)
    text = _header_text(mapped, name)
    length, entries = len(text), _header(text, name)
    _check_layout(entries, len(mapped) - 8 - length, name)
    tensors = {}
    for key, entry in entries.items():
        begin, end = entry.data_offsets
        dtype = _DTYPES[entry.dtype]
        if begin == end:
            tensors[key] = torch.empty(entry.shape, dtype=dtype)
            continue
        count = (end - begin) // dtype.itemsize
        flat = torch.frombuffer(mapped, dtype=dtype, count=count, offset=8 + length + begin)
        tensors[key] = flat.view(entry.shape)
    return tensors


def read_names(files: ModelFiles, name: str) -> list[str]:
    """The names of all tensors of one file; raises `ModelRefused`."""
    return list(_header(_header_text(files.map(name), name), name))


def _header_text(mapped: mmap.mmap, name: str) -> bytes:
    length = int.from_bytes(mapped[:8], "little")
    if length > MAX_HEADER_BYTES or 8 + length > len(mapped):
        raise ModelRefused(f"{name} cannot be read as safetensors: its header is too long")
    return bytes(mapped[8 : 8 + length])


def _header(text: bytes, name: str) -> dict[str, _Entry]:
    place = f"the header of {name}"
    raw = decode_part(place, text, dict[str, msgspec.Raw])
    if len(raw) > MAX_TENSORS:
        raise ModelRefused(f"{name} names more than {MAX_TENSORS} tensors")
    decode_json(place, text, dict[str, msgspec.Raw])
    raw.pop("__metadata__", None)
    return {key: decode_part(place, bytes(entry), _Entry) for key, entry in raw.items()}


def _check_layout(entries: dict[str, _Entry], num_bytes: int, name: str) -> None:
    """Check that tensors follow each other without gap or overlap and fill the file."""
    at = 0
    for key, entry in sorted(entries.items(), key=lambda each: each[1].data_offsets):
        begin, end = entry.data_offsets
        if entry.dtype not in _DTYPES:
            raise ModelRefused(
                f"{name} holds {entry.dtype[:20]} tensors, which are not supported: {key!r}"
            )
        if len(entry.shape) > _MOST_DIMENSIONS or max(entry.shape, default=0) >= 1 << 63:
            raise ModelRefused(f"{name} holds a tensor of a shape that no model has: {key!r}")
        size = math.prod(entry.shape) * _DTYPES[entry.dtype].itemsize
        # A tensor without elements has an extent of 0, whatever its other extents.
        if math.prod(max(extent, 1) for extent in entry.shape) > _MOST_ELEMENTS:
            raise ModelRefused(f"{name} holds a tensor of a size that no model has: {key!r}")
        if any(extent < 0 for extent in entry.shape) or begin != at or end - begin != size:
            problem = f"offsets do not fit: {key!r}"
            raise ModelRefused(f"{name} cannot be read as safetensors: {problem}")
        at = end
    if at != num_bytes:
        raise ModelRefused(f"{name} cannot be read as safetensors: its length does not fit")
