"""Writes chat completions: whole objects and the chunks of a stream."""

from collections.abc import Sequence as Many
from typing import Any

import msgspec

from local_engine.serve.engine import Generation, Output
from local_engine.serve.wire import Token
from local_engine.text.tokenizer import ChatTokenizer


Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"


class ChatResponse:
    """The parts of one answer that stay the same from its first to its last byte."""

    def __init__(
        self,
        generation: Generation,
        tokenizer: ChatTokenizer,
        *,
        model: str,
        created: int,
        digest: str,
    ) -> None:
        self._generation = generation
        self._tokenizer = tokenizer
        self._head: Json = {
            "id": f"chatcmpl-{generation.sequence_id}",
            "created": created,
            "model": model,
            "system_fingerprint": digest,
        }

    def whole(self, outputs: Many[Output]) -> bytes:
        """The answer as one object."""
        choice = {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "".join(output.text for output in outputs),
                "refusal": None,
            },
            "logprobs": self._logprobs([token for out in outputs for token in out.tokens]),
            "finish_reason": outputs[-1].finish_reason,
        }
        body = {**self._head, "object": "chat.completion", "choices": [choice]}
        return msgspec.json.encode({**body, "usage": self._usage()})

    def opening(self, *, include_usage: bool) -> bytes:
        """The first chunk: it names the role."""
        return self._chunk({"role": "assistant", "content": ""}, include_usage=include_usage)

    def part(self, output: Output, *, include_usage: bool) -> bytes:
        """One or no event per output: a step that holds all its text back says nothing."""
        events = b""
        if output.text or (output.tokens and self._generation.params.logprobs):
            logprobs = self._logprobs(output.tokens)
            events = self._chunk(
                {"content": output.text}, logprobs=logprobs, include_usage=include_usage
            )
        if output.finish_reason is not None:
            events += self._chunk(
                {}, finish_reason=output.finish_reason, include_usage=include_usage
            )
        return events

    def usage_event(self) -> bytes:
        """The extra chunk that `stream_options.include_usage` asks for."""
        body = {**self._head, "object": "chat.completion.chunk", "choices": []}
        return as_event(msgspec.json.encode({**body, "usage": self._usage()}))

    def _chunk(
        self,
        delta: Json,
        *,
        include_usage: bool,
        logprobs: Json | None = None,
        finish_reason: str | None = None,
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        body = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        if include_usage:
            body["usage"] = None
        return as_event(msgspec.json.encode(body))

    def _usage(self) -> Json:
        generation = self._generation
        prompt, completion = len(generation.prompt_token_ids), len(generation.output_token_ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": generation.num_cached_tokens},
        }

    def _logprobs(self, tokens: Many[Token]) -> Json | None:
        if not self._generation.params.logprobs:
            return None
        return {"content": [self._token_entry(token) for token in tokens], "refusal": None}

    def _token_entry(self, token: Token) -> Json:
        top = [self._logprob(token_id, logprob) for token_id, logprob in token.top]
        return {**self._logprob(token.token_id, token.logprob or 0.0), "top_logprobs": top}

    def _logprob(self, token_id: int, logprob: float) -> Json:
        text = self._tokenizer.token_text(token_id)
        # Bytes of a part character are not known from its text.
        as_bytes = None if "\ufffd" in text else list(text.encode())
        return {"token": text, "logprob": logprob, "bytes": as_bytes}


def as_event(data: bytes) -> bytes:
    """One server-sent event."""
    return b"data: " + data + b"\n\n"
