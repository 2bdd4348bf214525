"""Rules of translation about formats of answers, prompt caches, service tiers and end users.

Each test is named after its rule; the table in docs/api.md lists them all.
"""

import json
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gateway.dialects.fitting.answer_tool import ANSWER_TOOL
from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported
from gateway.money.catalogue import cost
from gateway.types import Usage
from tests.conformance.test_rules_of_conversion import (
    USER,
    chat_reply,
    datas,
    message_reply,
    tool,
)
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    MESSAGE_START,
    MESSAGE_STOP,
    MESSAGE_TEXT_STREAM,
    OPENAI,
    block_delta,
    block_start,
    block_stop,
    chat,
    message_delta,
    messages,
    recoded,
    target,
    to_anthropic,
    to_openai,
)


RESPONSES = DIALECTS["openai_responses"]
OLDER: dict[str, Any] = {
    "type": "json_schema",
    "schema": {"type": "object", "properties": {}, "additionalProperties": False},
}


def test_rule_26_only_tiers_that_mean_the_same_cross() -> None:
    assert to_anthropic(chat(service_tier="auto"))[0]["service_tier"] == "auto"
    body, dropped = to_anthropic(chat(service_tier="flex"))
    assert "service_tier" not in body
    assert dropped == {"service_tier"}


@pytest.mark.parametrize("tier", ["default", "flex", "priority", "scale", "fast"])
def test_rule_26_no_other_tier_crosses_in_any_direction(tier: str) -> None:
    body, dropped = to_anthropic(chat(service_tier=tier))
    assert "service_tier" not in body
    assert dropped == {"service_tier"}
    back, lost = to_openai(messages(service_tier="standard_only", speed="fast"))
    assert "service_tier" not in back
    assert lost == {"service_tier", "speed"}


def test_rule_26_the_tier_that_served_is_echoed_in_the_callers_words() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}
    served = chat_reply({"content": "x"}, usage=usage, service_tier="priority")
    whole = OPENAI.decode_reply(served)
    assert whole.usage.service_tier == "priority"
    told = json.loads(ANTHROPIC.encode_reply(whole, "openai_chat", messages()))
    assert told["usage"]["service_tier"] == "priority"

    counted = {"input_tokens": 5, "output_tokens": 9, "service_tier": "standard"}
    said = ANTHROPIC.decode_reply(message_reply({"type": "text", "text": "x"}, usage=counted))
    answer = json.loads(OPENAI.encode_reply(said, "anthropic_messages", chat()))
    assert answer["service_tier"] == "default"

    opening = MESSAGE_TEXT_STREAM.replace(
        b'"input_tokens": 10', b'"service_tier": "priority", "input_tokens": 10', 1
    )
    asked = chat(stream=True, stream_options={"include_usage": True})
    assert datas(recoded("anthropic_messages", opening, asked))[-1]["service_tier"] == "priority"


def test_rule_26_a_tier_that_was_only_asked_for_is_not_echoed() -> None:
    body = {"model": "m", "input": "x", "service_tier": "flex"}
    request = RESPONSES.decode_request(json.dumps(body).encode(), "req_1")
    said = ANTHROPIC.decode_reply(message_reply({"type": "text", "text": "x"}))
    answer = json.loads(RESPONSES.encode_reply(said, "anthropic_messages", request))
    assert answer["service_tier"] is None


def test_rule_26_a_tier_that_the_callers_types_do_not_know_is_billed_and_not_told() -> None:
    counted = {"input_tokens": 5, "output_tokens": 9, "service_tier": "batch"}
    said = ANTHROPIC.decode_reply(message_reply({"type": "text", "text": "x"}, usage=counted))
    assert said.usage.service_tier == "batch"
    assert b"service_tier" not in OPENAI.encode_reply(said, "anthropic_messages", chat())


def test_rule_26_the_tier_that_served_is_billed_and_a_dearer_one_reserved() -> None:
    sold = structs.replace(target().price, priority_percent=200, flex_percent=50)
    plain = Usage(input_tokens=4_000_000, output_tokens=4_000_000)
    for tier, percent in (("default", 100), ("priority", 200), ("flex", 50), ("other", 100)):
        billed = cost(sold, structs.replace(plain, service_tier=tier))
        assert billed == cost(sold, plain) * percent // 100


