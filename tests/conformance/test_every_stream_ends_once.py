"""Every upstream fault, every dialect in and out: a stream has exactly one end, an honest one."""

import asyncio
from collections.abc import Iterator, Mapping

import aiohttp
import msgspec
import pytest
from msgspec import structs

from gateway.dialects.sse import Splitter
from gateway.dispatch import live_stream
from tests.faults.envelopes import only_outcome, read_to_end
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer, Fault


pytestmark = pytest.mark.anyio

SETTINGS = """
[inspection]
deadline_s = 5.0
"""
SHORT_S = 0.4
"""How long a silence is waited for that never ends."""
WORDS = "one two three four five six " * 10
PATHS: Mapping[str, str] = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "completions": "/v1/completions",
}
CUT = ("chat", "completions")
"""They have no word for a broken stream, so its body does not end like a whole one."""
TARGETS = (CLAUDE_TARGET, GPT_TARGET, ENGINE_TARGET)
REACHED = [(dialect, target) for dialect in PATHS for target in TARGETS]
GOOD_ENDS = {"[DONE]", "message_stop", "response.completed", "response.incomplete"}
BAD_ENDS = {"error", "response.failed"}
FAULTS: dict[Fault, str] = {
    "mid_reset": "upstream_unreachable",
    "mid_hang": "upstream_timeout",
    "cut": "upstream_unreachable",
    "truncated": "stream_broken",
    "bad_json": "upstream_malformed",
    "error_event": "stream_broken",
}


