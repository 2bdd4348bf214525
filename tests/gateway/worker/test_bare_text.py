"""Which targets continue bare text: those whose engine is known to put nothing around it."""

from pathlib import Path

import pytest

from gateway.configuration.reading import parse_settings
from gateway.pool.capabilities import ENGINES
from gateway.worker.pricing import configured_targets


ENGINE = """
[providers.{name}]
kind = "engine"
base_url = "http://127.0.0.1:9"
jurisdiction = "in-house"
engine = "{engine}"
[targets.{name}-model]
provider = "{name}"
model = "m"
catalogue = "{catalogue}"
"""
OTHERS = """
[providers.both]
kind = "pool"
jurisdiction = "in-house"
members = ["one", "two"]
[targets.shared]
provider = "both"
model = "m"
catalogue = "in-house"
[providers.compatible]
kind = "openai_compatible"
base_url = "http://127.0.0.1:9"
jurisdiction = "in-house"
[targets.somewhere]
provider = "compatible"
model = "m"
catalogue = "in-house"
[providers.openai]
kind = "openai"
jurisdiction = "us"
[targets."gpt-6.2-sol"]
provider = "openai"
model = "gpt-6.2-sol"
"""


def engines(first: str, second: str, catalogue: str = "in-house") -> str:
    return ENGINE.format(name="one", engine=first, catalogue=catalogue) + ENGINE.format(
        name="two", engine=second, catalogue="in-house"
    )


def able(text: str) -> set[str]:
    targets = configured_targets(parse_settings(text, "t.toml", Path("/"), {}))
    return {target.name for target in targets if "completions" in target.capabilities}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_that_puts_a_template_around_a_prompt_is_not_asked(engine: str) -> None:
    """Ollama's `/v1/completions` does, and its answer would not show it."""
    continuing = {"gatewright", "vllm", "sglang"}
    expected = {"one-model"} if engine in continuing else set()

    assert able(ENGINE.format(name="one", engine=engine, catalogue="in-house")) == expected


def test_a_pool_is_asked_where_all_of_its_members_continue_bare_text() -> None:
    assert able(engines("vllm", "vllm") + OTHERS) == {"one-model", "two-model", "shared"}
    assert able(engines("vllm", "ollama") + OTHERS) == {"one-model"}


def test_a_model_that_makes_vectors_continues_nothing() -> None:
    assert able(engines("vllm", "vllm", "in-house-embeddings")) == {"two-model"}
