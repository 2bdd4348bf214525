"""An operator finds a request, and what it cost, in the trace that its application began."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.collectors import Collectors, collecting
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}


@pytest.fixture
async def collectors() -> AsyncIterator[Collectors]:
    async with collecting() as running:
        yield running


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, collectors: Collectors
) -> AsyncIterator[RunningGateway]:
    more = collectors.settings
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as running:
        yield running


async def spans(collectors: Collectors, count: int) -> dict[str, dict[str, Any]]:
    """The spans that have arrived, by the request that each is of, once there are so many."""
    decoder = json.JSONDecoder()
    while True:
        text = collectors.posted.get("/v1/traces", b"").decode()
        found: list[dict[str, Any]] = []
        while text:
            posted, end = decoder.raw_decode(text)
            found += posted["resourceSpans"][0]["scopeSpans"][0]["spans"]
            text = text[end:]
        if len(found) >= count:
            return {said(span)["gatewright.request_id"]: span for span in found}
        await asyncio.sleep(0.05)


def said(span: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


async def test_a_request_lies_in_the_trace_of_whoever_sent_it(
    gateway: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    collectors: Collectors,
) -> None:
    key = {"authorization": f"Bearer {await gateway.issue_key()}"}
    ids: dict[str, str] = {}
    for case, model, headers in (
        ("traced", CLAUDE_TARGET, PARENT),
        ("refused", "no-such-model", PARENT),
        ("untraced", CLAUDE_TARGET, {}),
        ("no trace", CLAUDE_TARGET, {"traceparent": "00-my-own-words-01"}),
    ):
        body = {"model": model, "messages": [{"role": "user", "content": "Good morning"}]}
        address = f"{gateway.url}/v1/chat/completions"
        async with http.post(address, json=body, headers=key | headers) as reply:
            ids[case] = reply.headers["x-request-id"]

    told = await spans(collectors, 4)

    for case in ("traced", "refused"):
        span = told[ids[case]]
        assert (span["traceId"], span["parentSpanId"]) == (TRACE, SPAN)
    assert said(told[ids["traced"]])["gatewright.project"] == "assistant"
    own = [told[ids[case]] for case in ("untraced", "no trace")]
    assert all("parentSpanId" not in span for span in own)
    assert len({span["traceId"] for span in own} | {TRACE}) == 3
    assert len({span["spanId"] for span in told.values()}) == 4
    # Nothing of it goes on to an upstream.
    assert all("traceparent" not in call.headers for call in upstreams.anthropic.calls)
