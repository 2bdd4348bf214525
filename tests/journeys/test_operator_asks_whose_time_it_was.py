"""An operator sees whether it is us or them: first tokens, calls, and who was asked why."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from gateway.dispatch.retrying import RetryBudget
from tests.promql import Vector, scraped
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

QUESTION: Any = [{"role": "user", "content": "What does a receipt prove?"}]
GAP_S = 0.1
"""Before each event of a slow upstream; its head comes at once."""
BELOW_GAP = "0.08"
SDKS = ["openai", "anthropic"]


async def streamed(gateway: RunningGateway, sdk: str, model: str) -> str:
    """The text of one streamed answer."""
    key, text = await gateway.issue_key(), ""
    if sdk == "openai":
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
        ) as client:
            chunks = await client.chat.completions.create(
                model=model, messages=QUESTION, stream=True
            )
            async for chunk in chunks:
                text += "".join(choice.delta.content or "" for choice in chunk.choices)
        return text
    async with (
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0) as other,
        other.messages.stream(model=model, messages=QUESTION, max_tokens=64) as stream,
    ):
        async for piece in stream.text_stream:
            text += piece
    return text


async def whole(gateway: RunningGateway, sdk: str, model: str) -> str:
    """The text of one answer."""
    key = await gateway.issue_key()
    if sdk == "openai":
        async with openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
        ) as client:
            answer = await client.chat.completions.create(model=model, messages=QUESTION)
        return answer.choices[0].message.content or ""
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0) as other:
        message = await other.messages.create(model=model, messages=QUESTION, max_tokens=64)
    return "".join(block.text for block in message.content if block.type == "text")


class Scraped:
    """What `/metrics` says now."""

    def __init__(self, samples: dict[str, Vector]) -> None:
        self._samples = samples

    def of(self, name: str, **labels: str) -> float:
        """The sum of a family's samples that have these labels."""
        wanted = set(labels.items())
        return sum(
            n for key, n in self._samples.get(f"gatewright_{name}", {}).items() if wanted <= key
        )


async def metrics(gateway: RunningGateway, http: aiohttp.ClientSession) -> Scraped:
    async with http.get(f"{gateway.url}/metrics") as reply:
        return Scraped(scraped(await reply.text()))


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize("target", [ENGINE_TARGET, CLAUDE_TARGET, GPT_TARGET])
async def test_a_slow_first_token_is_the_upstreams_though_its_head_came_at_once(
    gateway: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    sdk: str,
    target: str,
) -> None:
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.answer(Answer(text="one two", gap_s=GAP_S))

    assert await streamed(gateway, sdk, target) == "one two"

    seen = await metrics(gateway, http)
    for name in ("time_to_first_token_seconds", "upstream_first_token_seconds"):
        assert seen.of(f"{name}_count", target=target) == 1
        assert seen.of(f"{name}_bucket", target=target, le=BELOW_GAP) == 0
    felt = seen.of("time_to_first_token_seconds_sum", target=target)
    theirs = seen.of("upstream_first_token_seconds_sum", target=target)
    call = seen.of("upstream_duration_seconds_sum", target=target, code="")
    assert GAP_S <= theirs <= felt
    assert call >= theirs + GAP_S
    assert felt <= seen.of("request_duration_seconds_sum", target=target)
    own = seen.of("overhead_seconds_sum")
    assert own == pytest.approx(
        seen.of("request_duration_seconds_sum", target=target) - call, abs=1e-5
    )
    (record,) = [each for each in await gateway.records() if each.stage == "outcome"]
    assert record.attempts[0].first_byte_us >= GAP_S * 1e6


