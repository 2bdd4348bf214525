"""Compiles the C kernels at start, where a compiler is; elsewhere the torch reference serves.

The library lives in a private folder that is gone again once it is loaded: nothing that somebody
else could have written is ever loaded, and no path has to be configured.
"""

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path

import torch

from local_engine.kernels.reach import Reach


# -ffast-math would switch the whole process to flushing denormals; these do not.
_FLAGS = (
    *("-O3", "-march=native", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math"),
    *("-fassociative-math", "-fno-signed-zeros", "-ffinite-math-only"),
)
_COMPILE_TIMEOUT_S = 60


class NativeKernels:
    """The loaded library; tensors are float32 and contiguous unless it says otherwise."""

    block_size = 16

    def __init__(self, library: ctypes.CDLL) -> None:
        self._paged_decode = library.paged_decode
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self._paged_decode.argtypes = [
            *[pointer] * 6,
            *[number] * 5,
            ctypes.c_float,
            number,
        ]

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
        failed = self._paged_decode(
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


@cache
def native_kernels() -> NativeKernels | None:
    """The compiled kernels, or `None` where no C compiler is found or it fails."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source = resources.files("local_engine.kernels").joinpath("paged_decode.c")
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
