"""The engine as the event loop sees it: tokens in, outputs out, cancelled by leaving.

The computing happens in a worker process at the other end of a socket. If it dies, everything in
flight fails with a typed error and nobody is ready until a new one has loaded.
"""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from local_engine.core.limits import QueueFull
from local_engine.core.sequence import FinishReason, PromptTooLong
from local_engine.model.config import SamplingDefaults
from local_engine.sampling_params import InvalidParameter, SamplingParams
from local_engine.serve.cache_log import CacheLog
from local_engine.serve.metrics import Metrics
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
    Token,
    Update,
    Updates,
    encode,
)
from local_engine.text.detokenize import IncrementalDetokenizer, StopStringFilter
from local_engine.text.tokenizer import ChatTokenizer, chat_tokenizer


_READ_BYTES = 1 << 20


class StepFailed(RuntimeError):
    """The worker failed on this sequence or is gone; the code says which."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code


class WorkerRefused(RuntimeError):
    """The worker will not serve this model."""


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a sequence is computed, as the gateway says."""

    tenant: str = ""
    data_class: str = ""
    tier: str = "standard"
    is_zeroed: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """What one step added to a sequence."""

    text: str
    tokens: tuple[Token, ...]
    finish_reason: FinishReason | None = None
    stopped_by: str | None = None
    """The stop string of the request that ended it, if one did."""


