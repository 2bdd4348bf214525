"""The policy decides how much content the log keeps: all, with findings blackened, or none."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.audit.projecting.export import export_records, segment_rows
from gateway.inspection.inspector import Inspector
from gateway.secrets.credentials import master_key
from tests.faults.envelopes import STYLES, Caller, Style, ask
from tests.identifiers import card
from tests.running_gateway import ENGINE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio
NUMBER = card(7)
MAIL = "ingrid@corp-mail.no"
TEXT = f"Please write to {MAIL} about card {NUMBER}."
OTHER_MAIL = "olaf@corp-mail.no"
ANSWER = f"I shall write to {MAIL} and {OTHER_MAIL} about it tomorrow."
USER = {"role": "user", "content": TEXT}
POLICY = """
name = "levels"
version = 1
[[constraints]]
name = "keep"
audit_content = "{level}"
"""


def calling(*, stream: bool) -> Answer:
    """An answer that calls a tool, in a stream cut in the middle of what is sensitive."""
    said = json.dumps({"to": OTHER_MAIL, "subject": "tomorrow"})
    name = {"name": "send_mail", "arguments": ""}
    whole = {"id": "call_1", "type": "function", "function": name | {"arguments": said}}
    head = {"id": "chatcmpl-1", "created": 1, "model": "m"}
    if not stream:
        message = {"role": "assistant", "content": None, "tool_calls": [whole]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        reply = head | {"object": "chat.completion", "choices": [choice], "usage": usage}
        return Answer(body=json.dumps(reply).encode())
    calls = [{"index": 0} | whole | {"function": name}]
    calls += [{"index": 0, "function": {"arguments": said[at : at + 9]}} for at in range(0, 60, 9)]
    deltas: list[tuple[Any, str | None]] = [({"tool_calls": [call]}, None) for call in calls]
    deltas.append(({}, "tool_calls"))
    chunks = [
        head
        | {"object": "chat.completion.chunk"}
        | {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
        for delta, end in deltas
    ]
    events = [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks]
    return Answer(events=(*events, b"data: [DONE]\n\n"))


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
    (asked, content), (told, answer) = contents
    assert (asked, told) == ("intent", "outcome")
    assert "Please write to" in content
    assert msgspec.json.decode(content.encode())["model"] == ENGINE_TARGET
    # Of the answer too: what it says itself, and what it repeats of the request.
    assert "I shall write to" in answer
    assert "about it tomorrow" in answer
    assert msgspec.json.decode(answer.encode())
    for value in (MAIL, NUMBER, OTHER_MAIL):
        assert value not in content + answer


@pytest.mark.parametrize("stream", [False, True])
async def test_arguments_of_tools_are_kept_blackened_too(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    stream: bool,
) -> None:
    own_upstreams.engine.answer(calling(stream=stream))
    async with serving(tmp_path, sqlite_url, own_upstreams, "redacted") as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        body = ask("openai", model=ENGINE_TARGET, stream=stream, messages=[USER])
        assert (await caller.post("openai", body)).status == 200
        answer = (await kept(gateway))[-1]
    assert answer[0] == "outcome"
    assert "send_mail" in answer[1]
    assert "tomorrow" in answer[1]
    assert OTHER_MAIL not in answer[1]


async def test_a_classifier_that_breaks_keeps_nothing_of_the_answer_and_loses_no_outcome(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(*_: object) -> bytes:
        raise RuntimeError("broken")

    async with serving(tmp_path, sqlite_url, own_upstreams, "redacted") as gateway:
        monkeypatch.setattr(Inspector, "_blackened", breaks)
        caller = Caller(gateway, http, await gateway.issue_key())
        reply = await caller.post("openai", ask("openai", model=ENGINE_TARGET, messages=[USER]))
        assert reply.status == 200
        assert [stage for stage, _ in await kept(gateway)] == ["intent"]
        stages = [record.stage for record in await gateway.records(reply.request_id)]
    assert stages == ["intent", "outcome"]


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