def test_rule_26_a_tier_whose_price_nobody_knows_is_not_asked_for() -> None:
    managed = structs.replace(target(), in_house=False)
    for asked in (chat(service_tier="priority"), chat(service_tier="scale")):
        with pytest.raises(FeatureUnsupported, match=r"rule 26") as caught:
            OPENAI.encode_request(asked, managed, 100)
        assert caught.value.parameter == "service_tier"
    sold = structs.replace(target().price, priority_percent=200)
    priced = structs.replace(managed, price=sold)
    assert b'"fast"' in OPENAI.encode_request(chat(service_tier="fast"), priced, 100).body
    with pytest.raises(FeatureUnsupported, match="speed"):
        ANTHROPIC.encode_request(messages(speed="fast"), priced, 100)


@pytest.mark.parametrize("place", ["us", "eu", "auto", "other"])
def test_rule_26_a_place_of_inference_without_a_price_is_not_asked_for(place: str) -> None:
    """Anthropic asks a tenth more for one country: it was neither reserved nor billed."""
    with pytest.raises(FeatureUnsupported, match=r"rule 26") as caught:
        ANTHROPIC.encode_request(messages(inference_geo=place), target(), 100)
    assert caught.value.parameter == "inference_geo"
    for anywhere in ("global", None):
        ANTHROPIC.encode_request(messages(inference_geo=anywhere), target(), 100)
    own = structs.replace(target(), in_house=True)
    assert place.encode() in ANTHROPIC.encode_request(messages(inference_geo=place), own, 100).body


def test_rule_26_a_place_of_inference_is_asked_for_where_its_price_is_known() -> None:
    price = structs.replace(target().price, us_percent=110)
    priced = structs.replace(target(), price=price, jurisdiction="us")
    sent = json.loads(ANTHROPIC.encode_request(messages(inference_geo="us"), priced, 100).body)
    assert sent["inference_geo"] == "us"
    for place in ("eu", "other", "not_available", ""):
        with pytest.raises(FeatureUnsupported, match=r"rule 26"):
            ANTHROPIC.encode_request(messages(inference_geo=place), priced, 100)


@pytest.mark.parametrize("jurisdiction", ["eu", "EU", "de", "bank-zone-1", "us", "USA", "america"])
def test_rule_26_nobody_asks_for_inference_outside_of_the_jurisdiction(jurisdiction: str) -> None:
    """Policies clear jurisdictions; a request names no destination."""
    price = structs.replace(target().price, us_percent=110)
    there = structs.replace(target(), price=price, jurisdiction=jurisdiction)
    if jurisdiction.lower().startswith(("us", "america")):
        sent = ANTHROPIC.encode_request(messages(inference_geo="us"), there, 100)
        assert json.loads(sent.body)["inference_geo"] == "us"
        return
    with pytest.raises(FeatureUnsupported, match=r"another jurisdiction \(rule 26\)") as caught:
        ANTHROPIC.encode_request(messages(inference_geo="us"), there, 100)
    assert caught.value.parameter == "inference_geo"


@pytest.mark.parametrize("jurisdiction", ["us", "eu", "bank-zone-1", "global", "World"])
def test_rule_26_nobody_lets_inference_out_of_the_jurisdiction(jurisdiction: str) -> None:
    """A workspace may be bound to one country by default, which a request would have undone."""
    there = structs.replace(target(), jurisdiction=jurisdiction)
    sent = ANTHROPIC.encode_request(messages(inference_geo="global"), there, 100)
    is_everywhere = jurisdiction in {"global", "World"}
    assert ("inference_geo" in json.loads(sent.body)) is is_everywhere
    assert ("inference_geo" in sent.dropped) is not is_everywhere
    own = structs.replace(there, in_house=True)
    kept = ANTHROPIC.encode_request(messages(inference_geo="global"), own, 100)
    assert json.loads(kept.body)["inference_geo"] == "global"


def test_rule_25_another_dialect_is_told_a_keyed_digest_of_its_end_user_and_no_name() -> None:
    digest = "0123456789abcdef0123456789abcdef"
    name = "ann@bank.example"
    for asked in (chat(user=name), chat(safety_identifier=name, metadata={"team": "x"})):
        request = structs.replace(asked, end_user=digest)
        sent = json.loads(ANTHROPIC.encode_request(request, target(), 100).body)
        assert sent["metadata"] == {"user_id": digest}
    request = structs.replace(messages(metadata={"user_id": name}), end_user=digest)
    assert json.loads(OPENAI.encode_request(request, target(), 100).body)["user"] == digest
    unnamed = structs.replace(chat(user="7d3c9b1e-0000-4000-8000-1234567890ab"), end_user=digest)
    sent = json.loads(ANTHROPIC.encode_request(unnamed, target(), 100).body)
    assert sent["metadata"] == {"user_id": "7d3c9b1e-0000-4000-8000-1234567890ab"}


