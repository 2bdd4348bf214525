"""The Triton kernels in Triton's interpreter: tiny, in float32 and float16.

bfloat16 is wrong there, silently, and is not tested without a GPU.
"""

import subprocess
import sys


CASES = """
import torch
from local_engine.kernels.paged_attention import decode_reference, prefill_reference
from local_engine.kernels.reach import Reach
from local_engine.kernels.triton_attention import decode_triton, prefill_triton

torch.manual_seed(0)
for dtype, most in ((torch.float32, 1e-5), (torch.float16, 2e-3)):
    for heads, kv_heads, dim, window in ((4, 2, 32, 0), (6, 2, 16, 9)):
        keys = torch.randn(7, kv_heads, dim, 16, dtype=dtype)
        values = torch.randn(7, kv_heads, 16, dim, dtype=dtype)
        keys[6], values[6] = torch.nan, torch.nan
        reach = Reach(dim**-0.5, window)
        q = torch.randn(2, heads, dim, dtype=dtype)
        table = torch.tensor([[5, 6], [1, 4]], dtype=torch.int32)
        lengths = torch.tensor([16, 27], dtype=torch.int32)
        found = decode_triton(q, keys, values, table, lengths, reach)
        expected = decode_reference(q.double(), keys, values, table.long(), lengths, reach)
        assert (found.double() - expected).abs().max() < most
        q = torch.randn(9, heads, dim, dtype=dtype)
        blocks = torch.tensor([3, 1, 6])
        found = prefill_triton(q, keys, values, blocks, 20, reach)
        expected = prefill_reference(q.double(), keys, values, blocks[:2], 20, reach)
        assert (found.double() - expected).abs().max() < most
print("equal")
"""


def test_triton_attention_equals_the_reference_in_float64() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CASES],
        env={"TRITON_INTERPRET": "1", "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "equal\n"