def body(dialect: str, target: str) -> bytes:
    asked: dict[str, object] = {"model": target, "stream": True}
    if dialect == "responses":
        asked |= {"input": "Good morning", "max_output_tokens": 50}
    elif dialect == "completions":
        asked |= {"prompt": "Good morning", "max_tokens": 50}
    else:
        asked |= {"messages": [{"role": "user", "content": "Good morning"}], "max_tokens": 50}
    if dialect in CUT:
        asked["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(asked)


def ends(stream: bytes) -> list[str]:
    """Every event that ends a stream, by its kind."""
    found = []
    for event in Splitter().feed(stream):
        if event.data == b"[DONE]":
            found.append("[DONE]")
        elif event.data is not None:
            tree = msgspec.json.decode(event.data, type=dict[str, object])
            kind = str(tree.get("type") or ("error" if "error" in tree else ""))
            if kind in GOOD_ENDS | BAD_ENDS:
                found.append(kind)
    return found


async def stream_of(
    http: aiohttp.ClientSession, gateway: RunningGateway, key: str, dialect: str, target: str
) -> tuple[bytes, str, bool]:
    """What came, the request's id, and whether the body was cut."""
    await gateway.reaches_all()
    headers = {"authorization": f"Bearer {key}"}
    url = gateway.url + PATHS[dialect]
    async with http.post(url, data=body(dialect, target), headers=headers) as reply:
        assert reply.status == 200
        sent, is_cut = await read_to_end(reply)
        return sent, reply.headers["x-request-id"], is_cut


@pytest.fixture(autouse=True)
def patience(gateway: RunningGateway, request: pytest.FixtureRequest) -> Iterator[None]:
    """Who only waits for bytes that are on their way waits as long as a busy machine takes."""
    fault = request.node.callspec.params.get("fault")
    egress = gateway.plane._egress
    usual = egress.limits
    if fault in {"hang", "slow_headers"}:
        egress.limits = structs.replace(usual, first_byte_s=SHORT_S)
    elif fault == "mid_hang":
        egress.limits = structs.replace(usual, idle_s=SHORT_S)
    yield
    egress.limits = usual


@pytest.mark.parametrize(("dialect", "target"), REACHED)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_broken_stream_ends_once_with_an_error_and_is_recorded_as_incomplete(
    http: aiohttp.ClientSession,
    gateway: RunningGateway,
    shared_key: str,
    upstreams: Upstreams,
    dialect: str,
    target: str,
    fault: Fault,
) -> None:
    for upstream in (upstreams.engine, *upstreams.managed):
        # Before a silence all comes at once, so that none of it is late.
        gap_s = 0.0 if fault == "mid_hang" else 0.005
        upstream.answer(Answer(text=WORDS, fault=fault, gap_s=gap_s))

    sent, request_id, is_cut = await stream_of(http, gateway, shared_key, dialect, target)

    found = ends(sent)
    assert len(found) == 1, sent[-500:]
    assert found[0] in BAD_ENDS
    assert is_cut == (dialect in CUT)
    for word in (b'"finish_reason":"', b'"stop_reason":"', b'"status":"completed","error"'):
        assert word not in sent
    outcome = await only_outcome(gateway, request_id, "incomplete", FAULTS[fault])
    assert outcome.usage is not None
    assert outcome.usage.output_tokens > 0


@pytest.mark.parametrize(("dialect", "target"), REACHED)
async def test_a_whole_stream_ends_once_and_tells_its_usage(
    http: aiohttp.ClientSession,
    gateway: RunningGateway,
    shared_key: str,
    upstreams: Upstreams,
    dialect: str,
    target: str,
) -> None:
    sent, request_id, is_cut = await stream_of(http, gateway, shared_key, dialect, target)

    found = ends(sent)
    assert len(found) == 1
    assert found[0] in GOOD_ENDS
    assert not is_cut
    assert b'"completion_tokens":7' in sent or b'"output_tokens":7' in sent
    outcome = await only_outcome(gateway, request_id, "ok", "")
    assert outcome.usage is not None
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (11, 7)


@pytest.mark.parametrize(("dialect", "target"), REACHED)
async def test_a_stream_that_told_all_and_then_falls_silent_is_whole(
    http: aiohttp.ClientSession,
    gateway: RunningGateway,
    shared_key: str,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    dialect: str,
    target: str,
) -> None:
    """It is not waited for as long as a model that thinks, and costs what it counted."""
    monkeypatch.setattr(live_stream, "TOLD_REST_S", 0.1)
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.answer(Answer(text=WORDS, fault="unended"))
    if (dialect, target) == ("responses", GPT_TARGET):
        pytest.skip("Its terminal event is what tells why it stopped.")

    async with asyncio.timeout(20.0):
        sent, request_id, is_cut = await stream_of(http, gateway, shared_key, dialect, target)

    found = ends(sent)
    assert len(found) == 1, sent[-500:]
    assert found[0] in GOOD_ENDS
    assert not is_cut
    outcome = await only_outcome(gateway, request_id, "ok", "")
    assert outcome.usage is not None
    assert not outcome.usage.estimated
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (11, 7)


EARLY: tuple[Fault, ...] = ("reset", "hang", "slow_headers", "bad_head")
WHOLE: tuple[Fault, ...] = (*EARLY, "bad_json", "mid_reset", "mid_hang", "cut", "truncated")
SLOW = {"hang", "slow_headers", "mid_hang"}
ONCE = {*zip(PATHS, TARGETS, strict=False), ("completions", ENGINE_TARGET)}


def cases(faults: tuple[Fault, ...]) -> list[tuple[str, str, Fault]]:
    """Every dialect with every target; those that wait for a timeout once for each of them."""
    return [
        (dialect, target, fault)
        for fault in faults
        for dialect, target in REACHED
        if fault not in SLOW or (dialect, target) in ONCE
    ]


async def only_error(
    http: aiohttp.ClientSession, gateway: RunningGateway, key: str, dialect: str, asked: bytes
) -> None:
    """One error in the caller's dialect, nothing of a stream or an answer, one failed outcome."""
    await gateway.reaches_all()
    headers = {"authorization": f"Bearer {key}"}
    async with http.post(gateway.url + PATHS[dialect], data=asked, headers=headers) as reply:
        sent = await reply.read()
        assert reply.status >= 500
        assert reply.headers["content-type"] == "application/json"
        tree = msgspec.json.decode(sent, type=dict[str, object])
        assert tree.keys() == (
            {"type", "error", "request_id"} if dialect == "messages" else {"error"}
        )
        request_id = reply.headers["x-request-id"]
    records = await gateway.records(request_id)
    outcomes = [record for record in records if record.stage == "outcome"]
    assert [each.status for each in outcomes] == ["failed"]
    attempts = outcomes[0].attempts
    assert outcomes[0].cost_microusd == sum(each.cost_microusd for each in attempts)
    # Of what it cost nobody told; what was refused cost nothing.
    assert all(each.estimated and each.status < 400 for each in attempts if each.cost_microusd)


@pytest.mark.parametrize(("dialect", "target", "fault"), cases(EARLY))
async def test_a_stream_that_never_began_is_one_error_with_a_status(
    http: aiohttp.ClientSession,
    gateway: RunningGateway,
    shared_key: str,
    upstreams: Upstreams,
    dialect: str,
    target: str,
    fault: Fault,
) -> None:
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.answer(Answer(text=WORDS, fault=fault))

    await only_error(http, gateway, shared_key, dialect, body(dialect, target))


@pytest.mark.parametrize(("dialect", "target", "fault"), cases(WHOLE))
async def test_a_whole_answer_that_broke_is_one_error_with_a_status(
    http: aiohttp.ClientSession,
    gateway: RunningGateway,
    shared_key: str,
    upstreams: Upstreams,
    dialect: str,
    target: str,
    fault: Fault,
) -> None:
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.answer(Answer(text=WORDS, fault=fault))
    asked = body(dialect, target).replace(b'"stream":true', b'"stream":false')
    asked = asked.replace(b',"stream_options":{"include_usage":true}', b"")

    await only_error(http, gateway, shared_key, dialect, asked)
