"""What programs ask and get, each shape in the words of every caller: texts, turns, limits."""

from base64 import b64encode
from typing import Any

from msgspec import Struct, structs

from tests.conformance.round_trips.asked import Asked
from tests.conformance.round_trips.said import Call, Likely, Said


Json = dict[str, Any]


class Shape(Struct, frozen=True, kw_only=True):
    """One request in three dialects, what it asks in none of them, and its answer.

    None where a dialect has no word for it. `asks` is what has to arrive at every upstream that
    does not report or refuse it; the plain question and the tool beside it go without saying.
    """

    chat: Json | None = None
    responses: Json | None = None
    messages: Json | None = None
    asks: Asked = {}
    said: Said = Said(text="It is 120 years old.")
    has_tools: bool = False
    """Whether it brings tools of its own."""


QUESTION = "How old is the bridge?"
ASKED = [["user", ["text", QUESTION]]]
USER: Json = {"role": "user", "content": QUESTION}


def _alike(fields: Json, **asks: Any) -> Shape:
    """A field that all three dialects call the same; Anthropic's client knows no sampling now."""
    return Shape(chat=fields, responses=fields, messages={"extra_body": fields}, asks=asks)


def _turns(*turns: tuple[str, str]) -> Shape:
    said = [{"role": role, "content": text} for role, text in turns]
    asks = {"turns": [[role, ["text", text]] for role, text in turns]}
    return Shape(
        chat={"messages": said}, responses={"input": said}, messages={"messages": said}, asks=asks
    )


def _parts(chat: Json, responses: Json, messages: Json, *part: Any) -> Shape:
    """A question with one more part in front of it."""
    told = {"type": "text", "text": QUESTION}
    turns = [["user", list(part), ["text", QUESTION]]]
    return Shape(
        chat={"messages": [{"role": "user", "content": [chat, told]}]},
        responses={
            "input": [
                {
                    "role": "user",
                    "content": [responses, {"type": "input_text", "text": QUESTION}],
                }
            ]
        },
        messages={"messages": [{"role": "user", "content": [messages, told]}]},
        asks={"turns": turns},
    )


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
PDF = b64encode(b"%PDF-1.4\n% a page that says nothing, at some length\n%%EOF\n").decode()
PICTURE_URL = "https://pictures.example/bridge.png"
BRIDGE: Json = {
    "type": "object",
    "properties": {"age": {"type": "integer"}, "name": {"type": "string"}},
    "required": ["age", "name"],
    "additionalProperties": False,
}
FACT = '{"age": 120, "name": "Old Bridge"}'
LONG = 'Ünïcödé 漢字 🌉 \u2028 "quoted" \\ back\tslash\n</script>'

LIKELY_CHAT: Json = {"logprobs": True, "top_logprobs": 1}
LIKELY_RESPONSES: Json = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
LIKELY = Shape(
    chat=LIKELY_CHAT,
    responses=LIKELY_RESPONSES,
    asks={"likely": 1},
    said=Said(
        text="It is",
        likely=(
            Likely("It", -0.25, (("It", -0.25),)),
            Likely(" is", -0.5, ((" was", -1.5),)),
        ),
    ),
)

