"""Writes chat completions: whole objects and the chunks of a stream."""

import uuid
from collections.abc import Sequence as Many
from typing import Any

import msgspec

from local_engine.core.sequence import FinishReason
from local_engine.serve.api.prompt_scores import prompt_scores
from local_engine.serve.engine import Output
from local_engine.serve.generation import Generation
from local_engine.serve.wire import Token
from local_engine.text.output_parser import Content, OutputParser, Part, Reasoning, ToolCall
from local_engine.text.tokenizer import ChatTokenizer


Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"
_FIELDS = {Content: "content", Reasoning: "reasoning_content"}


class Choice:
    """One of a request's answers: its generation, and the parser of its output."""

    def __init__(
        self,
        index: int,
        generation: Generation,
        parser: OutputParser,
        *,
        has_one_call: bool = False,
    ) -> None:
        self.index = index
        self._has_one_call = has_one_call
        self.generation = generation
        self._parser = parser
        self.num_calls = 0
        self.num_told = 0
        """Tokens written up to the last output that was reported: the generation may be further."""

    def usage_so_far(self) -> Json:
        """The usage of this answer alone, as vLLM counts."""
        generation = self.generation
        prompt, cached = len(generation.prompt_token_ids), generation.num_cached_tokens
        return usage(prompt, self.num_told, cached)

    def parts(self, output: Output) -> list[Part]:
        parts = self._parser.push(output.text) if output.text else []
        if output.finish_reason is not None:
            parts += self._parser.finish()
        kept: list[Part] = []
        for part in parts:
            if isinstance(part, ToolCall):
                if self._has_one_call and self.num_calls:
                    continue
                self.num_calls += 1
            kept.append(part)
        return kept

    def finish_reason(self, reason: FinishReason | None) -> str | None:
        """OpenAI's name for an end that was a tool call."""
        if reason is None:
            return None
        is_call = self.num_calls > 0 and reason is FinishReason.STOP
        return "tool_calls" if is_call else reason.value


