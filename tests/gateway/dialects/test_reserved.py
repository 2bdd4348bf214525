"""What would be an order to an upstream is in no body, whichever dialect says it."""

import json
from typing import Any

import pytest

from gateway.dialects.bodies.other_letters import WORDS
from gateway.dialects.bodies.reserved import NAMES
from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported, RequestInvalid
from gateway.types import ChatRequest
from tests.gateway.dialects.samples import chat


SAID: dict[Any, dict[str, Any]] = {
    "openai_chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "openai_completions": {"prompt": "Hi"},
    "openai_embeddings": {"input": "Hi"},
    "openai_responses": {"input": "Hi"},
    "anthropic_messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
}
ORDERS: dict[str, tuple[str, object]] = {
    "a template": ("chat_template", "{{ messages }}"),
    "a template as an argument": ("chat_template_kwargs.chat_template", "{{ messages }}"),
    "other messages": ("chat_template_kwargs.messages", [{"role": "user", "content": "Other"}]),
    "a template in Dynamo's word": ("chat_template_args.chat_template", "{{ messages }}"),
    "code by name": ("logits_processors", ["os.system"]),
    "code": ("custom_logit_processor", "gASVKgAAAA"),
    "numbers for text": ("input_ids", [1, 2, 3]),
    "vectors for text": ("prompt_embeds", "AAAA"),
    "another's session": ("session_params", {"id": "theirs"}),
    "another's request": ("rid", "theirs"),
    "who serves it": ("provider", {"only": ["elsewhere"]}),
    "a plugin": ("plugins", [{"id": "web"}]),
    "a preset": ("preset", "theirs"),
    "an adapter": ("lora_path", "another-model"),
    "a search": ("search_parameters", {"mode": "on"}),
    "an address": ("api_base", "http://169.254.169.254"),
    "a replica": ("bootstrap_host", "169.254.169.254"),
    "a cache": ("vllm_xargs.kv_transfer_params", "h"),
    "what is merged into it": ("extra_body", {"models": ["another-model"]}),
}


def _decoded(dialect: Any, body: dict[str, Any]) -> ChatRequest:
    whole = json.dumps({"model": "m"} | SAID[dialect] | body).encode()
    return DIALECTS[dialect].decode_request(whole, "req_1", [])


def _holding(place: str, value: object) -> dict[str, Any]:
    name, _, inner = place.partition(".")
    return {name: {inner: value} if inner else value}


@pytest.mark.parametrize("dialect", SAID)
@pytest.mark.parametrize(("place", "value"), ORDERS.values(), ids=ORDERS)
def test_no_body_gives_an_order_to_an_upstream(dialect: Any, place: str, value: object) -> None:
    with pytest.raises(FeatureUnsupported) as refusal:
        _decoded(dialect, _holding(place, value))
    assert refusal.value.parameter == place
    assert "169.254" not in str(refusal.value)
    assert _decoded(dialect, _holding(place, None)).model == "m"


@pytest.mark.parametrize("dialect", SAID)
def test_variables_of_a_template_are_the_callers_own(dialect: Any) -> None:
    thinking = {"enable_thinking": False, "reasoning_effort": "low", "documents": [{"text": "T"}]}
    body = {"chat_template_kwargs": thinking, "vllm_xargs": {"steps": 3}, "enable_search": False}
    assert _decoded(dialect, body).tree["chat_template_kwargs"] == thinking


def test_none_of_them_can_be_said_in_other_letters() -> None:
    assert NAMES <= WORDS


def test_a_format_is_said_in_no_other_letters() -> None:
    """Its older name is read, too: see rule 33."""
    form = {"type": "json_schema", "schema": {"type": "object"}}
    assert _decoded("anthropic_messages", {"output_format": form}).wants_json_schema
    with pytest.raises(RequestInvalid, match="output_format"):
        _decoded("anthropic_messages", {"Output_Format": form})


def test_messages_know_servers_and_fallbacks_by_themselves() -> None:
    server = {"type": "url", "url": "https://a.example", "name": "a"}
    body = {"mcp_servers": [server], "fallbacks": [{"model": "n"}]}
    request = _decoded("anthropic_messages", body)
    assert request.destinations == (("mcp_servers[0].url", "https://a.example"),)
    assert "fallbacks" in request.dropped


@pytest.mark.parametrize("dialect", ["openai_completions", "openai_embeddings"])
def test_no_chat_is_hidden_beside_a_text(dialect: Any) -> None:
    image = {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}
    with pytest.raises(FeatureUnsupported) as refusal:
        _decoded(dialect, {"messages": [{"role": "user", "content": [image]}]})
    assert refusal.value.parameter == "messages"


INLINE = "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    ("part", "below"),
    [
        ({"type": "image_url", "image_url": {"url": INLINE}, "uuid": "theirs"}, "uuid"),
        ({"type": "video_url", "video_url": None, "uuid": "theirs"}, "uuid"),
        (
            {"type": "image_url", "image_url": {"url": INLINE, "content_hash": "ab"}},
            "image_url.content_hash",
        ),
    ],
)
def test_no_part_is_taken_from_what_an_upstream_holds(part: dict[str, Any], below: str) -> None:
    with pytest.raises(FeatureUnsupported) as refusal:
        chat(messages=[{"role": "user", "content": [part]}])
    assert refusal.value.parameter == f"messages[0].content[0].{below}"


@pytest.mark.parametrize("kind", ["text", "refusal"])
@pytest.mark.parametrize(
    "beside",
    [
        {"image_url": {"url": INLINE}},
        {"Image_URL": INLINE},
        {"video_url": {"url": "http://169.254.169.254/"}},
        {"input_audio": {"data": "AAAA", "format": "wav"}},
        {"file": {"file_data": INLINE}},
        {"uuid": "theirs"},
    ],
)
def test_a_part_of_words_brings_nothing_beside_them(kind: str, beside: dict[str, Any]) -> None:
    ((name, _),) = beside.items()
    part = {"type": kind, kind: "Hi", "cache_control": {"type": "ephemeral"}}
    words = [{"role": "assistant", "content": [part]}]
    assert chat(messages=words).destinations == ()
    assert chat(messages=[words[0] | {"content": [part | {name: None}]}]).destinations == ()
    with pytest.raises(FeatureUnsupported) as refusal:
        chat(messages=[words[0] | {"content": [part | beside]}])
    assert refusal.value.parameter == f"messages[0].content[0].{name}"