ASKED = {
    "type": "json_schema",
    "json_schema": {"name": "s", "schema": {"type": "object", "properties": {"a": {}}}},
}
ANSWER_USE = {"type": "tool_use", "id": "t1", "name": ANSWER_TOOL, "input": {"a": 1}}


def test_rule_33_an_older_model_is_asked_by_a_tool_and_its_answer_is_text() -> None:
    request = chat(response_format=ASKED)
    body, dropped = to_anthropic(request, "tools")
    assert [each["name"] for each in body["tools"]] == [ANSWER_TOOL]
    assert body["tools"][0]["input_schema"] == ASKED["json_schema"]["schema"]  # type: ignore[index]
    assert body["tool_choice"] == {"type": "tool", "name": ANSWER_TOOL}
    assert dropped == {"response_format.json_schema.strict"}

    given = ANTHROPIC.decode_reply(message_reply(ANSWER_USE, stop_reason="tool_use"))
    said = json.loads(OPENAI.encode_reply(given, "anthropic_messages", request))["choices"][0]
    assert json.loads(said["message"]["content"]) == {"a": 1}
    assert "tool_calls" not in said["message"]
    assert said["finish_reason"] == "stop"


def test_rule_33_the_callers_own_tools_stay_untouched_beside_the_answers() -> None:
    request = chat(response_format=ASKED, tools=[tool("f")], stream=True)
    body, _ = to_anthropic(request, "tools")
    assert [each["name"] for each in body["tools"]] == ["f", ANSWER_TOOL]
    assert body["tool_choice"] == {"type": "any"}

    own = {"type": "tool_use", "id": "t2", "name": "f", "input": {}}
    given = ANTHROPIC.decode_reply(message_reply(own, stop_reason="tool_use"))
    said = json.loads(OPENAI.encode_reply(given, "anthropic_messages", request))["choices"][0]
    assert said["message"]["tool_calls"][0]["function"]["name"] == "f"
    assert said["finish_reason"] == "tool_calls"


def test_rule_33_an_answer_by_tool_streams_as_text_that_stops() -> None:
    stream = (
        MESSAGE_START
        + block_start(0, type="tool_use", id="t1", name=ANSWER_TOOL, input={})
        + block_delta(0, type="input_json_delta", partial_json='{"a":')
        + block_delta(0, type="input_json_delta", partial_json=" 1}")
        + block_stop(0)
        + message_delta("tool_use")
        + MESSAGE_STOP
    )
    chunks = datas(recoded("anthropic_messages", stream, chat(response_format=ASKED, stream=True)))
    text = "".join(data["choices"][0]["delta"].get("content") or "" for data in chunks)
    assert json.loads(text) == {"a": 1}
    assert not any("tool_calls" in data["choices"][0]["delta"] for data in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_rule_33_a_schema_without_a_name_gets_one() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    body, _ = to_openai(messages(output_config={"format": form}), "json_schema")
    assert body["response_format"]["json_schema"]["name"] == "structured_output"


def test_rule_33_a_format_by_its_older_name_crosses_and_so_does_the_feature_that_lets_it() -> None:
    """As LiteLLM asks for it, with a header that says no more than that the field may be there."""
    body = messages(output_format=OLDER).raw
    beta = [(b"anthropic-beta", b"structured-outputs-2025-11-13")]
    asked = ANTHROPIC.decode_request(body, "req_1", beta)
    assert asked.wants_json_schema
    told, dropped = to_openai(asked, "json_schema")
    assert told["response_format"]["json_schema"]["schema"] == OLDER["schema"]
    assert told["response_format"]["json_schema"]["strict"] is True
    assert dropped == set()

    with pytest.raises(FeatureUnsupported, match=r"^output_format: .*schema"):
        ANTHROPIC.encode_request(asked, target(), 100)
    itself = ANTHROPIC.encode_request(asked, target("json_schema"), 100)
    assert json.loads(itself.body)["output_format"] == OLDER
    assert itself.dropped == ()


def test_rule_33_of_two_formats_the_one_that_does_not_cross_is_reported() -> None:
    other = OLDER | {"schema": OLDER["schema"] | {"description": "Another."}}
    for older, lost in ((OLDER, ()), (other, ("output_format",))):
        told, dropped = to_openai(
            messages(output_format=older, output_config={"format": OLDER}), "json_schema"
        )
        assert told["response_format"]["json_schema"]["schema"] == OLDER["schema"]
        assert dropped == set(lost)


@pytest.mark.parametrize("place", ["output_format", "output_config.format"])
def test_rule_33_a_format_that_nobody_knows_is_refused_where_it_was_said(place: str) -> None:
    name, _, inner = place.partition(".")
    unknown = {"type": "grammar"}
    asked = messages(**{name: {inner: unknown} if inner else unknown})
    with pytest.raises(FeatureUnsupported) as refused:
        to_openai(asked, "json_schema")
    assert refused.value.parameter == f"{place}.type"


def test_rule_33_what_a_format_is_for_is_said_of_its_schema_where_only_that_has_a_description() -> (
    None
):
    for own, told in ((None, "Of use."), ("Of use.", "Of use."), ("A.", "Of use.\nA.")):
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        schema |= {"description": own} if own else {}
        named = {"name": "s", "description": "Of use.", "schema": schema}
        asked = chat(response_format={"type": "json_schema", "json_schema": named})
        body, dropped = to_anthropic(asked, "json_schema")
        assert body["output_config"]["format"]["schema"]["description"] == told
        assert dropped == set()


def test_rule_33_a_model_that_cannot_be_held_to_a_schema_is_not_asked() -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
    for dialect in (OPENAI, ANTHROPIC):
        with pytest.raises(FeatureUnsupported, match="schema"):
            dialect.encode_request(chat(response_format=asked), target(), 100)


def test_rule_34_keywords_that_are_not_enforced_move_into_descriptions_with_notice() -> None:
    schema = {
        "type": "object",
        "properties": {
            "age": {"type": "integer", "minimum": 0, "description": "In years."},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 9}},
            "mail": {"type": "string", "format": "email"},
        },
    }
    asked = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    body, dropped = to_anthropic(chat(response_format=asked), "json_schema")

    inner = body["output_config"]["format"]["schema"]["properties"]
    assert inner["age"] == {"type": "integer", "description": 'In years.\n{"minimum":0}'}
    assert inner["tags"]["items"] == {"type": "string", "description": '{"maxLength":9}'}
    assert inner["mail"] == {"type": "string", "format": "email"}
    assert dropped == {
        "response_format.json_schema.schema.minimum",
        "response_format.json_schema.schema.maxLength",
    }


