"""Which settings of a provider make another server of it."""

from typing import Any

import pytest
from msgspec import structs

from gateway.configuration.origins import origin_of
from gateway.configuration.sections import SecretReference
from gateway.configuration.settings import ProviderSettings


USUAL = ProviderSettings("openai", "us", base_url="https://api.example.com/v1")
POOL = ProviderSettings("pool", "in-house", members=("a", "b"))


def origin(name: str, **providers: ProviderSettings) -> str:
    return origin_of(name, {"p": USUAL, "a": USUAL, "b": USUAL, "pool": POOL} | providers)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "openai_compatible"},
        {"base_url": "https://api.example.org/v1"},
        {"engine": "vllm"},
        {"region": "eu-west-1"},
        {"service": "bedrock-runtime"},
        {"cross_region": True},
    ],
    ids=str,
)
def test_another_server_has_another_origin(fields: dict[str, Any]) -> None:
    other = structs.replace(USUAL, **fields)

    assert origin("p", p=other) != origin("p")
    assert origin("pool", b=other) != origin("pool"), "a pool is its members"
    assert origin("pool", p=other) == origin("pool")


def test_the_way_to_a_server_is_no_part_of_its_origin() -> None:
    """Whoever puts a new credential in place keeps what was kept."""
    fields = {
        "credential": SecretReference(env="KEY"),
        "connect_timeout_s": 1.0,
        "proxy": "http://p:1",
    }
    assert origin("p", p=structs.replace(USUAL, **fields)) == origin("p")
    assert origin("a") != origin("b"), "two providers may stand for two contracts"
    assert "example" not in origin("p")


def test_a_pool_of_itself_or_of_nobody_is_told_elsewhere() -> None:
    odd = structs.replace(POOL, members=("pool", "nobody"))
    assert origin("pool", pool=odd) != origin("pool")
