"""What an answer cites, looked up, ran or said of itself is masked and put back like its words."""

from typing import Any

import msgspec
import pytest

from gateway.dialects.registry import DIALECTS
from gateway.types import DialectName
from tests.gateway.veiling.test_asides import DONE, block_delta, chunk, lifted, read_again
from tests.gateway.veiling.test_output_scan import VALUES, event, output_scan
from tests.gateway.veiling.test_veil import veil_of


CARD = VALUES["CREDIT_CARD"]
MASK = "[REDACTED:CREDIT_CARD]"
CITED = {"type": "url_citation", "url": f"https://x.invalid/?q={CARD}", "title": CARD}

IN_CHAT: list[dict[str, Any]] = [
    {"annotations": [{"type": "url_citation", "url_citation": {"title": CARD, "content": CARD}}]},
    {
        "annotations": [
            {"type": "url_citation", "url_citation": {"url": f"https://x.invalid/{CARD}"}}
        ]
    },
    {"audio": {"id": "a", "transcript": CARD}},
    {"function_call": {"name": "f", "arguments": f'{{"to": "{CARD}"}}'}},
    {"reasoning_details": [{"type": "reasoning.summary", "summary": CARD}]},
    {"tool_calls": [{"index": 0, "id": "c", "type": "hologram", "hologram": {"input": CARD}}]},
]
IN_MESSAGES: list[dict[str, Any]] = [
    {"type": "text", "text": "", "citations": [{"document_title": CARD, "cited_text": CARD}]},
    {"type": "text", "text": "", "citations": [{"title": CARD, "source": CARD, "url": CARD}]},
    {"type": "web_search_tool_result", "content": [{"type": "web_search_result", "title": CARD}]},
    {
        "type": "web_fetch_tool_result",
        "content": {
            "content": {"type": "document", "title": CARD, "source": {"type": "text", "data": CARD}}
        },
    },
    {"type": "bash_code_execution_tool_result", "content": {"stdout": CARD, "stderr": CARD}},
    {"type": "text_editor_code_execution_tool_result", "content": {"lines": ["a", CARD]}},
    {"type": "mcp_tool_result", "content": [{"type": "text", "text": CARD}]},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": CARD}},
    {"type": "compaction", "content": CARD},
    {"type": "hologram", "text": [CARD], "input": {"any": {"where": CARD}}},
]
IN_RESPONSES: list[dict[str, Any]] = [
    {"type": "web_search_call", "action": {"type": "search", "query": CARD, "queries": [CARD]}},
    {"type": "web_search_call", "action": {"type": "find", "pattern": CARD, "sources": [CITED]}},
    {
        "type": "file_search_call",
        "queries": [CARD],
        "results": [{"text": CARD, "filename": CARD, "attributes": {"owner": CARD, CARD: 1}}],
    },
    {"type": "code_interpreter_call", "code": CARD, "outputs": [{"type": "logs", "logs": CARD}]},
    {"type": "mcp_call", "arguments": CARD, "output": CARD, "error": CARD},
    {"type": "local_shell_call", "action": {"command": ["cat", CARD], "env": {"CARD": CARD}}},
    {"type": "shell_call_output", "output": [{"stdout": CARD, "stderr": CARD}]},
    {"type": "apply_patch_call", "operation": {"path": CARD, "diff": CARD}},
    {"type": "computer_call", "pending_safety_checks": [{"message": CARD}]},
    {"type": "image_generation_call", "result": "aGk=", "revised_prompt": CARD},
    {"type": "tool_search_call", "arguments": {"query": CARD, "deep": {"er": CARD}}},
    {
        "type": "message",
        "content": [
            {"type": "output_text", "text": "", "annotations": [CITED, {"filename": CARD}]}
        ],
    },
]
WHOLE: list[dict[str, Any]] = [
    *({"choices": [{"message": {"content": "", **each}}]} for each in IN_CHAT),
    {
        "choices": [{"message": {"content": "Hi"}}],
        "search_results": [{"title": CARD, "snippet": CARD}],
    },
    *({"type": "message", "content": [each]} for each in IN_MESSAGES),
    {"type": "message", "content": [], "stop_details": {"type": "refusal", "explanation": CARD}},
    *({"object": "response", "output": [each]} for each in IN_RESPONSES),
]


