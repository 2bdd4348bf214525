"""Tools without a price, at a target of the caller's own dialect that is set to leave them out."""

import json
from typing import Any

import pytest
from msgspec import structs

from gateway.dialects.anthropic_messages.counting import AnthropicTokenCount
from gateway.dialects.openai_responses.counting import OpenAITokenCount
from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported
from gateway.ports import Dialect, UpstreamBody
from gateway.types import DialectName, Target
from tests.gateway.dialects.samples import target


CHAT: DialectName = "openai_chat"
MESSAGES: DialectName = "anthropic_messages"
RESPONSES: DialectName = "openai_responses"
TURN = {"role": "user", "content": "Hi"}
BASES: dict[DialectName, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": [TURN]},
    MESSAGES: {"model": "m", "max_tokens": 100, "messages": [TURN]},
    RESPONSES: {"model": "m", "input": [TURN]},
}
PYTHON: dict[str, Any] = {"type": "code_interpreter", "container": {"type": "auto"}}
PICTURE: dict[str, Any] = {"type": "image_generation"}
SEARCH: dict[str, Any] = {"type": "web_search"}
READ: dict[str, Any] = {"type": "function", "name": "read", "parameters": {"type": "object"}}
RUNS: dict[str, Any] = {"type": "code_execution_20260120", "name": "code_execution"}
LOOK: dict[str, Any] = {"name": "look", "input_schema": {"type": "object"}}
IN_CHAT: dict[str, Any] = {"type": "function", "function": {"name": "read"}}


def lenient(**price: Any) -> Target:
    plain = target()
    price = {"web_search_microusd": 0} | price
    return structs.replace(
        plain, leaves_out_hosted=True, price=structs.replace(plain.price, **price)
    )


def encoded(dialect: DialectName, at: Target | None = None, **fields: Any) -> UpstreamBody:
    raw = json.dumps(BASES[dialect] | fields, separators=(",", ":")).encode()
    own = DIALECTS[dialect]
    return own.encode_request(own.decode_request(raw, "req_1"), at or lenient(), 100)


def sent(dialect: DialectName, at: Target | None = None, **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(encoded(dialect, at, **fields).body)
    return body


@pytest.mark.parametrize(
    ("dialect", "tools", "kept", "told"),
    [
        (
            RESPONSES,
            [PYTHON, READ, SEARCH, PICTURE, PYTHON],
            [READ],
            ("tools.code_interpreter", "tools.web_search", "tools.image_generation"),
        ),
        (MESSAGES, [LOOK, RUNS], [LOOK], ("tools.code_execution",)),
        (CHAT, [PICTURE, IN_CHAT], [IN_CHAT], ("tools.image_generation",)),
    ],
)
def test_rule_19_tools_without_a_price_are_left_out_and_reported_each_kind_once_and_first(
    dialect: DialectName, tools: list[Any], kept: list[Any], told: tuple[str, ...]
) -> None:
    upstream = encoded(dialect, tools=tools)
    assert json.loads(upstream.body)["tools"] == kept
    assert upstream.dropped == told
    assert upstream.is_less


def test_what_has_a_price_or_is_not_billed_or_costs_nothing_more_is_asked_for() -> None:
    priced = encoded(RESPONSES, lenient(web_search_microusd=1), tools=[SEARCH, PYTHON])
    assert json.loads(priced.body)["tools"] == [SEARCH]
    assert priced.dropped == ("tools.code_interpreter",)
    for at in (lenient(unbilled_tools=True), structs.replace(lenient(), in_house=True)):
        whole = encoded(RESPONSES, at, tools=[SEARCH, PYTHON])
        assert json.loads(whole.body)["tools"] == [SEARCH, PYTHON]
        assert (whole.dropped, whole.is_less) == ((), False)


@pytest.mark.parametrize("dialect", [CHAT, MESSAGES, RESPONSES])
def test_rule_19_a_target_that_is_not_set_to_that_refuses(dialect: DialectName) -> None:
    strict = structs.replace(lenient(), leaves_out_hosted=False)
    with pytest.raises(FeatureUnsupported, match=r"not known.*rule 19") as caught:
        encoded(dialect, strict, tools=[{"name": "t", **PYTHON}])
    assert caught.value.parameter == "tools[0]"


@pytest.mark.parametrize(("dialect", "tool"), [(CHAT, PICTURE), (RESPONSES, PYTHON)])
def test_where_no_tool_is_left_nothing_is_said_of_tools(
    dialect: DialectName, tool: dict[str, Any]
) -> None:
    asked = sent(dialect, tools=[tool], tool_choice="auto", parallel_tool_calls=False)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & asked.keys()
    some = sent(dialect, tools=[tool, IN_CHAT | READ], tool_choice="auto")
    assert some["tool_choice"] == "auto"


def test_where_no_tool_of_a_message_is_left_nothing_is_said_of_tools() -> None:
    asked = sent(MESSAGES, tools=[RUNS], tool_choice={"type": "auto"})
    assert not {"tools", "tool_choice"} & asked.keys()


def test_a_search_in_a_chat_is_a_field_and_the_tools_beside_it_stay() -> None:
    fields: dict[str, Any] = {"web_search_options": {"search_context_size": "low"}}
    upstream = encoded(CHAT, tools=[IN_CHAT], tool_choice="required", **fields)
    body = json.loads(upstream.body)
    assert (body["tools"], body["tool_choice"]) == ([IN_CHAT], "required")
    assert "web_search_options" not in body
    assert (upstream.dropped, upstream.is_less) == (("web_search_options",), True)
    assert "web_search_options" not in sent(CHAT, **fields)


def test_tools_that_items_bring_are_left_out_where_they_stand() -> None:
    brings = {"type": "additional_tools", "role": "developer", "tools": [PYTHON, READ]}
    only = {"type": "additional_tools", "role": "developer", "tools": [PYTHON]}
    call = {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "c"}
    found = {"type": "tool_search_output", "call_id": "c", "tools": [PICTURE]}
    upstream = encoded(
        RESPONSES, tools=[], tool_choice="required", input=[brings, only, call, found, TURN]
    )
    body = json.loads(upstream.body)
    assert body["input"] == [brings | {"tools": [READ]}, call, found | {"tools": []}, TURN]
    assert "tools" not in body
    assert body["tool_choice"] == "required"
    assert set(upstream.dropped) == {"tools.code_interpreter", "tools.image_generation"}


def test_a_space_in_which_nothing_is_left_is_no_tool() -> None:
    space = {"type": "namespace", "name": "n", "description": "", "tools": [PYTHON]}
    assert "tools" not in sent(RESPONSES, tools=[space], tool_choice="auto")
    shared = space | {"tools": [PYTHON, READ]}
    assert sent(RESPONSES, tools=[shared])["tools"] == [space | {"tools": [READ]}]


def test_every_other_byte_of_the_tools_stays() -> None:
    odd = b'{"type":"function","name":"read","parameters":{"b":1.0,"a":[ 1 ]} }'
    raw = b'{"model":"m","input":"Hi","tools":[%b , {"type":"image_generation"}]}' % odd
    own = DIALECTS[RESPONSES]
    upstream = own.encode_request(own.decode_request(raw, "req_1"), lenient(), 100)
    assert b'"tools":[%b]' % odd in upstream.body


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        (RESPONSES, {"tools": [PYTHON, READ], "tool_choice": {"type": "code_interpreter"}}),
        (RESPONSES, {"tools": [PYTHON], "tool_choice": "required"}),
        (
            RESPONSES,
            {
                "tools": [PYTHON, READ],
                "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [READ, PYTHON]},
            },
        ),
        (
            CHAT,
            {
                "tools": [PICTURE, IN_CHAT],
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required", "tools": [PICTURE]},
                },
            },
        ),
        (CHAT, {"web_search_options": {}, "tool_choice": "required"}),
        (MESSAGES, {"tools": [RUNS, LOOK], "tool_choice": {"type": "tool", "name": RUNS["name"]}}),
        (MESSAGES, {"tools": [RUNS], "tool_choice": {"type": "any"}}),
    ],
)
def test_rule_19_who_insists_on_such_a_tool_is_refused(
    dialect: DialectName, fields: dict[str, Any]
) -> None:
    with pytest.raises(FeatureUnsupported, match="rule 19") as caught:
        encoded(dialect, **fields)
    assert caught.value.parameter == "tool_choice"