@pytest.mark.parametrize(
    ("schema", "good", "bad", "path"),
    [
        ({"properties": {"a": {"minimum": 3}}}, {"a": 3}, {"a": 2}, "$.a"),
        ({"properties": {"a": {"maxLength": 2}}}, {"a": "xy"}, {"a": "xyz"}, "$.a"),
        ({"properties": {"a": {"pattern": "^x+$"}}}, {"a": "xx"}, {"a": "xy"}, "$.a"),
        ({"required": ["a"]}, {"a": None}, {}, "$.a"),
        ({"additionalProperties": False}, {}, {"secret": 1}, "$.*"),
        (
            {"properties": {"a": {"items": {"type": "integer"}}}},
            {"a": [1]},
            {"a": [1, "x"]},
            "$.a[1]",
        ),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [1, 2]}, {"a": [1, 1]}, "$.a"),
        ({"properties": {"a": {"enum": [1, "x"]}}}, {"a": "x"}, {"a": True}, "$.a"),
        ({"properties": {"a": {"multipleOf": 0.1}}}, {"a": 0.3}, {"a": 0.35}, "$.a"),
        (
            {"properties": {"a": {"anyOf": [{"type": "null"}, {"const": 5}]}}},
            {"a": 5},
            {"a": 6},
            "$.a",
        ),
        ({"properties": {"a": {"not": {"type": "string"}}}}, {"a": 1}, {"a": ""}, "$.a"),
        (
            {
                "$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}, "type": "object"}},
                "$ref": "#/$defs/n",
            },
            {"n": {"n": {}}},
            {"n": {"n": 7}},
            "$.n.n",
        ),
        ({"type": ["object", "null"], "maxProperties": 1}, {"a": 1}, {"a": 1, "b": 2}, "$"),
    ],
)
def test_rule_34_an_answer_is_compared_with_what_no_upstream_enforces(
    schema: dict[str, Any], good: object, bad: object, path: str
) -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    request = chat(response_format=asked)
    assert OPENAI.unmet(request, json.dumps(good)) == ""
    assert OPENAI.unmet(request, json.dumps(bad)) == path
    assert OPENAI.unmet(request, "no JSON") == "$"


def test_rule_34_an_object_that_was_asked_for_is_looked_at_too() -> None:
    request = chat(response_format={"type": "json_object"})
    assert OPENAI.unmet(request, '{"a": 1}') == ""
    assert OPENAI.unmet(request, "[1]") == OPENAI.unmet(request, "Sure! {}") == "$"
    assert OPENAI.unmet(chat(), "anything") == ""


