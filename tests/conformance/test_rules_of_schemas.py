"""Rules of translation about schemas: each vendor enforces another part of the language.

Each test is named after its rule; the table in docs/api.md lists them all.
"""

from typing import Any

import pytest

from gateway.dialects.openai_schemas import is_enforceable
from tests.conformance.test_rules_of_responses import responses, to_responses
from tests.gateway.dialects.samples import chat, messages, to_anthropic, to_openai


NAME = {"name": {"type": "string"}, "nickname": {"type": "string"}}
CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": NAME,
    "required": ["name", "nickname"],
    "additionalProperties": False,
}
OPTIONAL = CLOSED | {"required": ["name"]}
OPENAIS = ("json_schema", "max_completion_tokens")


def asked_by_message(schema: dict[str, Any]) -> Any:
    return messages(output_config={"format": {"type": "json_schema", "schema": schema}})


def asked_by_chat(schema: dict[str, Any], **more: Any) -> Any:
    form = {"name": "s", "schema": schema, "strict": True}
    return chat(response_format={"type": "json_schema", "json_schema": form}, **more)


def test_rule_33_openai_enforces_no_schema_with_an_optional_property_and_is_not_told_to() -> None:
    body, dropped = to_openai(asked_by_message(OPTIONAL), *OPENAIS)
    form = body["response_format"]["json_schema"]
    assert (form["strict"], form["schema"]) == (False, OPTIONAL)
    assert dropped == {"output_config.format"}, "so that the answer is compared with it"

    body, dropped = to_responses(asked_by_message(OPTIONAL), *OPENAIS)
    assert (body["text"]["format"]["strict"], body["text"]["format"]["schema"]) == (False, OPTIONAL)
    assert dropped == {"output_config.format"}


def test_rule_33_a_schema_that_every_vendor_enforces_is_enforced() -> None:
    for request in (asked_by_message(CLOSED), asked_by_chat(CLOSED)):
        body, dropped = to_responses(request, *OPENAIS)
        assert body["text"]["format"]["strict"] is True
        assert dropped == set()
    body, dropped = to_openai(asked_by_message(CLOSED), *OPENAIS)
    assert body["response_format"]["json_schema"]["strict"] is True
    assert dropped == set()


def test_rule_33_compatible_servers_are_held_to_any_schema() -> None:
    body, dropped = to_openai(asked_by_message(OPTIONAL), "json_schema")
    assert body["response_format"]["json_schema"]["strict"] is True
    assert dropped == set()


def test_rule_10_a_tool_that_openai_would_not_enforce_is_offered_all_the_same() -> None:
    for schema, is_strict in ((OPTIONAL, False), (CLOSED, True)):
        request = messages(tools=[{"name": "f", "input_schema": schema, "strict": True}])
        (offered,) = to_openai(request, *OPENAIS)[0]["tools"]
        assert offered["function"]["strict"] is is_strict
        assert offered["function"]["parameters"] == schema
        body, dropped = to_responses(request)
        assert body["tools"][0]["strict"] is is_strict
        assert dropped == (set() if is_strict else {"tools.strict"})


def test_rule_10_a_strict_tool_loses_what_anthropic_does_not_enforce_into_descriptions() -> None:
    limited = CLOSED | {"properties": NAME | {"age": {"type": "integer", "minimum": 0}}}
    open_tool, strict_tool = (
        {"type": "function", "function": {"name": "f", "parameters": limited, "strict": strict}}
        for strict in (False, True)
    )
    body, dropped = to_anthropic(chat(tools=[open_tool]))
    assert body["tools"][0]["input_schema"] == limited
    assert dropped == set()

    body, dropped = to_anthropic(chat(tools=[strict_tool]))
    properties = body["tools"][0]["input_schema"]["properties"]
    assert properties["age"] == {"type": "integer", "description": '{"minimum":0}'}
    assert dropped == {"tools.function.parameters.minimum"}


@pytest.mark.parametrize("inner", [{"type": "string"}, {}, True, [1]])
def test_rule_34_an_object_of_any_keys_is_reported_and_costs_no_answer(inner: object) -> None:
    """What pydantic makes of `dict[str, str]`: an open object whose values have a schema."""
    labels = {"type": "object", "additionalProperties": inner}
    body, dropped = to_anthropic(
        asked_by_chat(CLOSED | {"properties": {"labels": labels}}), "json_schema"
    )
    sent = body["output_config"]["format"]["schema"]["properties"]["labels"]
    assert sent == {"type": "object", "additionalProperties": False}
    assert dropped == {"response_format.json_schema.schema.additionalProperties"}


