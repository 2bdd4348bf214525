"""Every field that the vendors' types know, however deep, crosses, is reported or is refused.

The probes are written by hand; these are made from the types themselves, so that a field which a
new version of an SDK brings is one of them before anybody has thought of it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import pytest

from gateway.errors import GatewrightError
from gateway.types import DialectName
from tests.conformance.probes import BASES, NAMES, Row, read, written
from tests.conformance.test_vendor_types import HELD, TOPS, Json
from tests.conformance.vendor_samples import fields_of, is_shaped, members, sample


DEPTH = 2
USER = {"role": "user", "content": "Hi"}
ANYTHING = object()
ASKS_NOTHING: Mapping[str, tuple[object, ...]] = {
    # What a vendor names its items by, and how far they came.
    "input.id": (ANYTHING,),
    "input.status": (ANYTHING,),
    # What is so unless something else is asked for.
    "top.n": (1,),
    "top.stream": (False,),
    "top.store": (True, False),
    "top.verbosity": ("medium",),
    "top.text.verbosity": ("medium",),
    "top.truncation": ("disabled",),
    "top.modalities": (["text"],),
    "top.response_format": ({"type": "text"},),
    "top.text.format": ({"type": "text"},),
    "top.parallel_tool_calls": (True, False),
    "part.image_url.detail": ("auto",),
    "messages.content.image_url.detail": ("auto",),
    "tools.allowed_callers": (["direct"],),
    "tools.defer_loading": (False,),
    # Arguments come as they are written to who asks for that, whoever writes them.
    "tools.eager_input_streaming": (ANYTHING,),
    "tools.format": ({"type": "text"},),
    "tools.custom.format": ({"type": "text"},),
    "tools.tools.format": ({"type": "text"},),
    "tools.environment": ({"type": "local"},),
    "input.tools.format": ({"type": "text"},),
    "input.tools.tools.format": ({"type": "text"},),
    "input.tools.environment": ({"type": "local"},),
    "input.environment": ({"type": "local"},),
    "input.caller": ({"type": "direct"},),
    # Formats are enforced there in any case.
    "top.response_format.json_schema.strict": (True,),
    "top.text.format.strict": (True,),
    # Said of tools where there are none, and of such as only their vendor runs.
    "top.tool_choice": (ANYTHING,),
    "top.function_call": (ANYTHING,),
    "top.tool_choice.disable_parallel_tool_use": (ANYTHING,),
    "top.include": (ANYTHING,),
    # What was thought before is read again where it crosses, and is reported itself where not.
    "top.reasoning.context": ("auto", "all_turns"),
    "top.max_tool_calls": (ANYTHING,),
    # How a stream is framed is for whoever writes it; a response or a conversation is
    # continued before it is sent on.
    "top.stream_options.include_usage": (ANYTHING,),
    "top.stream_options.include_obfuscation": (ANYTHING,),
    "top.previous_response_id": (ANYTHING,),
    "top.conversation": (ANYTHING,),
    # Who waits for an answer is nothing that whoever makes it is told.
    "top.background": (ANYTHING,),
    # Prefixes are found again without a key, and what was thought is told without being asked for.
    "top.prompt_cache_key": (ANYTHING,),
    "top.reasoning.summary": ("auto",),
    "top.reasoning.generate_summary": ("auto",),
    "top.thinking.display": ("omitted", "summarized"),
    # A model that is told nothing thinks as it sees fit.
    "top.thinking": ({"type": "adaptive"},),
    # How likely the model's own words were; who had which skill when it called.
    "input.content.logprobs": (ANYTHING,),
    "input.environment.skills": (ANYTHING,),
    # A result says again of what it is one; a thought is reported as a whole.
    "input.call_id": (ANYTHING,),
    "input.name": (ANYTHING,),
    "input.namespace": (ANYTHING,),
    "input.content": ([{"text": "x", "type": "reasoning_text"}],),
    "input.encrypted_content": (ANYTHING,),
    # Of whom an item is decides whether it has phases.
    "input.phase": (ANYTHING,),
}
"""What may be left out in silence, by path, and with which values."""


def variants(kind: Any, path: str, depth: int = DEPTH) -> Iterator[tuple[str, object, Json, Json]]:
    """A kind without one of its fields and with it, for each field and each of its values."""
    base = sample(kind)
    for name, annotation in fields_of(kind):
        where = f"{path}.{name}"
        for value in _values(annotation) if name not in base else ():
            yield where, value, base, base | {name: value}
        for shape, is_listed in _shapes(annotation) if depth else ():
            for place, value, without, has in variants(shape, where, depth - 1):
                held = ([without], [has]) if is_listed else (without, has)
                yield place, value, base | {name: held[0]}, base | {name: held[1]}


def _values(annotation: object) -> list[Any]:
    """What says something: every word of a literal, a sample of everything else."""
    found: list[Any] = []
    for kind in members(annotation):
        is_literal = get_origin(kind) is Literal
        found += get_args(kind) if is_literal else [] if kind is type(None) else [sample(kind)]
    return [value for value in found if value not in ({}, [])]


def _shapes(annotation: object) -> Iterator[tuple[Any, bool]]:
    for kind in members(annotation):
        origin = get_origin(kind)
        if is_shaped(kind):
            yield kind, False
        elif isinstance(origin, type) and issubclass(origin, Iterable) and origin is not dict:
            yield from ((each, True) for each in members(get_args(kind)[0]) if is_shaped(each))


CALL: Json = {"type": "tool_use", "id": "x", "name": "f", "input": {}}
DONE: Json = {"type": "tool_result", "tool_use_id": "x", "content": "ok"}
OUTPUTS: Mapping[str, Json] = {
    "function_call": {"type": "function_call_output", "output": "ok"},
    "custom_tool_call": {"type": "custom_tool_call_output", "output": "ok"},
    "shell_call": {"type": "shell_call_output", "output": []},
    "apply_patch_call": {"type": "apply_patch_call_output", "status": "completed"},
}
CALLS: Mapping[str, Json] = {
    "function_call_output": {"type": "function_call", "name": "f", "arguments": "{}"},
    "custom_tool_call_output": {"type": "custom_tool_call", "name": "c", "input": "x"},
    "shell_call_output": {"type": "shell_call", "action": {"commands": []}},
    "apply_patch_call_output": {
        "type": "apply_patch_call",
        "operation": {"type": "delete_file", "path": "x"},
        "status": "completed",
    },
}


def request_with(dialect: DialectName, place: str, held: Json) -> Json:
    """A whole request that holds something where it may stand, calls with their results."""
    kind = held.get("type")
    if place == "tools":
        return BASES[dialect] | {"tools": [held]}
    if dialect == "openai_responses":
        items = [held] if place else [{"role": "user", "content": [held]}]
        if kind in OUTPUTS and place:
            items = [{"call_id": "x"} | held, {"call_id": "x"} | OUTPUTS[str(kind)]]
        elif kind in CALLS and place:
            items = [{"call_id": "x"} | CALLS[str(kind)], {"call_id": "x"} | held]
        return BASES[dialect] | {"input": [USER, *items, USER]}
    turns: list[Json] = [held] if place else [{"role": "user", "content": [held]}]
    if held.get("role") == "tool":
        function = {"name": "f", "arguments": "{}"}
        calls = [{"id": held["tool_call_id"], "type": "function", "function": function}]
        turns = [{"role": "assistant", "content": "A", "tool_calls": calls}, held]
    elif held.get("role") == "assistant":
        calls = held.get("tool_calls") or []
        turns = [{"content": "A"} | held]
        turns += [{"role": "tool", "tool_call_id": each["id"], "content": "ok"} for each in calls]
    elif kind in {"tool_use", "tool_result"} and dialect == "anthropic_messages":
        call, done = (held, DONE) if kind == "tool_use" else (CALL, held)
        turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [done]}]
    elif kind in {"thinking", "redacted_thinking"}:
        turns = [{"role": "assistant", "content": [held, {"type": "text", "text": "A"}]}]
    return BASES[dialect] | {"messages": [USER, *turns, USER]}


def pairs(dialect: DialectName) -> Iterator[tuple[str, object, Json, Json]]:
    for of, place, union in HELD:
        for kind in members(union) if of == dialect else ():
            for path, value, without, has in variants(kind, place or "part"):
                given = (request_with(dialect, place, each) for each in (without, has))
                yield path, value, *given  # type: ignore[misc]
    base = BASES[dialect]
    for name, annotation in fields_of(members(TOPS[dialect])[0]):
        if name in {*base, "tools"}:
            continue
        for value in _values(annotation):
            yield f"top.{name}", value, base, base | {name: value}
        for shape, _ in _shapes(annotation):
            for path, value, without, has in variants(shape, f"top.{name}"):
                yield path, value, base | {name: without}, base | {name: has}


def is_silent(
    dialect: DialectName, wanted: DialectName, path: str, without: Json, has: Json
) -> bool:
    """Whether a field makes no difference at all; not so where all around it is reported."""
    row = Row(dialect, path, wanted, is_able=True)
    try:
        plain, told = written(read(dialect, without), row)
        if {name.rpartition(".")[2] for name in told} & set(path.split(".")[:-1]):
            return False
        return (plain, told) == written(read(dialect, has), row)
    except GatewrightError:
        return False


@pytest.mark.parametrize("dialect", NAMES)
def test_rule_55_no_field_at_any_depth_is_lost_in_silence(dialect: DialectName) -> None:
    asked = list(pairs(dialect))
    assert len(asked) > 100
    lost = {
        (path, json.dumps(value))
        for wanted in NAMES
        for path, value, without, has in asked
        if wanted != dialect and is_silent(dialect, wanted, path, without, has)
        if not _asks_nothing(path, value)
    }
    assert lost == set()


def _asks_nothing(path: str, value: object) -> bool:
    if path.endswith(".ttl"):
        return value == "5m"
    allowed = ASKS_NOTHING.get(path, ())
    return ANYTHING in allowed or value in allowed
