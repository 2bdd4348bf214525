"""A recording fake upstream on a real socket, used by all tests of calls to upstreams.

It answers OpenAI chat completions and Anthropic messages, whole and streamed, and can be told to
misbehave::

    async with RecordingUpstream() as upstream:
        upstream.answer(Answer(text="Good morning"))              # from now on
        upstream.answer_once(Answer(status=429, retry_after_s=2)) # for the next request only
        ...                                                       # call upstream.url
        assert upstream.requests[0].json["model"] == "gpt-6-sol"

Replies to a model call take their form (whole or streamed, which dialect) from the request. Nothing
here measures time: tests wait for `called`, `aborted` and `Answer.hold` instead.
"""

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Literal, Self

import msgspec
from msgspec import Struct

from tests.upstream_completions import text_completion, text_completion_events, words_of
from tests.upstream_messages import anthropic_events, anthropic_message
from tests.upstream_responses import openai_response, openai_response_events
from tests.vendor_batches import VendorBatches


Fault = Literal[
    "",
    "reset",  # the connection is reset before any byte of the reply
    "hang",  # the request is read, nothing ever comes
    "slow_headers",  # the head of the reply stops in its middle
    "bad_head",  # what comes is not HTTP
    "bad_json",  # 200 with a body that is not JSON (streamed: one broken event)
    "mid_reset",  # reset after half of the body or events
    "mid_hang",  # silence after half of the body or events
    "cut",  # the connection is closed after half of the body or events
    "truncated",  # a clean end without the dialect's terminal event
    "unended",  # the same without an end: silence after all else was told
    "silent",  # the head of a good reply, then nothing
    "error_event",  # an error event after half of the events, then a clean end
]


SILENCES: Final[frozenset[Fault]] = frozenset(
    {"hang", "slow_headers", "mid_hang", "silent", "unended"}
)
_ENDPOINTS = (
    *("/completions", "/messages", "/messages/count_tokens"),
    *("/responses", "/responses/input_tokens", "/embeddings", "/tokenize"),
)


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to one request; the defaults are a good answer."""

    text: str = "Hello from the upstream."
    status: int = 200
    retry_after_s: float | None = None
    fault: Fault = ""
    body: bytes | None = None
    """Exactly these bytes instead of a reply in the request's dialect."""
    events: tuple[bytes, ...] | None = None
    """Exactly these events instead of the dialect's stream."""
    headers: tuple[tuple[str, str], ...] = ()
    input_tokens: int = 11
    output_tokens: int = 7
    cache_read_tokens: int = 0
    stop: str = ""
    """The stop reason, in the dialect's words; empty for a complete answer."""
    gap_s: float = 0.0
    """A pause before each event."""
    hold: asyncio.Event | None = None
    """The answer waits for it after its first event, or before a complete body."""


MakeWhole = Callable[[Answer, object], dict[str, object]]
MakeEvents = Callable[[Answer, dict[str, object]], list[bytes]]


class RecordedRequest(Struct, frozen=True):
    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    connection: int
    """The number of its connection, counted from 1: equal numbers mean that it was reused."""

    @property
    def json(self) -> dict[str, object]:
        return msgspec.json.decode(self.body, type=dict[str, object])


TURNS_OF_ACCEPTING = 4
"""Turns of the event loop from an accepted connection to the handler that serves it."""


class _ClientLeftError(Exception):
    pass


