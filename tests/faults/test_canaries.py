"""Marked secrets and content go through every path, and appear nowhere outside the answer."""

import asyncio
import io
import logging
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.collectors import Collectors
from tests.debug_log import debug_log
from tests.faults.envelopes import STYLES, Caller, Reply, Style, ask
from tests.identifiers import aadhaar, card
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
[limits]
first_byte_s = 1.5
stream_idle_s = 1.5
"""


def canary(name: str) -> str:
    return f"canary{name}{secrets.token_hex(6)}"


PROMPT, SYSTEM, TOOL, FIELD, HEADER, ANSWER, FAULT, USER = (
    canary(name)
    for name in ("prompt", "system", "tool", "field", "header", "answer", "fault", "user")
)
AADHAAR, CARD = aadhaar(4), card(4)
CONTENT = (PROMPT, SYSTEM, TOOL, FIELD, HEADER, ANSWER, FAULT, USER, AADHAAR, CARD)


@pytest.fixture
def log() -> Iterator[io.BytesIO]:
    with debug_log() as written:
        yield written


@pytest.fixture
async def running(
    log: io.BytesIO,
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    collectors: Collectors,
) -> AsyncIterator[RunningGateway]:
    more = SETTINGS + collectors.settings
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as gateway:
        yield gateway


def loaded(style: Style, **fields: object) -> dict[str, object]:
    """A request with a canary in every place that holds content."""
    text = f"{PROMPT} and my numbers {AADHAAR} {CARD}"
    if style == "openai":
        messages: list[object] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": text, "name": USER},
        ]
        more: dict[str, object] = {"messages": messages, "user": USER}
    else:
        messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        more = {"messages": messages, "system": SYSTEM, "metadata": {"user_id": USER}}
    return ask(style) | more | {"unknown_field": {"deep": FIELD}} | fields


def harmless(style: Style, **fields: object) -> dict[str, object]:
    """Canaries that no classifier takes for sensitive, so that it may go to a managed target."""
    return ask(style, messages=[{"role": "user", "content": f"Hello {PROMPT}"}]) | fields


FAULTS: tuple[Fault, ...] = (
    "reset",
    "hang",
    "slow_headers",
    "bad_head",
    "bad_json",
    "mid_reset",
    "mid_hang",
    "cut",
    "truncated",
    "error_event",
)


def delivered(collectors: Collectors) -> list[bytes]:
    """What each collector has; spans come last."""
    posted = (collectors.posted.get(path, b"") for path in ("/lake", "/v1/traces"))
    return [bytes(collectors.syslog), *posted]


class Drive:
    """Takes every path once and keeps what came back."""

    def __init__(self, gateway: RunningGateway, upstreams: Upstreams, caller: Caller) -> None:
        self.gateway, self.upstreams, self.caller = gateway, upstreams, caller
        self.errors: list[Reply] = []

    async def post(
        self,
        style: Style,
        body: bytes | Mapping[str, object],
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        sent = self.caller.headers(style) if headers is None else headers
        reply = await self.caller.post(style, body, {**sent, "x-note": HEADER, "cookie": HEADER})
        if reply.status != 200:
            self.errors.append(reply)
        return reply

    def answer(self, answer: Answer) -> None:
        for upstream in (self.upstreams.engine, *self.upstreams.managed):
            upstream.answer(answer)

    async def good(self, style: Style) -> None:
        self.answer(Answer(text=f"{ANSWER} and more"))
        for stream in (False, True):
            reply = await self.post(style, loaded(style, stream=stream))
            assert reply.status == 200
            for target in (CLAUDE_TARGET, GPT_TARGET):
                reply = await self.post(style, harmless(style, model=target, stream=stream))
                assert ANSWER.encode() in reply.body

    async def bad_input(self, style: Style) -> None:
        whole = msgspec.json.encode(loaded(style))
        await self.post(style, whole[:-10])
        await self.post(style, whole[:-1] + b',"unknown_field":1}')
        await self.post(style, loaded(style, temperature=FIELD))
        await self.post(style, loaded(style, messages=[{"role": FIELD, "content": PROMPT}]))
        await self.post(style, loaded(style, tools=[{"type": FIELD, "function": TOOL}]))
        await self.post(style, loaded(style, stream=FIELD))
        await self.post(style, loaded(style), {"authorization": f"Bearer {HEADER}"})
        await self.post(style, whole, self.caller.headers(style) | {"content-encoding": "gzip"})

    async def upstream_failures(self, style: Style) -> None:
        leak = f'{{"error":{{"message":"{FAULT} {PROMPT} {self.gateway.upstream_key}"}}}}'.encode()
        for status in (401, 403, 404, 429, 500, 503):
            self.answer(Answer(status=status, body=leak))
            for stream in (False, True):
                await self.post(style, harmless(style, model=CLAUDE_TARGET, stream=stream))
        self.answer(Answer(body=leak))
        await self.post(style, harmless(style, model=GPT_TARGET))
        await self.post(style, harmless(style, model=GPT_TARGET, stream=True))
        for fault in FAULTS:
            self.answer(Answer(fault=fault, text=f"{ANSWER} one two three"))
            for stream in (False, True):
                await self.post(style, loaded(style, model=ENGINE_TARGET, stream=stream))

    async def crashes(self, style: Style, monkeypatch: pytest.MonkeyPatch) -> None:
        def crash(*_: object, **__: object) -> Any:
            raise RuntimeError(f"{FAULT} {PROMPT} {self.gateway.upstream_key}")

        for place in (
            "gateway.intake.authenticate",
            "gateway.intake.planning.check_model",
            "gateway.intake.evidence.intent",
            "gateway.inspection.inspector.extract",
            "gateway.dispatch.dispatcher.AttemptLog.add",
            "gateway.relay.Tally.add",
        ):
            with monkeypatch.context() as patched:
                patched.setattr(place, crash)
                for stream in (False, True):
                    await self.post(style, loaded(style, stream=stream))


@pytest.mark.parametrize("style", STYLES)
async def test_no_canary_is_found_anywhere_but_in_the_answer(
    running: RunningGateway,
    own_upstreams: Upstreams,
    collectors: Collectors,
    http: aiohttp.ClientSession,
    log: io.BytesIO,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    style: Style,
) -> None:
    caplog.set_level(logging.DEBUG)
    key = await running.issue_key()
    drive = Drive(running, own_upstreams, Caller(running, http, key))

    await drive.good(style)
    await drive.bad_input(style)
    await drive.upstream_failures(style)
    await drive.crashes(style, monkeypatch)
    async with http.get(f"{running.url}/metrics") as response:
        metrics = await response.read()
    recorded = await running.records()
    records = msgspec.json.encode(recorded)
    last = recorded[-1].request_id.encode()
    while not all(last in sink for sink in delivered(collectors)):
        await asyncio.sleep(0.05)

    folder = running.folder
    files = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del files["upstream.key"]
    places = {
        **files,
        "log": log.getvalue(),
        "other logs": caplog.text.encode(),
        "metrics": metrics,
        "syslog": bytes(collectors.syslog),
        **collectors.posted,
        "records": records,
        "errors": b"".join(reply.body + str(reply.headers).encode() for reply in drive.errors),
        "representations": repr((running.plane, vars(running.plane), running.settings)).encode(),
    }
    assert b"request:refused" in places["log"]
    assert b"request:crashed" in places["log"]
    assert len(drive.errors) > 40
    for secret in (*CONTENT, key, key.split("_")[3], running.upstream_key):
        found = [name for name, held in places.items() if secret.encode() in held]
        assert not found, (secret, found)
