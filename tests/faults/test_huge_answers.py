"""Answers of many megabytes, or with very many parts: others are served while one is read."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.faults.envelopes import Caller, Reply, ask, check_error
from tests.running_gateway import ENGINE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

POLICY = """
name = "answers"
version = 1
[defaults]
order = ["cheapest"]
[[constraints]]
name = "read-what-comes-back"
when = 'model_requested == "{target}"'
scan_output = "{mode}"
"""
HEAD = (
    b'{"id":"x","object":"chat.completion","created":1,"model":"m",'
    b'"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2},"choices":['
    b'{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello"'
)
BESIDE_MIN = 3
"""How many others are served at least while one answer is read."""


def many(part: bytes, count: int, name: bytes = b"x", end: bytes = b"}}]") -> Answer:
    """A good answer that also says `part` so often."""
    parts = b",".join([part] * count)
    return Answer(body=b'%b%b,"%b":[%b]}' % (HEAD, end, name, parts))


def calling(count: int) -> Answer:
    call = b'{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}'
    calls = b",".join([call] * count)
    return Answer(body=b'%b,"tool_calls":[%b]}}]}' % (HEAD, calls))


def different(count: int) -> Answer:
    """Short texts, each another one: the dearest to be looked at."""
    texts = b",".join(b'"a number %d"' % at for at in range(count))
    return Answer(body=b'%b}}],"x":[%b]}' % (HEAD, texts))


@pytest.fixture(params=["count", "mask"])
async def scanning(
    request: pytest.FixtureRequest, tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    policy = POLICY.format(mode=request.param, target=GPT_TARGET)
    (tmp_path / "policy.toml").write_text(policy)
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running:
        yield running


async def beside(
    caller: Caller, upstreams: Upstreams, body: dict[str, object]
) -> tuple[Reply, int]:
    """What an asker gets, and how many others are served once its answer has left its upstream."""
    may_answer = asyncio.Event()
    answer = upstreams.openai.answer_to(None)  # type: ignore[arg-type]
    upstreams.openai.answer(Answer(body=answer.body, hold=may_answer))
    asking = asyncio.ensure_future(caller.post("openai", body))
    await upstreams.openai.called()
    may_answer.set()
    served = -1  # The first one may be on its way before anything has arrived.
    while not asking.done():
        assert (await caller.post("openai", ask("openai", model=ENGINE_TARGET))).status == 200
        served += not asking.done()
    return await asking, served


async def test_others_are_served_while_an_answer_is_looked_at(
    scanning: RunningGateway, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    caller = Caller(scanning, http, await scanning.issue_key())
    await caller.post("openai", ask("openai", model=ENGINE_TARGET))
    own_upstreams.openai.answer(different(2_500))

    reply, served = await beside(caller, own_upstreams, ask("openai", model=GPT_TARGET))

    assert reply.status == 200
    assert served >= BESIDE_MIN


async def test_an_answer_that_takes_too_long_to_be_looked_at_is_not_shown(
    scanning: RunningGateway,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.veiling.output_scan.LOOK_S_MAX", 0.1)
    caller = Caller(scanning, http, await scanning.issue_key())
    own_upstreams.openai.answer(different(8_000))

    reply = await caller.post("openai", ask("openai", model=GPT_TARGET))

    check_error(reply, "openai", "upstream_malformed")


def keyed(count: int) -> Answer:
    return Answer(body=b"%b}}],%b}" % (HEAD, b",".join(b'"%d":1' % at for at in range(count))))


@pytest.mark.parametrize(
    "answer",
    [many(b"{}", 100_001), many(b"1", 200_001), keyed(100_001), calling(10_001)],
    ids=["objects", "numbers", "keys", "calls"],
)
async def test_an_answer_of_more_parts_than_any_has_is_refused(
    caller: Caller, upstreams: Upstreams, answer: Answer
) -> None:
    upstreams.openai.answer(answer)

    reply = await caller.post("openai", ask("openai", model=GPT_TARGET))

    check_error(reply, "openai", "upstream_malformed")


@pytest.mark.parametrize(("length", "is_told"), [(1_000_000, True), (1_100_000, False)])
async def test_of_a_huge_refusal_only_the_status_is_read(
    caller: Caller, upstreams: Upstreams, length: int, is_told: bool
) -> None:
    said = b'{"error":{"message":"Too warm."},"detail":"%b"}' % (b"a" * length)
    upstreams.openai.answer(Answer(status=400, body=said))

    reply = await caller.post("openai", ask("openai", model=GPT_TARGET))

    assert reply.status == 400
    assert (b"Too warm." in reply.body) is is_told


@pytest.mark.parametrize(("count", "is_told"), [(19_000, True), (21_000, False)])
async def test_of_a_refusal_of_very_many_values_only_the_status_is_read(
    caller: Caller, upstreams: Upstreams, count: int, is_told: bool
) -> None:
    said = b'{"error":{"message":"Too warm."},"detail":[%b]}' % b",".join([b"1"] * count)
    upstreams.openai.answer(Answer(status=400, body=said))

    reply = await caller.post("openai", ask("openai", model=GPT_TARGET))

    assert reply.status == 400
    assert (b"Too warm." in reply.body) is is_told


async def test_a_long_answer_is_told_whole_in_another_dialect(
    caller: Caller, upstreams: Upstreams
) -> None:
    """Eight thousand calls and four million figures, from one vendor to the other's caller."""
    body = calling(8_000).body
    assert body is not None
    body = body[:-1] + b',"logprobs":[' + b",".join([b"1"] * 4_000_000) + b"]}"
    upstreams.openai.answer(Answer(body=body))

    reply = await caller.post("anthropic", ask("anthropic", model=GPT_TARGET))

    assert reply.status == 200
    assert len(reply.tree["content"]) == 8_001
