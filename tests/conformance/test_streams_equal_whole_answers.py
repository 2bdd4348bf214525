"""A stream, once its reader has put it together, is the answer that a plain call would have got."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gateway.dialects.registry import DIALECTS
from gateway.tally import Tally, read_tokens, usage_of
from gateway.types import ChatRequest, DialectName
from tests.conformance.put_together import Reader
from tests.conformance.told_answers import Json, Told, chat_answers, message_answers
from tests.conformance.told_responses import response_answers


READER = Reader()
CALLERS: tuple[DialectName, ...] = ("openai_chat", "anthropic_messages", "openai_responses")
PAIRS = [(source, caller) for source in CALLERS for caller in CALLERS]
SOURCES: Mapping[DialectName, st.SearchStrategy[Told]] = {
    "openai_chat": chat_answers(),
    "anthropic_messages": message_answers(),
    "openai_responses": response_answers(),
}
CUTS = st.lists(st.integers(0, 100_000), max_size=12)
TURN = {"role": "user", "content": "Hi"}
EMPTY = {"type": "object", "properties": {}}
FUNCTION = {"name": "files.read", "description": "It reads.", "parameters": EMPTY}
ASKED: Mapping[DialectName, Json] = {
    "openai_chat": {
        "messages": [TURN],
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": FUNCTION}],
    },
    "anthropic_messages": {
        "messages": [TURN],
        "max_tokens": 9,
        "tools": [{"name": "files.read", "input_schema": EMPTY}],
    },
    "openai_responses": {
        "input": "Hi",
        "tools": [
            {"type": "function", **FUNCTION},
            {"type": "custom", "name": "exec"},
            *({"type": kind} for kind in ("shell", "local_shell", "apply_patch")),
        ],
    },
}
RANKS = {
    **dict.fromkeys(("thinking", "redacted_thinking", "reasoning"), 0),
    **dict.fromkeys(("text", "message"), 1),
}
WRITTEN = frozenset({"arguments", "input", "diff"})


def request_of(dialect: DialectName) -> ChatRequest:
    body = {"model": "m", "stream": True} | ASKED[dialect]
    return DIALECTS[dialect].decode_request(json.dumps(body).encode(), "req_0000000003e8abcdef")


REQUESTS = {dialect: request_of(dialect) for dialect in CALLERS}


def plain(told: Told, caller: DialectName) -> bytes:
    """What `pipeline` makes of a whole answer."""
    request = REQUESTS[caller]
    completion = DIALECTS[told.source].decode_reply(told.whole)
    completion = structs.replace(completion, usage=usage_of(completion, request, ""))
    return DIALECTS[caller].encode_reply(completion, told.source, request)


def carried(source: DialectName, caller: DialectName, pieces: Iterable[bytes]) -> bytes:
    """What `relay` makes of a stream that comes in these pieces."""
    request = REQUESTS[caller]
    decoder = DIALECTS[source].stream_decoder()
    encoder = DIALECTS[caller].stream_encoder(request, source)
    tally, sent, is_whole = Tally(0), [], False
    for batch in [*map(decoder.feed, pieces), decoder.close()]:
        is_whole |= any(event.is_terminal for event in batch)
        tally.add(batch)
        sent.append(encoder.encode(batch))
    assert is_whole
    usage = tally.usage(0 if tally.knows_input else read_tokens(request, ""))
    return b"".join((*sent, encoder.finish("x-gatewright-receipt=a", usage)))


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(stream), *(place % len(stream) for place in cuts)})
    return [stream[start:end] for start, end in itertools.pairwise(places)]


def without_nothing(tree: Any) -> Any:
    """Without fields that say nothing: a stream has others of them than a whole answer."""
    if isinstance(tree, dict):
        kept = {name: without_nothing(value) for name, value in tree.items()}
        return {name: value for name, value in kept.items() if value not in (None, [], "")}
    return [without_nothing(each) for each in tree] if isinstance(tree, list) else tree


def meant(written: str) -> object:
    """What a model wrote into a call, by value where it is JSON: its spelling is the model's."""
    try:
        return json.loads(written or "{}")
    except json.JSONDecodeError:
        return written


