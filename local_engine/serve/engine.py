"""The engine as the event loop sees it: tokens in, outputs out; leaving the stream cancels.

The computing happens in a worker process at the other end of a socket. If it dies, everything in
flight fails with a typed error and the engine is not ready until a new worker has loaded.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from collections.abc import Sequence as Many
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from local_engine.core.limits import QueueFull
from local_engine.core.sequence import FinishReason, PromptTooLong
from local_engine.model.config import SamplingDefaults
from local_engine.sampling_params import InvalidParameter, SamplingParams
from local_engine.serve.cache_log import CacheLog
from local_engine.serve.clock import monotonic_s
from local_engine.serve.generation import Caller, Generation
from local_engine.serve.link import StepFailed, WorkerLink
from local_engine.serve.metrics import Counts, Metrics
from local_engine.serve.wire import (
    Chained,
    Failed,
    Ready,
    Stats,
    Token,
    Update,
)
from local_engine.text.detokenize import IncrementalDetokenizer, Release, StopStringFilter
from local_engine.text.tokenizer import ChatTokenizer, chat_tokenizer


# Codes with which a worker refuses a request.
_REFUSALS = frozenset({"queue_full", "context_length_exceeded", "invalid_grammar"})


@dataclass(frozen=True, slots=True)
class Output:
    """What one step added to a sequence."""

    text: str
    tokens: tuple[Token, ...]
    finish_reason: FinishReason | None = None
    stopped_by: str | int | None = None
    """The request's stop string, or the id of its stop token, that ended the sequence."""
    num_written: int = 0
    """Tokens that the sequence has written so far, including these and the end token."""
    offsets: tuple[int, ...] = ()
    """For each of the tokens the number of characters of the text before its own.

    Counted in the text as written, including what a stop string cut away.
    """


@dataclass(frozen=True, slots=True)
class Running:
    """A submitted generation and the stream of its outputs."""

    generation: Generation
    outputs: AsyncGenerator[Output, None]


