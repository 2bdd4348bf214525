"""An application team asks in other words: where policy says so, the same answer serves again."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from tests.faults.envelopes import Caller, Reply, ask
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

POLICY = """
name = "alike"
version = 1
[defaults]
order = ["cheapest"]
cache_s = 3600
cache_like_percent = 95
"""
VECTORS = "house-vectors"
MORE = """
[targets.{vectors}]
provider = "engine"
model = "fake-model"
catalogue = "in-house-embeddings"
[response_cache]
embeddings = "{vectors}"
[policy]
file = "{policy}"
"""
FIRST = "How do I reset my password?"
AGAIN = "how can I reset the password that I have"


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    (tmp_path / "policy.toml").write_text(POLICY)
    more = MORE.format(vectors=VECTORS, policy=tmp_path / "policy.toml")
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as running:
        yield running


@pytest.fixture
async def caller(gateway: RunningGateway, http: aiohttp.ClientSession) -> Caller:
    return Caller(gateway, http, await gateway.issue_key())


def vector(*numbers: float) -> Answer:
    items = [{"object": "embedding", "index": 0, "embedding": numbers}]
    return Answer(body=msgspec.json.encode({"object": "list", "model": "v", "data": items}))


async def said(caller: Caller, text: str, **fields: object) -> Reply:
    messages = [{"role": "user", "content": text}]
    return await caller.post("openai", ask("openai", model=GPT_TARGET, messages=messages) | fields)


async def test_a_near_question_gets_the_answer_and_the_record_says_how_near(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    upstreams.engine.answer_once(vector(1.0, 0.0), vector(1.0, 0.1))

    first, again = await said(caller, FIRST), await said(caller, AGAIN)

    assert first.headers["x-gatewright-cache"] == "miss"
    assert again.headers["x-gatewright-cache"] == "like; cosine=0.9950"
    assert again.tree["choices"] == first.tree["choices"]
    assert len(upstreams.openai.calls) == 1
    assert [call.json["input"] for call in upstreams.engine.calls] == [FIRST, AGAIN]
    outcome = (await gateway.records(again.request_id))[1]
    assert (outcome.detail["cache"], outcome.cost_microusd) == ("like", 0)
    assert outcome.detail["cache_of"] == first.request_id
    assert outcome.detail["cache_cosine_ppm"] == "995037"


async def test_a_far_question_one_about_something_else_and_another_setting_are_asked(
    caller: Caller, upstreams: Upstreams
) -> None:
    upstreams.engine.answer_once(vector(1.0, 0.0), vector(1.0, 0.5), vector(1.0, 0.0))
    upstreams.engine.answer(vector(1.0, 0.0))
    await said(caller, FIRST)

    far = await said(caller, AGAIN)
    swapped = await said(caller, "How do I reset my username?")
    warmer = await said(caller, AGAIN, temperature=0.7)

    told = {reply.headers["x-gatewright-cache"] for reply in (far, swapped, warmer)}
    assert told == {"miss"}
    assert len(upstreams.openai.calls) == 4


@pytest.mark.parametrize(
    "broken",
    [
        Answer(status=500),
        Answer(fault="bad_json"),
        Answer(fault="reset"),
        Answer(body=b'{"object":"list","data":[{"embedding":"AAAA"}]}'),
        vector(),
        vector(0.0, 0.0),
    ],
)
async def test_without_a_vector_the_answer_is_made_anew(
    broken: Answer, caller: Caller, upstreams: Upstreams
) -> None:
    upstreams.engine.answer(broken)

    replies = [await said(caller, FIRST), await said(caller, AGAIN)]

    assert [reply.status for reply in replies] == [200, 200]
    assert all(reply.headers["x-gatewright-cache"] == "miss" for reply in replies)
    assert (await said(caller, FIRST)).headers["x-gatewright-cache"] == "hit"


async def test_a_stream_is_given_again_to_a_near_question(
    caller: Caller, upstreams: Upstreams
) -> None:
    upstreams.engine.answer(vector(0.5, 0.5))

    first = await said(caller, FIRST, stream=True)
    again = await said(caller, AGAIN, stream=True)

    assert again.headers["x-gatewright-cache"] == "like; cosine=1.0000"
    assert b"data: [DONE]" in again.body
    assert first.body.split(b": x-gatewright")[0] == again.body.split(b": x-gatewright")[0]
