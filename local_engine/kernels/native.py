"""Compiles the C kernels at start if there is a compiler; otherwise the torch reference serves.

The library lies in a private folder that is deleted once it is loaded: nothing that another user
could have written is ever loaded, and no path has to be configured.
"""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path

import torch

from local_engine.kernels.fast import Chunks, HeadNorms
from local_engine.kernels.reach import Reach


# -ffast-math would switch the entire process to flushing denormals; these flags do not. Sums are
# never reordered: a row has the same bits whichever rows it is computed with.
_FLAGS = (
    *("-O3", "-march=native", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math"),
    *("-fno-signed-zeros", "-ffinite-math-only"),
)
_COMPILE_TIMEOUT_S = 60


class NativeKernels:
    """The loaded library; tensors are float32 and contiguous unless stated otherwise."""

    block_size = 16
    head_part = 8
    """A head has a multiple of this many numbers, and at least two of them."""
    product_columns = 32

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, number, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
        self._library = library
        library.paged_decode.argtypes = [*[pointer] * 6, *[number] * 5, real, number]
        library.paged_prefill.argtypes = [*[pointer] * 5, *[number] * 5, real, number]
        library.rms_norm.argtypes = [*[pointer] * 3, number, number, real]
        library.argmax.argtypes = [pointer, pointer, number, number]
        library.silu_times.argtypes = [pointer, pointer, number, number]
        library.norm_turn_store.argtypes = [
            *[pointer] * 3,
            real,
            *[pointer] * 7,
            *[number] * 4,
        ]
        library.product.argtypes = [*[pointer] * 4, *[number] * 3]

    @property
    def has_product(self) -> bool:
        """Whether the machine has the registers that the product needs."""
        return bool(self._library.has_product())

    def linear(
        self, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        """A product with `weight` [out, in], out a multiple of `product_columns`; one thread."""
        columns, depth = weight.shape
        panels = weight.reshape(-1, self.product_columns, depth).transpose(1, 2).contiguous()
        multiply = self._library.product

        def product(x: torch.Tensor) -> torch.Tensor:
            x = x.contiguous()
            out = torch.empty(*x.shape[:-1], columns)
            multiply(
                x.data_ptr(),
                panels.data_ptr(),
                None if bias is None else bias.data_ptr(),
                out.data_ptr(),
                x.numel() // depth,
                depth,
                columns,
            )
            return out

        return product

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Rows [..., dim], each divided by its root mean square and multiplied by `weight`."""
        x = x.contiguous()
        out, dim = torch.empty_like(x), x.shape[-1]
        self._library.rms_norm(
            x.data_ptr(), weight.data_ptr(), out.data_ptr(), x.numel() // dim, dim, eps
        )
        return out

    def add_rms_norm(
        self, x: torch.Tensor, more: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of both, and its rows normed as by `rms_norm`."""
        total = x + more
        return total, self.rms_norm(total, weight, eps)

    def argmax(self, scores: torch.Tensor) -> torch.Tensor:
        """The first place of each row's highest score, [rows]."""
        scores = scores.contiguous()
        rows, dim = scores.shape
        out = torch.empty(rows, dtype=torch.int64)
        self._library.argmax(scores.data_ptr(), out.data_ptr(), rows, dim)
        return out

    def silu_times(self, gate_up: torch.Tensor) -> torch.Tensor:
        """[..., 2 * inner] as gate and up to silu(gate) * up, [..., inner]."""
        gate_up = gate_up.contiguous()
        inner = gate_up.shape[-1] // 2
        out = torch.empty(*gate_up.shape[:-1], inner)
        rows = gate_up.numel() // (2 * inner)
        self._library.silu_times(gate_up.data_ptr(), out.data_ptr(), rows, inner)
        return out

    def norm_turn_store(
        self,
        qkv: torch.Tensor,
        norms: HeadNorms | None,
        turn: tuple[torch.Tensor, torch.Tensor],
        places: tuple[torch.Tensor, torch.Tensor],
        pools: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """Queries of a fused product, normed and rotated; keys and values go into their pools.

        `qkv` [rows, (heads + 2 kv_heads) * dim], `turn` cosines and sines [rows, 1, dim], `places`
        blocks and offsets [rows]; returns [rows, heads, dim].
        """
        kv_heads, dim = pools[0].shape[1], pools[0].shape[2]
        blocks, offsets = (place.long().contiguous() for place in places)
        heads = qkv.shape[-1] // dim - 2 * kv_heads
        out = torch.empty(qkv.shape[0], heads, dim)
        self._library.norm_turn_store(
            qkv.data_ptr(),
            norms.q_weight.data_ptr() if norms is not None else None,
            norms.k_weight.data_ptr() if norms is not None else None,
            norms.eps if norms is not None else 0.0,
            *(part.data_ptr() for part in (*turn, blocks, offsets, *pools)),
            out.data_ptr(),
            qkv.shape[0],
            heads,
            kv_heads,
            dim,
        )
        return out

    def paged_decode(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        table: torch.Tensor,
        lengths: torch.Tensor,
        reach: Reach,
    ) -> torch.Tensor:
        """[rows, heads, dim] queries to [rows, heads, dim] answers; `table`, `lengths` int32."""
        q = q.contiguous()
        out = torch.empty_like(q)
        rows, heads, dim = q.shape
        failed = self._library.paged_decode(
            q.data_ptr(),
            keys.data_ptr(),
            values.data_ptr(),
            table.data_ptr(),
            lengths.data_ptr(),
            out.data_ptr(),
            rows,
            heads,
            keys.shape[1],
            dim,
            table.shape[1],
            reach.scale,
            reach.window,
        )
        if failed:
            raise MemoryError("no memory for attention scores")
        return out

    def paged_prefill(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        chunks: Chunks,
        reach: Reach,
    ) -> torch.Tensor:
        """As `FastKernels.paged_prefill`; each token's numbers are those of a decode."""
        q, table = q.contiguous(), chunks.table.contiguous()
        out = torch.empty_like(q)
        _, heads, dim = q.shape
        row_bytes = heads * dim * q.element_size()
        for index, (start, end) in enumerate(chunks.spans):
            skipped = chunks.first_rows[index] * row_bytes
            failed = self._library.paged_prefill(
                q.data_ptr() + skipped,
                keys.data_ptr(),
                values.data_ptr(),
                table[index].data_ptr(),
                out.data_ptr() + skipped,
                end - start,
                heads,
                keys.shape[1],
                dim,
                start,
                reach.scale,
                reach.window,
            )
            if failed:
                raise MemoryError("no memory for attention scores")
        return out


@cache
def native_kernels() -> NativeKernels | None:
    """The compiled kernels, or `None` if no C compiler is found or it fails."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source = resources.files("local_engine.kernels").joinpath("native.c")
    with resources.as_file(source) as path, tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "kernels.so"
        command = [compiler, *_FLAGS, "-o", str(target), str(path)]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed command on a file of our own
                command, capture_output=True, check=False, timeout=_COMPILE_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return NativeKernels(ctypes.CDLL(str(target))) if done.returncode == 0 else None
