"""What costs more than was set aside for it is charged as counted, and told."""

import json
import re

import aiohttp
import pytest

from tests.conformance.test_what_usage_costs import ask_chat, ask_claude, chat, message
from tests.faults.envelopes import only_outcome
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio
WRITTEN = {"prompt_tokens": 5, "completion_tokens": 1_900, "total_tokens": 1_905}
WRITTEN_MICROUSD = 5 * 2 + 1_900 * 10
ASKED = {"max_completion_tokens": 2_000}


@pytest.mark.parametrize(
    ("asked", "served", "percent", "is_told"),
    [
        ("", "default", 100, False),
        ("", "flex", 50, False),
        ("", "priority", 200, True),
        ("auto", "priority", 200, True),
        ("priority", "priority", 200, False),
    ],
)
async def test_a_dearer_tier_that_nobody_asked_for_is_told(
    gateway: RunningGateway,
    upstreams: Upstreams,
    shared_key: str,
    http: aiohttp.ClientSession,
    asked: str,
    served: str,
    percent: int,
    is_told: bool,
) -> None:
    """As of a project at OpenAI whose default is the faster tier."""
    before = await told_of(gateway, http)
    body = json.dumps(chat(WRITTEN, service_tier=served)).encode()
    for upstream in upstreams.managed:
        upstream.answer(Answer(body=body))
    more = ASKED | ({"service_tier": asked} if asked else {})
    said = await ask_chat(gateway.url, shared_key, GPT_TARGET, dict(more))

    outcome = await only_outcome(gateway, said.request_id, "ok", "")
    intent = (await gateway.records(said.request_id))[0]
    above_microusd = outcome.cost_microusd - intent.reserved_microusd
    assert outcome.cost_microusd == WRITTEN_MICROUSD * percent // 100
    assert (above_microusd > 0) == is_told
    expected = str(above_microusd) if is_told else None
    assert outcome.detail.get("above_reserved_microusd") == expected
    assert await told_of(gateway, http) == before + is_told


@pytest.mark.parametrize(("asked", "is_told"), [("", True), ("us", False), ("global", True)])
async def test_a_country_that_nobody_asked_for_is_told(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str, asked: str, is_told: bool
) -> None:
    """As of a workspace at Anthropic whose default is `us`."""
    counted = {"input_tokens": 5, "output_tokens": 2_000, "inference_geo": "us"}
    for upstream in upstreams.managed:
        upstream.answer(Answer(body=json.dumps(message(counted)).encode()))
    more = {"inference_geo": asked} if asked else {}
    said = await ask_claude(gateway.url, shared_key, CLAUDE_TARGET, dict(more))

    outcome = await only_outcome(gateway, said.request_id, "ok", "")
    intent = (await gateway.records(said.request_id))[0]
    above_microusd = outcome.cost_microusd - intent.reserved_microusd
    assert outcome.cost_microusd == (5 * 4 + 2_000 * 20) * 110 // 100
    assert outcome.usage is not None
    assert outcome.usage.inference_geo == "us"
    assert (above_microusd > 0) == is_told
    expected = str(above_microusd) if is_told else None
    assert outcome.detail.get("above_reserved_microusd") == expected


async def told_of(gateway: RunningGateway, http: aiohttp.ClientSession) -> int:
    """How often, of the target."""
    metrics = await (await http.get(f"{gateway.url}/metrics")).text()
    name = f'gatewright_cost_above_reserved_total{{target="{GPT_TARGET}"}}'
    found = re.search(rf"^{re.escape(name)} (\S+)$", metrics, re.MULTILINE)
    return round(float(found[1])) if found else 0