PLAIN: dict[str, Shape] = {
    "a question": Shape(chat={}, responses={}, messages={}),
    "a system text": Shape(
        chat={"messages": [{"role": "system", "content": "Be brief."}, USER]},
        responses={"instructions": "Be brief."},
        messages={"system": "Be brief."},
        asks={"system": ["Be brief."]},
    ),
    "a developer text": Shape(
        chat={"messages": [{"role": "developer", "content": "Be brief."}, USER]},
        responses={"input": [{"role": "developer", "content": "Be brief."}, USER]},
        asks={"system": ["Be brief."]},
    ),
    "system blocks": Shape(
        chat={
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "system", "content": "Be kind."},
                USER,
            ]
        },
        messages={
            "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
        },
        asks={"system": ["Be brief.", "Be kind."]},
    ),
    "several turns": _turns(("user", "Hi"), ("assistant", "Hello."), ("user", QUESTION)),
    "letters of many kinds": Shape(
        chat={"messages": [{"role": "user", "content": LONG}]},
        responses={"input": LONG},
        messages={"messages": [{"role": "user", "content": LONG}]},
        asks={"turns": [["user", ["text", LONG]]]},
        said=Said(text=LONG),
    ),
    "an empty answer": Shape(chat={}, responses={}, messages={}, said=Said(output_tokens=1)),
    "temperature": _alike({"temperature": 0.25}, temperature=0.25),
    "top_p": _alike({"top_p": 0.5}, top_p=0.5),
    "a limit": Shape(
        chat={"max_tokens": 64},
        responses={"max_output_tokens": 64},
        messages={"max_tokens": 64},
        asks={"limit": 64},
        said=Said(text="It is 120", end="length", output_tokens=64),
    ),
    "stop sequences": Shape(
        chat={"stop": ["END", "STOP"]},
        messages={"stop_sequences": ["END", "STOP"]},
        asks={"stop": ["END", "STOP"]},
        said=Said(text="It is 120", end="stop", stopped_at="END"),
    ),
    "a seed": Shape(chat={"seed": 7}, asks={"seed": 7}),
    "two answers": Shape(chat={"n": 2}, asks={"n": 2}),
    "an end user": Shape(
        chat={"user": "0f8fad5b-d9cb-469f-a165-70867728950e"},
        responses={"user": "0f8fad5b-d9cb-469f-a165-70867728950e"},
        messages={"metadata": {"user_id": "0f8fad5b-d9cb-469f-a165-70867728950e"}},
        asks={"user": "0f8fad5b-d9cb-469f-a165-70867728950e"},
    ),
    "any tier": _alike({"service_tier": "auto"}, tier="auto"),
    "metadata": Shape(chat={"metadata": {"team": "x"}}, responses={"metadata": {"team": "x"}}),
    "effort": Shape(
        chat={"reasoning_effort": "high"},
        responses={"reasoning": {"effort": "high"}},
        messages={"output_config": {"effort": "high"}},
        asks={"effort": "high"},
        said=Said(thought="Built in 1906.", text="It is 120 years old.", reasoning_tokens=4),
    ),
    "a budget for thinking": Shape(
        messages={"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 4096},
        asks={"limit": 4096},
        said=Said(thought="Built in 1906.", text="It is 120 years old."),
    ),
    "adaptive thinking": Shape(
        messages={"thinking": {"type": "adaptive"}, "max_tokens": 4096},
        asks={"limit": 4096},
        said=Said(thought="Built in 1906.", text="It is 120 years old."),
    ),
    "an answer in a schema": Shape(
        chat={
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "bridge", "schema": BRIDGE, "strict": True},
            }
        },
        responses={
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": "bridge",
                    "schema": BRIDGE,
                    "strict": True,
                }
            }
        },
        messages={"output_config": {"format": {"type": "json_schema", "schema": BRIDGE}}},
        asks={"schema": BRIDGE, "strict": True},
        said=Said(text=FACT),
    ),
    "an answer in JSON": Shape(
        chat={"response_format": {"type": "json_object"}},
        responses={"text": {"format": {"type": "json_object"}}},
        asks={"json": True},
        said=Said(text=FACT),
    ),
    "a picture": _parts(
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {
            "type": "input_image",
            "image_url": f"data:image/png;base64,{PNG}",
            "detail": "auto",
        },
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        *("picture", "image/png", PNG),
    ),
    "a picture by address": _parts(
        {"type": "image_url", "image_url": {"url": PICTURE_URL}},
        {"type": "input_image", "image_url": PICTURE_URL, "detail": "auto"},
        {"type": "image", "source": {"type": "url", "url": PICTURE_URL}},
        *("picture at", PICTURE_URL),
    ),
    "a document": _parts(
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
        },
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": f"data:application/pdf;base64,{PDF}",
        },
        {
            "type": "document",
            "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
        },
        *("file", "a.pdf", f"data:application/pdf;base64,{PDF}"),
    ),
    "a refusal": Shape(
        chat={},
        responses={},
        messages={},
        said=Said(refusal="I cannot help with that.", end="filter"),
    ),
    "an answer that was filtered": Shape(
        chat={}, responses={}, messages={}, said=Said(text="It is", end="filter")
    ),
    "cached tokens": Shape(
        chat={},
        responses={},
        messages={},
        said=Said(text="It is 120.", input_tokens=2000, cached_tokens=1536),
    ),
    "probabilities": LIKELY,
    "probabilities without thinking": structs.replace(
        LIKELY,
        chat={"reasoning_effort": "none", **LIKELY_CHAT},
        responses={"reasoning": {"effort": "none"}, **LIKELY_RESPONSES},
        asks={"effort": "none", "likely": 1},
    ),
}

AGE: Json = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
TOOL = ["age_of", "Say how old a bridge is.", AGE, False]
TOOLS: Json = {
    "chat": [
        {
            "type": "function",
            "function": {"name": TOOL[0], "description": TOOL[1], "parameters": AGE},
        }
    ],
    "responses": [
        {
            "type": "function",
            "name": TOOL[0],
            "description": TOOL[1],
            "parameters": AGE,
            "strict": False,
        }
    ],
    "messages": [{"name": TOOL[0], "description": TOOL[1], "input_schema": AGE}],
}
CALLED = Said(calls=(Call("age_of", {"name": "Old Bridge"}),), end="tool")