class ChatResponse:
    """What stays the same from an answer's first byte to its last."""

    def __init__(
        self,
        choices: Many[Choice],
        tokenizer: ChatTokenizer,
        *,
        head: Json,
        include_usage: bool,
        wants_token_ids: bool,
        usage_so_far: bool = False,
        names_tokens_by_id: bool = False,
    ) -> None:
        self._choices = choices
        self._tokenizer = tokenizer
        self._include_usage = include_usage
        self._usage_so_far = usage_so_far
        self._wants_token_ids = wants_token_ids
        self._names_tokens_by_id = names_tokens_by_id
        self._head = {"id": f"chatcmpl-{choices[0].generation.sequence_id}", **head}

    def whole(self, outputs: Many[Many[Output]]) -> bytes:
        """The answer as one object; `outputs` by choice."""
        pairs = zip(self._choices, outputs, strict=True)
        choices = [self._whole_choice(choice, mine) for choice, mine in pairs]
        body = {**self._head, **self._prompt(), "object": "chat.completion", "choices": choices}
        first = self._choices[0].generation
        if (num_top := first.params.prompt_logprobs) is not None:
            body["prompt_logprobs"] = prompt_scores(first.prompt_logprobs, num_top, self._tokenizer)
        return msgspec.json.encode({**body, "usage": usage_of(self._generations())})

    def opening(self) -> bytes:
        """The first chunk of each choice names its role, the first choice's also the prompt."""
        role: Json = {"role": "assistant", "content": ""}
        first, *others = self._choices
        events = [self._chunk(first, role, about=self._prompt())]
        return b"".join([*events, *(self._chunk(choice, role) for choice in others)])

    def part(self, index: int, output: Output) -> bytes:
        """Events of one output; a step whose text is all held back has none."""
        choice = self._choices[index]
        first_call = choice.num_calls
        written = choice.generation.output_token_ids[choice.num_told : output.num_written]
        choice.num_told = output.num_written
        deltas = [_delta(part) for part in choice.parts(output)]
        for delta in deltas:
            if "tool_calls" in delta:
                delta["tool_calls"][0]["index"] = first_call
                first_call += 1
        logprobs = self._logprobs(choice, output.tokens)
        if not deltas and output.tokens and (logprobs is not None or self._wants_token_ids):
            deltas = [{"content": ""}]
        events = b""
        for delta in deltas:
            events += self._chunk(choice, delta, logprobs=logprobs, token_ids=written)
            # The tokens of a step belong to its first event.
            logprobs, written = None, []
        if output.finish_reason is not None:
            end = {
                "finish_reason": choice.finish_reason(output.finish_reason),
                "stop_reason": output.stopped_by,
            }
            events += self._chunk(choice, {}, end=end, token_ids=written)
        return events

    def usage_event(self) -> bytes:
        """The extra chunk that `stream_options.include_usage` asks for."""
        if not self._include_usage:
            return b""
        body = {**self._head, "object": "chat.completion.chunk", "choices": []}
        return as_event(msgspec.json.encode({**body, "usage": usage_of(self._generations())}))

    def _prompt(self) -> Json:
        """The prompt's tokens, if they are asked for."""
        ids = self._choices[0].generation.prompt_token_ids
        return {"prompt_token_ids": ids} if self._wants_token_ids else {}

    def _generations(self) -> list[Generation]:
        return [choice.generation for choice in self._choices]

    def _whole_choice(self, choice: Choice, outputs: Many[Output]) -> Json:
        parts = [part for output in outputs for part in choice.parts(output)]
        calls = [_delta(part)["tool_calls"][0] for part in parts if isinstance(part, ToolCall)]
        content = "".join(part.text for part in parts if isinstance(part, Content))
        reasoning = "".join(part.text for part in parts if isinstance(part, Reasoning))
        message: Json = {"role": "assistant", "content": content, "refusal": None}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message["content"] = content.strip() or None
            message["tool_calls"] = calls
        tokens = [token for output in outputs for token in output.tokens]
        found: Json = {
            "index": choice.index,
            "message": message,
            "logprobs": self._logprobs(choice, tokens),
            "finish_reason": choice.finish_reason(outputs[-1].finish_reason),
            "stop_reason": outputs[-1].stopped_by,
        }
        if self._wants_token_ids:
            found["token_ids"] = choice.generation.output_token_ids
        return found

    def _chunk(
        self,
        choice: Choice,
        delta: Json,
        *,
        end: Json | None = None,
        logprobs: Json | None = None,
        token_ids: Many[int] = (),
        about: Json | None = None,
    ) -> bytes:
        """`end` says why it ended, `about` what belongs to all choices."""
        found: Json = {
            "index": choice.index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": None,
            **(end or {}),
        }
        if self._wants_token_ids:
            found["token_ids"] = token_ids
        body = {**self._head, **(about or {}), "object": "chat.completion.chunk"}
        body["choices"] = [found]
        if self._include_usage:
            body["usage"] = choice.usage_so_far() if self._usage_so_far else None
        return as_event(msgspec.json.encode(body))

    def _logprobs(self, choice: Choice, tokens: Many[Token]) -> Json | None:
        if not choice.generation.params.logprobs:
            return None
        return {"content": [self._token_entry(token) for token in tokens], "refusal": None}

    def _token_entry(self, token: Token) -> Json:
        top = [self._logprob(token_id, logprob) for token_id, logprob in token.top]
        return {**self._logprob(token.token_id, token.logprob or 0.0), "top_logprobs": top}

    def _logprob(self, token_id: int, logprob: float) -> Json:
        text = self._tokenizer.token_text(token_id)
        # The bytes of a partial character are not known from its text.
        as_bytes = None if "\ufffd" in text else list(text.encode())
        shown = f"token_id:{token_id}" if self._names_tokens_by_id else text
        return {"token": shown, "logprob": logprob, "bytes": as_bytes}


def usage_of(generations: Many[Generation]) -> Json:
    """One prompt, however many answers it got."""
    prompt = len(generations[0].prompt_token_ids)
    completion = sum(len(each.output_token_ids) for each in generations)
    return usage(prompt, completion, generations[0].num_cached_tokens)


def usage(prompt: int, completion: int, cached: int) -> Json:
    """Counts of tokens."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def as_event(data: bytes) -> bytes:
    """One server-sent event."""
    return b"data: " + data + b"\n\n"


def _delta(part: Part) -> Json:
    if isinstance(part, ToolCall):
        function = {"name": part.name, "arguments": part.arguments}
        call_id = f"call_{uuid.uuid4().hex[:24]}"
        return {"tool_calls": [{"id": call_id, "type": "function", "function": function}]}
    return {_FIELDS[type(part)]: part.text}
