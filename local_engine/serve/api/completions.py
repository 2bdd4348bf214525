"""`POST /v1/completions`: text or token ids in, their continuation out, with log-probabilities."""

import asyncio
import uuid
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from local_engine.core.limits import QueueFull
from local_engine.core.sequence import PromptTooLong
from local_engine.sampling_params import MAX_TOP_LOGPROBS, InvalidParameter
from local_engine.serve.api.chat_request import decode_body, unsupported_parameter
from local_engine.serve.api.chat_response import DONE, as_event, usage
from local_engine.serve.api.choices import Choices, written
from local_engine.serve.api.errors import InvalidRequest, queue_full, unknown_model
from local_engine.serve.api.http import Send, send_body, send_part, start_event_stream
from local_engine.serve.api.prompt_scores import prompt_scores
from local_engine.serve.api.prompts import Prompt, Side, read_prompts, shortened
from local_engine.serve.api.sampling_fields import (
    OTHERS_SAMPLING,
    SamplingFields,
    grammar_field,
    read_params,
)
from local_engine.serve.clock import unix_time_s
from local_engine.serve.engine import Engine, Output
from local_engine.serve.generation import Caller, Generation
from local_engine.serve.link import StepFailed
from local_engine.serve.wire import Token
from local_engine.text.tokenizer import ChatTokenizer


_UNSUPPORTED = ("suffix", "prompt_embeds", *OTHERS_SAMPLING)
_NOTHING_WRITTEN: dict[str, Any] = {
    "max_tokens": 1,
    "ignore_eos": True,
    "stop": (),
    "stop_token_ids": (),
}
"""A prompt is read by choosing the token after it; that token is not reported."""
Json = dict[str, Any]


class _Body(SamplingFields, kw_only=True):
    prompt: Prompt
    max_tokens: int | None = 16
    """OpenAI's default; `null` is as many as there is room for."""
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: Side | None = None

    @property
    def num_prompt_top(self) -> int | None:
        """Alternatives to each token of the prompt: the larger of the two numbers asked for."""
        asked = (self.prompt_logprobs, self.logprobs if self.echo else None)
        return max((each for each in asked if each is not None), default=None)

    @property
    def is_read_only(self) -> bool:
        """Whether only the prompt is repeated, as evaluations ask for."""
        return bool(self.echo) and self.max_tokens == 0


async def answer_completion(
    body: bytes, send: Send, engine: Engine, served_name: str, caller: Caller
) -> None:
    """Answer in one piece or as events; raises `ApiError` while nothing has been sent."""
    request: _Body = decode_body(body, _Body, _UNSUPPORTED)
    if request.model != served_name:
        raise unknown_model(served_name)
    if request.best_of not in (None, request.num_choices):
        raise unsupported_parameter("best_of", "best_of must be equal to n.")
    generations = await _prepare(engine, request, caller)
    prompts = [each.prompt_token_ids for each in generations[:: request.num_choices]]
    offsets = await _offsets(engine.tokenizer, request, prompts)
    head = {
        "id": f"cmpl-{generations[0].sequence_id}",
        "created": unix_time_s(),
        "model": served_name,
        "system_fingerprint": engine.digest,
        "object": "text_completion",
    }
    writer = _Writer(request, engine.tokenizer, head, generations, offsets)
    async with AsyncExitStack() as stack:
        try:
            choices = Choices(
                [await stack.enter_async_context(engine.generate(each)) for each in generations],
                prompt_field="prompt",
                grammar_field=grammar_field(request),
            )
        except QueueFull as error:
            raise queue_full() from error
        if request.stream:
            await _send_stream(send, choices, writer)
        else:
            await send_body(send, 200, await written(choices, writer.whole))


