"""The planner reproduces the worked example, and more of anything never needs less."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.errors import RequestInvalid
from gateway.oversight.planner import Hardware, Load, Model, plan, read_model, sessions_that_fit


DENSE = Model(layers=128, kv_heads=8, head_dim=128, parameters=405 * 10**9)
LOAD, RACK = Load(), Hardware()


def test_the_worked_example() -> None:
    found = plan(DENSE, LOAD, RACK)

    assert found.kv_bytes_per_token == 524_288
    assert found.session_bytes == 9 * 2**28  # 2.25 GiB
    assert found.sessions == 6_000
    assert found.weights_bytes == 810 * 10**9
    assert found.kv_bytes == 13_500 * 2**30
    assert found.memory_bytes / 2**30 / 1000 == pytest.approx(17.2, abs=0.1)
    assert (found.racks_for_memory, found.racks_recommended) == (2, 3)
    assert round(found.queries_per_s, -1) == 390
    assert round(found.peak_queries_per_s, -1) == 780
    assert round(found.peak_tokens_per_s, -4) == 400_000
    assert found.racks_for_speed == 16
    assert found.racks == 16
    assert plan(DENSE, LOAD, RACK, "fp8").racks_for_speed == 8


def test_eight_times_the_context_leaves_an_eighth_of_the_sessions() -> None:
    short = sessions_that_fit(DENSE, RACK, 2, 4_096)
    long = sessions_that_fit(DENSE, RACK, 2, 32_768)

    assert short // 8 == long > 0


MODELS = st.builds(
    Model,
    layers=st.integers(1, 200),
    kv_heads=st.integers(1, 128),
    head_dim=st.integers(1, 512),
    parameters=st.integers(1, 10**13),
)
LOADS = st.builds(
    Load,
    users=st.integers(1, 10**6),
    concurrency_percent=st.floats(0.01, 50),
    input_tokens=st.integers(1, 10**6),
    output_tokens=st.integers(1, 10**5),
)


@given(MODELS, LOADS, st.integers(1, 10), st.sampled_from(["fp16", "fp8", "int4"]))
def test_more_load_never_needs_less(model: Model, load: Load, times: int, precision: str) -> None:
    least = plan(model, load, RACK, precision)
    for more in (
        replace(load, users=load.users * times),
        replace(load, input_tokens=load.input_tokens * times),
        replace(load, output_tokens=load.output_tokens * times),
        replace(load, concurrency_percent=min(100.0, load.concurrency_percent * times)),
    ):
        found = plan(model, more, RACK, precision)
        assert found.memory_bytes >= least.memory_bytes
        assert found.racks >= least.racks
        assert found.peak_tokens_per_s >= least.peak_tokens_per_s


@given(MODELS, st.integers(1, 50), st.integers(1, 10**6), st.integers(0, 10**6))
def test_a_longer_context_never_holds_more_sessions(
    model: Model, racks: int, context: int, more: int
) -> None:
    fits = sessions_that_fit(model, RACK, racks, context)
    assert sessions_that_fit(model, RACK, racks, context + more) <= fits
    assert sessions_that_fit(model, RACK, racks + 1, context) >= fits


def test_a_config_is_read_and_its_parameters_come_close() -> None:
    config = {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    }
    model = read_model(msgspec.json.encode(config))

    assert (model.layers, model.kv_heads, model.head_dim) == (32, 8, 128)
    assert model.parameters == pytest.approx(8.03e9, rel=0.01)
    assert read_model(msgspec.json.encode({"text_config": config})) == model
    assert read_model(msgspec.json.encode(config), 7).parameters == 7


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200)))
def test_whatever_is_pasted_is_a_model_or_a_clear_no(raw: bytes | str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        read_model(raw)
    assert refused.value.parameter == "config"


@pytest.mark.parametrize("value", [-1, 0, True, 1.5, "8", None, 10**30])
def test_a_number_that_is_none_is_refused(value: object) -> None:
    config = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": value}
    with pytest.raises(RequestInvalid):
        read_model(msgspec.json.encode(config))


@pytest.mark.parametrize(
    "changes", [{"users": 0}, {"concurrency_percent": float("nan")}, {"hours_a_day": 25.0}]
)
def test_a_load_that_is_none_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(RequestInvalid):
        plan(DENSE, replace(LOAD, **changes), RACK)