@pytest.mark.parametrize(
    ("dialect", "tools", "choice"),
    [
        (RESPONSES, [PYTHON, READ], "required"),
        (RESPONSES, [PYTHON, READ], {"type": "function", "name": "read"}),
        (
            RESPONSES,
            [PYTHON, READ],
            {"type": "allowed_tools", "mode": "required", "tools": [READ]},
        ),
        (MESSAGES, [RUNS, LOOK], {"type": "tool", "name": "look"}),
        (MESSAGES, [RUNS, LOOK], {"type": "any"}),
    ],
)
def test_who_insists_on_another_tool_gets_it(
    dialect: DialectName, tools: list[Any], choice: object
) -> None:
    body = sent(dialect, tools=tools, tool_choice=choice)
    assert body["tools"] == tools[1:]
    assert body["tool_choice"] == choice


@pytest.mark.parametrize(
    "choice",
    [{"type": "allowed_tools"}, {"type": "allowed_tools", "tools": [{"type": "function"}]}],
)
def test_a_choice_among_nothing_that_is_a_tool_insists_on_none(choice: object) -> None:
    assert sent(RESPONSES, tools=[PYTHON, READ], tool_choice=choice)["tools"] == [READ]


@pytest.mark.parametrize(
    ("counting", "base", "tools"),
    [
        (AnthropicTokenCount(), MESSAGES, [RUNS, LOOK]),
        (OpenAITokenCount(), RESPONSES, [PYTHON, READ]),
    ],
)
def test_a_count_is_of_what_would_be_sent(
    counting: Dialect, base: DialectName, tools: list[Any]
) -> None:
    raw = json.dumps(BASES[base] | {"tools": tools}).encode()
    upstream = counting.encode_request(counting.decode_request(raw, "req_1"), lenient(), 100)
    assert json.loads(upstream.body)["tools"] == tools[1:]
    assert upstream.is_less


THERE: dict[str, Any] = {"type": "shell", "environment": {"type": "container_auto"}}
HERE: dict[str, Any] = {"type": "shell", "environment": {"type": "local"}}


def test_a_shell_in_the_vendors_rooms_is_left_out_and_one_of_the_callers_stays() -> None:
    upstream = encoded(RESPONSES, tools=[THERE, READ, HERE])
    assert json.loads(upstream.body)["tools"] == [READ, HERE]
    assert upstream.dropped == ("tools.shell",)
    with pytest.raises(FeatureUnsupported, match="rule 19"):
        encoded(RESPONSES, tools=[THERE, READ], tool_choice={"type": "shell"})
    chosen = sent(RESPONSES, tools=[HERE, READ], tool_choice={"type": "shell"})
    assert chosen["tool_choice"] == {"type": "shell"}
