"""Counts a stream as it passes: its usage, the weight of its text, and what the audit log keeps.

It knows no price and no dialect.
"""

from collections.abc import Callable

import msgspec
from msgspec import structs

from gateway.estimate import (
    BYTES_PER_TOKEN,
    FAMILIES,
    MARGIN_TOKENS,
    weight,
    whole_tokens,
    without_escapes,
)
from gateway.types import EVENT_END, ChatRequest, Completion, StreamEvent, Usage


UNWEIGHED_MAX = 512
"""Characters that wait until they are weighed together: a stream comes in pieces of a few, and most
streams end with a count of their upstream's."""

GUESSED_TO_COUNTED_MAX = 3
"""How many times a count in mid-stream a guess may be: vocabularies differ by no more."""
NO_COUNT = -1

Believe = Callable[[Usage], Usage]
"""A usage as an upstream reported it → the same without impossible figures."""


def as_told(usage: Usage) -> Usage:
    """Believe all of it."""
    return usage


class Tally:
    """The counts of one stream so far."""

    __slots__ = (
        *(
            "_counted",
            "_is_counted",
            "_is_silent",
            "_kept",
            "_kept_bytes",
            "_kept_bytes_max",
            "_said",
            "_searches",
        ),
        *("_believe", "_unweighed", "_unweighed_length", "_usage", "_vendor", "_weight"),
        "stop_reason",
    )

    def __init__(
        self,
        kept_bytes_max: int,
        *,
        vendor: str = "",
        by_channel: bool = False,
        is_silent: bool = False,
        believe: Believe = as_told,
    ) -> None:
        """For a model of `vendor`; `by_channel` keeps the texts of a stream by kind and index.

        `believe` removes impossible figures from a usage; without it all are believed.
        `is_silent` where no token was asked for: then the answer only repeats the prompt.
        """
        self._vendor = vendor
        self._believe = believe
        self._is_silent = is_silent
        self._usage: Usage | None = None
        self._searches = 0
        """Searches by the vendor's own tool that were seen; a usage at the end overrides them."""
        self._is_counted = False
        """Whether a usage came with or after the stop reason: then it is the last."""
        self._counted = 0
        """Tokens that a usage in mid-stream counted of what had come until then."""
        self._weight = 0
        """The weight of what came since."""
        self._unweighed: list[str] = []
        self._unweighed_length = 0
        self.stop_reason = ""
        """Why the answer ended, as the upstream said it; empty until then."""
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._kept_bytes_max = kept_bytes_max
        self._said: dict[tuple[str, int], list[str]] | None = {} if by_channel else None

    def add(self, events: list[StreamEvent]) -> None:
        """Count one batch."""
        for event in events:
            said_tokens = NO_COUNT
            self._searches += event.searches
            for delta in event.deltas:
                if delta.usage is not None:
                    usage = self._believe(delta.usage)
                    self._usage = add_usage(self._usage, usage)
                    said_tokens = usage.output_tokens
                if said := delta.text or delta.name:
                    self._unweighed.append(said)
                    self._unweighed_length += len(said)
                    if self._said is not None:
                        self._said.setdefault((delta.kind, delta.index), []).append(said)
                elif delta.stop_reason:
                    self.stop_reason = delta.stop_reason
            if self._unweighed_length > UNWEIGHED_MAX:
                self._weigh()
            if said_tokens != NO_COUNT:
                self._take_count(said_tokens)
            size = len(event.raw)
            if self._kept_bytes + size <= self._kept_bytes_max:
                self._kept.append(event.raw)
                self._kept_bytes += size

    def add_plain(self, words: list[str], raw: bytes) -> None:
        """The same for events that hold nothing but these texts, one each."""
        for text in words:
            self._unweighed.append(text)
            self._unweighed_length += len(text)
            if self._unweighed_length > UNWEIGHED_MAX:
                self._weigh()
        kept_bytes = self._kept_bytes + len(raw)
        if kept_bytes <= self._kept_bytes_max:
            self._kept.append(raw)
            self._kept_bytes = kept_bytes
        elif len(words) > 1:
            for piece in raw.split(EVENT_END)[:-1]:  # What still fits of them.
                self.add_plain([], piece + EVENT_END)

    def _weigh(self) -> None:
        if self._unweighed:
            if not self._is_silent:
                text = "".join(self._unweighed)
                self._weight += weight(text.encode("utf-8", "replace"), self._vendor)
            self._unweighed, self._unweighed_length = [], 0

    def _take_count(self, said: int) -> None:
        """A count after some text covers that text: only what follows still has to be guessed.

        The count that opens a message covers no text yet, and may include some that never comes. A
        figure that does not grow with the text, or is far from it, does not count it.
        """
        self._weigh()
        guessed = self._counted + whole_tokens(self._weight)
        if guessed and said > self._counted and said * GUESSED_TO_COUNTED_MAX >= guessed:
            self._counted, self._weight = said, 0
        if self.stop_reason:
            self._is_counted = True

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
        return self._usage is None and not self._has_content and not self._searches

    @property
    def _has_content(self) -> bool:
        has_words = self._unweighed and not self._is_silent
        return bool(self._weight or self._counted or has_words)

    @property
    def knows_input(self) -> bool:
        """Whether the upstream reported the request's length."""
        return self._usage is not None and self._usage.input_tokens > 0

    def and_then(self, events: list[StreamEvent]) -> "Tally":
        """A copy that counts these as well; this one stays without them."""
        if not events:
            return self
        self._weigh()
        more = Tally(0, vendor=self._vendor, is_silent=self._is_silent, believe=self._believe)
        more._usage, more._is_counted = self._usage, self._is_counted
        more._counted, more._weight = self._counted, self._weight
        more._searches = self._searches
        more.stop_reason = self.stop_reason
        more.add(events)
        return more

    def usage(self, input_tokens_estimate: int) -> Usage:
        """What the upstream reported, or an estimate, flagged as one; never zero for content."""
        usage = self._usage
        if usage is not None and (usage.output_tokens or not self._has_content):
            return with_estimates(usage, input_tokens_estimate)
        return self.usage_so_far(input_tokens_estimate)

    def usage_so_far(self, input_tokens_estimate: int) -> Usage:
        """The same for a stream that did not end: the usage it opened with is not all it sent."""
        self._weigh()
        seen = Usage(
            output_tokens=self._counted + whole_tokens(self._weight),
            web_searches=max(self._searches, 0),
            estimated=True,
        )
        if self._usage is None:
            return structs.replace(seen, input_tokens=input_tokens_estimate)
        usage = with_estimates(self._usage, input_tokens_estimate)
        if usage.compactions and not self._is_counted:
            # Each summary read all of it once more, and only a usage at the end counts that.
            read = usage.input_tokens + usage.compactions * input_tokens_estimate
            usage = structs.replace(usage, input_tokens=read)
        is_all_counted = self._is_counted or (
            self._counted and not self._weight and seen.web_searches <= usage.web_searches
        )
        if is_all_counted and usage.output_tokens:
            return usage
        return add_usage(usage, seen)


