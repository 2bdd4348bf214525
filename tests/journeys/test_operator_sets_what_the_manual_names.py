"""An operator sets what the manual lists, and what callers see changes as the manual says."""

import asyncio
import base64
import gzip
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import openai
import pytest
from openai.types import Batch

from gateway.audit.projecting.export import export_records, segment_rows
from gateway.secrets.credentials import master_key
from tests.faults.envelopes import Caller, Style, ask
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(80)).decode()
SMALL = """
[limits]
messages_max = 2
tools_max = 1
keys_max = 40
attachments_max = 1
schema_bytes_max = 400
choices_max = 2
prompts_max = 2
input_tokens_max = 900
output_tokens_default = 77
header_bytes_max = 3000
header_receive_s = 0.3
body_receive_s = 0.3
"""


def said(count: int) -> list[dict[str, object]]:
    return [{"role": "user", "content": f"Line {number}"} for number in range(count)]


def image(address: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": address}}


def function(name: str, described: str = "It helps.") -> dict[str, object]:
    made = {"name": name, "description": described, "parameters": {"type": "object"}}
    return {"type": "function", "function": made}


TOO_MUCH: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "messages_max": ({"messages": said(3)}, "messages", "At most 2"),
    "tools_max": ({"tools": [function("a"), function("b")]}, "tools", "At most 1"),
    "schema_bytes_max": ({"tools": [function("a", "x" * 400)]}, "tools[0]", "400 bytes"),
    "choices_max": ({"n": 3}, "n", "At most 2"),
    "keys_max": ({"metadata": {f"name{n}": str(n) for n in range(40)}}, "$", "40 keys"),
    "attachments_max": (
        {
            "messages": [
                {"role": "user", "content": [image(f"data:image/png;base64,{PIXEL}")] * 2},
            ]
        },
        "messages[0].content",
        "At most 1",
    ),
}


async def test_what_one_request_may_hold(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=SMALL) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        for name, (fields, parameter, reason) in TOO_MUCH.items():
            reply = await caller.post("openai", ask("openai", **fields))
            error = reply.tree["error"]
            assert (reply.status, error["param"]) == (400, parameter), name
            assert reason in error["message"], name
        long = ask("openai", messages=[{"role": "user", "content": "word " * 1500}])
        reply = await caller.post("openai", long)
        assert reply.tree["error"]["code"] == "context_length_exceeded"
        async with http.post(
            f"{gateway.url}/v1/completions",
            json={"model": ENGINE_TARGET, "prompt": ["a", "b", "c"], "max_tokens": 5},
            headers=caller.headers("openai"),
        ) as answer:
            assert (answer.status, (await answer.json())["error"]["param"]) == (400, "prompt")
        assert upstreams.engine.calls == []
        await remember_too_much(caller, http)

        unlimited = ask("openai")
        del unlimited["max_tokens"]
        assert (await caller.post("openai", unlimited)).status == 200
        assert upstreams.engine.calls[-1].json["max_tokens"] == 77


async def remember_too_much(caller: Caller, http: aiohttp.ClientSession) -> None:
    """What is put before a request counts with it."""
    parts = [{"type": "input_text", "text": f"Part {number}"} for number in range(8)]
    asked = {"model": ENGINE_TARGET, "input": [{"role": "user", "content": parts}]}
    headers = caller.headers("openai")
    url = f"{caller.gateway.url}/v1/responses"
    async with http.post(url, json=asked, headers=headers) as answer:
        assert answer.status == 200
        goes_on = asked | {"previous_response_id": (await answer.json())["id"]}
    async with http.post(url, json=goes_on, headers=headers) as answer:
        error = (await answer.json())["error"]
        assert (answer.status, error["param"]) == (400, "$")
        assert "40 keys" in error["message"]


async def told(gateway: RunningGateway, *pieces: bytes) -> bytes:
    """What a connection says to these bytes before it ends."""
    host, port = re.findall(r"//(.*):(\d+)", gateway.url)[0]
    reader, writer = await asyncio.open_connection(host, int(port))
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    heard = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    return heard


