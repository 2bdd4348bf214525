"""Tools of messages that the caller runs and Claude knows by their types, at other targets."""

import json
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types.beta import BetaMemoryTool20250818Command, BetaToolUnionParam
from pydantic import TypeAdapter

from gateway.conversation import ResponseFormat
from gateway.dialects.bodies.schema_check import unmet
from gateway.errors import FeatureUnsupported
from tests.conformance.test_rules_of_responses import to_responses
from tests.conformance.vendor_samples import members, sample
from tests.gateway.dialects.samples import messages, sse, to_anthropic, to_openai
from tests.running_gateway import CLAUDE_TARGET, DEMO, GPT_TARGET, RunningGateway, Upstreams
from tests.upstream_responses import openai_response
from tests.upstreams import Answer


MEMORY: TypeAdapter[Any] = TypeAdapter(BetaMemoryTool20250818Command)
RUN_BY_CALLERS = ("bash_", "text_editor_", "memory_", "computer_2")
OFFERED = [
    tool
    for tool in map(sample, members(BetaToolUnionParam))
    if str(tool.get("type")).startswith(RUN_BY_CALLERS)
]
"""One of every version that the vendor's types know."""
KINDS = [tool["type"] for tool in OFFERED]
CALLED: dict[str, list[dict[str, Any]]] = {
    "bash": [{"command": "ls"}, {"restart": True}],
    "str_replace_editor": [
        {"command": "view", "path": "/a", "view_range": [1, 9]},
        {"command": "create", "path": "/a", "file_text": "x"},
        {"command": "str_replace", "path": "/a", "old_str": "x", "new_str": "y"},
        {"command": "insert", "path": "/a", "insert_line": 0, "new_str": "y"},
        {"command": "undo_edit", "path": "/a"},
    ],
    "str_replace_based_edit_tool": [
        {"command": "view", "path": "/a"},
        {"command": "create", "path": "/a", "file_text": "x"},
        {"command": "str_replace", "path": "/a", "old_str": "x", "new_str": "y"},
        {"command": "insert", "path": "/a", "insert_line": 0, "insert_text": "y"},
    ],
    "memory": [
        {"command": "view", "path": "/memories", "view_range": [1, 2]},
        {"command": "create", "path": "/memories/a", "file_text": "x"},
        {"command": "str_replace", "path": "/memories/a", "old_str": "x", "new_str": "y"},
        {"command": "insert", "path": "/memories/a", "insert_line": 1, "insert_text": "y"},
        {"command": "delete", "path": "/memories/a"},
        {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/b"},
    ],
    "computer": [
        {"action": "screenshot"},
        {"action": "left_click", "coordinate": [3, 4]},
        {"action": "type", "text": "x"},
        {"action": "key", "text": "ctrl+s"},
    ],
}
LATER_ACTIONS: list[dict[str, Any]] = [
    {"action": "scroll", "coordinate": [3, 4], "scroll_direction": "down", "scroll_amount": 3},
    {"action": "left_click_drag", "start_coordinate": [1, 2], "coordinate": [3, 4]},
    {"action": "hold_key", "text": "shift", "duration": 1.5},
]
WRONG: list[dict[str, Any]] = [
    {"command": 7},
    {"action": "fly"},
    {"command": "fly"},
    {"path": "/a", "b": 1},
]


def function_of(tool: dict[str, Any]) -> dict[str, Any]:
    body, dropped = to_openai(messages(tools=[tool]))
    assert dropped == set(), "a key that leaves nothing out may use it"
    (written,) = body["tools"]
    assert written["function"]["name"] == tool["name"]
    return dict(written["function"])


def takes(function: dict[str, Any], called: dict[str, Any]) -> bool:
    asked = ResponseFormat("json_schema", schema=function["parameters"])
    return unmet(asked, json.dumps(called)) == ""


@pytest.mark.parametrize("tool", OFFERED, ids=KINDS)
def test_rule_67_a_tool_known_by_its_type_becomes_a_function_that_takes_what_calls_of_it_say(
    tool: dict[str, Any],
) -> None:
    function = function_of(tool)
    assert function["description"]
    for called in CALLED[tool["name"]]:
        assert takes(function, called), called
    for wrong in WRONG:
        assert tool["name"] == "bash" or not takes(function, wrong), wrong
    assert not takes(function, {"of_another_tool": 1})

    body, dropped = to_responses(messages(tools=[tool]))
    assert body["tools"][0]["parameters"] == function["parameters"]
    assert dropped == set()


def test_rule_67_every_command_of_a_memory_is_one_to_the_vendors_own_types() -> None:
    for called in CALLED["memory"]:
        MEMORY.validate_python(called)
    commands = {called["command"] for called in CALLED["memory"]}
    (memory,) = (tool for tool in OFFERED if tool["name"] == "memory")
    assert set(function_of(memory)["parameters"]["properties"]["command"]["enum"]) == commands


def test_rule_67_older_versions_do_what_they_did() -> None:
    by_kind = {tool["type"]: function_of(tool)["parameters"]["properties"] for tool in OFFERED}
    assert "undo_edit" in by_kind["text_editor_20250124"]["command"]["enum"]
    assert "undo_edit" not in by_kind["text_editor_20250728"]["command"]["enum"]
    assert "scroll" not in by_kind["computer_20241022"]["action"]["enum"]
    for kind in ("computer_20250124", "computer_20251124"):
        (tool,) = (each for each in OFFERED if each["type"] == kind)
        for called in LATER_ACTIONS:
            assert takes(function_of(tool), called), called


def test_rule_67_what_such_a_tool_says_of_itself_is_told() -> None:
    screen = {"display_width_px": 1024, "display_height_px": 768, "display_number": 2}
    computer = {"type": "computer_20251124", "name": "computer"} | screen
    told = function_of(computer)["description"]
    assert "1024 pixels wide and 768 pixels high" in told
    assert "display 2" in told
    zoomed = {"action": "zoom", "region": [0, 0, 10, 10]}
    assert not takes(function_of(computer), zoomed)
    assert takes(function_of(computer | {"enable_zoom": True}), zoomed)

    editor = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}
    assert "5000 characters" in function_of(editor | {"max_characters": 5000})["description"]
    assert "characters" not in function_of(editor)["description"]
    assert (
        '[{"command":"view"}]'
        in function_of(editor | {"input_examples": [{"command": "view"}]})["description"]
    )
    body, dropped = to_openai(messages(tools=[editor | {"of_tomorrow": 1}]))
    assert dropped == {"tools.of_tomorrow"}
    assert len(body["tools"]) == 1