@dataclass(slots=True)
class Generation:
    """One sequence on its way: what went in, and what is known about what came out."""

    sequence_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    caller: Caller
    keeps_special: bool = False
    """Control tokens stay in the text: the parser of tool calls looks for them."""
    output_token_ids: list[int] = field(default_factory=list)
    prompt_logprobs: list[Token] = field(default_factory=list)
    num_cached_tokens: int = 0
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A submitted generation and the stream of its outputs."""

    generation: Generation
    outputs: AsyncGenerator[Output, None]


class Engine:
    """Tokenizer, link to the worker, and what the HTTP side must know about the model."""

    def __init__(self, ready: Ready, link: "WorkerLink") -> None:
        self.ready = ready
        self.name = ready.name
        self.digest = ready.digest
        self.defaults = SamplingDefaults(
            temperature=ready.defaults["temperature"],
            top_p=ready.defaults["top_p"],
            top_k=int(ready.defaults["top_k"]),
        )
        self.tokenizer: ChatTokenizer = chat_tokenizer(
            ready.tokenizer_json, ready.tokenizer_config, ready.chat_template
        )
        self.metrics = Metrics(ready.memory)
        self._link = link

    @property
    def context_window(self) -> int:
        return self.ready.context_window

    @property
    def is_alive(self) -> bool:
        return self._link.is_alive

    def stats(self) -> Stats:
        return self._link.stats

    def new_generation(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        caller: Caller,
        *,
        keeps_special: bool = False,
    ) -> Generation:
        """Check what can be known now; raises `PromptTooLong`, `InvalidParameter`."""
        named = {
            "logit_bias": params.logit_bias,
            "stop_token_ids": params.stop_token_ids,
            "prompt": prompt_token_ids,
        }
        for param, token_ids in named.items():
            if any(not 0 <= token_id < self.ready.vocab_size for token_id in token_ids):
                raise InvalidParameter(param, f"{param} names a token that does not exist")
        if len(prompt_token_ids) >= self.ready.context_window:
            raise PromptTooLong(len(prompt_token_ids), self.ready.context_window)
        return Generation(uuid.uuid4().hex, prompt_token_ids, params, caller, keeps_special)

    async def encode_chat(
        self, messages: Many[dict[str, Any]], tools: Many[dict[str, Any]] = ()
    ) -> list[int]:
        """Prompt tokens of a conversation; raises `PromptRefused`."""
        return await asyncio.to_thread(self.tokenizer.encode_chat, messages, tools)

    @asynccontextmanager
    async def generate(self, generation: Generation) -> AsyncIterator[Running]:
        """Submit and stream; leaving the context in any way stops the computation.

        Raises `QueueFull` on entry; the stream raises `StepFailed`.
        """
        places = self.ready.max_places
        if self._link.num_open >= places:
            raise QueueFull(self._link.num_open)
        outputs = self._outputs(generation, self._link.submit(generation))
        try:
            yield Running(generation, outputs)
        finally:
            self._link.leave(generation)
            await outputs.aclose()
            self._count(generation)

    async def embed(self, token_ids: list[int]) -> list[float]:
        """One text's embedding; raises `StepFailed`."""
        return await self._link.embed(token_ids)

    @property
    def cache(self) -> CacheLog:
        """What the worker's prefix cache holds, as it says."""
        return self._link.cache

    async def chain(self, token_ids: list[int], caller: Caller) -> Chained:
        """The short hashes of a prompt's blocks for a caller's group; raises `StepFailed`."""
        return await self._link.chain(token_ids, caller)

    async def _outputs(
        self, generation: Generation, inbox: "asyncio.Queue[Update | Failed]"
    ) -> AsyncGenerator[Output, None]:
        tokenizer = self.tokenizer
        keeps_special = generation.keeps_special
        decode = tokenizer.decode_with_special if keeps_special else tokenizer.decode
        detokenizer = IncrementalDetokenizer(decode)
        stop_filter = StopStringFilter(generation.params.stop)
        while True:
            item = await inbox.get()
            if isinstance(item, Failed):
                raise StepFailed(item.code, item.message)
            generation.num_cached_tokens = item.num_cached_tokens
            generation.prompt_logprobs += item.prompt_logprobs
            output = self._accept(generation, item, detokenizer, stop_filter)
            if output.finish_reason is not None:
                generation.finish_reason = output.finish_reason
                yield output
                return
            yield output

    def _accept(
        self,
        generation: Generation,
        update: Update,
        detokenizer: IncrementalDetokenizer,
        stop_filter: StopStringFilter,
    ) -> Output:
        """Text of new tokens; text held back is part of a later output."""
        reason = None if update.finish_reason is None else FinishReason(update.finish_reason)
        text, shown = "", []
        for index, token in enumerate(update.tokens):
            generation.output_token_ids.append(token.token_id)
            is_last = reason is not None and index == len(update.tokens) - 1
            # Speculation may bring several tokens at once, and a stop string between them.
            is_end = is_last and reason is FinishReason.STOP
            fresh = "" if is_end else detokenizer.push(token.token_id)
            if is_last:
                fresh += detokenizer.finish()
            if not is_end:
                shown.append(token)
            release = stop_filter.push(fresh)
            text += release.text
            if release.stopped_by is not None:
                return Output(text, tuple(shown), FinishReason.STOP, release.stopped_by)
        if reason is not None:
            text += stop_filter.finish()
        return Output(text, tuple(shown), reason)

    def _count(self, generation: Generation) -> None:
        reason = generation.finish_reason or FinishReason.ABORT
        self.metrics.count_sequence(
            reason.value, len(generation.prompt_token_ids), len(generation.output_token_ids)
        )


class WorkerLink:
    """This side of the socket: who waits for what, and whether the worker still lives."""

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
            )
        )
        return inbox

    def leave(self, generation: Generation) -> None:
        """Nobody reads on: whatever is still computed is stopped with the next step."""
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

    async def stop(self) -> None:
        """Ask the worker to end, and hang up."""
        with contextlib.suppress(ConnectionError):
            self._send(Stop())
            await self._writer.drain()
        self._writer.close()
        await self.closed()

    def _send(self, message: object) -> None:
        if self.is_alive:
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
            # Somebody may have stopped waiting; an exception that nobody asks for is no news.
            self._ready.exception()
        for sequence_id in tuple(self._inboxes):
            self._deliver(sequence_id, Failed(sequence_id, "worker_gone"), is_last=True)
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(StepFailed("worker_gone"))
        self._writer.close()