def streamed() -> list[tuple[DialectName, bytes]]:
    """Each of them as an event of a stream."""
    blocks = (event("content_block_start", index=0, content_block=each) for each in IN_MESSAGES)
    items = (event("response.output_item.done", output_index=0, item=each) for each in IN_RESPONSES)
    delta = {"stop_reason": "refusal", "stop_details": {"explanation": CARD}}
    annotated = event("response.output_text.annotation.added", annotation=CITED)
    return [
        *(("openai_chat", chunk(each)) for each in IN_CHAT),
        *(("openai_chat", chunk({"content": "Hi", **each})) for each in IN_CHAT),
        *(("anthropic_messages", each) for each in blocks),
        ("anthropic_messages", block_delta(type="citations_delta", citation={"title": CARD})),
        ("anthropic_messages", event("message_delta", delta=delta)),
        *(("openai_responses", each) for each in items),
        ("openai_responses", annotated),
        ("openai_responses", event("response.code_interpreter_call_code.done", code=CARD)),
    ]


@pytest.mark.parametrize("tree", WHOLE)
def test_what_stands_beside_the_words_of_a_whole_answer_is_masked(tree: dict[str, Any]) -> None:
    raw = msgspec.json.encode(tree)
    output = output_scan()
    made = output.unveiled(raw)
    assert CARD.encode() not in made
    assert made.count(MASK.encode()) == raw.count(CARD.encode())
    assert output.found == {"CREDIT_CARD": raw.count(CARD.encode())}
    counted = output_scan(None)
    assert counted.unveiled(raw) == raw
    assert counted.found == output.found


@pytest.mark.parametrize(("dialect", "raw"), streamed())
def test_what_stands_beside_the_words_of_a_stream_is_masked(
    dialect: DialectName, raw: bytes
) -> None:
    ended = [chunk({}, finish_reason="stop"), DONE] if dialect == "openai_chat" else []
    events = lifted(dialect, output_scan().lifted(), [raw, *ended])
    told = b"".join(each.raw for each in events)
    assert CARD.encode() not in told
    assert MASK.encode() in told
    if dialect == "openai_chat" and b'"Hi"' in raw:
        assert read_again(dialect, events) == "Hi"


@pytest.mark.parametrize("field", ["function_call", "audio"])
def test_what_older_and_spoken_answers_say_piece_by_piece_is_masked_across_pieces(
    field: str,
) -> None:
    key = {"function_call": "arguments", "audio": "transcript"}[field]
    text = f'{{"to": "{CARD}"}}'
    pieces = [chunk({field: {key: letter}}) for letter in text]
    output = output_scan()
    events = lifted(
        "openai_chat", output.lifted(), [*pieces, chunk({}, finish_reason="stop"), DONE]
    )
    told = [msgspec.json.decode(e.raw[6:]) for e in events if e.raw[6:7] == b"{"]
    said = [each["choices"][0]["delta"].get(field, {}).get(key, "") for each in told]
    assert "".join(said) == f'{{"to": "{MASK}"}}'
    assert output.found == {"CREDIT_CARD": 1}
    assert any(each.has_content for each in events)


def test_words_of_an_unknown_block_are_masked_across_its_pieces() -> None:
    block = event("content_block_start", index=0, content_block={"type": "hologram"})
    pieces = [block_delta(type="hologram_delta", text=letter) for letter in f"It is {CARD} ."]
    ended = event("message_delta", delta={"stop_reason": "end_turn"})
    ends = [event("content_block_stop", index=0), ended, event("message_stop")]
    raw = [block, *pieces, *ends]
    events = lifted("anthropic_messages", output_scan().lifted(), raw)
    told = [msgspec.json.decode(e.raw.partition(b"data: ")[2]) for e in events]
    assert "".join(e.get("delta", {}).get("text", "") for e in told) == f"It is {MASK} ."


