"""Reads streams over HTTP as a client does, timed by the server's own CPU clock."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

import msgspec

from local_engine.bench.servers import Server, ServerFailed


_DATA, _DONE = b"data: ", b"data: [DONE]"
_LIMIT_BYTES = 1 << 20


class _Choice(msgspec.Struct):
    text: str


class _Usage(msgspec.Struct):
    completion_tokens: int


class _Event(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


@dataclass
class Stream:
    """One answer on its way: its text, and when each event of it came."""

    started_us: float
    event_us: list[float] = field(default_factory=list)
    text: str = ""
    num_tokens: int = 0

    @property
    def first_us(self) -> float:
        return self.event_us[0] - self.started_us

    def gaps_us(self, since_us: float = 0.0, until_us: float = inf) -> list[float]:
        times = [at for at in self.event_us if since_us <= at <= until_us]
        return [b - a for a, b in pairwise(times)]


async def read_stream(
    server: Server,
    prompt: list[int],
    max_tokens: int,
    *,
    on_event: Callable[[Stream], None] | None = None,
) -> Stream:
    """Ask for so many greedy tokens and read them to the end; raises `ServerFailed`."""
    body = msgspec.json.encode(
        {
            "model": server.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=_LIMIT_BYTES)
    stream = Stream(server.cpu_us())
    head = f"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n"
    writer.write(
        f"{head}content-type: application/json\r\nconnection: close\r\n\r\n".encode() + body
    )
    try:
        status = await reader.readline()
        if b" 200 " not in status:
            raise ServerFailed(f"{server.name} answered {status.decode().strip()}")
        while not (line := await reader.readline()).startswith(_DONE):
            if not line:
                raise ServerFailed(f"{server.name} broke off")
            if not line.startswith(_DATA):
                continue
            event = msgspec.json.decode(line[len(_DATA) :], type=_Event)
            if event.usage is not None:
                stream.num_tokens = event.usage.completion_tokens
            if event.choices:
                stream.event_us.append(server.cpu_us())
                stream.text += event.choices[0].text
                if on_event is not None:
                    on_event(stream)
    finally:
        writer.close()
    if stream.num_tokens != max_tokens:
        raise ServerFailed(f"{server.name} wrote {stream.num_tokens} tokens, not {max_tokens}")
    return stream


async def read_streams(server: Server, prompts: list[list[int]], max_tokens: int) -> list[Stream]:
    """All at once."""
    return await asyncio.gather(*(read_stream(server, each, max_tokens) for each in prompts))
