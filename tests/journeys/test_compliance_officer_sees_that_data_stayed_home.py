"""Sensitive data never reaches a managed target, whatever is asked for and whatever is down."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from tests.identifiers import aadhaar, card
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)


pytestmark = pytest.mark.anyio

PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "user text": lambda value: {
        "messages": [{"role": "user", "content": f"My number is {value}."}]
    },
    "grouped digits": lambda value: {
        "messages": [
            {
                "role": "user",
                "content": "number " + " ".join(value[i : i + 4] for i in range(0, len(value), 4)),
            }
        ]
    },
    "system text": lambda value: {
        "messages": [
            {"role": "system", "content": f"The customer is {value}"},
            {"role": "user", "content": "Hello"},
        ]
    },
    "text part": lambda value: {
        "messages": [{"role": "user", "content": [{"type": "text", "text": f"see {value}"}]}]
    },
    "earlier tool arguments": lambda value: {
        "messages": [
            {"role": "user", "content": "Look it up"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "find", "arguments": json.dumps({"id": value})},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "found"},
        ]
    },
    "unknown field": lambda value: {
        "messages": [{"role": "user", "content": "Hello"}],
        "metadata": {"customer": {"ref": value}},
    },
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", [aadhaar, card])
@pytest.mark.parametrize("model", ["auto", CLAUDE_TARGET, GPT_TARGET])
async def test_an_identifier_anywhere_in_a_request_keeps_it_in_house(
    gateway: RunningGateway,
    upstreams: Upstreams,
    place: str,
    make: Callable[[int], str],
    model: str,
) -> None:
    value = make(len(place))
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=model, extra_body=PLACES[place](value), messages=[]
        )

    assert raw.headers["x-gatewright-target"] == ENGINE_TARGET
    assert len(upstreams.engine.calls) == 1
    assert not upstreams.anthropic.requests
    assert not upstreams.openai.requests


@pytest.mark.parametrize("model", ["auto", CLAUDE_TARGET, GPT_TARGET])
@pytest.mark.parametrize("stream", [False, True])
async def test_without_the_engine_it_is_refused_and_still_stays_home(
    gateway: RunningGateway, upstreams: Upstreams, model: str, stream: bool
) -> None:
    await upstreams.engine.stop()
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        with pytest.raises(openai.InternalServerError) as refused:
            await client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": f"My Aadhaar is {aadhaar()}"}],
                stream=stream,
            )

    assert refused.value.status_code == 503
    assert refused.value.code == "no_target_available"
    assert ENGINE_TARGET in refused.value.message or "in-house" in refused.value.message
    assert not upstreams.anthropic.requests
    assert not upstreams.openai.requests
    outcome = (await gateway.records())[-1]
    assert outcome.stage == "outcome"
    assert outcome.data_class == "S3"
    assert outcome.error == "no_target_available"


async def test_anthropic_requests_are_held_back_in_the_same_way(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key()
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key) as client:
        raw = await client.messages.with_raw_response.create(
            model=CLAUDE_TARGET,
            max_tokens=30,
            system=f"The card on file is {card()}",
            messages=[{"role": "user", "content": "Thanks"}],
        )

    assert raw.headers["x-gatewright-target"] == ENGINE_TARGET
    assert not upstreams.anthropic.requests
    assert not upstreams.openai.requests


async def test_evidence_names_labels_and_never_values(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    value = aadhaar(7)
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        await client.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": f"My Aadhaar is {value}"}]
        )
    intent, outcome = await gateway.records()

    assert intent.data_class == outcome.data_class == "S3"
    assert sum(intent.findings.values()) == 1
    assert intent.clearance == ("in-house",)
    assert outcome.intent
    on_disk = b"".join(
        path.read_bytes() for path in gateway.audit_folder.rglob("*") if path.is_file()
    )
    assert value.encode() not in on_disk
    assert key.encode() not in on_disk
    assert gateway.upstream_key.encode() not in on_disk
