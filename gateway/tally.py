"""Counts a stream as it passes: usage, bytes of content, and what the audit keeps of it.

It knows no price and no dialect.
"""

import math

import msgspec

from gateway.types import Completion, StreamEvent, Usage


BYTES_PER_TOKEN = 4
"""The usual rough figure for English text in today's tokenizers; only for flagged estimates."""


TOKENS_PER_BYTE_BEYOND = 0.3
"""Of UTF-8 beyond ASCII: between the published vocabularies, which differ by up to three times."""
CHARACTERS_PER_TOKEN_OF_CALLS = 3
"""Arguments of calls are JSON, whose marks and digits are tokens of their own."""


class Tally:
    """What a stream has amounted to so far."""

    __slots__ = (
        *("_content_bytes", "_is_counted", "_kept", "_kept_bytes", "_kept_bytes_max", "_said"),
        *("_more_tokens", "_usage", "stop_reason"),
    )

    def __init__(self, kept_bytes_max: int, *, by_channel: bool = False) -> None:
        """`by_channel` keeps the words of a stream together, where they come in pieces."""
        self._usage: Usage | None = None
        self._is_counted = False
        """Whether a usage came with or after the reason why the answer ended: it is the last."""
        self._content_bytes = 0
        self._more_tokens = 0.0
        """Beyond four characters to a token: what arguments of calls and other scripts take."""
        self.stop_reason = ""
        """Why the answer ended, as the upstream said it; empty before."""
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._kept_bytes_max = kept_bytes_max
        self._said: dict[tuple[str, int], list[str]] | None = {} if by_channel else None

    def add(self, events: list[StreamEvent]) -> None:
        """Take note of one batch."""
        for event in events:
            has_usage = False
            for delta in event.deltas:
                if delta.usage is not None:
                    self._usage = add_usage(self._usage, delta.usage)
                    has_usage = True
                if delta.text:
                    self._content_bytes += len(delta.text)
                    if delta.kind != "text" or not delta.text.isascii():
                        self._more_tokens += _tokens_beyond(delta.text, delta.kind)
                elif delta.stop_reason:
                    self.stop_reason = delta.stop_reason
                if self._said is not None and (delta.text or delta.name):
                    place = (delta.kind, delta.index)
                    self._said.setdefault(place, []).append(delta.text or delta.name)
            if has_usage and self.stop_reason:
                self._is_counted = True
            size = len(event.raw)
            if self._kept_bytes + size <= self._kept_bytes_max:
                self._kept.append(event.raw)
                self._kept_bytes += size

    @property
    def content(self) -> bytes:
        """The upstream's events, up to the limit; or what was said, as JSON, if all of it fits."""
        if self._said is None:
            return b"".join(self._kept)
        said = [
            {"kind": kind, "index": index, "said": "".join(pieces)}
            for (kind, index), pieces in self._said.items()
        ]
        content = msgspec.json.encode(said) if said else b""
        return content if len(content) <= self._kept_bytes_max else b""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted and nothing said."""
        return self._usage is None and not self._content_bytes

    def and_then(self, events: list[StreamEvent]) -> "Tally":
        """What it would be with these as well; this one goes on without them."""
        if not events:
            return self
        more = Tally(0)
        more._usage, more._is_counted = self._usage, self._is_counted
        more._content_bytes, more.stop_reason = self._content_bytes, self.stop_reason
        more._more_tokens = self._more_tokens
        more.add(events)
        return more

    def usage(self, input_tokens_estimate: int) -> Usage:
        """What the upstream said, or an estimate that says it is one; never zero for content."""
        usage = self._usage
        if usage is not None and (usage.output_tokens or not self._content_bytes):
            return with_estimates(usage, input_tokens_estimate)
        return self.usage_so_far(input_tokens_estimate)

    def usage_so_far(self, input_tokens_estimate: int) -> Usage:
        """The same for a stream that did not end: what it opened with is not all it sent."""
        output_tokens = tokens_of(self._content_bytes) + math.ceil(self._more_tokens)
        if self._usage is None:
            return Usage(
                input_tokens=input_tokens_estimate, output_tokens=output_tokens, estimated=True
            )
        usage = with_estimates(self._usage, input_tokens_estimate)
        if usage.output_tokens >= output_tokens > 0 or (self._is_counted and usage.output_tokens):
            return usage
        return add_usage(usage, Usage(output_tokens=output_tokens, estimated=True))


def add_usage(known: Usage | None, more: Usage) -> Usage:
    """Upstreams send usage in pieces and cumulatively, so the larger figure of each kind holds."""
    if known is None:
        return more
    return Usage(
        input_tokens=max(known.input_tokens, more.input_tokens),
        output_tokens=max(known.output_tokens, more.output_tokens),
        cache_read_tokens=max(known.cache_read_tokens, more.cache_read_tokens),
        cache_write_tokens=max(known.cache_write_tokens, more.cache_write_tokens),
        cache_write_1h_tokens=max(known.cache_write_1h_tokens, more.cache_write_1h_tokens),
        reasoning_tokens=max(known.reasoning_tokens, more.reasoning_tokens),
        estimated=more.estimated,
        service_tier=more.service_tier or known.service_tier,
    )


def with_estimates(usage: Usage, input_tokens_estimate: int, content_bytes: int = 0) -> Usage:
    """What an upstream left at zero is estimated: nobody answers nothing, or says it for nothing.

    Estimated usage knows the answer's length only; the request's is added here as well.
    """
    if usage.input_tokens and (usage.output_tokens or not content_bytes):
        return usage
    missing = Usage(
        input_tokens=0 if usage.input_tokens else input_tokens_estimate,
        output_tokens=0 if usage.output_tokens else tokens_of(content_bytes),
        estimated=True,
    )
    return add_usage(usage, missing)


def _tokens_beyond(text: str, kind: str) -> float:
    """How many tokens more a text is about than four characters to each."""
    raw = text.encode("utf-8", "replace")
    plain = len(raw.decode("ascii", "ignore"))
    more = (len(raw) - plain) * TOKENS_PER_BYTE_BEYOND - (len(text) - plain) / BYTES_PER_TOKEN
    if kind == "tool_arguments":
        more += plain / CHARACTERS_PER_TOKEN_OF_CALLS - plain / BYTES_PER_TOKEN
    return more


def tokens_of(length_bytes: int) -> int:
    """About how many tokens so much text is."""
    return -(-length_bytes // BYTES_PER_TOKEN)


def content_bytes(completion: Completion) -> int:
    """How much of a whole answer was written by the model."""
    texts = [completion.text, completion.refusal]
    texts += [delta.text for delta in completion.thinking]
    texts += [part for call in completion.tool_calls for part in (call.name, call.arguments_json)]
    return sum(len(text) for text in texts)
