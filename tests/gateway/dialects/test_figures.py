"""Usage that is none: a text, a fraction or a number below zero costs no answer its words."""

import json
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from gateway.dialects.registry import DIALECTS
from gateway.dialects.sse import Splitter
from gateway.errors import UpstreamMalformed
from gateway.tally import usage_of
from gateway.types import ChatRequest, Completion, DialectName, Usage
from tests.gateway.dialects.loopback import anthropic_client
from tests.gateway.dialects.samples import (
    INPUT_ESTIMATE,
    MESSAGE_STOP,
    block_delta,
    block_start,
    block_stop,
    charged,
    chat,
    chunk,
    decoded,
    messages,
    recoded,
    sse,
)


DONE = b"data: [DONE]\n\n"
WORDS = "word " * 100
NO_COUNTS: list[Any] = ["12", -3, 1.5, True, 10**12, {"a": 1}, [7]]
NAMES = {
    "openai_chat": ("prompt_tokens", "completion_tokens"),
    "openai_completions": ("prompt_tokens", "completion_tokens"),
    "anthropic_messages": ("input_tokens", "output_tokens"),
    "openai_responses": ("input_tokens", "output_tokens"),
}
DIALECT_NAMES: list[DialectName] = [*NAMES]  # type: ignore[list-item]


def reply(dialect: DialectName, usage: object) -> bytes:
    """A whole answer of a hundred words."""
    said = {"type": "output_text", "text": WORDS, "annotations": []}
    item = {"type": "message", "id": "i", "role": "assistant", "status": "completed"}
    shapes: dict[str, dict[str, Any]] = {
        "openai_chat": {
            "object": "chat.completion",
            "created": 1,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": WORDS},
                }
            ],
        },
        "openai_completions": {
            "choices": [{"index": 0, "finish_reason": "stop", "text": WORDS}],
        },
        "anthropic_messages": {
            "type": "message",
            "role": "assistant",
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "content": [{"type": "text", "text": WORDS}],
        },
        "openai_responses": {
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "output": [item | {"content": [said]}],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        },
    }
    return json.dumps({"id": "x", "model": "m"} | shapes[dialect] | {"usage": usage}).encode()


def stream(dialect: DialectName, usage: object) -> bytes:
    """The same in pieces, with the usage wherever the dialect says it."""
    if dialect == "anthropic_messages":
        opened: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
        }
        opened |= {"content": [], "stop_reason": None, "stop_sequence": None}
        ended = {"stop_reason": "end_turn", "stop_sequence": None}
        return (
            sse("message_start", message=opened | {"usage": usage})
            + block_start(0, type="text", text="")
            + block_delta(0, type="text_delta", text=WORDS)
            + block_stop(0)
            + sse("message_delta", delta=ended, usage=usage)
            + MESSAGE_STOP
        )
    if dialect == "openai_responses":
        whole = json.loads(reply(dialect, usage))
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        return (
            sse("response.created", response=begun)
            + sse("response.output_text.delta", output_index=0, content_index=0, delta=WORDS)
            + sse("response.completed", response=whole)
        )
    if dialect == "openai_completions":
        choice = {"index": 0, "text": WORDS, "finish_reason": "stop"}
        said = f"data: {json.dumps({'id': 'x', 'choices': [choice]})}\n\n".encode()
        return said + chunk(None, usage=usage) + DONE
    return chunk({"content": WORDS}) + chunk({}, "stop") + chunk(None, usage=usage) + DONE


def request_of(dialect: DialectName, **fields: Any) -> ChatRequest:
    if dialect == "openai_chat":
        return chat(**fields)
    if dialect == "anthropic_messages":
        return messages(**fields)
    key = "prompt" if dialect == "openai_completions" else "input"
    raw = json.dumps({"model": "m", key: "Hi", **fields}).encode()
    return DIALECTS[dialect].decode_request(raw, "req_1")


def counted(completion: Completion, request: ChatRequest) -> Any:
    """The usage that the pipeline books."""
    return usage_of(completion, request, "")


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@pytest.mark.parametrize("flaw", ["none", 7, [], *({"both": each} for each in NO_COUNTS)])
def test_rule_42_usage_that_is_none_is_estimated_and_the_answer_given(
    dialect: DialectName, flaw: Any
) -> None:
    read, written = NAMES[dialect]
    both = isinstance(flaw, dict)
    usage = {read: flaw["both"], written: flaw["both"]} if both else flaw
    completion = DIALECTS[dialect].decode_reply(reply(dialect, usage))
    booked = counted(completion, request_of(dialect))
    assert completion.text == WORDS
    assert booked.estimated
    assert booked.input_tokens > 0
    assert 90 < booked.output_tokens < 120

    events = decoded(dialect, stream(dialect, usage))
    assert "".join(d.text for e in events for d in e.deltas if d.kind == "text") == WORDS
    booked = charged(events)
    assert booked.estimated
    assert booked.input_tokens == INPUT_ESTIMATE
    assert 90 < booked.output_tokens < 120


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@pytest.mark.parametrize("flaw", NO_COUNTS)
def test_of_usage_that_is_sound_in_part_that_part_counts(dialect: DialectName, flaw: Any) -> None:
    read, written = NAMES[dialect]
    inner = {
        "openai_responses": {"input_tokens_details": {"cached_tokens": flaw}},
        "anthropic_messages": {"cache_creation": {"ephemeral_1h_input_tokens": flaw}},
    }.get(dialect, {"prompt_tokens_details": {"cached_tokens": flaw}})
    for usage, known in (
        ({read: 31, written: flaw}, ("input_tokens", 31)),
        ({read: flaw, written: 105}, ("output_tokens", 105)),
        ({read: 31, written: 105, **inner}, ("output_tokens", 105)),
    ):
        completion = DIALECTS[dialect].decode_reply(reply(dialect, usage))
        whole = counted(completion, request_of(dialect))
        streamed = charged(decoded(dialect, stream(dialect, usage)))
        for booked in (whole, streamed):
            assert booked.estimated
            assert getattr(booked, known[0]) == known[1]
            assert min(booked.input_tokens, booked.output_tokens) > 0