def _tooled(chat: Json, responses: Json, messages: Json, said: Said = CALLED, **asks: Any) -> Shape:
    return Shape(
        chat={"tools": TOOLS["chat"]} | chat,
        responses={"tools": TOOLS["responses"]} | responses,
        messages={"tools": TOOLS["messages"]} | messages,
        asks={"tools": [TOOL]} | asks,
        said=said,
        has_tools=True,
    )


def _worked(chat: list[Json], responses: list[Json], messages: list[Json], *result: Any) -> Shape:
    """A history with a call, and what came of it."""
    arguments = '{"name": "Old Bridge"}'
    called = {"name": "age_of", "arguments": arguments}
    call = {"id": "call_1", "type": "function", "function": called}
    use = {"type": "tool_use", "id": "call_1", "name": "age_of", "input": {"name": "Old Bridge"}}
    item = {"type": "function_call", "call_id": "call_1", **called}
    turns = [
        ["user", ["text", QUESTION]],
        ["assistant", ["call", "call_1", "age_of", {"name": "Old Bridge"}]],
        ["user", *result],
    ]
    return _tooled(
        {"messages": [USER, {"role": "assistant", "tool_calls": [call]}, *chat]},
        {"input": [USER, item, *responses]},
        {"messages": [USER, {"role": "assistant", "content": [use]}, *messages]},
        Said(text="It is 120 years old."),
        turns=turns,
    )


def _result(content: Any, **more: Any) -> Json:
    block = {"type": "tool_result", "tool_use_id": "call_1", "content": content} | more
    return {"role": "user", "content": [block]}


PICTURED: Json = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PNG},
}
_LONG_ARGUMENTS: Json = {"name": 'Brücke "Alt" \\ 🌉 ' * 40, "deep": {"list": [1, 2.5, None, True]}}

