"""Built-in tools of responses that the caller runs, at targets of other dialects, and back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseInputItem
from openai.types.responses.tool import Tool as ResponseTool
from pydantic import TypeAdapter

from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported
from gateway.types import ChatRequest, Completion, ToolCall, Usage
from tests.conformance.test_rules_of_responses import RESPONSES, USER, responses
from tests.conformance.test_tools_of_responses import (
    AGENTS,
    LENIENT,
    SPAWN,
    names_of,
    streamed,
)
from tests.gateway.dialects.samples import target, to_anthropic, to_openai


ITEM: TypeAdapter[Any] = TypeAdapter(ResponseInputItem)
TOOL: TypeAdapter[Any] = TypeAdapter(ResponseTool)

SEARCHING = {"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"]}
TOOLS: dict[str, dict[str, Any]] = {
    "local_shell": {"type": "local_shell"},
    "shell": {"type": "shell", "environment": {"type": "local"}},
    "apply_patch": {"type": "apply_patch"},
    "tool_search": {
        "type": "tool_search",
        "execution": "client",
        "description": "Find tools.",
        "parameters": SEARCHING,
    },
}
DIFF = "@@ def a():\n-    return 1\n+    return 2\n"
SAID: dict[str, dict[str, Any]] = {
    "local_shell": {"command": ["cat", "a b"], "env": {"LANG": "C"}, "timeout_ms": 900},
    "shell": {"commands": ["ls", "cat 'a \"b\"'"], "timeout_ms": 900},
    "apply_patch": {"type": "update_file", "path": "a.py", "diff": DIFF},
    "tool_search": {"goal": "send a letter"},
}
CALLED: dict[str, dict[str, Any]] = {
    "local_shell": {
        "type": "local_shell_call",
        "action": {"type": "exec", **SAID["local_shell"]},
        "status": "completed",
    },
    "shell": {
        "type": "shell_call",
        "action": {**SAID["shell"], "max_output_length": None},
        "environment": {"type": "local"},
        "status": "completed",
    },
    "apply_patch": {
        "type": "apply_patch_call",
        "operation": SAID["apply_patch"],
        "status": "completed",
    },
    "tool_search": {
        "type": "tool_search_call",
        "arguments": SAID["tool_search"],
        "execution": "client",
        "status": "completed",
    },
}
WRITTEN = [
    {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
    {"stdout": "", "stderr": "b", "outcome": {"type": "timeout"}},
]
GAVE: dict[str, dict[str, Any]] = {
    "local_shell": {"type": "local_shell_call_output", "id": "item_a", "output": "found"},
    "shell": {"type": "shell_call_output", "call_id": "call_a", "output": WRITTEN},
    "apply_patch": {
        "type": "apply_patch_call_output",
        "call_id": "call_a",
        "status": "failed",
        "output": "no such place",
    },
    "tool_search": {
        "type": "tool_search_output",
        "call_id": "call_a",
        "execution": "client",
        "status": "completed",
        "tools": [AGENTS, SPAWN | {"name": "post"}],
    },
}
READ = {
    "local_shell": "found",
    "shell": json.dumps(WRITTEN, separators=(",", ":")),
    "apply_patch": "no such place",
    "tool_search": '{"tools":["agents__spawn","agents__patch","post"]}',
}
IDS = {"id": "item_a", "call_id": "call_a"}
KINDS = list(TOOLS)


def gone_on(kind: str) -> ChatRequest:
    """A history with a call and its result."""
    items = [USER, CALLED[kind] | IDS, GAVE[kind], USER]
    for item in items[1:3]:
        ITEM.validate_python(item)
    return responses(tools=[TOOLS[kind]], input=items)


@pytest.mark.parametrize("kind", KINDS)
def test_rule_66_a_built_in_tool_is_a_function_that_takes_what_a_call_of_it_says(
    kind: str,
) -> None:
    TOOL.validate_python(TOOLS[kind])
    body, dropped = to_openai(responses(tools=[TOOLS[kind], SPAWN]))
    assert names_of(body) == [kind, "spawn"]
    function = body["tools"][0]["function"]
    assert function["description"]
    assert set(SAID[kind]) <= set(function["parameters"]["properties"])
    assert set(function["parameters"]["required"]) <= set(SAID[kind])
    assert dropped == set()

    body, dropped = to_anthropic(responses(tools=[TOOLS[kind]]))
    assert names_of(body) == [kind]
    assert body["tools"][0]["input_schema"]["properties"] == function["parameters"]["properties"]
    assert dropped == set(), "a key that leaves nothing out may use it"


@pytest.mark.parametrize("kind", KINDS)
def test_rule_66_a_history_says_what_was_called_and_what_came_of_it(kind: str) -> None:
    request = gone_on(kind)
    body, dropped = to_openai(request)
    assert dropped == {"tools.format"} if kind == "tool_search" else dropped == set()
    (call,) = (call for turn in body["messages"] for call in turn.get("tool_calls", ()))
    assert (call["id"], call["function"]["name"]) == ("call_a", kind)
    assert json.loads(call["function"]["arguments"]) == SAID[kind]
    (told,) = (turn for turn in body["messages"] if turn["role"] == "tool")
    assert told["tool_call_id"] == "call_a"
    mark = "[tool_error]\n" if kind == "apply_patch" else ""
    assert told["content"] == mark + READ[kind]

    body, _ = to_anthropic(request)
    blocks = [each for turn in body["messages"] for each in turn["content"]]
    (used,) = (each for each in blocks if each["type"] == "tool_use")
    assert (used["id"], used["name"], used["input"]) == ("call_a", kind, SAID[kind])
    (result,) = (each for each in blocks if each["type"] == "tool_result")
    assert READ[kind] in json.dumps(result["content"]).replace('\\"', '"').replace("\\\\", "\\")
    assert result.get("is_error", False) is (kind == "apply_patch")


@pytest.mark.parametrize("kind", KINDS)
def test_rule_66_a_call_comes_back_as_an_item_of_its_kind(kind: str) -> None:
    calls = (ToolCall("call_a", kind, json.dumps(SAID[kind])),)
    answer = Completion(b"", "x", "m", "", calls, "tool_use", None, Usage(1, 1))
    raw = RESPONSES.encode_reply(answer, "openai_chat", responses(tools=[TOOLS[kind]]))

    whole = Response.model_validate_json(raw)
    (item,) = json.loads(raw)["output"]
    assert {name: item[name] for name in item if name != "id"} == CALLED[kind] | {
        "call_id": "call_a"
    }
    # The official types keep all of it, and what a client sends back is what it got.
    assert whole.output[0].type == CALLED[kind]["type"]
    back = ITEM.validate_python(whole.output[0].model_dump(exclude_none=True))
    assert back.call_id == "call_a"


@pytest.mark.parametrize("kind", KINDS)
def test_rule_66_a_stream_says_the_same_as_a_whole_answer(kind: str) -> None:
    request = responses(tools=[TOOLS[kind]], stream=True)
    events = streamed(request, (kind, json.dumps(SAID[kind])))

    (added,) = (e["item"] for e in events if e["type"] == "response.output_item.added")
    (done,) = (e["item"] for e in events if e["type"] == "response.output_item.done")
    assert (added["id"], added["status"]) == (done["id"], "in_progress")
    assert {name: done[name] for name in done if name != "id"} == CALLED[kind] | {
        "call_id": "call_0"
    }
    assert events[-1]["response"]["output"] == [done]
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    commands = [e for e in events if e["type"] == "response.shell_call_command.done"]
    assert [each["command"] for each in commands] == SAID[kind].get("commands", [])
    pieces = [e["delta"] for e in events if e["type"] == "response.shell_call_command.delta"]
    assert pieces == SAID[kind].get("commands", [])


@pytest.mark.parametrize("kind", KINDS)
@given(written=st.text() | st.from_type(dict[str, int | str | None]).map(json.dumps))
def test_rule_16_what_cannot_be_read_as_a_call_does_nothing_and_costs_no_answer(
    kind: str, written: str
) -> None:
    request = responses(tools=[TOOLS[kind]], stream=True)
    for cut in (written, json.dumps(SAID[kind])[:-2]):
        (done,) = (
            each["item"]
            for each in streamed(request, (kind, cut))
            if each["type"] == "response.output_item.done"
        )
        if kind in {"shell", "local_shell"}:
            assert done["action"].get("commands", done["action"].get("command")) == []
            assert done["status"] == "incomplete"
        elif kind == "apply_patch":
            assert done["operation"] == {"type": "update_file", "path": "", "diff": cut or "{}"}
        elif cut != written:
            assert (done["arguments"], done["status"]) == ({}, "incomplete")


def test_rule_66_a_function_of_the_same_name_stays_another_one() -> None:
    request = responses(tools=[SPAWN | {"name": "shell"}, TOOLS["shell"]])
    plain, built_in = names_of(to_openai(request)[0])
    assert plain == "shell"
    calls = (ToolCall("a", plain, "{}"), ToolCall("b", built_in, '{"commands":["ls"]}'))
    answer = Completion(b"", "x", "m", "", calls, "tool_use", None, Usage(1, 1))
    output = json.loads(RESPONSES.encode_reply(answer, "openai_chat", request))["output"]
    assert [item["type"] for item in output] == ["function_call", "shell_call"]


@pytest.mark.parametrize("kind", ["shell", "apply_patch"])
def test_rule_66_such_a_tool_can_be_chosen(kind: str) -> None:
    request = responses(tools=[SPAWN, TOOLS[kind]], tool_choice={"type": kind})
    assert to_anthropic(request)[0]["tool_choice"]["name"] == kind
    with pytest.raises(FeatureUnsupported, match="rule 19"):
        to_anthropic(responses(tools=[SPAWN], tool_choice={"type": kind}))


def test_rule_66_tools_that_a_search_found_can_be_called() -> None:
    body, _ = to_openai(gone_on("tool_search"))
    assert names_of(body) == ["tool_search", "agents__spawn", "agents__patch", "post"]


def test_rule_66_skills_and_what_an_output_was_cut_at_are_told() -> None:
    skill = {"name": "letters", "description": "Write letters.", "path": "skills/letters"}
    tool = {"type": "shell", "environment": {"type": "local", "skills": [skill]}}
    TOOL.validate_python(tool)
    cut = GAVE["shell"] | {"max_output_length": 5, "caller": {"type": "direct"}}
    items = [USER, CALLED["shell"] | IDS, cut, USER]
    body, dropped = to_openai(responses(tools=[tool], input=items))
    assert (
        "Skill letters in skills/letters: Write letters."
        in (body["tools"][0]["function"]["description"])
    )
    (told,) = (turn for turn in body["messages"] if turn["role"] == "tool")
    assert json.loads(told["content"]) == {"output": WRITTEN, "max_output_length": 5}
    assert dropped == set()


def test_rule_66_fields_that_nobody_knows_are_reported() -> None:
    call = CALLED["shell"] | IDS | {"caller": {"type": "program", "caller_id": "p"}, "hint": 1}
    items = [USER, call, GAVE["shell"] | {"created_by": "me"}, USER]
    _, dropped = to_openai(responses(tools=[TOOLS["shell"]], input=items))
    assert dropped == {"input.caller", "input.hint", "input.created_by"}


BROKEN: list[tuple[dict[str, Any], str]] = [
    (CALLED["shell"] | {"call_id": "call_a", "action": {"commands": "ls"}}, "input[1]"),
    (CALLED["apply_patch"] | {"call_id": "c", "operation": {"type": "move"}}, "input[1]"),
    (CALLED["tool_search"] | {"call_id": None}, "input[1].call_id"),
]


@pytest.mark.parametrize(("item", "place"), BROKEN)
def test_rule_66_an_item_that_cannot_be_read_is_refused_by_its_place(
    item: dict[str, Any], place: str
) -> None:
    with pytest.raises(FeatureUnsupported) as caught:
        to_openai(responses(tools=list(TOOLS.values()), input=[USER, item]))
    assert caught.value.parameter == place


IN_A_CONTAINER = {"type": "shell", "environment": {"type": "container_auto"}}
RAN_THERE = [
    CALLED["shell"] | IDS | {"environment": {"type": "container_reference", "container_id": "c"}},
    GAVE["shell"],
]
SEARCHED_THERE = [
    CALLED["tool_search"] | {"id": "t", "call_id": None, "execution": "server"},
    GAVE["tool_search"] | {"call_id": None, "execution": "server"},
]


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (responses(tools=[IN_A_CONTAINER, SPAWN]), {"tools.shell"}),
        (
            responses(tools=[SPAWN], input=[USER, *RAN_THERE, USER]),
            {"input.shell_call", "input.shell_call_output"},
        ),
        (
            responses(tools=[SPAWN], input=[USER, *SEARCHED_THERE, USER]),
            {"input.tool_search_call", "input.tool_search_output", "tools.format"},
        ),
    ],
)
def test_rule_19_what_the_vendor_ran_itself_is_left_out_only_where_that_is_set(
    request_: ChatRequest, told: set[str]
) -> None:
    for dialect in ("openai_chat", "anthropic_messages"):
        with pytest.raises(FeatureUnsupported, match=r"rule (19|8)\)"):
            DIALECTS[dialect].encode_request(request_, target(), 1000)
        upstream = DIALECTS[dialect].encode_request(request_, LENIENT, 1000)
        assert upstream.is_less
        assert set(upstream.dropped) == told
        assert b"exit_code" not in upstream.body


@pytest.mark.parametrize("kind", KINDS)
def test_rule_66_within_their_dialect_they_pass_unchanged(kind: str) -> None:
    request = gone_on(kind)
    upstream = RESPONSES.encode_request(request, target(), 1000)
    sent = json.loads(upstream.body)
    assert (sent["tools"], sent["input"]) == (request.tree["tools"], request.tree["input"])
    assert upstream.dropped == ()