async def _prepare(engine: Engine, request: _Body, caller: Caller) -> list[Generation]:
    prompts = await read_prompts(
        engine.tokenizer, request.prompt, adds_special=request.add_special_tokens is not False
    )
    if request.truncate_prompt_tokens is not None:
        room = engine.context_window - (request.max_tokens or 1)
        num_kept, side = request.truncate_prompt_tokens, request.truncation_side
        prompts = [shortened(each, num_kept, room, side) for each in prompts]
    num_top = request.logprobs
    if num_top is not None and not 0 <= num_top <= MAX_TOP_LOGPROBS:
        message = f"logprobs must be between 0 and {MAX_TOP_LOGPROBS}."
        raise InvalidRequest(message, code="invalid_value", param="logprobs")
    params = read_params(
        request,
        engine.defaults,
        engine.tokenizer,
        logprobs=num_top is not None,
        top_logprobs=num_top or 0,
        prompt_logprobs=request.num_prompt_top,
        **(_NOTHING_WRITTEN if request.is_read_only else {}),
    )
    num_asked = len(prompts) * request.num_choices
    try:
        engine.check_places(num_asked, "n" if request.num_choices > 1 else "prompt")
        request_id = uuid.uuid4().hex if num_asked > 1 else ""
        return [
            engine.new_generation(
                prompt,
                params.of_choice(index),
                caller,
                request_id=request_id,
                keeps_special=request.keeps_special,
                cache_salt=request.cache_salt or "",
                is_continuation=True,
            )
            for prompt in prompts
            for index in range(request.num_choices)
        ]
    except PromptTooLong as error:
        raise InvalidRequest(str(error), code="context_length_exceeded", param="prompt") from error
    except InvalidParameter as error:
        raise InvalidRequest(str(error), code="invalid_value", param=error.param) from error


async def _offsets(
    tokenizer: ChatTokenizer, request: _Body, prompts: list[list[int]]
) -> list[list[int]]:
    """The offset of each token of the prompts in its text, if that is reported."""
    if not request.echo or request.logprobs is None:
        return [[] for _ in prompts]
    keeps_special = request.keeps_special

    def found() -> list[list[int]]:
        return [tokenizer.offsets(prompt, keeps_special=keeps_special) for prompt in prompts]

    return await asyncio.to_thread(found)


async def _send_stream(send: Send, choices: Choices, writer: "_Writer") -> None:
    async with aclosing(choices.outputs()) as outputs:
        try:
            index, first = await anext(outputs)
        except StepFailed as error:
            raise choices.as_api_error(error) from error
        await start_event_stream(send)
        await send_part(send, writer.part(index, first))
        try:
            async for index, output in outputs:
                await send_part(send, writer.part(index, output))
        except StepFailed as error:
            envelope = choices.as_api_error(error).envelope()
            await send_part(send, as_event(envelope), is_last=True)
            return
    await send_part(send, writer.usage_event() + DONE, is_last=True)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A part of a choice's text, its tokens, and where each of them begins in the complete text."""

    text: str = ""
    tokens: tuple[Token, ...] = ()
    offsets: tuple[int, ...] = ()

    def __add__(self, other: "_Stretch") -> "_Stretch":
        return _Stretch(
            self.text + other.text, self.tokens + other.tokens, self.offsets + other.offsets
        )


