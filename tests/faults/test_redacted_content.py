"""How much of what was said the log keeps is policy's: all, with findings blackened, or nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.audit.export import export_records, segment_rows
from gateway.credentials import master_key
from tests.faults.envelopes import STYLES, Caller, Style, ask
from tests.identifiers import card
from tests.running_gateway import ENGINE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio
NUMBER = card(7)
MAIL = "ingrid@corp-mail.no"
TEXT = f"Please write to {MAIL} about card {NUMBER}."
ANSWER = "I shall write about it tomorrow."
POLICY = """
name = "levels"
version = 1
[[constraints]]
name = "keep"
audit_content = "{level}"
"""


@asynccontextmanager
async def serving(
    folder: Path, url: str, upstreams: Upstreams, level: str
) -> AsyncIterator[RunningGateway]:
    (folder / "policy.toml").write_text(POLICY.format(level=level))
    more = f'[policy]\nfile = "{folder / "policy.toml"}"'
    async with RunningGateway(folder, url, upstreams, more=more) as running:
        yield running


async def kept(gateway: RunningGateway) -> list[tuple[str, str]]:
    """Stage and content of every record that has any."""
    lines = export_records(
        segment_rows(gateway.audit_folder),
        directory=gateway.audit_folder,
        keys=master_key(gateway.settings),
    )
    found = [(str(line["stage"]), line.get("content")) async for line in lines]
    return [(stage, str(content)) for stage, content in found if content is not None]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("level", ["redacted", "none", "metadata", "full"])
async def test_the_log_keeps_what_the_level_says(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    style: Style,
    stream: bool,
    level: str,
) -> None:
    own_upstreams.engine.answer(Answer(text=ANSWER))
    messages = [{"role": "user", "content": TEXT}]
    async with serving(tmp_path, sqlite_url, own_upstreams, level) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        body = ask(style, model=ENGINE_TARGET, stream=stream, messages=messages)
        assert (await caller.post(style, body)).status == 200
        contents = await kept(gateway)
    sent: Any = own_upstreams.engine.calls[-1].json["messages"]

    assert TEXT in str(sent)  # What is kept says nothing about what is sent.
    if level in ("none", "metadata"):
        assert contents == []
        return
    if level == "full":
        assert [stage for stage, _ in contents] == ["intent", "outcome"]
        assert TEXT in contents[0][1]
        return
    ((stage, content),) = contents
    assert stage == "intent"
    assert "Please write to" in content
    assert MAIL not in content
    assert NUMBER not in content
    assert msgspec.json.decode(content.encode())["model"] == ENGINE_TARGET


async def test_what_cannot_be_blackened_for_certain_is_not_kept(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    content = [{"type": "text", "text": TEXT}, image]
    async with serving(tmp_path, sqlite_url, own_upstreams, "redacted") as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        body = ask("openai", model=ENGINE_TARGET, messages=[{"role": "user", "content": content}])
        reply = await caller.post("openai", body)
        assert await kept(gateway) == []
        stages = [record.stage for record in await gateway.records(reply.request_id)]
    assert stages[-1] == "outcome"
