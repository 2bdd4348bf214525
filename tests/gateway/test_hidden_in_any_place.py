"""A number in any place of any request, in any of many disguises, is found or not let in."""

import asyncio
import base64
import copy
import html
import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classifiers.complexity.model import load
from gateway.clock import SystemClock
from gateway.configuration.sections import InspectionSettings
from gateway.dialects.registry import DIALECTS
from gateway.errors import GatewrightError
from gateway.inspection.inspector import Inspector
from gateway.types import DialectName
from tests.classifiers import samples


ORG = "acme"
RANDOM = random.Random(41)
VALUES = {
    "CREDIT_CARD": samples.with_luhn("4" + samples.digits(RANDOM, 14)),
    "IN_AADHAAR": samples.aadhaar(RANDOM),
    "IBAN": samples.iban(RANDOM),
}


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def with_digits_of(zero: int) -> Callable[[str], str]:
    return lambda value: "".join(chr(zero + int(c)) if c.isdigit() else c for c in value)


DISGUISES: dict[str, Callable[[str], str]] = {
    "none": lambda value: value,
    "a sentence": lambda value: f"Please charge {value} today.",
    "a query": lambda value: f"https://shop.example/pay?no={value}&x=1",
    "groups": lambda value: samples.grouped(value, " "),
    "groups with dashes": lambda value: samples.grouped(value, "-"),
    "groups with blanks that are kept": lambda value: samples.grouped(value, "\xa0"),
    "nothing that is seen": "\u200b".join,
    "full width": with_digits_of(0xFF10),
    "Arabic digits": with_digits_of(0x0660),
    "percents": lambda value: "".join(f"%{ord(char):02x}" for char in value),
    "entities": lambda value: "".join(f"&#{ord(char)};" for char in value),
    "escapes": lambda value: "".join(f"\\u{ord(char):04x}" for char in value),
    "JSON in JSON": lambda value: json.dumps({"a": json.dumps({"b": value})}),
    "base64": b64,
    "base64 of an address": lambda value: b64(f"card: {value}").replace("+", "-").rstrip("="),
    "base64 of JSON": lambda value: json.dumps({"x": b64(json.dumps({"no": value}))}),
    "base64 of entities": lambda value: b64(html.escape(f"<b>\xa0{value}</b>")),
    "hexadecimal": lambda value: value.encode().hex(),
}
SCHEMA = {
    "type": "object",
    "description": "d",
    "properties": {"city": {"type": "string", "enum": ["a"], "default": "x", "examples": ["e"]}},
    "required": ["city"],
    "$defs": {"x": {"const": "k", "title": "y"}},
}
FILE = "data:text/plain;base64,aGVsbG8="
CHAT = {
    "model": "auto",
    "messages": [
        {"role": "system", "content": "sys", "name": "n"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
                {"type": "file", "file": {"file_data": FILE, "filename": "a.txt"}},
            ],
        },
        {
            "role": "assistant",
            "content": "a",
            "refusal": "r",
            "reasoning_content": "think",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "res"}]},
    ],
    "tools": [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
    ],
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    "metadata": {"k": "v"},
    "user": "u",
    "stop": ["s"],
    "prediction": {"type": "content", "content": "pred"},
    "prompt_cache_key": "pk",
    "of_tomorrow": {"deep": ["x", {"y": 1}]},
}
MESSAGES = {
    "model": "auto",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "sys"}],
    "metadata": {"user_id": "u"},
    "stop_sequences": ["s"],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hi"},
                {
                    "type": "document",
                    "title": "t",
                    "context": "c",
                    "source": {"type": "text", "media_type": "text/plain", "data": "doc"},
                },
                {
                    "type": "search_result",
                    "source": "src",
                    "title": "tt",
                    "content": [{"type": "text", "text": "found"}],
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "th", "signature": "c2ln"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"city": "x"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "text", "text": "res"}],
                }
            ],
        },
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
    "of_tomorrow": {"deep": ["x", {"y": 1}]},
}
RESPONSES = {
    "model": "auto",
    "instructions": "ins",
    "input": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "hi"},
                {"type": "input_file", "filename": "a.txt", "file_data": FILE},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "sum"}],
            "encrypted_content": "ZW5j",
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "res"},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "in"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "out"},
    ],
    "tools": [
        {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA},
        {
            "type": "custom",
            "name": "g",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
        },
    ],
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
    "metadata": {"k": "v"},
    "user": "u",
    "of_tomorrow": {"deep": ["x", {"y": 1}]},
}
BODIES: dict[DialectName, dict[str, Any]] = {
    "openai_chat": CHAT,
    "anthropic_messages": MESSAGES,
    "openai_responses": RESPONSES,
}
Place = tuple[str | int, ...]


def places(node: Any, way: Place = ()) -> Iterator[Place]:
    """Of all texts, all objects (for one more key) and all lists (for one more entry)."""
    if isinstance(node, dict | list):
        yield way
        inside = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in inside:
            yield from places(value, (*way, key))
    elif isinstance(node, str) and not node.startswith("data:"):
        yield way


PLACES = [(dialect, place) for dialect, body in BODIES.items() for place in places(body)]


def put(body: dict[str, Any], place: Place, text: str) -> dict[str, Any]:
    body = copy.deepcopy(body)
    node: Any = body
    for key in place[:-1]:
        node = node[key]
    there = node[place[-1]] if place else body
    if isinstance(there, dict):
        there[text] = 1
    elif isinstance(there, list):
        there.append(text)
    else:
        node[place[-1]] = text
    return body


def test_every_body_is_a_request() -> None:
    for dialect, body in BODIES.items():
        DIALECTS[dialect].decode_request(msgspec.json.encode(body), "req_1")


def test_a_number_in_any_place_and_any_disguise_is_found_or_refused() -> None:
    inspector, runner = Inspector(InspectionSettings(), load(), SystemClock()), asyncio.Runner()

    @settings(max_examples=60)
    @given(st.sampled_from(PLACES), st.sampled_from(list(DISGUISES)), st.sampled_from(list(VALUES)))
    def is_found(where: tuple[DialectName, Place], disguise: str, label: str) -> None:
        dialect, place = where
        body = put(BODIES[dialect], place, DISGUISES[disguise](VALUES[label]))
        try:
            request = DIALECTS[dialect].decode_request(msgspec.json.encode(body), "req_1")
        except GatewrightError:
            return
        seen = runner.run(inspector.inspect(request, ORG))
        assert label in seen.findings
        assert seen.data_class >= "S3"

    with closing(inspector), runner:
        is_found()


@pytest.mark.parametrize("kind", ["text/plain", "application/pdf", "image/png"])
def test_a_file_counts_as_unread_whatever_is_found_in_it(kind: str) -> None:
    with closing(Inspector(InspectionSettings(), load(), SystemClock())) as inspector:
        for disguised, (label, value) in product(DISGUISES.values(), VALUES.items()):
            data = f"data:{kind};base64,{b64(disguised(value))}"
            part = {"type": "file", "file": {"file_data": data, "filename": "a.txt"}}
            body = {"model": "auto", "messages": [{"role": "user", "content": [part]}]}
            request = DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")
            seen = asyncio.run(inspector.inspect(request, ORG))
            assert "opaque:document" in seen.incomplete_reasons
            assert seen.data_class == "S4"
            assert label in seen.findings or disguised is not DISGUISES["none"]
