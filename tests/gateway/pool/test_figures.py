"""Figures out of Prometheus texts as engines write them."""

import msgspec
import pytest

from gateway.oversight.workers import EngineMemory
from gateway.pool.capabilities import ENGINES
from gateway.pool.figures import LINE_LENGTH_MAX, Figures, figures_of
from local_engine.runner.memory import KvBudget
from local_engine.serve.metrics import Metrics as EngineMetrics
from local_engine.serve.wire import Stats


TEXTS = {
    "vllm": """# HELP vllm:num_requests_waiting Number of requests waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="qwen"} 3.0
vllm:num_requests_waiting{engine="1",model_name="qwen"} 1.0
vllm:num_requests_running{engine="0",model_name="qwen"} 12.0 1795304154000
vllm:kv_cache_usage_perc{engine="0",model_name="qwen"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="qwen"} 0.75
vllm:num_requests_waiting_by_reason{reason="capacity"} 99.0
""",
    "sglang": """sglang:num_queue_reqs{model_name="m"} 4.0
sglang:num_running_reqs{model_name="m"} 12.0
sglang:token_usage{model_name="m"} 0.75
""",
    "tensorrt-llm": """trtllm_num_requests_waiting 4
trtllm_num_requests_running 12
trtllm_kv_cache_utilization 0.75
""",
    "gatewright": """# TYPE gatewright_engine_num_requests_waiting gauge
gatewright_engine_num_requests_waiting 4.0
gatewright_engine_num_requests_running 12.0
gatewright_engine_kv_cache_usage_ratio 0.75
""",
}


@pytest.mark.parametrize("engine", TEXTS)
def test_queue_and_cache_are_read_as_each_engine_names_them(engine: str) -> None:
    assert figures_of(TEXTS[engine], ENGINES[engine]) == Figures(4.0, 12.0, 0.75)


def test_a_metric_may_be_one_label_of_a_family() -> None:
    text = """nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 5
nv_trt_llm_request_metrics{model="m",request_type="active",version="1"} 7
"""
    assert figures_of(text, ENGINES["triton"]) == Figures(waiting=5.0)


@pytest.mark.parametrize("value", ["NaN", "-3", "+Inf", "", "lots", "{}"])
def test_what_is_no_count_is_passed_over(value: str) -> None:
    text = f"trtllm_num_requests_waiting {value}\ntrtllm_num_requests_running 2"
    assert figures_of(text, ENGINES["tensorrt-llm"]) == Figures(running=2.0)


def test_counters_are_read_where_an_engine_has_them() -> None:
    text = """vllm:prefix_cache_queries_total{engine="0"} 1000.0
vllm:prefix_cache_hits_total{engine="0"} 250.0
vllm:prompt_tokens_total{engine="0"} 1200.0
vllm:generation_tokens_total{engine="0"} 80.0
vllm:generation_tokens_total{engine="1"} 20.0
vllm:num_preemptions_total{engine="0"} 3.0
"""
    found = figures_of(text, ENGINES["vllm"])
    assert (found.prefix_query_tokens, found.prefix_hit_tokens) == (1000.0, 250.0)
    assert (found.read_tokens, found.generated_tokens, found.preemptions) == (1200.0, 100.0, 3.0)
    assert found.blocks is None


def test_our_own_engine_says_all_of_it() -> None:
    planned = KvBudget(7_000, 32, 16, 40, 5, 640, 1)
    stats = Stats(
        num_blocks=40,
        num_free_blocks=10,
        num_host_blocks_used=2,
        device_bytes=90_000,
        device_free_bytes=60_000,
    )
    text = EngineMetrics(msgspec.to_builtins(planned)).render(stats).decode()
    found = figures_of(text, ENGINES["gatewright"])
    assert (found.blocks, found.cache_use) == (40.0, 0.75)
    assert None not in msgspec.structs.astuple(found)
    assert found.memory == EngineMemory(
        weight_bytes=7_000,
        kv_bytes=40 * 16 * 32,
        kv_used_bytes=30 * 16 * 32,
        kv_block_tokens=16,
        kv_token_bytes=32,
        kv_tokens=640,
        host_bytes=5 * 16 * 32,
        host_used_bytes=2 * 16 * 32,
        longest_context_tokens=640,
        device_bytes=90_000,
        device_free_bytes=60_000,
    )


def test_other_engines_tell_of_their_memory_what_they_do_and_no_more() -> None:
    text = """vllm:cache_config_info{block_size="16",num_gpu_blocks="1200",cache_dtype="auto"} 1.0
sglang:max_total_num_tokens{model_name="m"} 471258.0
"""
    vllm = figures_of(text, ENGINES["vllm"])
    assert (vllm.blocks, vllm.memory) == (1_200.0, EngineMemory(kv_block_tokens=16))
    assert figures_of(text, ENGINES["sglang"]).memory == EngineMemory(kv_tokens=471_258)
    assert figures_of(text, ENGINES["tensorrt-llm"]).memory == EngineMemory()


@pytest.mark.parametrize("said", ["None", "-5", "9" * 400, "1e99", ""])
def test_a_label_that_is_no_count_is_passed_over(said: str) -> None:
    text = f'vllm:cache_config_info{{num_gpu_blocks="{said}",block_size="{said}"}} 1.0'
    assert figures_of(text, ENGINES["vllm"]) == Figures()


def test_engines_without_metrics_have_none() -> None:
    assert figures_of(TEXTS["vllm"], ENGINES["ollama"]) == Figures()


def test_a_line_longer_than_any_sample_is_passed_over() -> None:
    """Each of its labels would be noted: a line of four megabytes has two million."""
    labels = ",".join(f'a{at}="1"' for at in range(LINE_LENGTH_MAX))
    text = f"vllm:num_requests_waiting{{{labels}}} 7\nvllm:num_requests_waiting 2\n"
    assert figures_of(text, ENGINES["vllm"]) == Figures(waiting=2.0)