class Engine:
    """Tokenizer, link to the worker, and what the HTTP side must know about the model."""

    def __init__(self, ready: Ready, link: "WorkerLink", counts: Counts | None = None) -> None:
        """`counts` are those of the previous workers."""
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
        self.metrics = Metrics(ready.memory, counts)
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
        request_id: str = "",
        keeps_special: bool = False,
        cache_salt: str = "",
        is_continuation: bool = False,
    ) -> Generation:
        """Check what can be known now; raises `PromptTooLong`, `InvalidParameter`."""
        if len(prompt_token_ids) >= self.ready.context_window:
            raise PromptTooLong(len(prompt_token_ids), self.ready.context_window)
        named: dict[str, Collection[int]] = {
            "logit_bias": params.logit_bias,
            "stop_token_ids": params.stop_token_ids,
            "allowed_token_ids": params.allowed_token_ids or (),
            "prompt": prompt_token_ids,
        }
        for param, token_ids in named.items():
            if token_ids and not 0 <= min(token_ids) <= max(token_ids) < self.ready.vocab_size:
                raise InvalidParameter(param, f"{param} names a token that does not exist")
        return Generation(
            uuid.uuid4().hex,
            prompt_token_ids,
            params,
            caller,
            request_id,
            keeps_special,
            cache_salt,
            is_continuation,
        )

    def check_places(self, num_asked: int, param: str) -> None:
        """Check that a request does not ask for more answers than there are places.

        Waiting would not help. Raises `InvalidParameter`.
        """
        if num_asked > self.ready.max_places:
            message = (
                f"the request asks for {num_asked} answers,"
                f" this engine has {self.ready.max_places} places"
            )
            raise InvalidParameter(param, message)

    async def encode_chat(
        self,
        messages: Many[dict[str, Any]],
        tools: Many[dict[str, Any]] = (),
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[int]:
        """Prompt tokens of a conversation; raises `PromptRefused`."""
        return await asyncio.to_thread(self.tokenizer.encode_chat, messages, tools, variables)

    @asynccontextmanager
    async def generate(self, generation: Generation) -> AsyncIterator[Running]:
        """Submit and stream; leaving the context in any way stops the computation.

        Raises `QueueFull` on entry; the stream raises `StepFailed`.
        """
        places = self.ready.max_places
        if self._link.num_open >= places:
            raise QueueFull(self._link.num_open)
        generation.submitted_s = monotonic_s()
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
        """What the worker's prefix cache holds, as the worker reports it."""
        return self._link.cache

    async def chain(self, token_ids: list[int], caller: Caller) -> Chained:
        """The short hashes of a prompt's blocks for a caller's group; raises `StepFailed`."""
        return await self._link.chain(token_ids, caller)

    async def _outputs(
        self, generation: Generation, inbox: "asyncio.Queue[Update | Failed]"
    ) -> AsyncGenerator[Output, None]:
        detokenizer = self.tokenizer.detokenizer(
            keeps_special=generation.keeps_special,
            after=generation.prompt_token_ids if generation.is_continuation else (),
        )
        params = generation.params
        stop_filter = StopStringFilter(params.stop, includes_stop=params.includes_stop)
        while True:
            item = await inbox.get()
            if isinstance(item, Failed):
                generation.is_refused = item.code in _REFUSALS and not generation.output_token_ids
                raise StepFailed(item.code, item.message)
            if generation.first_token_s is None and item.tokens:
                generation.first_token_s = monotonic_s()
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
        text, written = "", generation.output_token_ids
        shown: list[Token] = []
        offsets: list[int] = []
        stopped_by: str | int | None = None
        for index, token in enumerate(update.tokens):
            written.append(token.token_id)
            is_last = reason is not None and index == len(update.tokens) - 1
            fresh = ""
            # Speculation may bring several tokens at once, and a stop string between them.
            if not is_last or reason is not FinishReason.STOP or generation.params.includes_stop:
                fresh = detokenizer.push(token.token_id)
                shown.append(token)
                offsets.append(detokenizer.offset)
            release = _release(generation, fresh, stop_filter)
            text, stopped_by = text + release.text, release.stopped_by
            if stopped_by is not None:
                break
        if reason is not None and stopped_by is None:
            release = _release(generation, detokenizer.finish(), stop_filter)
            text, stopped_by = text + release.text, release.stopped_by
            text += stop_filter.finish()
        if stopped_by is not None:
            reason = FinishReason.STOP
        else:
            stopped_by = self._stop_token(generation, reason)
        return Output(text, tuple(shown), reason, stopped_by, len(written), tuple(offsets))

    def _stop_token(self, generation: Generation, reason: FinishReason | None) -> int | None:
        """The stop token that ended an answer; None if it is one of the model's own end tokens."""
        params, written = generation.params, generation.output_token_ids
        if reason is not FinishReason.STOP or written[-1] not in params.stop_token_ids:
            return None
        is_own = written[-1] in self.ready.eos_token_ids and not params.ignore_eos
        return None if is_own else written[-1]

    def _count(self, generation: Generation) -> None:
        if generation.is_refused:
            return
        reason = generation.finish_reason or FinishReason.ABORT
        num_written = len(generation.output_token_ids)
        # Before the first token, the prompt may not have been read at all.
        num_read = len(generation.prompt_token_ids) if num_written else 0
        self.metrics.counts.count_sequence(reason.value, num_read, num_written)
        if generation.first_token_s is None:
            return
        self.metrics.counts.time_first_token(generation.first_token_s - generation.submitted_s)
        # An aborted answer has no end of its own to measure to.
        if generation.finish_reason is not None and num_written > 1:
            took_s = monotonic_s() - generation.first_token_s
            self.metrics.counts.time_each_token(took_s / (num_written - 1))


def _release(generation: Generation, fresh: str, stop_filter: StopStringFilter) -> Release:
    """The text that may be shown; all of it before `min_tokens`, when nothing may end it yet."""
    if len(generation.output_token_ids) <= generation.params.min_tokens:
        return Release(fresh)
    return stop_filter.push(fresh)
