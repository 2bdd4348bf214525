"""The GPU rows, rehearsed on a CPU with tiny models, and the arithmetic of their floors."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from local_engine.bench.cpu import Row
from local_engine.bench.gpu import checks, report
from local_engine.bench.gpu.bench import Bench
from local_engine.bench.gpu.ceilings import (
    Ceilings,
    prompt_flop,
    step_floor_s,
    workload_floor_s,
)
from local_engine.bench.gpu.kernel_checks import Check, kernel_checks, poisoned
from local_engine.bench.gpu.loop import greedy, new_engine
from local_engine.bench.gpu.models import FULL, LLAMA, QWEN, TINY, random_weights
from local_engine.bench.gpu.peer import lent_attention, varlen_reference
from local_engine.bench.gpu.workloads import nano_requests
from local_engine.kernels.paged_attention import choose_native
from local_engine.model.spec import ModelSpec


CPU = torch.device("cpu")
H200 = Ceilings(copy_bytes_s=4.3e12, product_flop_s=790e12)
REHEARSED = [name for name in report.CASES if name != "peer"]


def test_every_row_is_gone_through_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["--rows", ",".join(REHEARSED)]
    assert report.main(["--device", "cpu", "--tiny", *rows]) == 0
    printed = capsys.readouterr().out
    assert "FAILED" not in printed
    assert "left out" not in printed
    for words in (
        "copy",
        "decode, B20",
        "prefill 8 B",
        "nano-vllm workload, 8 B",
        "overlap",
        "fp8",
    ):
        assert words in printed
    for name in REHEARSED:
        assert f"[{name}: " in printed


def test_the_peer_writes_the_same_first_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    assert report.main(["--device", "cpu", "--tiny", "--rows", "peer"]) == 0
    last = capsys.readouterr().out.splitlines()[-2]
    assert last.startswith("8 B against transformers")
    assert last.endswith("the same first token in 3")


def test_a_row_that_fails_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Bench) -> Iterator[Row]:
        yield Row("first half", "", 1.0, "-")
        raise ValueError("out of memory, say")

    monkeypatch.setitem(report.CASES, "decode", report.Case(5, fail))
    arguments = ["--device", "cpu", "--tiny", "--rows", "decode,ceilings,overlap"]
    assert report.main(arguments) == 1
    printed = capsys.readouterr().out
    assert "decode: FAILED" in printed
    assert "ValueError: out of memory, say" in printed
    assert "[overlap: " in printed


def test_a_row_without_time_is_left_out_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", "cpu", "--tiny", "--rows", "ceilings,nano-large", "--budget-s", "20"]
    assert report.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "[ceilings: " in printed
    assert "nano-large: left out" in printed


def test_the_workload_is_the_one_that_nano_vllm_draws() -> None:
    requests = nano_requests(FULL)
    assert len(requests) == 256
    assert sum(len(prompt) for prompt, _ in requests) == 142_827
    assert sum(output for _, output in requests) == 133_966


@pytest.mark.parametrize(
    ("spec", "batch", "context", "floor_ms"),
    [
        (LLAMA, 1, 1024, 3.52),
        (LLAMA, 32, 1024, 4.49),
        (LLAMA, 256, 1024, 11.5),
        (LLAMA, 32, 8192, 11.5),
        (QWEN, 1, 1024, 0.305),
        (QWEN, 32, 1024, 1.15),
    ],
)
def test_a_decode_steps_floor_is_its_bytes_over_bandwidth(
    spec: ModelSpec, batch: int, context: int, floor_ms: float
) -> None:
    found = step_floor_s(spec, H200, batch, batch * context)
    assert 1000 * found == pytest.approx(floor_ms, rel=0.01)


def test_the_floors_of_whole_workloads_are_the_published_ones() -> None:
    sizes = [(len(prompt), output) for prompt, output in nano_requests(FULL)]
    for spec, rate in ((QWEN, 36_500), (LLAMA, 13_700)):
        assert 133_966 / workload_floor_s(spec, H200, sizes) == pytest.approx(rate, rel=0.01)
    assert prompt_flop(LLAMA, 8192) / H200.product_flop_s == pytest.approx(0.167, rel=0.01)


def test_claimed_prompts_leave_steps_that_only_decode() -> None:
    engine = new_engine(random_weights(TINY.large, CPU), CPU, kv_tokens=512, most_rows=4)
    loop = engine.loop(token_budget=256, prefill_chunk=256)
    sequences = [loop.add([length] * length, greedy(6)) for length in (40, 33, 17)]
    loop.claim_prompts()
    assert [each.num_computed_tokens for each in sequences] == [40, 33, 17]
    num_played_before = engine.runner.num_played
    loop.run()
    assert loop.num_steps == 5
    assert engine.runner.num_played == num_played_before + 5
    assert all(each.num_output_tokens == 6 for each in sequences)
    loop.scheduler.check()
    loop.close()


def test_a_failing_step_is_told_once_and_not_again_while_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = new_engine(random_weights(TINY.large, CPU), CPU, kv_tokens=512, most_rows=4)
    steps = iter(["the first", "the second"])

    def fail(*_: object) -> None:
        raise RuntimeError(next(steps))

    monkeypatch.setattr(engine.runner.pool, "apply", fail)
    loop = engine.loop(token_budget=64)
    # So long that a step planned ahead is under way when the one before fails.
    loop.add([5] * 300, greedy(2))
    with pytest.raises(RuntimeError, match="the first"):
        loop.run()
    loop.close()


def test_what_is_lent_to_the_peer_is_causal_attention_of_each_sequence() -> None:
    q, k, v = torch.randn(9, 4, 16), torch.randn(9, 2, 16), torch.randn(9, 2, 16)
    ends = torch.tensor([0, 5, 9])
    found = varlen_reference(q, k, v, (ends, ends), 0.25)
    for first, end in ((0, 5), (5, 9)):
        rows, keys, values = (part[first:end].transpose(0, 1)[None] for part in (q, k, v))
        expected = scaled_dot_product_attention(
            rows, keys, values, is_causal=True, scale=0.25, enable_gqa=True
        )
        assert torch.allclose(found[first:end], expected[0].transpose(0, 1), atol=1e-6)


def test_a_masked_call_is_not_served_by_what_is_lent() -> None:
    x = torch.zeros(1, 1, 1, 16)
    with pytest.raises(AssertionError, match="lengths"):
        lent_attention(torch.nn.Identity(), x, x, x, torch.zeros(1))


def test_the_checks_pass_where_the_references_serve(capsys: pytest.CaptureFixture[str]) -> None:
    assert checks.main(["--device", "cpu", "--groups", "engine,peer", "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert "0 failures" in printed
    assert "greedy tokens after preemption" in printed


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    native = choose_native(CPU, torch.float32, 128, 16)
    assert native is not None
    monkeypatch.setattr(type(native), "silu_times", lambda self, x: x.chunk(2, -1)[0])
    found = {}
    for check in kernel_checks(CPU):
        found[check.name] = check.is_passed
        if "product" in check.name:
            break
    assert not found["silu_times float32 [37, 4096]"]
    assert found["rms_norm float32 [37, 4096]"]


def test_nan_never_passes_and_new_memory_is_nan() -> None:
    assert not Check("a check", float("nan"), 1.0).is_passed
    with poisoned():
        assert bool(torch.empty(3).isnan().all())
    assert not torch.are_deterministic_algorithms_enabled()


def test_importing_the_rows_and_the_checks_needs_no_triton() -> None:
    code = "import sys, local_engine.bench.gpu.report, local_engine.bench.gpu.checks;"
    code += "sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
