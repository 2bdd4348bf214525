"""What was lost or refused is named as its caller named it, whichever words the hub has for it."""

import json

import pytest

from gateway.answers.checks import is_unenforced
from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported
from gateway.types import ChatRequest
from tests.conformance.test_rules_of_responses import responses
from tests.gateway.dialects.samples import chat, messages, target, to_openai


def test_a_field_that_its_caller_calls_as_the_hub_does_keeps_its_name() -> None:
    request = messages(stop=["END"], top_k=5)

    _, dropped = to_openai(request)

    assert dropped == {"stop", "top_k"}, "`stop` is no word of messages, so nobody knows it"


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (chat(stop=["END"]), "stop"),
        (messages(stop_sequences=["END"]), "stop_sequences"),
        (chat(max_tokens=1), "max_tokens"),
        (chat(max_completion_tokens=1), "max_completion_tokens"),
        (messages(max_tokens=1), "max_tokens"),
    ],
)
def test_a_refusal_names_and_begins_with_the_callers_own_field(
    request_: ChatRequest, told: str
) -> None:
    limit = request_.max_output_tokens or 1000
    with pytest.raises(FeatureUnsupported) as caught:
        DIALECTS["openai_responses"].encode_request(request_, target(), limit)

    assert caught.value.parameter == told
    assert caught.value.message.startswith(f"{told}: ")


def test_of_two_ways_to_say_it_the_one_that_was_used_is_named() -> None:
    for asked, told in (
        ({"output_config": {"effort": "low"}}, {"output_config.effort"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking"}),
    ):
        assert to_openai(messages(**asked))[1] == told
    text = {"type": "text", "text": "Hi"}
    for mark in ("prompt_cache_breakpoint", "cache_control"):
        marked = {**text, mark: {"type": "ephemeral", "mode": "explicit"}}
        request = chat(messages=[{"role": "user", "content": [marked]}])
        dropped = DIALECTS["openai_responses"].encode_request(request, target(), 100).dropped
        assert dropped == (mark,)


def test_a_format_that_nobody_keeps_to_is_looked_at_whoever_asked_for_it() -> None:
    """What is lost of it begins otherwise in each dialect."""
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}}
    named = {"type": "json_schema", "name": "s", "schema": schema}
    asked = responses(text={"format": named})

    upstream = DIALECTS["anthropic_messages"].encode_request(asked, target("json_schema"), 100)

    assert upstream.dropped == ("text.format.schema.minimum",)
    assert json.loads(upstream.body)["output_config"]["format"]["type"] == "json_schema"
    assert is_unenforced(upstream.dropped)
