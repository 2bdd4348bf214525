"""A crowd at a served engine with too few blocks: who stays reads what he would have read alone."""

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.local_engine.models import tiny_spec, write_model_directory
from tests.local_engine.served import Served, client_of, served


pytestmark = pytest.mark.anyio
STEMS = ["one two three four five six seven", "eight nine ten eleven twelve"]
ENGINES: dict[str, dict[str, Any]] = {
    "planned ahead": {"overlap": "on"},
    "guessing ahead": {"num_drafts": 2, "overlap": "on"},
    "in small chunks": {"token_budget": 24, "prefill_chunk": 8},
    "with room on the host": {"host_kv_bytes": 60_000, "overlap": "on"},
    "a share for each": {"tenant_share": 0.6, "overlap": "on", "kv_memory_bytes": 70_000},
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    write_model_directory(directory, tiny_spec(context_window=160))
    return directory


def asked_by(dice: random.Random) -> dict[str, Any]:
    """A request whose answer follows from it alone."""
    prompt = dice.choice(STEMS) + " more" * dice.randint(0, 40)
    body: dict[str, Any] = {
        "model": "tiny",
        "prompt": prompt,
        "temperature": dice.choice([0, 0, 1]),
        "seed": dice.randint(0, 9),
        "max_tokens": dice.randint(1, 30),
        "ignore_eos": dice.random() < 0.7,
        "n": dice.choice([1, 1, 1, 3]),
        "return_token_ids": True,
    }
    body |= dice.choice(
        [
            {},
            {},
            {"top_k": 5, "presence_penalty": 1.0},
            {"logprobs": 2},
            {"logprobs": 1, "echo": True},
            {"guided_regex": "[a-z]{3,20}( [0-9]+)?"},
            {"guided_json": {"type": "array", "items": {"type": "boolean"}, "maxItems": 4}},
            {"allowed_token_ids": list(range(300, 320)), "frequency_penalty": 0.5},
            {"bad_words": ["a", "e"], "min_tokens": 1},
            {"stop": ["e", "\ufffd"]},
        ]
    )
    return body


async def answer(
    client: httpx.AsyncClient, body: dict[str, Any], leaves_s: float | None = None, **headers: str
) -> Any:
    """Tokens and ends; nothing of who was gone before."""
    async with asyncio.timeout(leaves_s):
        found = await client.post("/v1/completions", json=body, headers=headers)
    # So an application is told in the same process that its caller is gone.
    if leaves_s is not None and found.status_code == 503:
        return None
    assert found.status_code == 200, found.text
    return [(each["token_ids"], each["finish_reason"]) for each in found.json()["choices"]]


async def crowd(place: Served, dice: random.Random, all_asked: list[dict[str, Any]]) -> list[Any]:
    """What each of them reads; nothing of those who leave."""
    async with client_of(place.engine) as client:

        async def come(
            body: dict[str, Any], tier: str, tenant: str, at_s: float, leaves_s: float | None
        ) -> Any:
            await asyncio.sleep(at_s)
            headers = {"x-gatewright-tier": tier, "x-gatewright-tenant": tenant}
            return await answer(client, body, leaves_s, **headers)

        coming = []
        for body in all_asked:
            tier = dice.choice(["priority", "standard", "batch"])
            tenant = dice.choice(["a", "b"])
            leaves_s = dice.choice([None, None, None, dice.random() * 0.3])
            coming.append(come(body, tier, tenant, dice.random() * 0.3, leaves_s))
        return await asyncio.gather(*coming)


@pytest.fixture(scope="module")
async def alone(model: Path) -> list[tuple[dict[str, Any], Any]]:
    """Requests, and the answer of each by itself at an engine that keeps nothing."""
    dice = random.Random(5)
    all_asked = [asked_by(dice) for _ in range(24)]
    async with served(model, is_caching=False) as place, client_of(place.engine) as client:
        return [(body, await answer(client, body)) for body in all_asked]


@pytest.mark.parametrize("name", ENGINES)
async def test_who_stays_reads_what_it_would_alone_and_no_block_is_lost(
    model: Path, alone: list[tuple[dict[str, Any], Any]], name: str
) -> None:
    options = {"kv_memory_bytes": 40_000, "max_running": 6, **ENGINES[name]}
    async with served(model, **options) as place:
        found = await crowd(place, random.Random(name), [body for body, _ in alone])
        while place.scheduler.has_work:
            await asyncio.sleep(0.01)
        place.scheduler.check()
        assert place.scheduler.num_preemptions, "there are blocks enough"
        assert place.scheduler.blocks.pool.num_free == place.scheduler.limits.num_blocks
        assert not place.worker._sequences
        assert not place.runner._chooser._kept
    stayed = [(one, other) for one, (_, other) in zip(found, alone, strict=True) if one is not None]
    assert len(stayed) > 12
    for one, other in stayed:
        assert one == other
