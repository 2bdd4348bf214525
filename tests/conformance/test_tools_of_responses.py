"""Tools that only responses have, at targets that know functions only, and back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.dialects.openai_responses.tools import called_there
from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported
from gateway.ports import UpstreamBody
from gateway.types import ChatRequest, Completion, Target, ToolCall, Usage
from tests.conformance.test_rules_of_responses import RESPONSES, USER, datas, responses
from tests.gateway.dialects.samples import (
    charged,
    chat,
    chunk,
    decoded,
    messages,
    target,
    to_anthropic,
    to_openai,
)


SCHEMA = {"type": "object", "properties": {"message": {"type": "string"}}}
SPAWN = {"type": "function", "name": "spawn", "description": "Start one.", "parameters": SCHEMA}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
PATCH = {"type": "custom", "name": "patch", "description": "Change a file.", "format": GRAMMAR}
AGENTS = {"type": "namespace", "name": "agents", "description": "Helpers.", "tools": [SPAWN, PATCH]}
SEARCH = {"type": "web_search", "external_web_access": True}
SPAWNED = {
    "type": "function_call",
    "call_id": "call_a",
    "namespace": "agents",
    "name": "spawn",
    "arguments": '{"message":"go"}',
}
PATCHED = {
    "type": "custom_tool_call",
    "call_id": "call_b",
    "namespace": "agents",
    "name": "patch",
    "input": 'a "quoted"\nline',
}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
LENIENT: Target = structs.replace(target(), leaves_out_hosted=True)


def output(item: dict[str, Any], **fields: Any) -> dict[str, Any]:
    kind = "custom_tool_call_output" if "input" in item else "function_call_output"
    return {"type": kind, "call_id": item["call_id"], "output": "ok"} | fields


def names_of(body: dict[str, Any]) -> list[str]:
    tools = body.get("tools", ())
    return [(each.get("function") or each.get("custom") or each)["name"] for each in tools]


def less(request: ChatRequest, dialect: str = "openai_chat") -> UpstreamBody:
    """The request at a target that is set to leave out what only another vendor runs."""
    return DIALECTS[dialect].encode_request(request, LENIENT, 1000)  # type: ignore[index]


def test_rule_65_functions_of_a_namespace_get_names_of_their_own_and_say_what_it_is() -> None:
    plain = SPAWN | {"name": "plain"}
    body, _ = to_openai(responses(tools=[plain, AGENTS]))
    assert names_of(body) == ["plain", "agents__spawn", "agents__patch"]
    spawn, patch = (each["function"] for each in body["tools"][1:])
    assert spawn["description"] == "agents: Helpers.\n\nStart one."
    assert spawn["parameters"] == SCHEMA
    assert patch["description"] == "Change a file."
    assert patch["parameters"]["required"] == ["input"]
    about = patch["parameters"]["properties"]["input"]["description"]
    assert about.endswith("lark grammar:\nstart: /.+/")

    body, dropped = to_anthropic(responses(tools=[plain, AGENTS]))
    assert names_of(body) == ["plain", "agents__spawn", "agents__patch"]
    assert dropped == {"tools.format"}, "nobody there keeps to a grammar"


def test_rule_65_calls_and_results_of_the_history_have_the_same_names() -> None:
    turns = [USER, SPAWNED, output(SPAWNED), PATCHED, output(PATCHED), USER]
    request = responses(tools=[AGENTS], input=turns)

    body, dropped = to_openai(request)
    calls = [call for turn in body["messages"] for call in turn.get("tool_calls", ())]
    assert [call["function"]["name"] for call in calls] == ["agents__spawn", "agents__patch"]
    assert json.loads(calls[1]["function"]["arguments"]) == {"input": PATCHED["input"]}
    assert [turn.get("tool_call_id") for turn in body["messages"]][2::2] == ["call_a", "call_b"]
    assert dropped == {"tools.format"}

    body, _ = to_anthropic(request)
    used = [b for t in body["messages"] for b in t["content"] if b["type"] == "tool_use"]
    assert [(b["name"], b["input"]) for b in used] == [
        ("agents__spawn", {"message": "go"}),
        ("agents__patch", {"input": PATCHED["input"]}),
    ]


def test_rule_65_calls_come_back_as_what_they_are_here() -> None:
    request = responses(tools=[SPAWN, AGENTS])
    calls = (
        ToolCall("call_a", "agents__spawn", '{"message":"go"}'),
        ToolCall("call_b", "agents__patch", json.dumps({"input": PATCHED["input"]})),
        ToolCall("call_c", "spawn", "{}"),
    )
    answer = Completion(b"", "x", "m", "", calls, "tool_use", None, Usage(1, 1))
    raw = RESPONSES.encode_reply(answer, "openai_chat", request)

    Response.model_validate_json(raw)
    told = [
        {name: item[name] for name in item if name not in {"id", "status"}}
        for item in json.loads(raw)["output"]
    ]
    assert told == [
        SPAWNED,
        PATCHED,
        {"type": "function_call", "call_id": "call_c", "name": "spawn", "arguments": "{}"},
    ]


def streamed(request: ChatRequest, *calls: tuple[str, str]) -> list[dict[str, Any]]:
    """What a caller gets of a stream of chunks with these calls, cut in the middle of each."""
    pieces = [chunk({"role": "assistant"})]
    for index, (name, arguments) in enumerate(calls):
        begun = {"index": index, "id": f"call_{index}", "function": {"name": name}}
        pieces.append(chunk({"tool_calls": [begun]}))
        for piece in (arguments[:7], arguments[7:]):
            more = {"index": index, "function": {"arguments": piece}}
            pieces.append(chunk({"tool_calls": [more]}))
    pieces += (chunk({}, "tool_calls"), b"data: [DONE]\n\n")
    events = decoded("openai_chat", b"".join(pieces))
    encoder = RESPONSES.stream_encoder(request, "openai_chat")
    stream = encoder.encode(events) + encoder.finish("", charged(events))
    found = datas(stream)
    for event in found:
        EVENT.validate_python(event)
    return found


def test_rule_65_a_stream_says_the_same_as_a_whole_answer() -> None:
    text = json.dumps({"input": PATCHED["input"]})
    calls = (("agents__spawn", '{"message":"go"}'), ("agents__patch", text))
    events = streamed(responses(tools=[AGENTS], stream=True), *calls)

    added = [each["item"] for each in events if each["type"] == "response.output_item.added"]
    assert [(each["type"], each["namespace"], each["name"]) for each in added] == [
        ("function_call", "agents", "spawn"),
        ("custom_tool_call", "agents", "patch"),
    ]
    done = [each["item"] for each in events if each["type"] == "response.output_item.done"]
    assert [each.get("arguments", each.get("input")) for each in done] == [
        '{"message":"go"}',
        PATCHED["input"],
    ]
    assert events[-1]["response"]["output"] == done
    kinds = [each["type"].removeprefix("response.") for each in events]
    assert kinds.count("function_call_arguments.delta") == 2
    said = [each for each in events if each["type"].startswith("response.custom_tool_call_input")]
    assert [each.get("delta", each.get("input")) for each in said] == [PATCHED["input"]] * 2
    assert [each["sequence_number"] for each in events] == list(range(len(events)))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{}", ""),
        ("", ""),
        ('{"input":"a"}', "a"),
        ('{"input":"a","more":1}', "a"),
        ('{"input":7}', '{"input":7}'),
        ("*** Begin", "*** Begin"),
        ('{"input":"cut', '{"input":"cut'),
    ],
)
def test_rule_65_whatever_a_model_writes_for_a_custom_tool_is_its_text(
    written: str, meant: str
) -> None:
    request = responses(tools=[PATCH], stream=True)
    (done,) = (
        each["item"]
        for each in streamed(request, ("patch", written))
        if each["type"] == "response.output_item.done"
    )
    assert (done["type"], done["input"]) == ("custom_tool_call", meant)
    assert "namespace" not in done


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "name": "spawn", "namespace": "agents"}, "agents__spawn"),
        ({"type": "function", "name": "spawn"}, "agents__spawn"),
        ({"type": "custom", "name": "patch"}, "agents__patch"),
        ({"type": "function", "name": "plain"}, "plain"),
        ({"type": "function", "name": "other"}, "other"),
    ],
)
def test_rule_65_a_choice_names_the_tool_that_is_meant(choice: dict[str, str], name: str) -> None:
    tools = [SPAWN | {"name": "plain"}, AGENTS]
    body, _ = to_anthropic(responses(tools=tools, tool_choice=choice))
    assert body["tool_choice"]["name"] == name


def test_rule_12_of_allowed_tools_no_others_are_offered_elsewhere() -> None:
    look = {"type": "function", "name": "look", "parameters": SCHEMA}
    listed = [{"type": "function", "name": "look"}, {"type": "custom", "name": "patch"}]
    asked = responses(
        tools=[look, AGENTS],
        tool_choice={"type": "allowed_tools", "mode": "required", "tools": listed},
    )
    body, dropped = to_openai(asked, "tools")

    assert [name.rpartition("_")[2] for name in names_of(body)] == ["look", "patch"]
    assert body["tool_choice"] == "required"
    assert not any(name.startswith("tool_choice") for name in dropped)
    body, _ = to_openai(asked, "tools", "max_completion_tokens")
    assert [name.rpartition("_")[2] for name in names_of(body)] == ["look", "spawn", "patch"]
    allowed = body["tool_choice"]["allowed_tools"]
    assert (body["tool_choice"]["type"], allowed["mode"]) == ("allowed_tools", "required")
    assert names_of(allowed) == ["look", "agents__patch"]
    listed.append({"type": "web_search"})
    with pytest.raises(FeatureUnsupported, match=r"tool_choice\.tools\[2\]\.type"):
        to_openai(
            responses(
                tools=[look, AGENTS],
                tool_choice={"type": "allowed_tools", "mode": "auto", "tools": listed},
            )
        )


def test_rule_65_a_choice_that_could_be_two_tools_is_refused() -> None:
    tools = [AGENTS, AGENTS | {"name": "others"}]
    with pytest.raises(FeatureUnsupported, match="Several namespaces"):
        to_openai(responses(tools=tools, tool_choice={"type": "function", "name": "spawn"}))


def test_rule_65_tools_that_an_item_brings_are_tools_and_the_last_one_counts() -> None:
    bringing = {"type": "additional_tools", "role": "developer", "tools": [AGENTS, SPAWN]}
    newer = SPAWN | {"description": "Newer."}
    items = [bringing, USER, SPAWNED, output(SPAWNED), bringing | {"tools": [newer]}, USER]
    request = responses(input=items)

    assert request.has_tools
    body, _ = to_openai(request)
    assert names_of(body) == ["agents__spawn", "agents__patch", "spawn"]
    assert body["tools"][2]["function"]["description"] == "Newer."
    roles = [turn["role"] for turn in body["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]


def test_rule_65_what_agents_tell_each_other_is_a_user_s_text_unless_it_is_sealed() -> None:
    parts = [
        {"type": "input_text", "text": "Task:"},
        {"type": "encrypted_content", "encrypted_content": "make a file"},
    ]
    message = {"type": "agent_message", "author": "/a", "recipient": "/a/b", "content": parts}
    body, dropped = to_anthropic(responses(input=[message]))
    assert [part["text"] for part in body["messages"][0]["content"]] == ["Task:", "make a file"]
    assert dropped == {"input.author", "input.recipient"}

    sealed = {"type": "encrypted_content", "encrypted_content": "gAAAA" + "aB3_" * 40 + "=="}
    with pytest.raises(FeatureUnsupported, match="Only its own vendor"):
        to_anthropic(responses(input=[message | {"content": [sealed]}]))


def test_rule_65_namespaces_and_custom_tools_pass_unchanged_within_their_dialect() -> None:
    upstream = RESPONSES.encode_request(responses(tools=[AGENTS, SEARCH]), target(), 1000)
    assert json.loads(upstream.body)["tools"] == [AGENTS, SEARCH]
    assert (upstream.dropped, upstream.is_less) == ((), False)


@pytest.mark.parametrize(
    ("tools", "place"),
    [
        ([{"type": "computer"}], "tools[0].type"),
        ([{"type": "computer_use_preview"}], "tools[0].type"),
        ([AGENTS | {"tools": [{"type": "shell"}]}], "tools[0].tools[0].type"),
        ([AGENTS | {"tools": [AGENTS]}], "tools[0].tools[0].type"),
        ([AGENTS | {"tools": ["spawn"]}], "tools[0].tools"),
    ],
)
def test_rule_19_a_tool_that_its_caller_runs_is_never_left_out(
    tools: list[dict[str, Any]], place: str
) -> None:
    with pytest.raises(FeatureUnsupported) as caught:
        less(responses(tools=tools))
    assert caught.value.parameter == place


@pytest.mark.parametrize("hidden", ["server_url", "vector_store_ids", "container"])
@pytest.mark.parametrize("where", ["namespace", "item", "both"])
def test_rule_56_nothing_hides_in_a_namespace_or_in_tools_of_an_item(
    hidden: str, where: str
) -> None:
    values = {"server_url": "https://a.example", "vector_store_ids": ["vs"], "container": "c"}
    tool = SPAWN | {hidden: values[hidden]}
    tools = [AGENTS | {"tools": [tool]}] if where != "item" else [tool]
    item = {"type": "additional_tools", "role": "developer", "tools": tools}
    fields = {"tools": tools} if where == "namespace" else {"input": [item, USER]}
    if hidden == "server_url":
        ((place, address),) = responses(**fields).destinations
        assert place.endswith("tools[0].server_url")
        assert address == "https://a.example"
        return
    with pytest.raises(FeatureUnsupported, match="rule 56"):
        responses(**fields)


NAMES = st.text(st.sampled_from("ab_.-"), min_size=1, max_size=6) | st.just("x" * 90)
TOOLS = st.tuples(st.sampled_from(["", "a", "a_", "b__a", "y" * 70]), NAMES, st.booleans())


@given(st.lists(TOOLS, min_size=1, max_size=12, unique=True))
def test_rule_65_no_two_tools_of_a_request_have_one_name_and_each_finds_its_way_back(
    found: list[tuple[str, str, bool]],
) -> None:
    tools: list[dict[str, Any]] = []
    for space, name, is_custom in found:
        tool = {"type": "custom" if is_custom else "function", "name": name}
        wrapped = {"type": "namespace", "name": space, "description": "", "tools": [tool]}
        tools.append(wrapped if space else tool)
    request = responses(tools=tools)
    there = names_of(to_openai(request)[0])

    back = called_there(request.tree)
    for name, (space, own, is_custom) in zip(there, found, strict=True):
        called = back.get(name)
        if space or is_custom or called is not None:
            assert called is not None
            assert (called.namespace, called.name, called.is_custom) == (space, own, is_custom)
        else:
            assert name == own
    valid = names_of(to_anthropic(request)[0])
    assert len(set(valid)) == len(valid)
    assert all(len(name) <= 64 and name.replace("-", "_").isidentifier() for name in valid)


def test_rule_65_names_stay_the_same_when_the_conversation_goes_on() -> None:
    first = responses(tools=[AGENTS])
    later = responses(tools=[AGENTS], input=[USER, SPAWNED, output(SPAWNED), USER])
    assert called_there(first.tree) == called_there(later.tree)


CITED: dict[str, Any] = {
    "role": "assistant",
    "content": [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "text", "text": "Found."},
    ],
}
SERVER = {"type": "web_search_20250305", "name": "web_search"}
OWN = {"name": "f", "input_schema": {"type": "object"}}
SEARCHED = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"q": "x"}}
HOSTED: list[tuple[ChatRequest, set[str]]] = [
    (responses(tools=[SPAWN, SEARCH]), {"tools.web_search"}),
    (responses(tools=[SEARCH | {"type": "web_search_preview_2025_03_11"}]), {"tools.web_search"}),
    (
        responses(tools=[{"type": "code_interpreter", "container": {"type": "auto"}}]),
        {"tools.code_interpreter"},
    ),
    (responses(tools=[{"type": "tool_search"}, SPAWN]), {"tools.tool_search"}),
    (
        responses(input=[USER, SEARCHED, {"role": "assistant", "content": "Found."}, USER]),
        {"input.web_search_call"},
    ),
    (messages(tools=[SERVER, OWN]), {"tools.web_search"}),
    (
        messages(messages=[USER, CITED, USER]),
        {"messages.server_tool_use", "messages.web_search_tool_result"},
    ),
    (chat(web_search_options={}), {"web_search_options"}),
]


@pytest.mark.parametrize(("request_", "names"), HOSTED, ids=[str(names) for _, names in HOSTED])
def test_rule_19_what_a_vendor_runs_is_left_out_where_the_target_is_set_to_and_told(
    request_: ChatRequest, names: set[str]
) -> None:
    for name, dialect in DIALECTS.items():
        if name not in {"openai_chat", "anthropic_messages", "openai_responses"}:
            continue
        if name == request_.dialect:
            continue
        with pytest.raises(FeatureUnsupported, match=r"rule (19|8)\)"):
            dialect.encode_request(request_, target(), 1000)
        upstream = less(request_, name)
        assert upstream.is_less
        assert set(upstream.dropped) == names
        assert b"search" not in upstream.body
        assert b"interpreter" not in upstream.body


@pytest.mark.parametrize(
    "asked",
    [
        responses(tools=[SEARCH, SPAWN], tool_choice={"type": "web_search"}),
        responses(tools=[SEARCH], tool_choice="required"),
        messages(tools=[SERVER, OWN], tool_choice={"type": "tool", "name": "web_search"}),
        messages(tools=[SERVER], tool_choice={"type": "any"}),
    ],
)
def test_rule_19_a_tool_that_has_to_be_called_is_not_left_out(asked: ChatRequest) -> None:
    with pytest.raises(FeatureUnsupported, match="rule 19"):
        less(asked)


def test_rule_19_what_is_left_out_is_told_before_all_that_has_no_word() -> None:
    more = {f"field_{number}": 1 for number in range(60)}
    upstream = less(responses(tools=[SEARCH, SPAWN], **more))
    assert upstream.dropped[0] == "tools.web_search"
    assert upstream.dropped[-1] == "and_more"
