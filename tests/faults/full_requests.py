"""One request per endpoint with text in every place its dialect knows, and in unknown ones.

Every text in them is harmless, so that each request reaches the managed target that it names; a
test puts something else into one place at a time.
"""

import base64
import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET


Body = dict[str, Any]
Place = tuple[str | int, ...]


def data_url(media_type: str, text: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(text.encode()).decode()}"


TALKER, WRITER = "talking-model", "writing-model"
"""Managed targets that take chats and prompts as they come."""
SCHEMA: Body = {
    "type": "object",
    "title": "a title",
    "description": "what it is",
    "$comment": "a comment",
    "properties": {
        "city": {
            "type": "string",
            "enum": ["here", "there"],
            "default": "here",
            "examples": ["there"],
            "pattern": "^[a-z]+$",
            "format": "city",
        },
        "kind": {"const": "town", "minimum": 1},
        "part": {"$ref": "#/$defs/part"},
    },
    "required": ["city"],
    "patternProperties": {"^x": {"type": "string"}},
    "$defs": {"part": {"type": "string", "description": "a part"}},
}
ARGUMENTS = json.dumps({"city": "here", "inner": json.dumps({"deep": "there"})})
CHAT: Body = {
    "model": TALKER,
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "boss"},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Good"}, {"type": "text", "text": "morning"}],
            "name": "inge",
            "of_tomorrow": "says more",
        },
        {
            "role": "assistant",
            "content": "Hello",
            "name": "helper",
            "refusal": "not that",
            "reasoning_content": "I think",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "look", "arguments": ARGUMENTS},
                },
                {
                    "id": "call_2",
                    "type": "function",
                    "function": {"name": "look", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "found"},
        {
            "role": "tool",
            "tool_call_id": "call_2",
            "content": [{"type": "text", "text": "noted"}],
        },
        {"role": "user", "content": "Go on"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "look", "description": "looks", "parameters": SCHEMA},
        },
    ],
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "form", "description": "a form", "schema": SCHEMA},
    },
    "metadata": {"topic": "weather"},
    "user": "inge",
    "safety_identifier": "inge-hash",
    "prompt_cache_key": "morning",
    "stop": ["END", "STOP"],
    "logit_bias": {"50256": 1},
    "prediction": {"type": "content", "content": "It rains"},
    "verbosity": "low",
    "of_tomorrow": {"deep": ["x", {"y": "z"}], "count": 1},
}
MESSAGES: Body = {
    "model": CLAUDE_TARGET,
    "max_tokens": 30,
    "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
    "metadata": {"user_id": "inge"},
    "stop_sequences": ["END", "STOP"],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Good"},
                {"type": "text", "text": "morning"},
                {
                    "type": "document",
                    "title": "a title",
                    "context": "where from",
                    "citations": {"enabled": True},
                    "source": {"type": "text", "media_type": "text/plain", "data": "a page"},
                },
                {
                    "type": "document",
                    "source": {"type": "content", "content": [{"type": "text", "text": "piece"}]},
                },
                {
                    "type": "search_result",
                    "source": "a shelf",
                    "title": "a book",
                    "content": [{"type": "text", "text": "found"}],
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I think", "signature": "c2ln"},
                {
                    "type": "text",
                    "text": "As it says",
                    "citations": [
                        {
                            "type": "char_location",
                            "cited_text": "a page",
                            "document_index": 0,
                            "document_title": "a title",
                            "start_char_index": 0,
                            "end_char_index": 4,
                        }
                    ],
                },
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "look",
                    "input": {"city": "here", "list": ["a", "b"], "inner": ARGUMENTS},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "found"}, {"type": "text", "text": "it"}],
                },
                {"type": "text", "text": "Go on"},
            ],
        },
        {"role": "assistant", "content": "It"},
        {"role": "user", "content": "And?"},
    ],
    "tools": [{"name": "look", "description": "looks", "input_schema": SCHEMA}],
    "tool_choice": {"type": "tool", "name": "look"},
    "of_tomorrow": {"deep": ["x", {"y": "z"}], "count": 1},
}
RESPONSES: Body = {
    "model": GPT_TARGET,
    "instructions": "Be brief.",
    "input": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Good"},
                {"type": "input_text", "text": "morning"},
            ],
        },
        {
            "type": "message",
            "id": "msg_2",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [
                {"type": "summary_text", "text": "I think"},
                {"type": "summary_text", "text": "so"},
            ],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "look",
            "arguments": ARGUMENTS,
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "found"},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "note", "input": "words"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "noted"},
        {"role": "user", "content": "Go on"},
    ],
    "tools": [
        {"type": "function", "name": "look", "description": "looks", "parameters": SCHEMA},
        {
            "type": "custom",
            "name": "note",
            "description": "notes",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: WORD"},
        },
    ],
    "tool_choice": {"type": "function", "name": "look"},
    "text": {
        "format": {"type": "json_schema", "name": "form", "description": "f", "schema": SCHEMA}
    },
    "metadata": {"topic": "weather"},
    "user": "inge",
    "safety_identifier": "inge-hash",
    "prompt_cache_key": "morning",
    "store": False,
    "of_tomorrow": {"deep": ["x", {"y": "z"}], "count": 1},
}
EMBEDDINGS: Body = {
    "model": "text-embedding-3-small",
    "input": ["Good", "morning"],
    "user": "inge",
    "of_tomorrow": {"deep": ["x"]},
}
COMPLETIONS: Body = {
    "model": WRITER,
    "prompt": "Good morning",
    "stop": ["END"],
    "user": "inge",
    "of_tomorrow": {"deep": ["x"]},
}
DOORS: dict[str, Body] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSES,
    "/v1/embeddings": EMBEDDINGS,
    "/v1/completions": COMPLETIONS,
    "/v1/messages/count_tokens": {k: v for k, v in MESSAGES.items() if k != "max_tokens"},
    "/v1/responses/input_tokens": {k: v for k, v in RESPONSES.items() if k != "store"},
}


def places(node: object, way: Place = ()) -> Iterator[Place]:
    """The way to everything that stands in a body: values, lists and objects."""
    inside: list[tuple[str | int, object]] = []
    if isinstance(node, dict):
        inside = list(node.items())
    elif isinstance(node, list):
        inside = list(enumerate(node))
    if way:
        yield way
    for key, value in inside:
        yield from places(value, (*way, key))


def changed(body: Body, place: Place, change: Callable[[Any, str | int], None]) -> Body:
    """A copy in which `change` was made to whoever holds what stands at a place."""
    tree = copy.deepcopy(body)
    holder: Any = tree
    for step in place[:-1]:
        holder = holder[step]
    change(holder, place[-1])
    return tree


def put(said: object) -> Callable[[Any, str | int], None]:
    def change(holder: Any, key: str | int) -> None:
        holder[key] = said

    return change


def renamed(name: str) -> Callable[[Any, str | int], None]:
    """One member has this name instead of its own, at the same place among the others."""

    def change(holder: Any, key: str | int) -> None:
        members = [(name if each == key else each, value) for each, value in holder.items()]
        holder.clear()
        holder.update(members)

    return change


def added(said: object) -> Callable[[Any, str | int], None]:
    """One more element of a list, or a member of an object that nobody knows."""

    def change(holder: Any, key: str | int) -> None:
        if isinstance(holder[key], list):
            holder[key].append(said)
        else:
            holder[key]["more"] = said

    return change