def in_order(entries: Iterable[Json]) -> list[Json]:
    """Thoughts, words and calls in the order of a whole answer, which says all of a kind at once.

    A stream keeps the order in which its upstream told them (rule 20).
    """
    return sorted(entries, key=lambda each: RANKS.get(each["type"], 2))


def joined(entries: Iterable[Json]) -> list[Json]:
    """Words of a kind in a row as one, however often their stream went on to something else."""
    found: list[Json] = []
    for each in entries:
        last = found[-1] if found else {}
        if "words" in each and each["type"] == last.get("type") and not last.get("seal"):
            found[-1] = each | {"words": last["words"] + each["words"]}
        else:
            found.append(each)
    return found


def of_chat(tree: Json, told: Told) -> Json:
    del told
    # Which tier served a stream is said at its end (rule 26), where the SDK looks no more.
    tree.pop("service_tier", None)
    (choice,) = tree["choices"]
    choice.pop("stop_reason", None)  # An engine's own word, of which the SDK keeps nothing.
    message = choice["message"]
    for entry in (*(message.get("tool_calls") or ()), *(message.get("thinking_blocks") or ())):
        entry.pop("index", None)
    for call in message.get("tool_calls") or ():
        call["function"]["arguments"] = meant(call["function"]["arguments"])
    return tree


def of_messages(tree: Json, told: Told) -> Json:
    for name in ("service_tier", "cache_creation"):  # Without a word at a stream's end.
        tree["usage"].pop(name, None)
    blocks = tree["content"] if told.is_natural else in_order(tree["content"])
    return tree | {"content": joined(map(_block, blocks))}


def _block(block: Json) -> Json:
    if block["type"] == "thinking":
        return {"type": "thinking", "words": block["thinking"], "seal": block["signature"]}
    if block["type"] == "text":
        return {"type": "text", "words": block["text"], "more": block.get("citations")}
    return block


def of_responses(tree: Json, told: Told) -> Json:
    for item in tree["output"]:
        for holder in (item, item.get("operation") or {}):
            holder |= {name: meant(holder[name]) for name in WRITTEN & holder.keys()}
        for part in item.get("content") or ():
            part.pop("parsed", None)
        item.pop("parsed_arguments", None)
    if told.is_natural:
        return tree
    parts = [part for item in in_order(tree["output"]) for part in _parts(item)]
    return tree | {"output": joined(parts)}


def _parts(item: Json) -> list[Json]:
    """Without its id, which is made of its place."""
    if item["type"] == "message":
        return [
            {"type": part["type"], "words": part.get("text") or part.get("refusal")}
            for part in item["content"]
        ]
    if item["type"] == "reasoning":
        words = [part["text"] for part in (*item["summary"], *(item.get("content") or ()))]
        sealed = item.get("encrypted_content")
        return [{"type": "reasoning", "words": "\n".join(words), "seal": sealed}]
    return [{name: value for name, value in item.items() if name != "id"}]


FORMS: Mapping[DialectName, Callable[[Json, Told], Json]] = {
    "openai_chat": of_chat,
    "anthropic_messages": of_messages,
    "openai_responses": of_responses,
}


def comparable(tree: Json, dialect: DialectName, told: Told) -> Any:
    formed = without_nothing(FORMS[dialect](tree, told))
    usage = formed["usage"]
    for name in ("output_tokens", "completion_tokens"):
        if usage.get(name) in {0, 1}:
            # Of an answer without a word that nobody counted (rule 42).
            formed["usage"] = None
    return formed


@pytest.mark.parametrize(("source", "caller"), PAIRS)
def test_a_stream_put_together_by_the_official_sdk_is_the_whole_answer(
    source: DialectName, caller: DialectName
) -> None:
    is_within = source == caller == "openai_chat"
    answers = chat_answers(with_logprobs=True) if is_within else SOURCES[source]

    @settings(max_examples=40)
    @given(answers, CUTS)
    def is_put_together(told: Told, cuts: list[int]) -> None:
        sent = carried(source, caller, cut(told.stream, cuts))
        streamed = READER.streamed(caller, cut(sent, cuts[::-1]))
        whole = READER.whole(caller, plain(told, caller))
        assert comparable(streamed, caller, told) == comparable(whole, caller, told)

    is_put_together()