@pytest.mark.parametrize("flaw", ["none", {"a": -1}, *NO_COUNTS])
def test_clients_of_the_same_dialect_are_told_the_estimate_instead(flaw: Any) -> None:
    kinds: dict[DialectName, Any] = {
        "openai_chat": ChatCompletion,
        "anthropic_messages": Message,
        "openai_responses": Response,
    }
    for dialect, kind in kinds.items():
        read, written = NAMES[dialect]
        adapter = DIALECTS[dialect]
        request = request_of(adapter.name)
        usage = flaw if flaw == "none" else {read: 31, written: flaw}
        completion = adapter.decode_reply(reply(adapter.name, usage))
        booked = counted(completion, request)
        told = adapter.encode_reply(
            Completion(
                **{n: getattr(completion, n) for n in Completion.__struct_fields__}
                | {"usage": booked}
            ),
            adapter.name,
            request,
        )
        answer = kind.model_validate_json(told, strict=True)
        assert getattr(answer.usage, written) == booked.output_tokens


@pytest.mark.parametrize("flaw", ["none", {}, None, -1, {"input_tokens": "3"}])
def test_a_messages_stream_opens_with_a_usage_its_client_can_add_to(flaw: Any) -> None:
    told = recoded("anthropic_messages", stream("anthropic_messages", flaw), messages(stream=True))
    with (
        anthropic_client(told, content_type="text/event-stream") as client,
        client.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
        ) as events,
    ):
        message = events.get_final_message()
    assert message.content[0].model_dump()["text"] == WORDS
    assert 90 < message.usage.output_tokens < 130


@pytest.mark.parametrize("flaw", ["none", {}, -1, {"prompt_tokens": "3", "completion_tokens": 5}])
def test_a_chat_stream_says_one_usage_that_can_be_read(flaw: Any) -> None:
    request = chat(stream=True, stream_options={"include_usage": True})
    told = recoded("openai_chat", stream("openai_chat", flaw), request)
    datas = [event.data for event in Splitter().feed(told) if event.data not in {None, b"[DONE]"}]
    chunks = [ChatCompletionChunk.model_validate_json(data or b"") for data in datas]
    usages = [each.usage for each in chunks if each.usage is not None]
    assert len(usages) == 1
    assert usages[0].prompt_tokens == INPUT_ESTIMATE
    assert usages[0].completion_tokens > 0


@pytest.mark.parametrize("flaw", ["none", 7, *({"prompt_tokens": each} for each in NO_COUNTS)])
def test_embeddings_are_given_however_their_tokens_are_counted(flaw: Any) -> None:
    vectors = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [1.0]}]}
    dialect = DIALECTS["openai_embeddings"]
    completion = dialect.decode_reply(json.dumps(vectors | {"model": "m", "usage": flaw}).encode())
    assert counted(completion, request_of("openai_embeddings")).input_tokens > 0
    assert completion.usage.estimated


@pytest.mark.parametrize(("given", "vectors"), [("one", 2), (["one"], 3), (["one", "two"], 1)])
def test_more_or_fewer_vectors_than_texts_are_no_answer(given: Any, vectors: int) -> None:
    """Whoever pairs them with his texts would pair them wrongly."""
    dialect = DIALECTS["openai_embeddings"]
    vector = {"object": "embedding", "embedding": [1.0]}
    numbered = [vector | {"index": at} for at in range(vectors)]
    whole = {"object": "list", "data": numbered, "model": "m"}
    completion = dialect.decode_reply(json.dumps(whole).encode())
    asked = json.dumps({"model": "m", "input": given}).encode()
    request = dialect.decode_request(asked, "req_1")
    with pytest.raises(UpstreamMalformed):
        dialect.encode_reply(completion, "openai_embeddings", request)


DETAILS: list[tuple[dict[str, Any], Usage]] = [
    ({"input_tokens": 5}, Usage(input_tokens=5)),
    ({"output_tokens": 5}, Usage(output_tokens=5)),
    (
        {"input_tokens": 5, "input_tokens_details": {}, "output_tokens_details": {}},
        Usage(input_tokens=5),
    ),
]


@pytest.mark.parametrize(("said", "meant"), DETAILS)
def test_what_a_response_does_not_count_is_none_of_it(said: dict[str, Any], meant: Usage) -> None:
    raw = json.dumps({"object": "response", "output": [], "usage": said}).encode()
    assert DIALECTS["openai_responses"].decode_reply(raw).usage == meant
