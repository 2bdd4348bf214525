"""A bounded upstream on loopback that answers like a chat completions server, well or badly.

Its behaviour is set by a marker in the prompt, `[[fake:chunks=100,gap_ms=5,fault=http429]]`, which
goes through any gateway unchanged. `GET /stats` tells what it has seen.
"""

import argparse
import asyncio
import json
import re
import time
from typing import cast

import httptools
import uvloop


BODY_BYTES_MAX = 4 * 1024 * 1024
CHUNKS_MAX = 1000
MARKER = re.compile(rb"\[\[fake:([a-z0-9_=,.]*)\]\]")
STATUSES = {"http400", "http401", "http404", "http429", "http500", "http503", "http529"}
MID_STREAM = {"midreset", "midhang", "truncated", "cut", "errorevent"}
FAULT_AT = 5
"""A stream's fault happens after this many chunks."""
TEXT = "An answer of two hundred bytes, or nearly so. " * 4
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
EVENT = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"fake-model","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'  # noqa: E501
ERROR_EVENT = b'data: {"error":{"message":"overloaded","type":"server_error"}}\n\n'
PADDED_EVENTS = [
    EVENT.replace(b"}]}\n", b'}],"obfuscation":"%b"}\n' % b"aB3xYzq9kLm2"[:length])
    for length in range(12)
]
"""As OpenAI's are: padded, so that all events have the same length."""
STOP_EVENT = EVENT.replace(b'{"content":"word "}', b"{}").replace(b"null", b'"stop"')
DONE_EVENT = STOP_EVENT + b"data: [DONE]\n\n"
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "fake-model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": TEXT},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 300, "completion_tokens": 50, "total_tokens": 350},
    }
).encode()

STATS = {"requests": 0, "streams_open": 0, "streams_left": 0, "left_at_us": 0}


def whole(status: int, body: bytes, more: bytes = b"") -> bytes:
    head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
    return head % (status, more, len(body)) + body


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Upstream(asyncio.Protocol):
    """One connection; one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.parser = httptools.HttpRequestParser(self)
        self.parts: list[bytes] = []
        self.length_bytes = 0
        self.url = b""
        self.timer: asyncio.TimerHandle | None = None
        self.hangs = False
        self.events = [EVENT]

    def connection_lost(self, _: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
            STATS["streams_open"] -= 1
        if self.timer is not None or self.hangs:
            STATS["streams_left"] += 1
            STATS["left_at_us"] = time.monotonic_ns() // 1000

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def on_url(self, url: bytes) -> None:
        self.url = url
        self.parts = []
        self.length_bytes = 0

    def on_body(self, body: bytes) -> None:
        self.length_bytes += len(body)
        if self.length_bytes > BODY_BYTES_MAX:
            self.transport.abort()
        self.parts.append(body)

    def on_message_complete(self) -> None:
        if self.url == b"/stats":
            self.transport.write(whole(200, json.dumps(STATS).encode()))
            return
        STATS["requests"] += 1
        body = b"".join(self.parts)
        found = MARKER.search(body)
        marker = found[1].decode() if found else ""
        asked = dict(item.split("=", 1) for item in marker.split(",") if "=" in item)
        fault = asked.get("fault", "")
        if fault in STATUSES or fault in {"reset", "badjson", "hang"}:
            self.misbehave(fault)
        elif b'"stream":true' in body:
            chunks = min(int(asked.get("chunks", "20")), CHUNKS_MAX)
            self.transport.write(STREAM_HEAD)
            STATS["streams_open"] += 1
            self.events = PADDED_EVENTS if "padded" in asked else [EVENT]
            self.stream(chunks, float(asked.get("gap_ms", "0")) / 1000, fault, 0)
        else:
            self.transport.write(whole(200, ANSWER))

    def misbehave(self, fault: str) -> None:
        if fault == "reset":
            self.transport.abort()
        elif fault == "badjson":
            self.transport.write(whole(200, b'{"choices": ['))
        elif fault == "hang":
            self.hangs = True
        else:
            status = int(fault.removeprefix("http"))
            error = {"error": {"message": "made to fail", "type": "made_up"}}
            wait = b"retry-after: 2\r\n" if status == 429 else b""
            self.transport.write(whole(status, json.dumps(error).encode(), wait))

    def stream(self, chunks: int, gap_s: float, fault: str, sent: int) -> None:
        """Write chunks until the end, one per gap, or all at once without one."""
        self.timer = None
        while sent < chunks:
            if sent == FAULT_AT and fault in MID_STREAM:
                self.break_off(fault)
                return
            self.transport.write(framed(self.events[sent % len(self.events)]))
            sent += 1
            if gap_s:
                loop = asyncio.get_running_loop()
                self.timer = loop.call_later(gap_s, self.stream, chunks, gap_s, fault, sent)
                return
        STATS["streams_open"] -= 1
        self.transport.write(framed(DONE_EVENT) + b"0\r\n\r\n")

    def break_off(self, fault: str) -> None:
        STATS["streams_open"] -= 1
        if fault == "midreset":
            self.transport.abort()
        elif fault == "cut":
            self.transport.close()
        elif fault == "truncated":
            self.transport.write(b"0\r\n\r\n")
        elif fault == "errorevent":
            self.transport.write(framed(ERROR_EVENT) + b"0\r\n\r\n")


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--port", type=int, required=True)
    uvloop.run(serve(arguments.parse_args().port))