@pytest.mark.parametrize("odd", [["uuid"], {}, 7, None])
def test_rule_34_a_format_that_is_none_is_moved(odd: object) -> None:
    schema = CLOSED | {"properties": {"a": {"type": "string", "format": odd}}}
    _, dropped = to_anthropic(asked_by_chat(schema), "json_schema")
    assert dropped == {"response_format.json_schema.schema.format"}


def test_rule_33_an_object_among_other_types_is_closed_too() -> None:
    schema = CLOSED | {"properties": {"a": {"type": ["object", "null"], "properties": {}}}}
    body, dropped = to_anthropic(asked_by_chat(schema), "json_schema")
    inner = body["output_config"]["format"]["schema"]["properties"]["a"]
    assert inner["additionalProperties"] is False
    assert dropped == set()


@pytest.mark.parametrize(
    ("change", "is_taken"),
    [
        ({}, True),
        ({"properties": {}, "required": []}, True),
        ({"additionalProperties": True}, False),
        ({"additionalProperties": {}}, False),
        ({"required": None}, False),
        ({"required": [["name"], "name", "nickname"]}, True),
        ({"required": ["name", "nickname", "other"]}, False),
        ({"properties": {"a": {"type": "array", "items": OPTIONAL}}, "required": ["a"]}, False),
        ({"properties": {"a": {"type": "array", "items": CLOSED}}, "required": ["a"]}, True),
        ({"$defs": {"a": OPTIONAL}}, False),
        ({"definitions": {"a": OPTIONAL}}, False),
        ({"properties": {"a": {"anyOf": [CLOSED, OPTIONAL]}}, "required": ["a"]}, False),
        ({"properties": {"a": {"anyOf": [CLOSED, {}]}}, "required": ["a"]}, True),
        ({"properties": {"a": {"prefixItems": [OPTIONAL]}}, "required": ["a"]}, False),
        ({"allOf": [{}]}, False),
        ({"properties": {"a": {"oneOf": [{}]}}, "required": ["a"]}, False),
        ({"properties": {"allOf": {"type": "string"}}, "required": ["allOf"]}, True),
        ({"properties": {"a": {"type": ["object", "null"]}}, "required": ["a"]}, False),
        ({"type": None, "additionalProperties": None}, False),
        ({"properties": {"a": True}, "required": ["a"]}, True),
        ({"properties": None, "required": None, "additionalProperties": None}, False),
        ({"properties": 7, "required": None}, True),
    ],
)
def test_which_schemas_openai_enforces(change: dict[str, Any], *, is_taken: bool) -> None:
    assert is_enforceable(CLOSED | change) is is_taken


def test_rule_10_input_examples_are_told_in_the_description() -> None:
    examples = [{"city": "Bonn"}]
    request = messages(
        tools=[
            {"name": "f", "input_schema": {"type": "object"}, "input_examples": examples},
            {
                "name": "g",
                "description": "Looks.",
                "input_schema": {"type": "object"},
                "input_examples": examples,
            },
        ]
    )
    body, dropped = to_openai(request)
    told = 'Examples of what it may be called with: [{"city":"Bonn"}]'
    assert [each["function"]["description"] for each in body["tools"]] == [told, f"Looks.\n{told}"]
    assert dropped == set()


def test_rule_33_what_is_said_of_a_format_is_said_to_openai_too() -> None:
    form = {"type": "json_schema", "name": "s", "schema": CLOSED, "description": "Of whom."}
    body, dropped = to_openai(responses(text={"format": form}), *OPENAIS)
    told = {"name": "s", "schema": CLOSED, "description": "Of whom."}
    assert body["response_format"]["json_schema"] == told
    assert dropped == set()
    del form["description"]
    body, _ = to_openai(responses(text={"format": form}), *OPENAIS)
    assert "description" not in body["response_format"]["json_schema"]


def test_rule_55_what_is_so_anyway_of_a_tool_is_not_reported() -> None:
    plain = {"name": "f", "input_schema": {"type": "object"}}
    same = {"allowed_callers": ["direct"], "defer_loading": False, "eager_input_streaming": False}
    assert to_openai(messages(tools=[plain | same])) == to_openai(messages(tools=[plain]))
    other = {"allowed_callers": ["direct", "code_execution_20260120"], "defer_loading": True}
    assert to_openai(messages(tools=[plain | other]))[1] == {
        "tools.allowed_callers",
        "tools.defer_loading",
    }
