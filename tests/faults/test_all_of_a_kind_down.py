"""All upstreams of one kind are down: the fallback serves, and what must stay home waits."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.faults.envelopes import STYLES, Caller, Style, ask, check_envelope, check_error
from tests.faults.test_native_batches import AADHAAR
from tests.running_gateway import ENGINE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("style", STYLES)
down = pytest.mark.parametrize(
    "answer", [Answer(status=503), Answer(fault="reset"), Answer(fault="bad_head")]
)
SECRET = [{"role": "user", "content": f"Her Aadhaar number is {AADHAAR}."}]
ASKED = 20


@pytest.fixture
async def caller(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> AsyncIterator[Caller]:
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams) as running:
        yield Caller(running, http, await running.issue_key())


@both
@down
async def test_with_every_vendor_down_the_house_answers(
    style: Style, answer: Answer, caller: Caller, own_upstreams: Upstreams
) -> None:
    for upstream in own_upstreams.managed:
        upstream.answer(answer)
    replies = [await caller.post(style, ask(style, model="auto:quality")) for _ in range(ASKED)]

    assert [reply.status for reply in replies] == [200] * ASKED
    assert {reply.headers["x-gatewright-target"] for reply in replies} == {ENGINE_TARGET}
    assert any(upstream.calls for upstream in own_upstreams.managed), "they were tried"
    secret = await caller.post(style, ask(style, model="auto:quality", messages=SECRET))
    assert (secret.status, secret.headers["x-gatewright-target"]) == (200, ENGINE_TARGET)
    assert leaked(own_upstreams) == 0


@both
@down
async def test_with_the_house_down_vendors_answer_all_but_what_must_stay_there(
    style: Style, answer: Answer, caller: Caller, own_upstreams: Upstreams
) -> None:
    own_upstreams.engine.answer(answer)
    for _ in range(ASKED):
        reply = await caller.post(style, ask(style, model="auto:cheap"))
        assert reply.status == 200
        assert reply.headers["x-gatewright-target"] != ENGINE_TARGET
        secret = await caller.post(style, ask(style, model="auto:cheap", messages=SECRET))
        check_envelope(secret, style)
        assert secret.status in {502, 503, 529}
    assert any(AADHAAR.encode() in call.body for call in own_upstreams.engine.calls)
    assert leaked(own_upstreams) == 0


@both
async def test_with_the_engine_gone_nothing_is_even_tried_elsewhere(
    style: Style, caller: Caller, own_upstreams: Upstreams
) -> None:
    await own_upstreams.engine.stop()
    for _ in range(ASKED):
        secret = await caller.post(style, ask(style, model="auto:cheap", messages=SECRET))
        check_error(secret, style, "no_target_available")
    assert not any(upstream.requests for upstream in own_upstreams.managed)


def leaked(upstreams: Upstreams) -> int:
    """How many requests brought the number to a vendor."""
    seen = [each.body for upstream in upstreams.managed for each in upstream.requests]
    return sum(AADHAAR.encode() in body for body in seen)
