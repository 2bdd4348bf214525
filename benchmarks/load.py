"""A closed-loop or paced load generator for one endpoint; prints what it saw as JSON.

Each connection sends the same body again and again. A streamed answer counts as good only if its
chunks are complete and its terminal event is the last. For bad answers it says what they were.
"""

import argparse
import asyncio
import json
import ssl
import statistics
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import cast

import httptools
import msgspec
import uvloop
from msgspec import Struct


PATIENCE_S = 30.0
OK = 200
NO_ANSWER = "connection closed"


class Answer(Struct, frozen=True):
    """One answer; `wrong` says what is wrong with it, and is empty if it is good."""

    wrong: str
    first_s: float = 0.0
    seconds: float = 0.0
    chunks: int = 0


class Report(Struct, frozen=True):
    """The totals of all connections."""

    answers: int
    bad: int
    chunks: int
    seconds: float
    first_byte_p50_s: float
    p50_s: float
    wrong: dict[str, int]
    """The number of bad answers of each kind: a status and the error's own words."""


class _Told(Struct, frozen=True):
    """An error in the dialects' envelope."""

    type: str | None = ""
    code: str | int | None = ""
    message: str = ""


class _Envelope(Struct, frozen=True):
    error: _Told


def wrongness(status: int, body: bytes) -> str:
    """The kind of a bad answer, including its message, which names no request."""
    if status == OK:
        return f"{OK} cut or of another form"
    try:
        told = msgspec.json.decode(body, type=_Envelope).error
    except msgspec.MsgspecError:
        return str(status)
    return " ".join(str(each) for each in (status, told.type, told.code, told.message) if each)


class Caller(asyncio.Protocol):
    """One connection: `await ask()` returns the next answer."""

    def __init__(self, request: bytes, chunks_expected: int) -> None:
        self.request = request
        self.chunks_expected = chunks_expected
        self.answered: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    async def ask(self, since_s: float | None = None) -> Answer:
        self.parser = httptools.HttpResponseParser(self)
        self.body: list[bytes] = []
        self.first_s = 0.0
        self.since_s = perf_counter() if since_s is None else since_s
        self.answered = asyncio.get_running_loop().create_future()
        self.transport.write(self.request)
        return await self.answered

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.first_s = self.first_s or perf_counter()
        self.body.append(body)

    def on_message_complete(self) -> None:
        now_s = perf_counter()
        body = b"".join(self.body)
        status = self.parser.get_status_code()
        is_good = status == OK and b"choices" in body
        chunks = 0
        if self.chunks_expected:
            chunks = body.count(b'"content"')
            is_good &= chunks == self.chunks_expected and body.endswith(b"data: [DONE]\n\n")
        first_s = (self.first_s or now_s) - self.since_s
        wrong = "" if is_good else wrongness(status, body)
        self.finish(Answer(wrong, first_s, now_s - self.since_s, chunks))

    def connection_lost(self, _: Exception | None) -> None:
        self.finish(Answer(NO_ANSWER))

    def finish(self, seen: Answer) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(seen)


def unverified() -> ssl.SSLContext:
    """For a benchmarked gateway, whose certificate was made for the run."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def load(arguments: argparse.Namespace, body: bytes) -> Report:
    loop = asyncio.get_running_loop()
    tls = unverified() if arguments.tls else None
    headers = json.loads(arguments.headers) | {"content-length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {arguments.path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{lines}"
    request = head.encode() + b"\r\n" + body
    callers: list[Caller] = []
    for _ in range(arguments.connections):
        made = await loop.create_connection(
            lambda: Caller(request, arguments.chunks), "127.0.0.1", arguments.port, ssl=tls
        )
        callers.append(made[1])
    start_s = perf_counter()
    end_s = start_s + arguments.seconds
    pause_s = arguments.connections / arguments.rate if arguments.rate else 0.0
    seen: list[Answer] = []

    async def run(number: int, caller: Caller) -> None:
        due_s = start_s + number * pause_s / arguments.connections
        while (now_s := perf_counter()) < end_s and not caller.transport.is_closing():
            if pause_s:
                await asyncio.sleep(max(0.0, due_s - now_s))
            seen.append(await caller.ask(due_s if pause_s else None))
            due_s += pause_s

    async with asyncio.timeout(arguments.seconds + PATIENCE_S):
        await asyncio.gather(*(run(number, caller) for number, caller in enumerate(callers)))
    good = [one for one in seen if not one.wrong]
    return Report(
        answers=len(seen),
        bad=len(seen) - len(good),
        chunks=sum(one.chunks for one in seen),
        seconds=perf_counter() - start_s,
        first_byte_p50_s=statistics.median([one.first_s for one in good] or [0.0]),
        p50_s=statistics.median([one.seconds for one in good] or [0.0]),
        wrong=dict(Counter(one.wrong for one in seen if one.wrong)),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--body", required=True)
    parser.add_argument("--headers", default="{}")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second; 0: closed loop")
    parser.add_argument("--chunks", type=int, default=0, help="chunks of a whole stream")
    parser.add_argument("--tls", action="store_true", help="over TLS, to whomever")
    options = parser.parse_args()
    report = uvloop.run(load(options, Path(options.body).read_bytes()))
    sys.stdout.buffer.write(msgspec.json.encode(report))