async def test_how_long_a_head_is_and_how_slowly_a_request_may_arrive(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> None:
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=SMALL) as gateway:
        line = b"POST /v1/chat/completions HTTP/1.1\r\nhost: here\r\n"
        key = f"authorization: Bearer {await gateway.issue_key()}\r\n".encode()
        long = await told(gateway, line, b"x-more: " + b"x" * 3000 + b"\r\n\r\n")
        assert long.startswith(b"HTTP/1.1 400")
        assert b"longer than 3000 bytes" in long
        assert await told(gateway, line) == b"", "a head that does not end is waited for no longer"
        # Answered, and closed when the rest of its body has not come for as long again.
        slow = await told(gateway, line, key, b"content-length: 20\r\n\r\n{")
        assert slow.startswith(b"HTTP/1.1 400")
        assert b"did not arrive in time" in slow


async def test_how_many_are_served_at_once(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    more = "[limits]\nconcurrent_requests_max = 1\n"
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        hold = asyncio.Event()
        upstreams.engine.answer(Answer(hold=hold))
        first = asyncio.create_task(caller.post("openai", ask("openai")))
        while not upstreams.engine.calls:
            await asyncio.sleep(0.01)
        second = await caller.post("openai", ask("openai"))
        hold.set()

        assert (second.status, second.tree["error"]["code"]) == (503, "unavailable")
        assert (await first).status == 200
        assert (await caller.post("openai", ask("openai"))).status == 200


async def test_how_long_a_stream_is_silent_before_a_ping(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    more = "[limits]\nping_every_s = 0.1\n"
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        upstreams.anthropic.answer(Answer(gap_s=0.5))
        body = ask("anthropic", stream=True, model=CLAUDE_TARGET)
        reply = await caller.post("anthropic", body)
        assert reply.body.count(b"event: ping") > 2


async def test_how_much_of_an_answer_is_kept(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    more = "segment_bytes_max = 20000\n[limits]\naudited_reply_bytes_max = 9\n"
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        for _ in range(10):
            assert (await caller.post("openai", ask("openai"))).status == 200
        folder, keys = gateway.audit_folder, master_key(gateway.settings)
        rows = export_records(segment_rows(folder), directory=folder, keys=keys)
        lines = [line async for line in rows]

    kept = [str(line["content"]) for line in lines if line["stage"] == "outcome"]
    assert [len(each) for each in kept] == [9] * 10
    assert len({line["segment"] for line in lines}) > 1, "a segment ends at its size"


async def test_which_places_a_request_may_name(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    more = """
[requests]
media_hosts = ["images.example"]
tool_server_hosts = ["tools.example"]
[inspection]
tolerated_opaque = ["image"]
"""

    def tools(host: str) -> dict[str, object]:
        server = {"type": "url", "url": f"https://{host}/mcp", "name": "x"}
        return ask("anthropic", model=CLAUDE_TARGET, mcp_servers=[server])

    def picture(host: str) -> dict[str, object]:
        content = [image(f"https://{host}/a.png")]
        turns = [{"role": "user", "content": content}]
        return ask("openai", model=GPT_TARGET, messages=turns)

    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        asked: tuple[tuple[Style, Callable[[str], dict[str, object]]], ...] = (
            ("anthropic", tools),
            ("openai", picture),
        )
        for style, made in asked:
            answers = [
                (await caller.post(style, made(host))).status
                for host in ("tools.example", "images.example", "else.example")
            ]
            expected = [200, 400, 400] if style == "anthropic" else [400, 200, 400]
            assert answers == expected, style
        assert b"https://tools.example/mcp" in upstreams.anthropic.calls[0].body
        assert b"https://images.example/a.png" in upstreams.openai.calls[0].body


@pytest.mark.parametrize(("setting", "marks"), [("true", 1), ("false", 0)])
async def test_whether_long_conversations_are_marked_for_a_vendors_cache(
    tmp_path: Path,
    sqlite_url: str,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    setting: str,
    marks: int,
) -> None:
    more = f"[requests]\nprompt_cache = {setting}\n[inspection]\ndeadline_s = 30.0\n"
    turns = [
        {"role": "user", "content": "Read this. " * 1000},
        {"role": "assistant", "content": "I did."},
        {"role": "user", "content": "What is it about?"},
    ]
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        body = ask("anthropic", model=CLAUDE_TARGET, messages=turns)
        assert (await caller.post("anthropic", body)).status == 200
        assert upstreams.anthropic.calls[0].body.count(b'"cache_control"') == marks


@pytest.mark.parametrize(("least", "is_masked"), [("S2", True), ("S3", False)])
async def test_from_which_class_answers_are_masked(
    tmp_path: Path,
    sqlite_url: str,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    least: str,
    *,
    is_masked: bool,
) -> None:
    (tmp_path / "policy.toml").write_text("""
name = "answers"
version = 1
[defaults]
order = ["cheapest"]
[[constraints]]
name = "read-what-comes-back"
scan_output = "mask"
""")
    more = f"""
[policy]
file = "{tmp_path / "policy.toml"}"
[inspection]
output_masked_from = "{least}"
"""
    address = "anna.berg@firma-berg.de"
    upstreams.openai.answer(Answer(text=f"Write to {address} about it."))
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        reply = await caller.post("openai", ask("openai", model=GPT_TARGET))
        assert reply.status == 200
        assert (address.encode() not in reply.body) == is_masked


async def test_how_many_batches_there_may_be_and_for_how_long(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> None:
    more = "[batches]\nopen_max = 1\nwindow_hours = 2.0\nkeep_days = 3.0\n"
    line = {
        "custom_id": "one",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": ask("openai"),
    }
    upstreams.engine.answer(Answer(hold=asyncio.Event()))
    async with (
        RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway,
        openai.AsyncOpenAI(
            api_key=await gateway.issue_key(), base_url=f"{gateway.url}/v1", max_retries=0
        ) as client,
    ):
        file = await client.files.create(
            file=("lines.jsonl", msgspec.json.encode(line)), purpose="batch"
        )

        async def begin() -> Batch:
            return await client.batches.create(
                input_file_id=file.id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
            )

        batch = await begin()
        assert batch.expires_at == batch.created_at + 2 * 3600
        assert file.expires_at == file.created_at + 3 * 86_400
        with pytest.raises(openai.RateLimitError, match="1 batches of this project"):
            await begin()


async def test_whether_there_are_files_and_batches_at_all(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    more = "[batches]\nenabled = false\n"
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        for path in ("/v1/files", "/v1/batches", "/v1/messages/batches"):
            async with http.get(gateway.url + path, headers=caller.headers("openai")) as answer:
                assert answer.status == 404, path
        assert (await caller.post("openai", ask("openai"))).status == 200


async def test_what_a_log_is_called_and_where_its_checkpoints_lie(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    more = 'log_name = "ledger.example"\ncheckpoint_directory = "elsewhere"\n'
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        assert (await caller.post("openai", ask("openai"))).status == 200
        text = ""
        while not text:
            await asyncio.sleep(0.05)
            text = "".join(
                each.read_text() for each in (tmp_path / "elsewhere").rglob("acme.jsonl")
            )
        assert json.loads(text)["note"].startswith("ledger.example/acme\n")


async def test_how_much_of_long_bodies_is_held_at_once(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    more = "[limits]\nheld_body_bytes_max = 200_000\n"
    long = ask("openai", messages=[{"role": "user", "content": "word " * 24_000}])
    plain = msgspec.json.encode(long)

    async def dripping() -> AsyncIterator[bytes]:
        for start in range(0, len(plain), 30_000):
            yield plain[start : start + 30_000]

    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        packed = {**caller.headers("openai"), "content-encoding": "gzip"}
        for _ in range(3):
            assert (await caller.post("openai", long)).status == 200, "it was given back"
        hold = asyncio.Event()
        upstreams.engine.answer(Answer(hold=hold))
        count = len(upstreams.engine.calls)
        first = asyncio.create_task(caller.post("openai", long))
        while len(upstreams.engine.calls) == count:
            await asyncio.sleep(0.01)
        upstreams.engine.answer(Answer())
        second = [
            await caller.post("openai", long),
            await caller.post("openai", dripping()),
            await caller.post("openai", gzip.compress(plain), packed),
        ]
        short = await caller.post("openai", ask("openai"))
        hold.set()

        assert [reply.status for reply in second] == [503] * 3
        assert second[0].tree["error"]["code"] == "unavailable"
        assert (short.status, (await first).status) == (200, 200)
        assert (await caller.post("openai", dripping())).status == 200
        assert (await caller.post("openai", gzip.compress(plain), packed)).status == 200