class RecordingUpstream:
    """A fake upstream; an asynchronous context manager that listens on a free port of 127.0.0.1."""

    def __init__(
        self,
        models: tuple[dict[str, object], ...] = ({"id": "fake-model"},),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.models = models
        self._tls = tls
        self.is_ready = True
        self.models_status = 200
        self.batches = VendorBatches(self._answer_to)
        self.texts: dict[str, str] = {}
        """The answers of further paths to a GET."""
        self.requests: list[RecordedRequest] = []
        self.connections = 0
        self.client_aborts = 0
        self.events_sent = 0
        self._standing = Answer()
        self._next: deque[Answer] = deque()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def calls(self) -> list[RecordedRequest]:
        """The model calls among the requests: probes are GETs."""
        return [request for request in self.requests if request.method == "POST"]

    def answer(self, answer: Answer) -> None:
        """Every request from now on gets this, once those queued by `answer_once` are used up."""
        self._standing = answer

    def answer_once(self, *answers: Answer) -> None:
        """The next model calls get these, in order."""
        self._next.extend(answers)

    def answer_to(self, request: RecordedRequest) -> Answer:
        """The answer to a model call for which nothing is queued."""
        del request
        return self._standing

    def forget(self) -> None:
        """Forget received requests and queued answers, for a test that shares this upstream."""
        self.requests.clear()
        self._next.clear()
        self.client_aborts = self.events_sent = 0

    @property
    def is_silent(self) -> bool:
        """Whether the next request gets no complete answer, ever or until a test lets it."""
        answer = self._next[0] if self._next else self._standing
        return answer.fault in SILENCES or answer.gap_s > 0 or answer.hold is not None

    async def received(self, count: int = 1) -> None:
        """Wait until this many requests have arrived in all."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)

    async def called(self, count: int = 1) -> None:
        """Wait until this many model calls have arrived; probes come at any time, uncounted."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.calls) >= count)

    async def aborted(self, count: int = 1) -> None:
        """Wait until this many clients have left before their answer was complete."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.client_aborts >= count)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and drop every connection: from now on connections are refused."""
        if self._server is not None:
            await _finish_accepting(self._server)
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None or not self._server.is_serving():
            # It was in the kernel's queue when everybody else was dropped.
            writer.transport.abort()
            return
        self.connections += 1
        task = asyncio.create_task(self._serve(reader, writer, self.connections))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Also of one that was cancelled before its first step and has no `finally` to come to.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        try:
            while (request := await _read_request(reader, connection)) is not None:
                async with self._changed:
                    self.requests.append(request)
                    self._changed.notify_all()
                await self._reply(request, reader, writer)
                if writer.is_closing():
                    break
        except (_ClientLeftError, ConnectionError):
            async with self._changed:
                self.client_aborts += 1
                self._changed.notify_all()
        except asyncio.IncompleteReadError:
            pass

    async def _reply(
        self, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        path = request.path.partition("?")[0]
        found = self.batches.reply(request.method, request.path, request.headers, request.body)
        if found is not None:
            status, body, is_cut = found
            more = (("content-length", str(len(body) + is_cut)),)
            _write_whole(writer, status, body, more)
            await writer.drain()
            if is_cut:
                writer.close()
            return
        if request.method == "GET":
            status, tree = self._look_up(path)
            text = self.texts.get(path)
            body = msgspec.json.encode(tree) if text is None else text.encode()
            _write_whole(writer, status if text is None else 200, body, ())
            await writer.drain()
            return
        if not path.endswith(_ENDPOINTS):
            _write_whole(writer, 404, b'{"error":{"message":"no such path"}}', ())
            await writer.drain()
            return
        answer = self._next.popleft() if self._next else self.answer_to(request)
        await _Reply(self, request, answer, reader, writer).send()

    def _answer_to(self, path: str, body: dict[str, object]) -> dict[str, object]:
        """The answer to a line of a batch, the same as it would have got by itself."""
        make, _ = _makers(path)
        return make(self._standing, body.get("model", ""))

    def _look_up(self, path: str) -> tuple[int, object]:
        if path.endswith("/models"):
            if self.models_status != 200:
                return self.models_status, {"error": {"message": "fake failure"}}
            data = [
                {"object": "model", "type": "model", "created": 0, "owned_by": "fake"}
                | {"display_name": model["id"], "created_at": "2026-01-01T00:00:00Z"}
                | model
                for model in self.models
            ]
            return 200, {"object": "list", "data": data, "has_more": False}
        if path == "/health/ready":
            return (200, {"status": "ready"}) if self.is_ready else (503, {"status": "loading"})
        return 404, {"error": {"message": "no such path"}}


class _Reply:
    """One answer on its way to one client."""

    def __init__(
        self,
        upstream: RecordingUpstream,
        request: RecordedRequest,
        answer: Answer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._upstream, self._request, self._answer = upstream, request, answer
        self._reader, self._writer = reader, writer
        path = request.path.partition("?")[0]
        self._is_count = path.endswith("/count_tokens")
        self._is_anthropic = self._is_count or path.endswith("/messages")
        self._make, self._make_events = _makers(path)
        self._is_responses = path.endswith("/responses")
        self._is_response_count = path.endswith("/responses/input_tokens")

    async def send(self) -> None:
        answer = self._answer
        if answer.fault == "reset":
            self._reset()
        elif answer.fault == "hang":
            await self._wait(None)
        elif answer.fault == "slow_headers":
            self._writer.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
            await self._wait(None)
        elif answer.fault == "silent":
            kind = "text/event-stream" if self._wants_stream() else "application/json"
            _write_head(
                self._writer, 200, (("content-type", kind), ("transfer-encoding", "chunked"))
            )
            await self._wait(None)
        elif answer.fault == "bad_head":
            self._writer.write(b"this is not HTTP\r\n\r\n")
            await self._end()
        elif answer.status == 200 and (answer.events is not None or self._wants_stream()):
            await self._stream()
        else:
            await self._whole()

    def _wants_stream(self) -> bool:
        return self._answer.body is None and self._request.json.get("stream") is True

    async def _whole(self) -> None:
        answer = self._answer
        if answer.hold is not None:
            await self._wait(answer.hold)
        body = self._body()
        extra = answer.headers
        if answer.retry_after_s is not None:
            extra += (("retry-after", f"{answer.retry_after_s:g}"),)
        if answer.fault in ("mid_reset", "mid_hang", "cut", "truncated"):
            _write_head(self._writer, answer.status, (("content-length", str(len(body))), *extra))
            self._writer.write(body[: len(body) // 2])
            await self._break_off()
            return
        _write_whole(self._writer, answer.status, body, extra)
        await self._writer.drain()

    def _body(self) -> bytes:
        answer = self._answer
        if answer.body is not None:
            return answer.body
        if answer.fault == "bad_json":
            return b'{"id": "broken", '
        if answer.status != 200:
            return _error_body(answer.status, is_anthropic=self._is_anthropic)
        if self._is_count:
            return msgspec.json.encode({"input_tokens": answer.input_tokens})
        if self._is_response_count:
            counted = {"object": "response.input_tokens", "input_tokens": answer.input_tokens}
            return msgspec.json.encode(counted)
        model = self._request.json.get("model", "")
        return msgspec.json.encode(self._make(answer, model))

    async def _stream(self) -> None:
        answer = self._answer
        events = self._events()
        half = max(1, len(events) // 2)
        head = (("content-type", "text/event-stream"), ("transfer-encoding", "chunked"))
        _write_head(self._writer, 200, head + answer.headers)
        for number, event in enumerate(events):
            if number == half and answer.fault in ("mid_reset", "mid_hang", "cut"):
                await self._break_off()
                return
            if answer.gap_s:
                await self._wait(None, answer.gap_s)
            self._write_chunk(event)
            await self._writer.drain()
            self._upstream.events_sent += 1
            if number == 0 and answer.hold is not None:
                await self._wait(answer.hold)
        if answer.fault == "unended":
            await self._break_off()
            return
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def _events(self) -> list[bytes]:
        answer = self._answer
        if answer.events is not None:
            return list(answer.events)
        events = self._make_events(answer, self._request.json)
        half = max(1, len(events) // 2)
        if answer.fault in ("truncated", "unended"):
            del events[-1]
        elif answer.fault == "bad_json":
            events.insert(half, b'data: {"broken": \n\n')
        elif answer.fault == "error_event":
            body = _error_body(529, is_anthropic=self._is_anthropic)
            name = b"event: error\n" if self._is_anthropic else b""
            if self._is_responses:
                name, body = b"event: error\n", b'{"type":"error","code":"x","message":"m"}'
            events[half:] = [name + b"data: " + body + b"\n\n"]
        return events

    def _write_chunk(self, data: bytes) -> None:
        if self._reader.at_eof() or self._reader.exception() is not None:
            raise _ClientLeftError
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def _break_off(self) -> None:
        """Reset, fall silent or close after half of the answer."""
        await self._writer.drain()
        if self._answer.fault in ("mid_hang", "unended"):
            await self._wait(None)
        elif self._answer.fault == "mid_reset":
            # Give what was sent a moment to arrive: a reset may overtake it.
            await self._wait(self._answer.hold, 0.1)
            self._reset()
        else:
            await self._end()

    async def _wait(self, event: asyncio.Event | None, seconds: float | None = None) -> None:
        """Wait for the event, until the time is over, or for ever; raises if the client leaves."""
        leaving = asyncio.ensure_future(self._reader.read(1))
        waiting = asyncio.ensure_future((event or asyncio.Event()).wait())
        try:
            await asyncio.wait(
                (leaving, waiting), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if leaving.done():
                leaving.exception()
                raise _ClientLeftError
        finally:
            leaving.cancel()
            waiting.cancel()
            await asyncio.gather(leaving, waiting, return_exceptions=True)

    async def _end(self) -> None:
        await self._writer.drain()
        self._writer.close()
        await self._writer.wait_closed()

    def _reset(self) -> None:
        """Close with a reset instead of an orderly end."""
        transport_socket: socket.socket = self._writer.get_extra_info("socket")
        transport_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


async def _finish_accepting(server: asyncio.Server) -> None:
    """Accept no more connections, and finish those that the kernel has already handed over.

    Python 3.11 leaves a connection open that is being made while its server closes.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(TURNS_OF_ACCEPTING):
        await asyncio.sleep(0)


async def _read_request(reader: asyncio.StreamReader, connection: int) -> RecordedRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return RecordedRequest(method, path, headers, body, connection)


def _write_head(
    writer: asyncio.StreamWriter, status: int, headers: tuple[tuple[str, str], ...]
) -> None:
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers)]
    writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")


def _write_whole(
    writer: asyncio.StreamWriter, status: int, body: bytes, headers: tuple[tuple[str, str], ...]
) -> None:
    names = {name.lower() for name, _ in headers}
    plain = (("content-type", "application/json"), ("content-length", str(len(body))))
    _write_head(writer, status, tuple(p for p in plain if p[0] not in names) + headers)
    writer.write(body)


def _error_body(status: int, *, is_anthropic: bool) -> bytes:
    kind = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
    name = kind.get(status, "overloaded_error" if status == 529 else "api_error")
    error = {"type": name, "message": f"fake failure {status}"}
    tree = {"type": "error", "error": error} if is_anthropic else {"error": {**error, "code": name}}
    return msgspec.json.encode(tree)


def events_of(answer: Answer, request: dict[str, object], dialect: str) -> list[bytes]:
    """The events of a good answer, for tests that send them in their own way."""
    make = anthropic_events if dialect == "anthropic_messages" else _openai_events
    return make(answer, request)


def reply_of(answer: Answer, model: str, dialect: str) -> dict[str, object]:
    """A good answer as a tree, for tests that change it."""
    make = anthropic_message if dialect == "anthropic_messages" else _openai_completion
    return make(answer, model)


def _makers(path: str) -> tuple[MakeWhole, MakeEvents]:
    """The functions that make good answers at a path."""
    if path.endswith("/messages"):
        return anthropic_message, anthropic_events
    if path.endswith("/responses"):
        return openai_response, openai_response_events
    if path.endswith("/v1/completions"):
        return text_completion, text_completion_events
    return _openai_completion, _openai_events


def _openai_usage(answer: Answer) -> dict[str, object]:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cache_read_tokens},
    }


def _openai_completion(answer: Answer, model: object) -> dict[str, object]:
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    return {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": answer.stop or "stop",
                "logprobs": None,
            }
        ],
        "usage": _openai_usage(answer),
    }


def _openai_events(answer: Answer, request: dict[str, object]) -> list[bytes]:
    shell = {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 1}
    shell["model"] = str(request.get("model", ""))

    def event(delta: dict[str, object], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return b"data: " + msgspec.json.encode({**shell, "choices": [choice]}) + b"\n\n"

    events = [event({"role": "assistant", "content": ""})]
    events += [event({"content": piece}) for piece in words_of(answer.text)]
    events.append(event({}, answer.stop or "stop"))
    options = request.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage"):
        last = {**shell, "choices": [], "usage": _openai_usage(answer)}
        events.append(b"data: " + msgspec.json.encode(last) + b"\n\n")
    events.append(b"data: [DONE]\n\n")
    return events
