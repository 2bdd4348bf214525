"""No part and no tool of a chat names a place that an upstream would fetch from or call."""

import json
from typing import Any

import pytest

from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported
from tests.gateway.dialects.samples import chat


ADDRESS = "http://169.254.169.254/latest"
INLINE = "data:video/mp4;base64,AAAA"
IN_PARTS: dict[str, tuple[dict[str, Any], str]] = {
    "an image": ({"type": "image_url", "image_url": {"url": ADDRESS}}, ".image_url"),
    "a video": ({"type": "video_url", "video_url": {"url": ADDRESS}}, ".video_url"),
    "a video in short": ({"type": "video_url", "video_url": ADDRESS}, ".video_url"),
    "a sound": ({"type": "audio_url", "audio_url": {"url": ADDRESS}}, ".audio_url"),
    "a sound's bytes": ({"type": "input_audio", "input_audio": {"data": ADDRESS}}, ""),
    "a file": ({"type": "file", "file": {"file_data": ADDRESS}}, ".file"),
    "a file by another word": ({"type": "file", "file": {"file_url": ADDRESS}}, ".file"),
    "a file of the machine": ({"type": "video", "video": "file:///etc/passwd"}, ""),
    "a part of Messages": ({"type": "image", "source": {"type": "url", "url": ADDRESS}}, ""),
    "a list": ({"type": "images", "images": [{"uri": ADDRESS}]}, ""),
    "another kind with an image": ({"type": "Text", "image_url": {"url": ADDRESS}}, ".image_url"),
    "other letters": (
        {"type": "image_url", "image_url": {"url": INLINE, "URL": ADDRESS}},
        ".image_url",
    ),
}


@pytest.mark.parametrize(("part", "below"), IN_PARTS.values(), ids=IN_PARTS)
def test_an_address_in_a_part_of_any_kind_is_seen(part: dict[str, Any], below: str) -> None:
    words = {"type": "text", "text": f"Is {ADDRESS} reachable?"}
    request = chat(messages=[{"role": "user", "content": [words, part]}])
    ((place, address),) = request.destinations
    assert place == f"messages[0].content[1]{below}"
    assert address in json.dumps(part)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": INLINE, "detail": "low"}},
        {"type": "video_url", "video_url": {"url": "DATA:video/mp4;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"file_data": INLINE, "filename": "C:/a.pdf"}},
        {"type": "input_text", "text": ADDRESS},
    ],
)
def test_what_is_sent_inline_names_no_place(part: dict[str, Any]) -> None:
    assert chat(messages=[{"role": "user", "content": [part]}]).destinations == ()


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "mcp", "server_url": ADDRESS},
        {"type": "mcp", "server": {"url": ADDRESS}},
        {"type": "function", "function": {"name": "f"}, "server_url": ADDRESS},
    ],
)
def test_a_server_of_a_tool_is_seen_and_a_function_s_schema_is_its_own(
    tool: dict[str, Any],
) -> None:
    schema = {"type": "object", "properties": {"url": {"type": "string", "default": ADDRESS}}}
    own = {"type": "function", "function": {"name": "fetch", "parameters": schema}}
    ((place, address),) = chat(tools=[own, tool]).destinations
    assert place.startswith("tools[1]")
    assert address == ADDRESS


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_completions"])
@pytest.mark.parametrize("name", ["models", "fallbacks", "mcp_servers", "data_sources"])
def test_no_other_model_and_no_server_is_asked_in_the_place_of_the_target(
    dialect: Any, name: str
) -> None:
    chat_messages = {"messages": [{"role": "user", "content": "Hi"}]}
    said = chat_messages if dialect == "openai_chat" else {"prompt": "Hi"}
    body = {"model": "m", name: ["another-model"]} | said
    with pytest.raises(FeatureUnsupported) as refusal:
        DIALECTS[dialect].decode_request(json.dumps(body).encode(), "req_1", [])
    assert refusal.value.parameter == name
    unsaid = json.dumps(body | {name: None}).encode()
    assert DIALECTS[dialect].decode_request(unsaid, "req_1", []).model == "m"
