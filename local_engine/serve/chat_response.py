"""Writes chat completions: whole objects and the chunks of a stream."""

from collections.abc import Sequence as Many
from typing import Any

import msgspec

from local_engine.core.sequence import Sequence
from local_engine.runner.sampler import SampledToken
from local_engine.serve.worker import Output
from local_engine.text.tokenizer import ChatTokenizer


Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"


class ChatResponse:
    """The parts of one answer that stay the same from its first to its last byte."""

    def __init__(
        self, sequence: Sequence, tokenizer: ChatTokenizer, *, model: str, created: int, digest: str
    ) -> None:
        self._sequence = sequence
        self._tokenizer = tokenizer
        self._head: Json = {
            "id": f"chatcmpl-{sequence.sequence_id}",
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
        if output.text or (output.tokens and self._sequence.params.logprobs):
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
        prompt, completion = self._sequence.num_prompt_tokens, self._sequence.num_output_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0},
        }

    def _logprobs(self, tokens: Many[SampledToken]) -> Json | None:
        if not self._sequence.params.logprobs:
            return None
        return {"content": [self._token_entry(token) for token in tokens], "refusal": None}

    def _token_entry(self, token: SampledToken) -> Json:
        top = [self._logprob(entry.token_id, entry.logprob) for entry in token.top]
        return {**self._logprob(token.token_id, token.logprob or 0.0), "top_logprobs": top}

    def _logprob(self, token_id: int, logprob: float) -> Json:
        text = self._tokenizer.token_text(token_id)
        # Bytes of a part character are not known from its text.
        as_bytes = None if "\ufffd" in text else list(text.encode())
        return {"token": text, "logprob": logprob, "bytes": as_bytes}


def as_event(data: bytes) -> bytes:
    """One server-sent event."""
    return b"data: " + data + b"\n\n"
