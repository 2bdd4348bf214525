"""A body that is wrong is refused with the path of what is wrong, in every dialect."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.anthropic_messages.counting import AnthropicTokenCount
from gateway.dialects.bodies.flaws import WALKED_CHARACTERS_MAX, path_to
from gateway.dialects.bodies.strict_json import decode_object
from gateway.dialects.openai_responses.counting import OpenAITokenCount
from gateway.dialects.registry import DIALECTS
from gateway.errors import RequestInvalid
from gateway.ports import Dialect


OBJECT: dict[str, Any] = {"type": "object"}
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "t"},
                {"type": "image_url", "image_url": {"url": "data:,a", "detail": "low"}},
                {"type": "file", "file": {"file_data": "data:,a", "filename": "f"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "refusal": "r",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "r"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "f", "strict": True, "parameters": OBJECT}}
    ],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "s", "schema": OBJECT, "strict": True},
    },
    "stream": True,
    "stream_options": {"include_usage": True},
    "stop": ["x"],
    "user": "u",
    "max_completion_tokens": 5,
    "temperature": 0.5,
    "top_p": 0.5,
    "n": 1,
    "seed": 1,
    "logprobs": True,
    "top_logprobs": 1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "logit_bias": {"1": 1},
    "parallel_tool_calls": True,
    "reasoning_effort": "low",
    "service_tier": "auto",
    "store": False,
    "metadata": {},
    "modalities": ["text"],
    "prediction": {},
    "verbosity": "low",
    "safety_identifier": "x",
    "prompt_cache_key": "k",
}
COUNT: dict[str, Any] = {
    "model": "m",
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "t"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "aa"},
                },
                {"type": "document", "source": {"type": "text", "data": "x"}, "title": "t"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "is_error": True,
                    "content": [{"type": "text", "text": "r"}],
                }
            ],
        },
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": OBJECT, "strict": True}],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": OBJECT}},
}
MESSAGES: dict[str, Any] = COUNT | {
    "max_tokens": 2000,
    "stop_sequences": ["x"],
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "metadata": {"user_id": "u"},
    "service_tier": "auto",
    "stream": True,
}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "t"},
                {"type": "input_image", "image_url": "data:,a", "detail": "low"},
                {"type": "input_file", "file_data": "data:,a", "filename": "f"},
            ],
        },
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "r"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
    ],
    "instructions": "i",
    "tools": [{"type": "function", "name": "f", "parameters": OBJECT, "strict": True}],
    "tool_choice": {"type": "function", "name": "f"},
    "text": {
        "format": {"type": "json_schema", "name": "s", "schema": OBJECT, "strict": True},
        "verbosity": "low",
    },
    "reasoning": {"effort": "low", "summary": "auto"},
    "max_output_tokens": 20,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_logprobs": 1,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "parallel_tool_calls": True,
    "user": "u",
    "metadata": {},
    "service_tier": "auto",
    "truncation": "disabled",
    "stream": True,
    "max_tool_calls": 3,
    "prompt_cache_key": "k",
}
EMBEDDINGS: dict[str, Any] = {
    "model": "m",
    "input": ["a", "b"],
    "encoding_format": "float",
    "dimensions": 3,
    "user": "u",
}
GOOD: dict[str, tuple[Dialect, dict[str, Any]]] = {
    "chat": (DIALECTS["openai_chat"], CHAT),
    "messages": (DIALECTS["anthropic_messages"], MESSAGES),
    "responses": (DIALECTS["openai_responses"], RESPONSES),
    "embeddings": (DIALECTS["openai_embeddings"], EMBEDDINGS),
    "count_tokens": (AnthropicTokenCount(), COUNT),
    "input_tokens": (OpenAITokenCount(), RESPONSES),
}
FREE = ("parameters.", "input_schema.", "schema.", "cache_control.", "logit_bias.")
"""Not ours to check: what is inside of a schema, and of fields that only pass by."""
JUNK: tuple[Any, ...] = (7, -5.5, True, "", [1], [{"x": 1}])
each_dialect = pytest.mark.parametrize("name", GOOD)


def places(node: object, path: str = "") -> Iterator[tuple[str, Any, Any, object]]:
    """Of every value below: its path, what holds it, under which key, and the value."""
    if isinstance(node, dict):
        for key, value in node.items():
            inner = f"{path}.{key}" if path else key
            yield inner, node, key, value
            yield from places(value, inner)
    elif isinstance(node, list):
        for at, value in enumerate(node):
            yield f"{path}[{at}]", node, at, value
            yield from places(value, f"{path}[{at}]")


def flaw(dialect: Dialect, raw: bytes) -> RequestInvalid | None:
    try:
        dialect.decode_request(raw, "req_1")
    except RequestInvalid as error:
        return error
    return None


@each_dialect
def test_a_value_of_another_type_is_refused_by_its_path(name: str) -> None:
    """Whatever is wrong with it: a path inside of it is as good, one beside it is not."""
    dialect, good = GOOD[name]
    assert flaw(dialect, json.dumps(good).encode()) is None
    tree = copy.deepcopy(good)
    for path, holder, key, value in list(places(tree)):
        if any(word in path for word in FREE):
            continue
        of_other_type = [each for each in JUNK if type(each) is not type(value)]
        refused = 0
        for junk in of_other_type:
            holder[key] = junk
            error = flaw(dialect, json.dumps(tree).encode())
            if error is not None:
                refused += 1
                assert error.parameter is not None, path
                assert error.parameter.startswith(path), (path, junk)
                assert error.message.startswith(error.parameter + ": ")
        holder[key] = value
        # Some values may be of two types: a text or a list, a whole number or a fraction.
        assert refused >= len(of_other_type) - 2, path


@pytest.mark.parametrize("name", sorted(GOOD.keys() - {"input_tokens"}))
def test_a_required_field_that_is_missing_is_named_by_its_path(name: str) -> None:
    dialect, good = GOOD[name]
    for field in ("model", "messages", "input", "max_tokens"):
        if field in good:
            tree = {key: value for key, value in good.items() if key != field}
            error = flaw(dialect, json.dumps(tree).encode())
            assert error is not None
            assert error.parameter == field


@pytest.mark.parametrize(
    ("name", "kind", "field"),
    [
        *(("chat", each, each) for each in ("text", "refusal", "image_url", "file")),
        *(("responses", each, "text") for each in ("input_text", "output_text")),
        ("responses", "refusal", "refusal"),
        ("messages", "text", "text"),
        ("messages", "image", "source"),
    ],
)
def test_a_part_without_what_its_kind_holds_is_refused_by_its_path(
    name: str, kind: str, field: str
) -> None:
    dialect, good = GOOD[name]
    turns = "input" if "input" in good else "messages"
    raw = json.dumps({**good, turns: [{"role": "user", "content": [{"type": kind}]}]}).encode()
    error = flaw(dialect, raw)

    assert error is not None
    assert error.parameter == f"{turns}[0].content[0].{field}"
    assert error.message == f"{error.parameter}: This field is required."


@each_dialect
def test_json_that_breaks_says_where_by_line_column_and_path(name: str) -> None:
    dialect, good = GOOD[name]
    whole = json.dumps(good, indent=1)
    for path, _, _, value in list(places(good)):
        if isinstance(value, str) and not any(word in path for word in FREE):
            marked = json.dumps(_with(good, path, "MARK"), indent=1)
            at = marked.index('"MARK"')
            error = flaw(dialect, (marked[:at] + "~").encode())
            assert error is not None
            line = marked.count("\n", 0, at) + 1
            column = at - marked.rfind("\n", 0, at)
            assert error.parameter == path
            assert error.message == (
                f"{path}: The body is not JSON: error at line {line}, column {column}."
            )
    assert flaw(dialect, whole.encode()) is None


def _with(tree: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    changed = copy.deepcopy(tree)
    holder, key = next((at, key) for found, at, key, _ in places(changed) if found == path)
    holder[key] = value
    return changed


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "The body is empty: send a JSON object."),
        (b'{"model": "m"} x', "The body is not JSON: error at line 1, column 16."),
        (
            b'{"model": "m",\n "messages": [{"role": "user" "x"}]}',
            "messages[0].role: The body is not JSON: error at line 2, column 31.",
        ),
        (
            b'{"my secret": {"\\"": [1, [2], 3 4]}}',
            "*.*[2]: The body is not JSON: error at line 1, column 33.",
        ),
        (
            b'{"messages": [{"content": "\xff"}]}',
            "messages[0].content: The body is not UTF-8: error at byte 27.",
        ),
        (
            b'{"tools": [{"n": "a", "n": 1}]}',
            "tools[0].n: The body is not acceptable JSON: an object in it has the same key twice.",
        ),
    ],
)
def test_what_breaks_is_told_in_words_of_the_dialect_and_none_of_the_body(
    raw: bytes, message: str
) -> None:
    error = flaw(DIALECTS["openai_chat"], raw)

    assert error is not None
    assert error.message == message


def test_a_flaw_far_inside_of_a_long_body_has_no_path() -> None:
    """Whoever sends it must not make us walk through all of it."""
    text = '{"messages": ["' + "x" * WALKED_CHARACTERS_MAX

    assert path_to(text, len(text)) == ""
    assert path_to(text, 20) == "messages[0]"


@pytest.mark.parametrize("rest", ['"b"', "[" * 5000, '"', "1" * 5000 + "}", "{]"])
def test_a_body_that_is_ambiguous_and_breaks_off_behind_it_is_refused_without_a_path(
    rest: str,
) -> None:
    for flaw in ('{"a":{"b":1,"b":2},', '{"a":NaN,', '{"a":1e400,'):
        with pytest.raises(RequestInvalid) as caught:
            decode_object((flaw + rest).encode())
        assert caught.value.parameter is None


@given(st.text(alphabet='{}[],:"\\ab1 \n', max_size=60), st.integers(0, 60))
def test_any_text_has_a_path_or_none(text: str, end: int) -> None:
    assert isinstance(path_to(text, end), str)


@pytest.mark.parametrize(
    ("flaw", "reason"),
    [
        (
            b'{"a":1,"a":2}',
            "The body is not acceptable JSON: an object in it has the same key twice.",
        ),
        (b"NaN", "The body is not acceptable JSON: NaN is not JSON."),
        (b'"\\ud800"', "The body holds half of a surrogate pair."),
        (b"[" * 80 + b"]" * 80, "The body is nested more than 64 levels deep."),
    ],
)
def test_in_a_body_of_very_many_values_no_path_is_looked_for(flaw: bytes, reason: str) -> None:
    few, many = (b'{"x":[' + b"[]," * count + flaw + b"]}" for count in (9, 30_000))
    with pytest.raises(RequestInvalid) as told:
        decode_object(few)
    with pytest.raises(RequestInvalid) as untold:
        decode_object(many)

    assert told.value.parameter
    assert told.value.message.endswith(f": {reason}")
    assert untold.value.parameter is None
    assert untold.value.message == reason
