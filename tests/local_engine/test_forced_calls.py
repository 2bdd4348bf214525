"""The grammar of a call that has to be made: its arguments are those of the tool's own schema."""

import json
from typing import Any

import pytest

from local_engine.model.config import SamplingDefaults
from local_engine.model.manifest import open_model
from local_engine.serve.api.chat_request import read_chat_request
from local_engine.serve.api.errors import InvalidRequest
from local_engine.text.grammar import GrammarRefused
from local_engine.text.tokenizer import load_chat_tokenizer
from tests.local_engine.models import DEMO_MODEL
from tests.local_engine.test_grammar import COMPILER, EOS, RAW


CITY = {"enum": ["Rome", "Bern"]}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def only(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def grammar_of(*parameters: Any) -> str:
    """Of a call of `f0`, `f1`, …, which take these."""
    tools = [
        {"type": "function", "function": {"name": f"f{number}", "parameters": schema}}
        for number, schema in enumerate(parameters)
    ]
    asked = {"model": "m", "messages": [{"role": "user", "content": "a"}], "tools": tools}
    body = json.dumps({**asked, "tool_choice": "required"}).encode()
    with open_model(DEMO_MODEL) as files:
        tokenizer = load_chat_tokenizer(files)
    grammar = read_chat_request(body, SamplingDefaults(), tokenizer).params.grammar
    assert grammar is not None
    return grammar


def may_call(grammar: str, name: str, arguments: Any) -> bool:
    """Whether the call may be written, and ends the answer."""
    call = json.dumps({"name": name, "arguments": arguments}, separators=(",", ":"))
    state = COMPILER.compile(grammar)
    for token in [*RAW.encode(call, add_special_tokens=False).ids, EOS]:
        if not state.allowed()[token]:
            return False
        if token != EOS:
            state.accept(token)
    return True


BY_REFERENCE: dict[str, dict[str, Any]] = {
    "a nested model of pydantic": {"$defs": {"C": CITY}, **only(city={"$ref": "#/$defs/C"})},
    "nothing but a reference": {"$ref": "#/definitions/O", "definitions": {"O": only(city=CITY)}},
    "the same in the words of 2018": {
        "$schema": DRAFT_7,
        "$ref": "#/definitions/O",
        "definitions": {"O": only(city=CITY)},
    },
    "a reference beside other rules": {
        "$ref": "#/$defs/O",
        "$defs": {"O": only(city={"type": "string"})},
        "allOf": [only(city=CITY)],
    },
    "a name of its own": {
        "$id": "https://example.com/o.json",
        "$defs": {"C": CITY},
        **only(city={"$ref": "https://example.com/o.json#/$defs/C"}),
    },
}


@pytest.mark.parametrize("kind", BY_REFERENCE)
def test_references_of_arguments_are_followed(kind: str) -> None:
    other = {"$defs": {"C": {"const": "Oslo"}}, **only(city={"$ref": "#/$defs/C"})}
    alone, among = grammar_of(BY_REFERENCE[kind]), grammar_of(other, BY_REFERENCE[kind])
    for city, is_right in (("Rome", True), ("Bern", True), ("Oslo", False), (5, False)):
        assert may_call(alone, "f0", {"city": city}) == is_right
        assert may_call(among, "f1", {"city": city}) == is_right
    assert may_call(among, "f0", {"city": "Oslo"})
    assert not may_call(among, "f0", {"city": "Rome"})


def test_arguments_that_hold_their_like_hold_no_calls() -> None:
    grammar = grammar_of({**only(), "properties": {"next": {"$ref": "#"}}})
    assert may_call(grammar, "f0", {"next": {"next": {}}})
    assert not may_call(grammar, "f0", {"next": {"name": "f0", "arguments": {}}})


@pytest.mark.parametrize(
    "schema", [{"$ref": "#/none"}, {"$ref": 5}, {"$ref": "#", "allOf": 5}, {"$id": 5, "type": 6}]
)
def test_a_schema_that_is_none_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises((InvalidRequest, GrammarRefused)):
        COMPILER.compile(grammar_of(schema))
