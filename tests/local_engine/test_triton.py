"""The Triton kernels in Triton's interpreter: tiny, in float32 and float16.

bfloat16 is wrong there, silently, and is not tested without a GPU.
"""

import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def passed() -> set[str]:
    """Names of the cases that went through; one process, because importing is half of the time."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.local_engine.triton_cases", *CASES],
        env={"TRITON_INTERPRET": "1", "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    sys.stderr.write(done.stderr)
    return set(done.stdout.split())


CASES = ("attention", "norms", "turns", "products", "chosen", "draws", "drawing", "floors")


@pytest.mark.parametrize("name", CASES)
def test_each_triton_kernel_equals_its_reference_in_float64(passed: set[str], name: str) -> None:
    assert name in passed