def add_usage(known: Usage | None, more: Usage) -> Usage:
    """Upstreams send usage in pieces and cumulatively, so the larger figure of each kind counts."""
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
        web_searches=max(known.web_searches, more.web_searches),
        disbelieved=max(known.disbelieved, more.disbelieved),
        inference_geo=more.inference_geo or known.inference_geo,
        compactions=max(known.compactions, more.compactions),
    )


def with_estimates(usage: Usage, input_tokens_estimate: int, output_tokens: int = 0) -> Usage:
    """Estimate what an upstream left at zero: no answer is empty, and none is free.

    Estimated usage knows only the answer's length; the request's is added here as well.
    """
    if usage.input_tokens and (usage.output_tokens or not output_tokens):
        return usage
    missing = Usage(
        input_tokens=0 if usage.input_tokens else input_tokens_estimate,
        output_tokens=0 if usage.output_tokens else output_tokens,
        estimated=True,
    )
    return add_usage(usage, missing)


def read_tokens(request: ChatRequest, vendor: str) -> int:
    """About how many tokens a request has for the models of `vendor`, which has read it.

    It reads all of it, so it is for requests that nobody counted.
    """
    about = request.input_tokens_estimate
    if vendor not in FAMILIES or request.has_images or request.has_documents or not request.raw:
        return about
    body, text = without_escapes(request.raw), max(about - MARGIN_TOKENS, 0)
    return about - text + -(-text * weight(body, vendor) // weight(body, ""))


def tokens_of(length_bytes: int) -> int:
    """About how many tokens this many unreadable bytes are."""
    return -(-length_bytes // BYTES_PER_TOKEN)


def written_tokens(completion: Completion, vendor: str) -> int:
    """About how many tokens of a complete answer the model wrote."""
    texts = [completion.text, completion.refusal]
    texts += [delta.text for delta in completion.thinking]
    texts += [part for call in completion.tool_calls for part in (call.name, call.arguments_json)]
    return whole_tokens(weight("".join(texts).encode("utf-8", "replace"), vendor))


def usage_of(
    completion: Completion, request: ChatRequest, vendor: str, believe: Believe = as_told
) -> Usage:
    """The usage of a complete answer of a vendor's model, estimated where nobody counted."""
    usage = believe(completion.usage)
    read = 0 if usage.input_tokens else read_tokens(request, vendor)
    is_told = usage.output_tokens or request.max_output_tokens == 0
    written = 0 if is_told else written_tokens(completion, vendor)
    return with_estimates(usage, read, written)