def test_rule_67_one_of_them_can_be_insisted_on() -> None:
    bash = {"type": "bash_20250124", "name": "bash"}
    asked = messages(tools=[bash], tool_choice={"type": "tool", "name": "bash"})
    assert to_openai(asked)[0]["tool_choice"] == {"type": "function", "function": {"name": "bash"}}


@pytest.mark.parametrize("kind", ["bash_20990101", "computer_toolset_20260801", "memory"])
def test_rule_19_a_version_whose_words_nobody_knows_is_refused(kind: str) -> None:
    with pytest.raises(FeatureUnsupported, match="rule 19"):
        to_openai(messages(tools=[{"type": kind, "name": "x"}]))


def test_rule_67_the_vendors_own_target_gets_the_tool_as_it_is() -> None:
    for tool in OFFERED:
        body, dropped = to_anthropic(messages(tools=[tool]))
        assert body["tools"] == [tool]
        assert dropped == set()


def calling(name: str, arguments: str, *, stream: bool) -> Answer:
    """A call of a tool by one of OpenAI's models, whole or streamed as it is asked for."""
    whole = openai_response(Answer(text=""), "m")
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name}
    done = call | {"arguments": arguments, "status": "completed"}
    begun = {"response": whole | {"status": "in_progress", "output": [], "usage": None}}
    item = {"item_id": "fc_1", "output_index": 0}
    said: list[tuple[str, dict[str, Any]]] = [
        ("response.created", begun),
        ("response.output_item.added", {"output_index": 0, "item": call | {"arguments": ""}}),
        ("response.function_call_arguments.delta", item | {"delta": arguments[:5]}),
        ("response.function_call_arguments.delta", item | {"delta": arguments[5:]}),
        ("response.output_item.done", {"output_index": 0, "item": done}),
        ("response.completed", {"response": whole | {"output": [done]}}),
    ]
    if stream:
        return Answer(events=tuple(sse(name, **fields) for name, fields in said))
    return Answer(body=json.dumps(whole | {"output": [done]}).encode())


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True])
async def test_rule_67_the_official_client_gets_a_call_of_its_tool_and_gives_its_result(
    gateway: RunningGateway, upstreams: Upstreams, *, stream: bool
) -> None:
    key = await gateway.issue_key(DEMO, translation="strict")
    called = {"command": "view", "path": "/memories"}
    upstreams.openai.answer(Answer(text="Nothing yet."))
    upstreams.openai.answer_once(calling("memory", json.dumps(called), stream=stream))
    talk: list[Any] = [{"role": "user", "content": "What did we do?"}]
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0) as client:
        asked: dict[str, Any] = {
            "model": GPT_TARGET,
            "max_tokens": 100,
            "tools": [{"type": "memory_20250818", "name": "memory"}],
        }

        async def ask() -> Any:
            if not stream:
                return await client.messages.create(messages=talk, **asked)
            async with client.messages.stream(messages=talk, **asked) as events:
                return await events.get_final_message()

        answer = await ask()
        (use,) = (block for block in answer.content if block.type == "tool_use")
        assert (use.name, use.input) == ("memory", called)
        assert answer.stop_reason == "tool_use"
        talk += [
            {"role": "assistant", "content": answer.content},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "Empty."}],
            },
        ]
        assert (await ask()).content[-1].text == "Nothing yet."


@pytest.mark.anyio
async def test_rule_68_a_key_that_leaves_nothing_out_may_send_what_agents_send_in_every_turn(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key(DEMO, translation="strict")
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        answer = await client.responses.with_raw_response.create(
            model=CLAUDE_TARGET,
            input="Good morning",
            store=False,
            prompt_cache_key="thread-1",
            include=["reasoning.encrypted_content"],
            reasoning={"effort": "medium", "summary": "auto"},
            parallel_tool_calls=False,
            tools=[{"type": "function", "name": "exec", "parameters": None, "strict": False}],
            extra_body={"client_metadata": {"session_id": "thread-1"}},
        )
        assert "x-gatewright-dropped" not in answer.headers
        (call,) = upstreams.anthropic.calls
        assert call.json["thinking"] == {"type": "adaptive", "display": "summarized"}
        assert b"thread-1" not in call.body

        with pytest.raises(openai.BadRequestError, match="verbosity"):
            await client.responses.create(
                model=CLAUDE_TARGET, input="Good morning", text={"verbosity": "low"}
            )
    assert len(upstreams.anthropic.calls) == 1
