"""The socket to the worker: which calls wait for which answers, and whether the worker lives."""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import Callable
from typing import Any

from local_engine.serve.cache_log import CacheLog
from local_engine.serve.generation import Caller, Generation
from local_engine.serve.wire import (
    Abort,
    CacheNews,
    Chain,
    Chained,
    Embed,
    Embedded,
    Failed,
    Frames,
    Ready,
    Refused,
    Stats,
    Stop,
    Submit,
    Update,
    Updates,
    encode,
)


_READ_BYTES = 1 << 20


class StepFailed(RuntimeError):
    """The worker failed on this sequence or is gone; the code says which."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code


class WorkerRefused(RuntimeError):
    """The worker will not serve this model."""


class WorkerLink:
    """This side of the socket: routes answers to waiting calls, and knows if the worker lives."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = Frames.for_engine()
        self._inboxes: dict[str, asyncio.Queue[Update | Failed]] = {}
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self.cache = CacheLog()
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())
        self.stats = Stats()
        self.is_alive = True

    @classmethod
    async def over(cls, end: socket.socket) -> "WorkerLink":
        reader, writer = await asyncio.open_unix_connection(sock=end)
        return cls(reader, writer)

    @property
    def num_open(self) -> int:
        return len(self._inboxes)

    async def ready(self) -> Ready:
        """What the worker loaded; raises `WorkerRefused`."""
        return await asyncio.shield(self._ready)

    async def closed(self) -> None:
        """Returns when the worker is gone."""
        await asyncio.wait({self._reading})

    def submit(self, generation: Generation) -> "asyncio.Queue[Update | Failed]":
        inbox: asyncio.Queue[Update | Failed] = asyncio.Queue()
        if not self.is_alive:
            inbox.put_nowait(Failed(generation.sequence_id, "worker_gone"))
            return inbox
        self._inboxes[generation.sequence_id] = inbox
        caller = generation.caller
        self._send(
            Submit(
                generation.sequence_id,
                generation.prompt_token_ids,
                generation.params,
                caller.tier,
                caller.tenant,
                caller.data_class,
                caller.is_zeroed,
                generation.request_id,
                generation.cache_salt,
            )
        )
        return inbox

    def leave(self, generation: Generation) -> None:
        """Stop reading: whatever is still being computed is stopped at the next step."""
        if self._inboxes.pop(generation.sequence_id, None) is not None:
            self._send(Abort(generation.sequence_id))

    async def embed(self, token_ids: list[int]) -> list[float]:
        found: list[float] = await self._ask(lambda name: Embed(name, token_ids))
        return found

    async def chain(self, token_ids: list[int], caller: Caller) -> Chained:
        found: Chained = await self._ask(
            lambda name: Chain(name, token_ids, caller.tenant, caller.data_class)
        )
        return found

    async def _ask(self, message_for: Callable[[str], object]) -> Any:
        if not self.is_alive:
            raise StepFailed("worker_gone")
        request_id = uuid.uuid4().hex
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[request_id] = future
        self._send(message_for(request_id))
        try:
            return await future
        finally:
            self._asked.pop(request_id, None)
            if future.cancelled():
                self._send(Abort(request_id))

    async def stop(self) -> None:
        """Ask the worker to end, and hang up."""
        with contextlib.suppress(ConnectionError):
            self._send(Stop())
            await self._writer.drain()
        self._writer.close()
        await self.closed()

    def _send(self, message: object) -> None:
        # The transport may notice the end one turn of the loop before the reader does.
        if self.is_alive and not self._writer.is_closing():
            self._writer.write(encode(message))

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(_READ_BYTES):
                for message in self._frames.push(data):
                    self._take(message)
        except ConnectionError:
            pass
        finally:
            self._lose_everything()

    def _take(self, message: Any) -> None:
        match message:
            case Updates(updates, stats):
                self.stats = stats
                for update in updates:
                    self._deliver(update.sequence_id, update, is_last=bool(update.finish_reason))
            case Failed(request_id):
                waiting = self._asked.get(request_id)
                if waiting is not None and not waiting.done():
                    waiting.set_exception(StepFailed(message.code, message.message))
                self._deliver(request_id, message, is_last=True)
            case Embedded(request_id, embedding):
                self._answer(request_id, embedding)
            case Chained(request_id):
                self._answer(request_id, message)
            case CacheNews(number, news):
                self.cache.add(number, news)
            case Ready():
                self._ready.set_result(message)
            case Refused(reason):
                self._ready.set_exception(WorkerRefused(reason))

    def _answer(self, request_id: str, found: object) -> None:
        waiting = self._asked.get(request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(found)

    def _deliver(self, sequence_id: str, item: Update | Failed, *, is_last: bool) -> None:
        inbox = self._inboxes.get(sequence_id)
        if inbox is None:
            return
        if is_last:
            del self._inboxes[sequence_id]
        inbox.put_nowait(item)

    def _lose_everything(self) -> None:
        self.is_alive = False
        self.stats = Stats()
        if not self._ready.done():
            self._ready.set_exception(WorkerRefused("the worker process ended while loading"))
            # If nobody waits any more, asyncio must not report the exception as never retrieved.
            self._ready.exception()
        for sequence_id in tuple(self._inboxes):
            self._deliver(sequence_id, Failed(sequence_id, "worker_gone"), is_last=True)
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(StepFailed("worker_gone"))
        self._writer.close()