def test_rule_34_looking_at_an_answer_takes_no_more_than_a_bounded_effort() -> None:
    endless = {"$ref": "#"}
    wide = {"anyOf": [{"anyOf": [{"$ref": "#"}] * 9}] * 9}
    for schema in (endless, wide):
        asked = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
        assert OPENAI.unmet(chat(response_format=asked), "{}") == ""


@pytest.mark.parametrize(
    ("schema", "number"),
    [({"type": "integer"}, "9" * 400), ({"multipleOf": 0.001}, "1e308")],
)
def test_rule_34_a_number_beyond_a_float_spoils_no_answer(
    schema: dict[str, Any], number: str
) -> None:
    asked = {"name": "s", "schema": {"properties": {"a": schema}}}
    request = chat(response_format={"type": "json_schema", "json_schema": asked})
    assert OPENAI.unmet(request, f'{{"a": {number}}}') == ""


def test_rule_52_the_callers_cache_markers_cross_with_their_life_and_are_reported_where_lost() -> (
    None
):
    marker = {"type": "ephemeral", "ttl": "1h"}
    part = {"type": "text", "text": "Long.", "cache_control": marker}
    request = chat(
        messages=[{"role": "system", "content": [part]}, USER],
        tools=[tool("f", cache_control={"type": "ephemeral"})],
    )
    body, dropped = to_anthropic(request)
    assert body["system"][0]["cache_control"] == marker
    assert body["tools"][0]["cache_control"] == {"type": "ephemeral"}
    assert dropped == set()

    schema = {"type": "object", "properties": {}}
    marked = messages(
        system=[part], tools=[{"name": "f", "input_schema": schema, "cache_control": marker}]
    )
    assert to_openai(marked)[1] == {"cache_control"}


def test_rule_52_markers_become_breakpoints_where_the_target_takes_them() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    request = messages(
        system=[{"type": "text", "text": "S"} | mark],
        messages=[{"role": "user", "content": [{"type": "text", "text": "Long."} | mark]}],
    )
    body, dropped = to_openai(request, "cache_breakpoints")
    point = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    assert body["messages"][0]["content"] == [{"type": "text", "text": "S"} | point]
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Long."} | point]
    assert dropped == set()

    answer = RESPONSES.encode_request(request, target("cache_breakpoints"), 100)
    items = json.loads(answer.body)["input"]
    assert "instructions" not in json.loads(answer.body)
    assert items[0]["role"] == "developer"
    assert items[0]["content"] == [{"type": "input_text", "text": "S"} | point]
    assert items[1]["content"] == [{"type": "input_text", "text": "Long."} | point]
    assert answer.dropped == ()

    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    longer = messages(system=[{"type": "text", "text": "S"} | hour])
    assert to_openai(longer, "cache_breakpoints")[1] == {"cache_control.ttl"}
    plain, lost = to_openai(request)
    assert lost == {"cache_control"}
    assert "prompt_cache_breakpoint" not in json.dumps(plain)


def test_rule_52_one_marker_at_the_top_stands_for_the_end_of_the_request() -> None:
    request = messages(cache_control={"type": "ephemeral"})
    body, dropped = to_openai(request, "cache_breakpoints")
    assert body["messages"][-1]["content"][-1]["prompt_cache_breakpoint"] == {"mode": "explicit"}
    assert dropped == set()
    assert to_openai(request)[1] == {"cache_control"}


def test_rule_52_breakpoints_of_openais_callers_become_markers() -> None:
    part = {"type": "text", "text": "Long.", "prompt_cache_breakpoint": {"mode": "explicit"}}
    body, dropped = to_anthropic(chat(messages=[{"role": "user", "content": [part]}]))
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert dropped == set()


def test_rule_52_more_than_four_breakpoints_are_refused() -> None:
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    with pytest.raises(FeatureUnsupported, match="At most 4"):
        to_anthropic(chat(messages=[{"role": "user", "content": [part] * 5}]))


def test_rule_52_the_prefix_that_is_sent_does_not_change_from_turn_to_turn() -> None:
    turns = [{"role": "system", "content": "S"}, USER]
    fields = {"tools": [tool("f"), tool("g")], "temperature": 0.5}
    first = ANTHROPIC.encode_request(chat(messages=turns, **fields), target(), 100).body
    more = [*turns, {"role": "assistant", "content": "Hello"}, USER]
    second = ANTHROPIC.encode_request(chat(messages=more, **fields), target(), 100).body

    def prefix(body: bytes) -> list[bytes]:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        turns = msgspec.json.decode(bytes(fields["messages"]), type=list[msgspec.Raw])
        return [bytes(fields["tools"]), bytes(fields["system"]), bytes(turns[0])]

    assert prefix(first) == prefix(second)
