"""A conversation that one vendor thought about goes on there, or without its thinking."""

import base64
import random
from typing import Any

import aiohttp
import pytest

from tests.identifiers import aadhaar
from tests.running_gateway import (
    CHEAP_CLAUDE_TARGET,
    CLAUDE_TARGET,
    ENGINE_TARGET,
    RunningGateway,
    Upstreams,
)


pytestmark = pytest.mark.anyio
SIGNATURE = base64.b64encode(random.Random(3).randbytes(300)).decode()
THOUGHT = {"type": "thinking", "thinking": "Let me see.", "signature": SIGNATURE}


def conversation(text: str, *thoughts: dict[str, str]) -> dict[str, Any]:
    said = [*thoughts, {"type": "text", "text": "Well."}]
    messages = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": said},
        {"role": "user", "content": text},
    ]
    return {"model": "auto", "max_tokens": 50, "messages": messages}


async def test_sealed_reasoning_goes_to_its_vendor_and_to_nobody_else(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    headers = {"x-api-key": await gateway.issue_key()}
    url = f"{gateway.url}/v1/messages"

    async def ask(body: dict[str, Any]) -> tuple[str, str]:
        async with http.post(url, json=body, headers=headers) as reply:
            assert reply.status == 200, await reply.text()
            told = reply.headers
            return told["x-gatewright-target"], told.get("x-gatewright-dropped", "")

    assert await ask(conversation("Go on.")) == (ENGINE_TARGET, "")
    target, dropped = await ask(conversation("Go on.", THOUGHT))
    assert target in {CLAUDE_TARGET, CHEAP_CLAUDE_TARGET}
    assert dropped == ""
    assert SIGNATURE.encode() in upstreams.anthropic.requests[-1].body

    upstreams.engine.requests.clear()
    restricted = conversation(f"My number is {aadhaar(1)}.", THOUGHT)
    assert await ask(restricted) == (ENGINE_TARGET, "messages.thinking")
    sent = b"".join(each.body for each in upstreams.engine.requests)
    assert b"Well." in sent
    assert SIGNATURE.encode() not in sent
    assert b"Let me see" not in sent
