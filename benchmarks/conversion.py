"""Cost of translation: a streamed chunk and whole requests, converted and passed through.

`python -m benchmarks.conversion`; `make bench` prints it too. Each figure is the best of many short
rounds in one process, so that a busy machine matters little; the limits are those of docs/api.md.
"""

import json
import time
from collections.abc import Callable
from functools import partial

import msgspec

from gateway.dialects.registry import DIALECTS
from gateway.estimate import estimate_input_tokens
from gateway.price import Price
from gateway.types import ChatRequest, DialectName, StreamEvent, Target


ESTIMATE_LIMIT_US = 3
ESTIMATE_BEYOND_ASCII_LIMIT_US = 6
"""There are four times as many kinds of characters to look for."""
CHUNK_LIMIT_US = 15
KB64_LIMIT_US = 400
MB1_LIMIT_US = 8000
ROUNDS = 60
CHUNKS = 200
ESTIMATES = 30

_PRICE = Price(1, 1, 1, 1, 1, 50, "benchmark", "2026-11-21")
_WORDS = "The bridge was built by masons from the next valley, who were paid in salt. "
_CHINESE = "桥是由石匠建造的。"
_CAPABILITIES = frozenset({"tools", "json_schema", "reasoning_effort", "effort"})
_NAMES: tuple[DialectName, ...] = ("openai_chat", "anthropic_messages", "openai_responses")


def main() -> None:
    """Print the figures as a Markdown table, with their limits."""
    print("\n## Translation (CPU of one core)\n")
    print("| what | from | to | us | limit |")
    print("|---|---|---|---|---|")
    for source in _NAMES:
        through = _chunk_us(source, source)
        print(f"| a streamed chunk, passed through | {source} | {source} | {through:.1f} | |")
        for wanted in _NAMES:
            if wanted != source:
                above = _chunk_us(source, wanted) - through
                row = f"| a streamed chunk, above that | {source} | {wanted} | {above:.1f}"
                print(f"{row} | {CHUNK_LIMIT_US} |")
    for text, kind, limit in (
        (_WORDS.encode() * 14, "ASCII", ESTIMATE_LIMIT_US),
        (_CHINESE.encode() * 38, "Chinese", ESTIMATE_BEYOND_ASCII_LIMIT_US),
    ):
        cost = _best_us(partial(_estimate_often, text), 300) / ESTIMATES
        row = f"| tokens estimated in {len(text)} bytes of {kind} | any | | {cost:.1f}"
        print(f"{row} | {limit} |")
    for size, label, limit in ((64, "64 KB", KB64_LIMIT_US), (1024, "1 MB", MB1_LIMIT_US)):
        for source in _NAMES:
            for wanted in _NAMES:
                if wanted != source:
                    cost = _request_us(source, wanted, size * 1024)
                    print(f"| a request of {label} | {source} | {wanted} | {cost:.0f} | {limit} |")


def _estimate_often(text: bytes) -> None:
    for _ in range(ESTIMATES):
        estimate_input_tokens(text, 0, 0, 0)


def _best_us(act: Callable[[], object], rounds: int = ROUNDS) -> float:
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter_ns()
        act()
        best = min(best, time.perf_counter_ns() - started)
    return best / 1000


def _chunk_us(source: DialectName, wanted: DialectName) -> float:
    """Decoding and encoding one chunk of text, as the relay does it."""
    request = _request(wanted, 100)
    chunks = [_chunk(source)] * CHUNKS

    def carry() -> None:
        decoder = DIALECTS[source].stream_decoder()
        encoder = DIALECTS[wanted].stream_encoder(request, source)
        for chunk in chunks:
            events: list[StreamEvent] = decoder.feed(chunk)
            encoder.encode(events)

    return _best_us(carry) / CHUNKS


def _request_us(source: DialectName, wanted: DialectName, size_bytes: int) -> float:
    """Converting an already decoded request, as every request is."""
    request = _request(source, size_bytes)
    target = _target()
    return _best_us(lambda: DIALECTS[wanted].encode_request(request, target, 1000), 20)


def _request(dialect: DialectName, size_bytes: int) -> ChatRequest:
    """A conversation of about that size: turns of 2 KB, with a tool."""
    text = _WORDS * 27
    turns = [
        {"role": "user" if number % 2 == 0 else "assistant", "content": text}
        for number in range(max(size_bytes // len(text), 1) | 1)
    ]
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    body: dict[str, object] = {"model": "m", "stream": True}
    if dialect == "anthropic_messages":
        tools: list[object] = [{"name": "age_of", "input_schema": schema}]
        body |= {"max_tokens": 100, "messages": turns, "tools": tools}
    elif dialect == "openai_chat":
        function = {"name": "age_of", "parameters": schema}
        body |= {"messages": turns, "tools": [{"type": "function", "function": function}]}
    else:
        body |= {"input": turns, "tools": [{"type": "function", "name": "age_of"}]}
    return DIALECTS[dialect].decode_request(json.dumps(body).encode(), "req_0000000003e8abcdef")


def _chunk(dialect: DialectName) -> bytes:
    if dialect == "openai_chat":
        choice = {"index": 0, "delta": {"content": " token"}, "finish_reason": None}
        shell = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return b"data: " + msgspec.json.encode(shell | {"choices": [choice]}) + b"\n\n"
    if dialect == "anthropic_messages":
        name = "content_block_delta"
        tree: dict[str, object] = {
            "type": name,
            "index": 0,
            "delta": {"type": "text_delta", "text": " token"},
        }
    else:
        name = "response.output_text.delta"
        tree = {"type": name, "item_id": "msg_1", "output_index": 0, "content_index": 0}
        tree |= {"delta": " token", "logprobs": [], "sequence_number": 7}
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(tree))


def _target() -> Target:
    return Target(
        name="t",
        provider="p",
        model="m",
        jurisdiction="eu",
        in_house=False,
        tier="mid",
        price=_PRICE,
        context_window_tokens=1_000_000,
        output_tokens_max=8192,
        capabilities=_CAPABILITIES,
    )


if __name__ == "__main__":
    main()