class _Writer:
    """Turns outputs into the older completion objects."""

    def __init__(
        self,
        request: _Body,
        tokenizer: ChatTokenizer,
        head: Json,
        generations: list[Generation],
        prompt_offsets: list[list[int]],
    ) -> None:
        self._request = request
        self._tokenizer = tokenizer
        self._head = head
        self._generations = generations
        self._prompt_offsets = prompt_offsets
        """For each prompt, not for each choice."""
        self._begins: dict[int, int] = {}
        """By choice, where the answer begins in its text, once something was streamed."""
        self._num_told = [0] * len(generations)

    def whole(self, outputs: list[list[Output]]) -> bytes:
        choices = [self._choice(index, mine) for index, mine in enumerate(outputs)]
        return msgspec.json.encode({**self._head, "choices": choices, "usage": self._usage()})

    def part(self, index: int, output: Output) -> bytes:
        generation, num_told = self._generations[index], self._num_told[index]
        self._num_told[index] = 0 if self._request.is_read_only else output.num_written
        is_first, echoed = index not in self._begins, _Stretch()
        if is_first:
            if self._request.echo and not output.tokens and output.finish_reason is None:
                return b""  # A long prompt is read in parts, and is not all known yet.
            echoed = self._echoed(index)
            self._begins[index] = len(echoed.text)
        stretch = echoed + self._written([output], self._begins[index])
        choice: Json = {
            "index": index,
            "text": stretch.text,
            "logprobs": self._logprobs(stretch),
            "finish_reason": output.finish_reason,
        }
        if output.finish_reason is not None:
            choice["stop_reason"] = output.stopped_by
        if self._request.return_token_ids:
            new = slice(num_told, self._num_told[index])
            choice["token_ids"] = generation.output_token_ids[new]
            choice |= {"prompt_token_ids": generation.prompt_token_ids} if is_first else {}
        body = {**self._head, "choices": [choice]}
        if self._request.include_usage:
            body["usage"] = self._usage_so_far(index) if self._request.usage_so_far else None
        return as_event(msgspec.json.encode(body))

    def usage_event(self) -> bytes:
        if not self._request.include_usage:
            return b""
        body = {**self._head, "choices": [], "usage": self._usage()}
        return as_event(msgspec.json.encode(body))

    def _choice(self, index: int, outputs: list[Output]) -> Json:
        generation = self._generations[index]
        echoed = self._echoed(index)
        stretch = echoed + self._written(outputs, len(echoed.text))
        choice: Json = {
            "index": index,
            "text": stretch.text,
            "logprobs": self._logprobs(stretch),
            "finish_reason": outputs[-1].finish_reason,
            "stop_reason": outputs[-1].stopped_by,
        }
        if self._request.return_token_ids:
            choice["token_ids"] = self._written_ids(generation)
            choice["prompt_token_ids"] = generation.prompt_token_ids
        if (num_top := self._request.prompt_logprobs) is not None:
            tokens = generation.prompt_logprobs
            choice["prompt_logprobs"] = prompt_scores(tokens, num_top, self._tokenizer)
        return choice

    def _written(self, outputs: list[Output], begins: int) -> _Stretch:
        if self._request.is_read_only:
            return _Stretch()
        return _Stretch(
            "".join(output.text for output in outputs),
            tuple(token for output in outputs for token in output.tokens),
            tuple(begins + offset for output in outputs for offset in output.offsets),
        )

    def _written_ids(self, generation: Generation) -> list[int]:
        return [] if self._request.is_read_only else generation.output_token_ids

    def _echoed(self, index: int) -> _Stretch:
        """The prompt, if it is to be repeated, and what is known of its tokens."""
        if not self._request.echo:
            return _Stretch()
        generation = self._generations[index]
        prompt = generation.prompt_token_ids
        # Nothing comes before the first token, so nothing says how likely it was.
        known = generation.prompt_logprobs if self._request.logprobs is not None else []
        tokenizer = self._tokenizer
        decode = tokenizer.decode_with_special if self._request.keeps_special else tokenizer.decode
        offsets = self._prompt_offsets[index // self._request.num_choices]
        return _Stretch(decode(prompt), (Token(prompt[0]), *known), tuple(offsets))

    def _logprobs(self, stretch: _Stretch) -> Json | None:
        if self._request.logprobs is None:
            return None
        tokens, num_top = stretch.tokens, self._request.logprobs
        return {
            "tokens": [self._name(token.token_id) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [
                {self._name(entry): logprob for entry, logprob in token.top[:num_top]} or None
                for token in tokens
            ],
            "text_offset": stretch.offsets,
        }

    def _name(self, token_id: int) -> str:
        """Bytes of different partial characters have one text, and several tokens may have one."""
        if self._request.return_tokens_as_token_ids:
            return f"token_id:{token_id}"
        return self._tokenizer.token_text(token_id)

    def _usage(self) -> Json:
        per_prompt = self._generations[:: self._request.num_choices]
        prompt = sum(len(each.prompt_token_ids) for each in per_prompt)
        completion = sum(len(self._written_ids(each)) for each in self._generations)
        cached = sum(each.num_cached_tokens for each in per_prompt)
        return usage(prompt, completion, cached)

    def _usage_so_far(self, index: int) -> Json:
        """The usage of this text alone, as vLLM counts."""
        generation = self._generations[index]
        prompt, cached = len(generation.prompt_token_ids), generation.num_cached_tokens
        return usage(prompt, self._num_told[index], cached)
