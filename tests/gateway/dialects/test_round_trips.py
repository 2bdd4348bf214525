"""A conversation that crosses to the other dialect and back is the same conversation."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.dialects.samples import ANTHROPIC, OPENAI, target


HERE = target(
    *("mid_system", "prefill", "effort", "reasoning_effort", "json_schema", "cache_breakpoints"),
    model="m",
    parameters={"top_k": "yes"},
)
WORDS = st.text('abc ü\u2028{}"\\', min_size=1, max_size=8).filter(str.strip)
NAMES = st.sampled_from(["weather", "clock", "search-2"])
IMAGES = st.sampled_from(
    ["data:image/png;base64,AAAA", "https://a.example/b.png", "http://c.example/d?e=f"]
)
ARGUMENTS = st.dictionaries(
    st.text("ab", max_size=3),
    st.integers() | WORDS | st.booleans() | st.floats(allow_nan=False, allow_infinity=False),
    max_size=3,
).map(lambda tree: json.dumps(tree, separators=(",", ":")))


SCALARS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"type": "string", "enum": ["a", "b"]},
        {"type": "integer", "description": "How many."},
        {"anyOf": [{"type": "number"}, {"type": "null"}]},
        {"type": "string", "format": "date"},
    ]
)


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """An object as every vendor enforces it."""
    needed = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **needed}


SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    SCALARS,
    lambda inner: (
        st.dictionaries(st.sampled_from(["a", "b", "minimum", "type"]), inner, max_size=3).map(
            closed
        )
        | inner.map(lambda items: {"type": "array", "items": items})
    ),
    max_leaves=4,
).map(lambda schema: schema if schema.get("type") == "object" else closed({"only": schema}))


def asked_in(schema: dict[str, Any]) -> dict[str, Any]:
    form = {"name": "structured_output", "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": form}


@st.composite
def offered(draw: st.DrawFn, name: str) -> dict[str, Any]:
    tool = {"name": name, "description": draw(WORDS), "parameters": draw(SCHEMAS)}
    return {"type": "function", "function": tool | {"strict": draw(st.booleans())}}


@st.composite
def user_turns(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        return {"role": "user", "content": draw(WORDS)}
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": words} for words in draw(st.lists(WORDS, min_size=1, max_size=2))
    ]
    if draw(st.booleans()):
        parts[-1]["prompt_cache_breakpoint"] = {"mode": "explicit"}
    parts.append({"type": "image_url", "image_url": {"url": draw(IMAGES)}})
    if draw(st.booleans()):
        file = {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}
        parts.append({"type": "file", "file": file})
    return {"role": "user", "content": parts}


@st.composite
def tool_turns(draw: st.DrawFn, turn: int) -> list[dict[str, Any]]:
    calls, results = [], []
    for index in range(draw(st.integers(1, 3))):
        name, arguments = draw(NAMES), draw(ARGUMENTS)
        identity = f"call_{turn}_{index}"
        function = {"name": name, "arguments": arguments}
        calls.append({"id": identity, "type": "function", "function": function})
        mark = "[tool_error]\n" if draw(st.booleans()) else ""
        content: Any = mark + draw(WORDS)
        if draw(st.booleans()):
            more = {"type": "text", "text": draw(WORDS)}
            content = [{"type": "text", "text": content}, more]
        results.append({"role": "tool", "tool_call_id": identity, "content": content})
    words = draw(st.none() | WORDS)
    return [{"role": "assistant", "content": words, "tool_calls": calls}, *results]


@st.composite
def conversations(draw: st.DrawFn) -> dict[str, Any]:
    talk = [{"role": "system", "content": draw(WORDS)}] if draw(st.booleans()) else []
    talk.append(draw(user_turns()))
    for turn in range(draw(st.integers(0, 2))):
        talk += draw(tool_turns(turn))
        if draw(st.booleans()):
            talk.append({"role": "system", "content": draw(WORDS)})
        talk.append({"role": "assistant", "content": draw(WORDS)})
        talk.append(draw(user_turns()))
    tools = [draw(offered(name)) for name in draw(st.sets(NAMES)) | {"weather"}]
    choices = st.sampled_from(
        ["auto", "none", "required", {"type": "function", "function": {"name": "weather"}}]
    )
    body: dict[str, Any] = {
        "model": "m",
        "messages": talk,
        "max_tokens": 1000,
        "tools": tools,
        "tool_choice": draw(choices),
    }
    optional = {
        "temperature": st.floats(0, 1),
        "top_p": st.floats(0, 1),
        "stop": st.lists(WORDS, min_size=1, max_size=4),
        "user": st.uuids().map(str),
        "service_tier": st.just("auto"),
        "reasoning_effort": st.sampled_from(["low", "medium", "high"]),
        "response_format": SCHEMAS.map(asked_in),
    }
    for name, values in optional.items():
        if draw(st.booleans()):
            body[name] = draw(values)
    return body


def there(body: dict[str, Any]) -> dict[str, Any]:
    upstream = ANTHROPIC.encode_request(
        OPENAI.decode_request(json.dumps(body).encode(), "r"), HERE, 1000
    )
    assert upstream.dropped == ()
    return dict(json.loads(upstream.body))


def back(body: dict[str, Any]) -> dict[str, Any]:
    upstream = OPENAI.encode_request(
        ANTHROPIC.decode_request(json.dumps(body).encode(), "r"), HERE, 1000
    )
    assert upstream.dropped == ()
    return dict(json.loads(upstream.body))


def comparable(body: dict[str, Any]) -> dict[str, Any]:
    """Arguments by value: their spelling is the model's, their meaning is the contract."""
    for message in body["messages"]:
        for call in message.get("tool_calls", ()):
            function = call["function"]
            function["arguments"] = json.loads(function["arguments"] or "{}")
    return body


@given(conversations())
def test_chat_to_messages_and_back_changes_nothing(body: dict[str, Any]) -> None:
    returned = back(there(body))
    assert comparable(returned) == comparable(body)


@given(conversations())
def test_messages_to_chat_and_back_changes_nothing(body: dict[str, Any]) -> None:
    first = there(body)
    assert there(back(first)) == first


def test_a_crossing_is_byte_stable_across_turns_so_that_prompt_caches_hold() -> None:
    talk = [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}]
    later = [*talk, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    bodies = [
        ANTHROPIC.encode_request(
            OPENAI.decode_request(json.dumps({"model": "m", "messages": messages}).encode(), "r"),
            HERE,
            1000,
        ).body
        for messages in (talk, later)
    ]
    shared = bodies[0].removesuffix(b"]}")
    assert bodies[1].startswith(shared)