@pytest.mark.parametrize("sdk", SDKS)
async def test_a_whole_answer_has_a_call_and_no_first_token(
    gateway: RunningGateway, http: aiohttp.ClientSession, sdk: str
) -> None:
    assert await whole(gateway, sdk, CLAUDE_TARGET)

    seen = await metrics(gateway, http)
    assert seen.of("upstream_duration_seconds_count", target=CLAUDE_TARGET, code="") == 1
    assert seen.of("overhead_seconds_count") == 1
    assert seen.of("time_to_first_token_seconds_count") == 0
    assert seen.of("upstream_first_token_seconds_count") == 0
    assert seen.of("extra_attempts_total") == 0


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_connection_that_broke_is_a_retry_of_the_same_target(
    gateway: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    sdk: str,
    *,
    is_stream: bool,
) -> None:
    upstreams.anthropic.answer_once(Answer(fault="reset"))

    assert await (streamed if is_stream else whole)(gateway, sdk, CLAUDE_TARGET)

    seen = await metrics(gateway, http)
    code = "upstream_unreachable"
    assert (
        seen.of(
            "extra_attempts_total", target=CLAUDE_TARGET, kind="retry", reason=code, status="ok"
        )
        == seen.of("extra_attempts_total")
        == 1
    )
    assert seen.of("upstream_duration_seconds_count", target=CLAUDE_TARGET, code=code) == 1
    assert seen.of("upstream_duration_seconds_count", target=CLAUDE_TARGET, code="") == 1
    assert seen.of("overhead_seconds_count") == 1
    assert seen.of("time_to_first_token_seconds_count") == int(is_stream)


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_error_of_one_target_that_another_makes_good_is_a_fallback(
    gateway: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    sdk: str,
    *,
    is_stream: bool,
) -> None:
    ask = streamed if is_stream else whole
    assert await ask(gateway, sdk, "auto:quality")
    before = await metrics(gateway, http)
    assert before.of("extra_attempts_total") == 0
    upstreams.anthropic.answer_once(Answer(status=500))

    assert await ask(gateway, sdk, "auto:quality")

    seen = await metrics(gateway, http)
    reason = {"reason": "upstream_refused", "target": CLAUDE_TARGET, "status": "ok"}
    assert seen.of("extra_attempts_total", kind="fallback", **reason) == 1
    assert seen.of("extra_attempts_total") == 1
    assert seen.of("requests_total", status="ok") == 2
    assert seen.of("overhead_seconds_count") == 2
    assert seen.of("overhead_seconds_sum") < seen.of("request_duration_seconds_sum")


async def test_what_nobody_made_good_says_so(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.answer(Answer(status=500))

    with pytest.raises(openai.InternalServerError):
        await whole(gateway, "openai", "auto")

    seen = await metrics(gateway, http)
    failed = seen.of("extra_attempts_total", kind="fallback", status="failed")
    assert failed == seen.of("extra_attempts_total") == seen.of("attempts_failed_total") - 1 > 0
    assert seen.of("upstream_duration_seconds_count", code="") == 0
    assert seen.of("time_to_first_token_seconds_count") == 0


HEDGING = f"""
name = "hedging"
version = 1
[[preferences]]
name = "hedge"
route = "hedge"
targets = ["{CLAUDE_TARGET}", "{GPT_TARGET}"]
order = ["cheap"]
hedge_after_ms = 5
"""


@pytest.mark.parametrize("is_withheld", [False, True])
async def test_a_hedge_that_had_no_budget_is_told_and_takes_no_time_out_of_ours(
    tmp_path: Path,
    sqlite_url: str,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_withheld: bool,
) -> None:
    """Two calls at once last longer together than their request: no time of ours is known."""
    if is_withheld:
        monkeypatch.setattr(RetryBudget, "spend", lambda _: False)
    (tmp_path / "hedging.toml").write_text(HEDGING)
    more = f'[policy]\nfile = "{tmp_path / "hedging.toml"}"\n'
    hold = asyncio.Event()
    upstreams.anthropic.answer(Answer(hold=hold))
    upstreams.openai.answer(Answer(hold=hold))
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        asking = asyncio.ensure_future(whole(gateway, "openai", "auto:hedge"))
        await (upstreams.anthropic if is_withheld else upstreams.openai).called()
        await asyncio.sleep(0.2)  # Far longer than a hedge waits.
        hold.set()
        assert await asking
        seen = await metrics(gateway, http)

    noted = "withheld" if is_withheld else "extra"
    assert seen.of(f"{noted}_attempts_total", kind="hedge") == 1
    assert seen.of("withheld_attempts_total") == int(is_withheld)
    assert seen.of("overhead_seconds_count") == int(is_withheld)
