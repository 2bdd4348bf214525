"""Items of responses that nobody here reads: passed on as they are, but not unseen."""

import json
from typing import Any

import pytest
from msgspec import structs

from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported, UpstreamMalformed
from gateway.thread import Thread
from gateway.types import ChatRequest
from tests.gateway.dialects.samples import ANTHROPIC, OPENAI, chat, recoded, target


RESPONSES = DIALECTS["openai_responses"]
PICTURE = "data:image/png;base64," + "A" * 4000
SHELL = {
    "type": "shell_call_output",
    "call_id": "call_a",
    "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
}


def screenshot(**image: str) -> dict[str, Any]:
    output = {"type": "computer_screenshot", **image}
    return {"type": "computer_call_output", "call_id": "call_a", "output": output}


def asked(*items: dict[str, Any]) -> ChatRequest:
    body = {"model": "m", "input": [{"role": "user", "content": "Look."}, *items]}
    return RESPONSES.decode_request(json.dumps(body).encode(), "req_1")


def test_rule_55_what_a_shell_or_a_computer_gave_back_goes_on_byte_for_byte() -> None:
    request = asked(SHELL, screenshot(image_url=PICTURE))
    sent = json.loads(RESPONSES.encode_request(request, target(), 1000).body)
    assert sent["input"] == request.tree["input"]


def test_rule_8_they_are_refused_where_the_target_speaks_another_dialect() -> None:
    for dialect in (OPENAI, ANTHROPIC):
        with pytest.raises(FeatureUnsupported, match=r"^input\[1\]\.type: .*rule 8"):
            dialect.encode_request(asked(screenshot(image_url=PICTURE)), target(), 1000)


def test_a_screenshot_counts_as_an_image_and_not_as_text() -> None:
    shown, said = asked(screenshot(image_url=PICTURE)), asked(SHELL)
    assert (shown.has_images, said.has_images) == (True, False)
    assert shown.input_tokens_estimate < len(PICTURE) // 2
    assert shown.destinations == ()


def test_the_address_of_a_screenshot_is_asked_about_like_any_other() -> None:
    request = asked(SHELL, screenshot(image_url="https://a.example/b.png"))
    assert request.destinations == (("input[2].output.image_url", "https://a.example/b.png"),)


def event(item: dict[str, Any]) -> bytes:
    tree = {"type": "response.output_item.added", "output_index": 0, "item": item}
    return b"event: response.output_item.added\ndata: " + json.dumps(tree).encode() + b"\n\n"


def test_an_answer_with_such_items_is_no_broken_one() -> None:
    (found,) = RESPONSES.stream_decoder().feed(event(SHELL))
    assert (found.has_content, [delta.kind for delta in found.deltas]) == (True, ["opaque"])
    whole = {"object": "response", "id": "resp_1", "model": "m", "output": [SHELL]}
    completion = RESPONSES.decode_reply(json.dumps(whole).encode())
    assert json.loads(RESPONSES.encode_reply(completion, "openai_responses", asked()))[
        "output"
    ] == [SHELL]
    assert OPENAI.encode_reply(completion, "openai_responses", chat())


SEARCHED = {
    "type": "file_search_call",
    "id": "fs_1",
    "queries": ["a"],
    "status": "completed",
    "results": [{"file_id": "f", "text": "a", "attributes": {"response": "late"}}],
}


def test_an_item_that_has_a_response_in_it_is_not_taken_for_the_whole_response() -> None:
    whole = {"object": "response", "id": "resp_up", "model": "m", "status": "completed"}
    pieces: list[dict[str, Any]] = [
        {"type": "response.created", "response": whole | {"status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": SEARCHED},
        {"type": "response.output_item.done", "output_index": 0, "item": SEARCHED},
        {"type": "response.completed", "response": whole | {"output": [SEARCHED]}},
    ]
    stream = [
        b"event: %b\ndata: %b\n\n"
        % (str(piece["type"]).encode(), json.dumps(piece, separators=(",", ":")).encode())
        for piece in pieces
    ]
    body = {"model": "m", "input": "Look.", "stream": True}
    request = RESPONSES.decode_request(json.dumps(body).encode(), "req_1")
    request = structs.replace(request, thread=Thread())
    told = recoded("openai_responses", b"".join(stream), request)
    assert stream[1] + stream[2] in told
    assert b"resp_up" not in told


@pytest.mark.parametrize("item", [{}, {"type": 7}, {"type": "message", "content": 7}])
def test_an_item_that_is_none_is_malformed(item: dict[str, Any]) -> None:
    with pytest.raises(UpstreamMalformed):
        RESPONSES.stream_decoder().feed(event(item))
    whole = {"object": "response", "output": [item]}
    with pytest.raises(UpstreamMalformed):
        RESPONSES.decode_reply(json.dumps(whole).encode())


def test_a_delta_of_another_shape_is_only_wrong_where_we_read_it() -> None:
    for kind, is_read in (
        ("response.output_text.delta", True),
        ("response.shell_call_output_content.delta", False),
    ):
        data = json.dumps({"type": kind, "delta": {"stdout": "a"}}).encode()
        decoder = RESPONSES.stream_decoder()
        raw = b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
        if is_read:
            with pytest.raises(UpstreamMalformed):
                decoder.feed(raw)
        else:
            assert decoder.feed(raw)[0].raw == raw
