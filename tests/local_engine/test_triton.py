"""The Triton kernels in Triton's interpreter: tiny, in float32 and float16.

bfloat16 is wrong there, silently, and is not tested without a GPU.
"""

import os
import subprocess
import sys

import pytest


CASES = (
    *("attention", "norms", "turns", "products"),
    *("chosen", "draws", "drawing", "floors", "broken"),
)
EVERY_CUT = "GATEWRIGHT_TEST_EVERY_CUT"
LONG = {EVERY_CUT: "1"} if os.environ.get(EVERY_CUT) else {}
pytestmark = pytest.mark.timeout(300)


def interpreted(*cases: str) -> set[str]:
    """Names of the cases that went through; one process, because importing is half of the time."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.local_engine.triton_cases", *cases],
        env={"TRITON_INTERPRET": "1", "PATH": "", "PYTHONPATH": ":".join(sys.path), **LONG},
        capture_output=True,
        text=True,
        check=False,
        timeout=None if LONG else 280,
    )
    sys.stderr.write(done.stderr)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def passed() -> set[str]:
    return interpreted(*CASES)


@pytest.mark.parametrize("name", CASES)
def test_each_triton_kernel_equals_its_reference_in_float64(passed: set[str], name: str) -> None:
    assert name in passed


def test_a_whole_engine_on_triton_kernels_starts_cold_and_writes_the_same() -> None:
    """As on a GPU: launched ahead, its first step a chunk whose scores nobody asks for."""
    assert interpreted("engine") == {"engine"}
