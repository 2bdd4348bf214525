"""An upstream's connection ends at any byte: the reply is complete, or told as an error."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
import pytest

from gateway.audit.projecting.export import segment_rows
from tests.faults.patience import wait_for_answers
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams
from tests.upstream_responses import openai_response, openai_response_events
from tests.upstreams import Answer, RecordingUpstream, _openai_completion, _openai_events


pytestmark = pytest.mark.anyio

STEP = 97
"""Bytes between two cuts: each caller begins elsewhere, and the last are all tried."""
LAST = range(1, 8)
USER = [{"role": "user", "content": "Hi"}]
ASKS: Mapping[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/messages": {"messages": USER, "max_tokens": 50},
    "/v1/responses": {"input": "Hi"},
}
TERMINALS = {
    "/v1/chat/completions": b"data: [DONE]",
    "/v1/messages": b"event: message_stop",
    "/v1/responses": b"event: response.completed",
}
ANSWER = Answer(text="Good morning to you.")


def _reply(path: str, *, stream: bool, framing: str) -> bytes:
    """What the vendor's own endpoint answers: OpenAI's for responses, and chats for the others."""
    asked: dict[str, object] = {"model": "m", "stream_options": {"include_usage": True}}
    is_response = path == "/v1/responses"
    if stream:
        events = (openai_response_events if is_response else _openai_events)(ANSWER, asked)
    else:
        whole = (openai_response if is_response else _openai_completion)(ANSWER, "m")
        body = msgspec.json.encode(whole)
        events = [body[at : at + 100] for at in range(0, len(body), 100)]
    kind = b"text/event-stream" if stream else b"application/json"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n" % kind
    body = b"".join(events)
    if framing == "length":
        return head + b"content-length: %d\r\n\r\n" % len(body) + body
    if framing == "close":
        return head + b"\r\n" + body
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    return head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


class CutUpstream(RecordingUpstream):
    """Sends so many bytes of one reply, then closes the connection, or resets it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.resets = False
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._cut, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        assert self._listener is not None
        self._listener.close()
        await self._listener.wait_closed()

    async def _cut(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length or 0))
        writer.write(self.sent if head.startswith(b"POST") else b"HTTP/1.1 404 X\r\n\r\n")
        await writer.drain()
        if self.resets:
            # What was sent arrives first: a reset throws away what nobody has read yet.
            await asyncio.sleep(0.002)
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        writer.close()


class Caller:
    """Asks and says what came; each answer is looked at as a client would."""

    def __init__(self, gateway: RunningGateway, http: aiohttp.ClientSession) -> None:
        self.gateway, self._http = gateway, http
        self.endings: dict[str, bool] = {}
        """By request: whether it looked whole."""

    async def ask(self, path: str, *, stream: bool) -> tuple[bool, str]:
        body = ASKS[path] | {"model": GPT_TARGET} | ({"stream": True} if stream else {})
        data, is_cut = b"", False
        async with self._http.post(self.gateway.url + path, json=body) as response:
            try:
                async for piece in response.content.iter_any():
                    data += piece
            except aiohttp.ClientPayloadError:
                is_cut = True
        is_whole = TERMINALS[path] in data if stream else response.status == 200
        self.endings[response.headers["x-request-id"]] = is_whole
        said = f"{response.status} {data[-200:]!r}"
        if is_whole:
            assert not is_cut, said
            assert b'"error":{' not in data, said
            assert b"event: error" not in data, said
        elif response.status != 200:
            assert response.status in {502, 503, 529}, said
            assert msgspec.json.decode(data)["error"]["message"], said
            assert not is_cut, said
        else:
            # Chat completions have no event for errors: the body does not end as a whole one does.
            assert is_cut == (path == "/v1/chat/completions"), said
            assert b'"error"' in data, said
        return is_whole, said


@pytest.mark.parametrize(
    ("stream", "framing"),
    [
        (False, "length"),
        (False, "chunks"),
        (False, "close"),
        (True, "chunks"),
        (True, "close"),
    ],
)
async def test_a_reply_cut_at_any_byte_is_told_and_recorded_as_an_error(
    stream: bool, framing: str, tmp_path: Path, sqlite_url: str
) -> None:
    upstreams = Upstreams()
    upstreams.openai = upstream = CutUpstream()
    async with upstreams, RunningGateway(tmp_path, sqlite_url, upstreams) as gateway:
        wait_for_answers(gateway, upstreams)
        key = await gateway.issue_key(models=[GPT_TARGET])
        headers = {"authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            caller = Caller(gateway, http)
            for number, path in enumerate(ASKS):
                reply = _reply(path, stream=stream, framing=framing)
                places = [*range(number * STEP // 3, len(reply), STEP)]
                places += [len(reply) - left for left in LAST]
                for place in places:
                    upstream.sent, upstream.resets = reply[:place], place % 2 == 0
                    is_whole, said = await caller.ask(path, stream=stream)
                    # A stream has said all once its terminal event is there.
                    assert not is_whole or (stream and len(reply) - place in LAST), (place, said)
                upstream.sent, upstream.resets = reply, False
                is_whole, said = await caller.ask(path, stream=stream)
                assert is_whole, said
        rows = [row.projected.record async for row in segment_rows(gateway.audit_folder)]
        outcomes = {row.request_id: row for row in rows if row.stage == "outcome"}
        stages = Counter((row.request_id, row.stage) for row in rows)
        for request_id, is_whole in caller.endings.items():
            assert stages[request_id, "intent"] == stages[request_id, "outcome"] == 1
            outcome = outcomes[request_id]
            assert (outcome.status == "ok") == (outcome.error == "") == is_whole
        assert gateway.plane.metrics.requests_in_flight() == 0