def test_a_quote_that_a_stream_says_again_at_its_end_is_counted_once() -> None:
    item = {"type": "file_search_call", "queries": ["who"], "results": [{"filename": CARD}]}
    whole = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": [item]}
    raw = [
        event("response.output_item.done", output_index=0, item=item),
        event("response.completed", response=whole),
    ]
    output = output_scan(None)
    events = lifted("openai_responses", output.lifted(), raw)
    assert b"".join(each.raw for each in events) == b"".join(raw)
    assert output.found == {"CREDIT_CARD": 1}


def test_neither_tokens_in_numbers_nor_sound_say_what_is_masked() -> None:
    spoken = {"id": "a", "data": "UklGRg==", "transcript": CARD, "expires_at": 1}
    choice = {"token_ids": [1, 2, 3], "message": {"content": None, "audio": spoken}}
    made = msgspec.json.decode(output_scan().unveiled(msgspec.json.encode({"choices": [choice]})))
    assert made["choices"][0]["token_ids"] == []
    assert made["choices"][0]["message"]["audio"] == {**spoken, "data": "", "transcript": MASK}
    (piece,) = lifted("openai_chat", output_scan().lifted(), [chunk({"audio": {"data": "UklG"}})])
    assert b"UklG" not in piece.raw
    part = {"type": "output_audio", "data": "UklG", "transcript": CARD}
    raw = msgspec.json.encode({"object": "response", "output": [{"content": [part]}]})
    made = msgspec.json.decode(output_scan().unveiled(raw))["output"][0]["content"][0]
    assert made == {"type": "output_audio", "data": "", "transcript": MASK}
    for kind in ("response.audio.delta", "response.output_audio.delta"):
        told = lifted("openai_responses", output_scan().lifted(), [event(kind, delta="UklG")])
        assert b"".join(each.raw for each in told).endswith(b'"delta":""}\n\n')


def test_an_escape_in_a_name_hides_no_tokens() -> None:
    token = {"token": "4111", "logprob": -0.1}
    raw = chunk({"content": "Hi "}, logprobs={"content": [token]}).replace(
        b"logprobs", b"logprob\\u0073"
    )
    (piece,) = lifted("openai_chat", output_scan().lifted(), [raw])
    assert b"4111" not in piece.raw


def test_what_a_response_repeats_of_its_request_is_left_to_its_caller() -> None:
    tools = [{"type": "function", "name": "pay", "parameters": {"title": CARD}}]
    told = [{**tools[0], "strict": True}, {"type": "mcp", "server_label": f"shelf {CARD}"}]
    raw = msgspec.json.encode({"object": "response", "output": [], "tools": told})
    made = msgspec.json.decode(output_scan(asked={"tools": tools}).unveiled(raw))
    assert made["tools"] == [told[0], {"type": "mcp", "server_label": f"shelf {MASK}"}]


def test_an_image_is_not_read_as_text() -> None:
    digits = CARD.replace(" ", "")
    url = f"data:image/png;base64,iVBORw0KGgo{'A' * 64}/{digits}/"
    raw = msgspec.json.encode({"choices": [{"message": {"images": [{"image_url": {"url": url}}]}}]})
    assert output_scan().unveiled(raw) == raw


def test_names_are_put_back_beside_words_too() -> None:
    veil = veil_of("openai_chat")
    name = veil.names.replacements["Ingrid Halvorsen"]
    cited = {"type": "url_citation", "url_citation": {"title": f"About {name}", "content": name}}
    raw = [chunk({"content": "Read this. ", "annotations": [cited]}, finish_reason="stop"), DONE]
    told = b"".join(each.raw for each in lifted("openai_chat", veil.lifted(), raw))
    assert told.count(b"Ingrid Halvorsen") == 2
    assert name.encode() not in told


def test_an_event_that_says_its_words_and_nothing_else_keeps_its_bytes() -> None:
    decoder, lift = DIALECTS["openai_chat"].stream_decoder(), output_scan().lifted()
    raw = b'data: {"id":"c", "model": "m","choices":[{"index":0, "delta":{"content":"Hi "}}]}\n\n'
    assert b"".join(e.raw for found in decoder.feed(raw) for e in lift.events([found])) == raw
