"""Evidence first: nothing leaves without a durable intent, and nobody sees an end without one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.faults.envelopes import (
    PATHS,
    STYLES,
    TERMINALS,
    Caller,
    Style,
    ask,
    check_envelope,
    check_error,
    untouched,
)
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("style", STYLES)
whole_and_streamed = pytest.mark.parametrize("stream", [False, True])
CONTENT = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"one"}}]}\n\n'
STOP = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


@contextmanager
def audit_folder_gone(gateway: RunningGateway) -> Iterator[None]:
    """The worker's folder is moved away, as by a clumsy clean-up, and comes back."""
    folder = gateway.audit_folder / "w0"
    away = folder.with_name("away")
    folder.rename(away)
    try:
        yield
    finally:
        if folder.exists():
            for path in (*folder.iterdir(),):
                path.unlink()
            folder.rmdir()
        away.rename(folder)


async def readiness(gateway: RunningGateway, http: aiohttp.ClientSession) -> int:
    async with http.get(f"{gateway.url}/health/ready") as response:
        await response.read()
        return response.status


async def until_ready(gateway: RunningGateway, http: aiohttp.ClientSession, status: int) -> None:
    while await readiness(gateway, http) != status:
        await asyncio.sleep(0.02)


@pytest.fixture
async def recovered(
    gateway: RunningGateway, http: aiohttp.ClientSession
) -> AsyncIterator[RunningGateway]:
    """The gateway, which must be ready again after the test."""
    await until_ready(gateway, http, 200)
    yield gateway
    await until_ready(gateway, http, 200)


@both
@whole_and_streamed
async def test_without_an_audit_log_nothing_is_sent_and_readiness_is_red(
    recovered: RunningGateway,
    upstreams: Upstreams,
    caller: Caller,
    http: aiohttp.ClientSession,
    style: Style,
    stream: bool,
) -> None:
    with audit_folder_gone(recovered):
        reply = await caller.post(style, ask(style, model=CLAUDE_TARGET, stream=stream))
        await until_ready(recovered, http, 503)
        async with http.get(f"{recovered.url}/health/live") as live:
            assert live.status == 200

    check_error(reply, style, "audit_unavailable")
    assert untouched(upstreams)


@both
async def test_without_an_audit_log_refusals_are_refused_too(
    recovered: RunningGateway, upstreams: Upstreams, caller: Caller, style: Style
) -> None:
    with audit_folder_gone(recovered):
        reply = await caller.post(style, b"not JSON")
        stranger = await caller.post(style, ask(style), {"authorization": "Bearer nobody"})

    check_error(reply, style, "audit_unavailable")
    check_error(stranger, style, "audit_unavailable")
    assert untouched(upstreams)


@both
async def test_service_comes_back_with_the_audit_log(
    recovered: RunningGateway,
    upstreams: Upstreams,
    caller: Caller,
    http: aiohttp.ClientSession,
    style: Style,
) -> None:
    with audit_folder_gone(recovered):
        await until_ready(recovered, http, 503)
    await until_ready(recovered, http, 200)

    reply = await caller.post(style, ask(style))

    assert reply.status == 200
    stages = [record.stage for record in await recovered.records(reply.request_id)]
    assert stages == ["intent", "outcome"]


@both
@whole_and_streamed
async def test_the_intent_is_on_disk_when_the_upstream_gets_the_request(
    gateway: RunningGateway, upstreams: Upstreams, caller: Caller, style: Style, stream: bool
) -> None:
    hold = asyncio.Event()
    upstreams.openai.answer(Answer(hold=hold))
    before = len(await gateway.records())

    asking = asyncio.create_task(caller.post(style, ask(style, model=GPT_TARGET, stream=stream)))
    await upstreams.openai.called()
    records = (await gateway.records())[before:]
    hold.set()
    reply = await asking

    assert [(record.stage, record.request_id) for record in records] == [
        ("intent", reply.request_id)
    ]
    assert records[0].clearance
    assert records[0].reserved_microusd > 0


@both
async def test_the_outcome_is_on_disk_when_the_caller_sees_the_terminal_event(
    gateway: RunningGateway,
    upstreams: Upstreams,
    caller: Caller,
    http: aiohttp.ClientSession,
    style: Style,
) -> None:
    body = ask(style, model=CLAUDE_TARGET, stream=True)
    url = gateway.url + PATHS[style]
    async with http.post(url, json=body, headers=caller.headers(style)) as response:
        seen = b""
        while TERMINALS[style] not in seen:
            piece = await response.content.readany()
            assert piece
            seen += piece
        records = await gateway.records(response.headers["x-request-id"])

    assert [(record.stage, record.status) for record in records] == [
        ("intent", ""),
        ("outcome", "ok"),
    ]
    assert str(records[1].cost_microusd) in seen.decode()


@both
async def test_a_whole_answer_that_cannot_be_recorded_is_not_given(
    recovered: RunningGateway, upstreams: Upstreams, caller: Caller, style: Style
) -> None:
    hold = asyncio.Event()
    upstreams.openai.answer(Answer(hold=hold, text="not for you"))

    asking = asyncio.create_task(caller.post(style, ask(style, model=GPT_TARGET)))
    await upstreams.openai.called()
    with audit_folder_gone(recovered):
        hold.set()
        reply = await asking

    check_error(reply, style, "audit_unavailable")
    assert b"not for you" not in reply.body


@both
@pytest.mark.parametrize("ends_well", [True, False])
async def test_a_stream_that_cannot_be_recorded_has_no_good_end(
    recovered: RunningGateway, upstreams: Upstreams, caller: Caller, style: Style, ends_well: bool
) -> None:
    hold = asyncio.Event()
    events = (CONTENT, STOP, DONE) if ends_well else (CONTENT,)
    upstreams.openai.answer(Answer(hold=hold, events=events))

    with audit_folder_gone_later(recovered) as take_away:

        def continue_without() -> None:
            take_away()
            hold.set()

        body = ask(style, model=GPT_TARGET, stream=True)
        reply = await caller.post(style, body, on_first=continue_without)

    assert reply.status == 200
    assert TERMINALS[style] not in reply.body
    last = reply.body.decode().rstrip("\n").split("\n\n")[-1]
    assert "audit log" in last
    assert '"error"' in last


@contextmanager
def audit_folder_gone_later(gateway: RunningGateway) -> Iterator["TakeAway"]:
    take_away = TakeAway(gateway)
    try:
        yield take_away
    finally:
        take_away.give_back()


class TakeAway:
    """Moves the audit folder away when called."""

    def __init__(self, gateway: RunningGateway) -> None:
        self._context = audit_folder_gone(gateway)
        self._is_away = False

    def __call__(self) -> None:
        self._context.__enter__()
        self._is_away = True

    def give_back(self) -> None:
        if self._is_away:
            self._context.__exit__(None, None, None)


async def test_a_full_disk_is_noticed_before_anything_is_sent(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        device = gateway.plane._audit._device
        device._limits = type(device._limits)(free_floor_bytes=2**62)
        await until_ready(gateway, http, 503)

        reply = await caller.post("openai", ask("openai", model=CLAUDE_TARGET))

    check_envelope(reply, "openai")
    check_error(reply, "openai", "audit_unavailable")
    assert untouched(own_upstreams)