TOOLED: dict[str, Shape] = {
    "a tool": _tooled({}, {}, {}),
    "a tool that is not called": _tooled({}, {}, {}, Said(text="It is 120 years old.")),
    "words before a call": _tooled(
        {}, {}, {}, Said(text="Let me see.", calls=CALLED.calls, end="tool")
    ),
    "calls side by side": _tooled(
        *({}, {}, {}),
        Said(
            calls=(
                Call("age_of", {"name": "Old Bridge"}, "call_1"),
                Call("age_of", {"name": "New Bridge"}, "call_2"),
            ),
            end="tool",
        ),
    ),
    "a call without arguments": _tooled({}, {}, {}, Said(calls=(Call("age_of", {}),), end="tool")),
    "long arguments": _tooled(
        {}, {}, {}, Said(calls=(Call("age_of", _LONG_ARGUMENTS),), end="tool")
    ),
    "a call that may be made": _tooled(
        *({"tool_choice": "auto"}, {"tool_choice": "auto"}, {"tool_choice": {"type": "auto"}}),
        choice="auto",
    ),
    "a call that has to be made": _tooled(
        *({"tool_choice": "required"}, {"tool_choice": "required"}),
        {"tool_choice": {"type": "any"}},
        choice="required",
    ),
    "a call of one tool": _tooled(
        {"tool_choice": {"type": "function", "function": {"name": "age_of"}}},
        {"tool_choice": {"type": "function", "name": "age_of"}},
        {"tool_choice": {"type": "tool", "name": "age_of"}},
        choice="age_of!",
    ),
    "no call": _tooled(
        *({"tool_choice": "none"}, {"tool_choice": "none"}, {"tool_choice": {"type": "none"}}),
        Said(text="It is 120 years old."),
        choice="none",
    ),
    "one call at a time": _tooled(
        *({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        alone=True,
    ),
    "a strict tool": Shape(
        chat={
            "tools": [
                {"type": "function", "function": TOOLS["chat"][0]["function"] | {"strict": True}}
            ]
        },
        responses={"tools": [TOOLS["responses"][0] | {"strict": True}]},
        messages={"tools": [TOOLS["messages"][0] | {"strict": True}]},
        asks={"tools": [[*TOOL[:3], True]]},
        said=CALLED,
        has_tools=True,
    ),
    "a result": _worked(
        [{"role": "tool", "tool_call_id": "call_1", "content": "120"}],
        [{"type": "function_call_output", "call_id": "call_1", "output": "120"}],
        [_result("120")],
        ["result", "call_1", "120"],
    ),
    "results side by side": _tooled(
        {
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": "Two.",
                    "tool_calls": [
                        {
                            "id": f"call_{number}",
                            "type": "function",
                            "function": {"name": "age_of", "arguments": '{"name":"B"}'},
                        }
                        for number in (1, 2)
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "120"},
                {"role": "tool", "tool_call_id": "call_2", "content": "7"},
            ]
        },
        {
            "input": [
                USER,
                {"role": "assistant", "content": "Two."},
                *(
                    {
                        "type": "function_call",
                        "call_id": f"call_{number}",
                        "name": "age_of",
                        "arguments": '{"name":"B"}',
                    }
                    for number in (1, 2)
                ),
                {"type": "function_call_output", "call_id": "call_1", "output": "120"},
                {"type": "function_call_output", "call_id": "call_2", "output": "7"},
            ]
        },
        {
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Two."},
                        *(
                            {
                                "type": "tool_use",
                                "id": f"call_{number}",
                                "name": "age_of",
                                "input": {"name": "B"},
                            }
                            for number in (1, 2)
                        ),
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "call_1", "content": "120"},
                        {"type": "tool_result", "tool_use_id": "call_2", "content": "7"},
                    ],
                },
            ]
        },
        Said(text="120 and 7."),
        turns=[
            *ASKED,
            [
                "assistant",
                ["text", "Two."],
                ["call", "call_1", "age_of", {"name": "B"}],
                ["call", "call_2", "age_of", {"name": "B"}],
            ],
            ["user", ["result", "call_1", "120"], ["result", "call_2", "7"]],
        ],
    ),
    "a result and a question": _worked(
        [{"role": "tool", "tool_call_id": "call_1", "content": "120"}, USER],
        [{"type": "function_call_output", "call_id": "call_1", "output": "120"}, USER],
        [
            {
                "role": "user",
                "content": [*_result("120")["content"], {"type": "text", "text": QUESTION}],
            }
        ],
        *(["result", "call_1", "120"], ["text", QUESTION]),
    ),
    "a picture in a result": Shape(
        messages={
            "tools": TOOLS["messages"],
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": "call_1", "name": "age_of", "input": {}}
                    ],
                },
                _result([{"type": "text", "text": "See:"}, PICTURED]),
            ],
        },
        responses={
            "tools": TOOLS["responses"],
            "input": [
                USER,
                {
                    "type": "function_call",
                    "call_id": "call_1",
                    "name": "age_of",
                    "arguments": "{}",
                },
                {
                    "type": "function_call_output",
                    "call_id": "call_1",
                    "output": [
                        {"type": "input_text", "text": "See:"},
                        {
                            "type": "input_image",
                            "image_url": f"data:image/png;base64,{PNG}",
                            "detail": "auto",
                        },
                    ],
                },
            ],
        },
        asks={
            "tools": [TOOL],
            "turns": [
                *ASKED,
                ["assistant", ["call", "call_1", "age_of", {}]],
                ["user", ["result", "call_1", "See:", ["picture", "image/png", PNG]]],
            ],
        },
        has_tools=True,
    ),
    "a result that failed": Shape(
        messages={
            "tools": TOOLS["messages"],
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": "call_1", "name": "age_of", "input": {}}
                    ],
                },
                _result("No such bridge", is_error=True),
            ],
        },
        asks={
            "tools": [TOOL],
            "turns": [
                *ASKED,
                ["assistant", ["call", "call_1", "age_of", {}]],
                ["user", ["failed", "call_1", "No such bridge"]],
            ],
        },
        has_tools=True,
    ),
    "an empty result": _worked(
        [{"role": "tool", "tool_call_id": "call_1", "content": ""}],
        [{"type": "function_call_output", "call_id": "call_1", "output": ""}],
        [_result("")],
        ["result", "call_1"],
    ),
    "thoughts, words and calls": _tooled(
        *({}, {}, {}),
        Said(thought="Built in 1906.", text="Let me see.", calls=CALLED.calls, end="tool"),
    ),
    "a limit within a call": _tooled(
        *({"max_tokens": 64}, {"max_output_tokens": 64}, {"max_tokens": 64}),
        Said(text="Let me", end="length", output_tokens=64),
        limit=64,
    ),
    "stop sequences beside tools": Shape(
        chat={"tools": TOOLS["chat"], "stop": ["END"]},
        messages={"tools": TOOLS["messages"], "stop_sequences": ["END"]},
        asks={"tools": [TOOL], "stop": ["END"]},
        said=Said(text="It is 120", end="stop", stopped_at="END"),
        has_tools=True,
    ),
    "a search of the vendor's": Shape(
        chat={"web_search_options": {}},
        responses={"tools": [{"type": "web_search"}]},
        messages={"tools": [{"type": "web_search_20260209", "name": "web_search"}]},
        has_tools=True,
    ),
}

SHAPES = PLAIN | TOOLED
