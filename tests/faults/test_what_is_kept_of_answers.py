"""Sensitive data in every place of every answer: nobody else can read it where it is stored.

Recorded content of an answer is encrypted, and blackened if policy says so. The data is in no file,
no log line, no figure, no record and no receipt.
"""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec import Struct

from gateway.audit.projecting.export import export_records, segment_rows
from gateway.secrets.credentials import master_key
from gateway.types import DialectName
from tests.collectors import Collectors, collecting
from tests.conformance.test_batches import ended, line, make, results
from tests.debug_log import debug_log
from tests.faults.envelopes import read_to_end
from tests.faults.full_answers import STREAMED, WHOLE
from tests.faults.full_requests import DOORS, Place
from tests.faults.test_every_answer import CALLERS, VALUES, spread, stream_of
from tests.faults.test_every_place import SETTINGS
from tests.faults.test_native_batches import speaking
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

SPOKEN: tuple[DialectName, ...] = ("openai_chat", "anthropic_messages", "openai_responses")
MORE = ({"store": True}, {"store": True, "stream": True})
LEVELS = ("none", "metadata", "redacted", "full")
POLICY = """
name = "levels"
version = 1
[defaults]
cache_s = 3600
[[constraints]]
name = "keep"
audit_content = "{level}"
"""


class Kept(Struct):
    """A gateway under a level, and all that was said in its answers."""

    gateway: RunningGateway
    collectors: Collectors
    http: aiohttp.ClientSession
    key: str
    marks: dict[str, Place] = {}
    receipts: list[str] = []
    told: list[bytes] = []

    async def post(self, path: str, body: dict[str, Any]) -> int:
        headers = {"authorization": f"Bearer {self.key}"}
        async with self.http.post(self.gateway.url + path, json=body, headers=headers) as reply:
            self.receipts.append(str(reply.headers))
            self.told.append((await read_to_end(reply))[0])
            return reply.status


@asynccontextmanager
async def keeping(
    folder: Path, url: str, upstreams: Upstreams, level: str, http: aiohttp.ClientSession
) -> AsyncIterator[Kept]:
    (folder / "policy.toml").write_text(POLICY.format(level=level))
    async with collecting() as collectors:
        more = f'[policy]\nfile = "{folder / "policy.toml"}"\n{collectors.settings}'
        more += SETTINGS.format(url=upstreams.openai.url)
        async with RunningGateway(folder, url, upstreams, more=more) as gateway:
            yield Kept(gateway, collectors, http, await gateway.issue_key())


async def answered(kept: Kept, upstreams: Upstreams) -> None:
    """Every vendor's full answer, whole and streamed, with another value in each of its places."""
    for dialect in SPOKEN:
        for stream in (False, True):
            path = CALLERS[dialect]
            body, marks = spread(STREAMED[dialect] if stream else WHOLE[dialect], VALUES["card"])
            events = tuple(stream_of(dialect, body)) if stream else None
            raw = None if stream else json.dumps(body).encode()
            for upstream in upstreams.managed:
                upstream.answer(Answer(body=raw, events=events))
            status = await kept.post(path, DOORS[path] | MORE[stream])
            assert status == 200, (path, stream, kept.told[-1])
            assert any(mark.encode() in kept.told[-1] for mark in marks)
            kept.marks |= marks


async def again(kept: Kept, upstreams: Upstreams) -> bool:
    """Whether a question that nobody's name stands in gets the answer that it got before."""
    upstreams.openai.answer(Answer())
    for _ in range(2):
        body = {"model": GPT_TARGET, "messages": [{"role": "user", "content": "Good day"}]}
        assert await kept.post(CALLERS["openai_chat"], body) == 200
    return "'x-gatewright-cache': 'hit'" in kept.receipts[-1]


async def in_a_batch(kept: Kept, upstreams: Upstreams) -> None:
    body, marks = spread(WHOLE["openai_chat"], VALUES["card"])
    upstreams.openai.answer(Answer(body=json.dumps(body).encode()))
    asked = [{"role": "user", "content": "Good morning"}]
    async with speaking(kept.gateway.url, kept.key) as client:
        batch = await ended(
            client, await make(client, [line("q-1", model=GPT_TARGET, messages=asked)])
        )
        found = await results(client, batch.output_file_id)
    assert any(mark in str(found) for mark in marks)


async def places_of(kept: Kept, written: io.BytesIO) -> dict[str, bytes]:
    """All that whoever looks after an installation can lay hands on."""
    gateway = kept.gateway
    async with kept.http.get(f"{gateway.url}/metrics") as response:
        metrics = await response.read()
    lines = export_records(segment_rows(gateway.audit_folder), directory=gateway.audit_folder)
    files = {
        str(each.relative_to(gateway.folder)): each.read_bytes()
        for each in gateway.folder.rglob("*")
        if each.is_file()
    }
    return {
        **files,
        "log": written.getvalue(),
        "metrics": metrics,
        "syslog": bytes(kept.collectors.syslog),
        **kept.collectors.posted,
        "records": msgspec.json.encode(await gateway.records()),
        "export": "".join([str(each) async for each in lines]).encode(),
        "heads": "".join(kept.receipts).encode(),
    }


async def contents(gateway: RunningGateway) -> list[str]:
    rows = segment_rows(gateway.audit_folder)
    keys = master_key(gateway.settings)
    lines = export_records(rows, directory=gateway.audit_folder, keys=keys)
    found = [(str(each["stage"]), each.get("content")) async for each in lines]
    return [str(content) for stage, content in found if stage == "outcome" and content is not None]


@pytest.mark.parametrize("level", LEVELS)
async def test_what_an_answer_said_stands_nowhere_in_the_clear(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    level: str,
) -> None:
    with debug_log() as written:
        async with keeping(tmp_path, sqlite_url, own_upstreams, level, http) as kept:
            await answered(kept, own_upstreams)
            is_repeated = await again(kept, own_upstreams)
            await in_a_batch(kept, own_upstreams)
            found = await places_of(kept, written)
            said = await contents(kept.gateway)
    assert b"request:" in found["log"]
    assert is_repeated is (level == "full")
    for name, held in found.items():
        assert not [place for mark, place in kept.marks.items() if mark.encode() in held], name
    if level in {"none", "metadata"}:
        assert not said
    elif level == "full":
        assert any(mark in content for content in said for mark in kept.marks)
    else:
        assert said
        assert not [place for mark, place in kept.marks.items() if mark in str(said)]
