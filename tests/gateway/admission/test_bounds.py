"""How much of everything a request may hold, one bound at a time, at it and one beyond it."""

import json
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.admission.bounds import answers_of, check_bounds, check_values
from gateway.configuration.settings import Limits
from gateway.dialects.registry import DIALECTS
from gateway.errors import ContextTooLong, RequestInvalid
from gateway.types import ChatRequest, DialectName


LIMITS = Limits(
    messages_max=3,
    tools_max=2,
    attachments_max=2,
    schema_bytes_max=400,
    choices_max=4,
    input_tokens_max=5000,
)
USER = {"role": "user", "content": "Hi"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
DOCUMENT = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": [BLOCK]}
NAMED = {"name": "f"}
TOOL = {"type": "function", "function": {"name": "f"}}


def request(dialect: DialectName = "openai_chat", **fields: Any) -> ChatRequest:
    body: dict[str, Any] = {"model": "m"}
    body |= {"input": "Hi"} if dialect == "openai_responses" else {"messages": [USER]}
    if dialect == "anthropic_messages":
        body["max_tokens"] = 9
    return DIALECTS[dialect].decode_request(json.dumps(body | fields).encode(), "req_1")


PLAIN = {"type": "function", "name": "f"}
SPACE = {"type": "namespace", "name": "s", "description": "d"}
BRINGING = {"type": "additional_tools", "role": "developer"}


def tool(length: int) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "description": "x" * length}}


CASES: list[tuple[str, dict[str, Any], dict[str, Any], DialectName, str]] = [
    ("messages", {"messages": [USER] * 3}, {"messages": [USER] * 4}, "openai_chat", "messages"),
    ("items", {"input": [USER] * 3}, {"input": [USER] * 4}, "openai_responses", "input"),
    ("tools", {"tools": [TOOL] * 2}, {"tools": [TOOL] * 3}, "openai_chat", "tools"),
    (
        "tools in namespaces",
        {"tools": [SPACE | {"tools": [PLAIN]}]},
        {"tools": [SPACE | {"tools": [PLAIN] * 2}]},
        "openai_responses",
        "tools",
    ),
    (
        "tools that items bring",
        {"input": [USER, BRINGING | {"tools": [PLAIN]}], "tools": [PLAIN]},
        {"input": [USER, BRINGING | {"tools": [PLAIN]}], "tools": [PLAIN] * 2},
        "openai_responses",
        "tools",
    ),
    (
        "tools in namespaces that items bring",
        {"input": [USER, BRINGING | {"tools": [SPACE | {"tools": [PLAIN]}]}]},
        {"input": [USER, BRINGING | {"tools": [SPACE | {"tools": [PLAIN] * 2}]}]},
        "openai_responses",
        "tools",
    ),
    (
        "schemas that items bring",
        {"input": [BRINGING | {"tools": [PLAIN | {"description": "x" * 300}]}]},
        {"input": [BRINGING | {"tools": [PLAIN | {"description": "x" * 500}]}]},
        "openai_responses",
        "tools",
    ),
    (
        "functions",
        {"functions": [NAMED] * 2},
        {"functions": [NAMED] * 3},
        "openai_chat",
        "functions",
    ),
    (
        "schemas of functions",
        {"functions": [tool(300)["function"]]},
        {"functions": [NAMED, tool(500)["function"]]},
        "openai_chat",
        "functions[1]",
    ),
    (
        "schemas of formats by their older name",
        {"output_format": {"type": "json_schema", "schema": {"title": "x" * 300}}},
        {"output_format": {"type": "json_schema", "schema": {"title": "x" * 500}}},
        "anthropic_messages",
        "output_format",
    ),
    ("choices", {"n": 4}, {"n": 5}, "openai_chat", "n"),
    (
        "images",
        {"messages": [USER, {"role": "user", "content": [IMAGE] * 2}]},
        {"messages": [USER, {"role": "user", "content": [IMAGE] * 3}]},
        "openai_chat",
        "messages[1].content",
    ),
    (
        "documents",
        {"messages": [USER, {"role": "user", "content": [DOCUMENT] * 2}]},
        {"messages": [USER, {"role": "user", "content": [DOCUMENT] * 3}]},
        "anthropic_messages",
        "messages[1].content",
    ),
    (
        "images in results",
        {"messages": [{"role": "user", "content": [RESULT, BLOCK]}]},
        {"messages": [{"role": "user", "content": [RESULT, RESULT, BLOCK]}]},
        "anthropic_messages",
        "messages[0].content",
    ),
    (
        "schemas",
        {"tools": [tool(300)]},
        {"tools": [tool(20), tool(500)]},
        "openai_chat",
        "tools[1]",
    ),
    ("answers", {"best_of": 3}, {"best_of": 5}, "openai_chat", "best_of"),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_what_is_within_a_bound_passes_and_one_more_is_refused_by_its_path(
    case: tuple[str, dict[str, Any], dict[str, Any], DialectName, str],
) -> None:
    _, within, beyond, dialect, path = case
    check_bounds(request(dialect, **within), LIMITS)
    with pytest.raises(RequestInvalid) as caught:
        check_bounds(request(dialect, **beyond), LIMITS)

    assert caught.value.parameter == path


@pytest.mark.parametrize("name", ["n", "best_of"])
@pytest.mark.parametrize("count", [2.0, 8.0, 1e3, "8", "", True, False, [8], {"value": 8}])
def test_a_count_of_answers_that_only_some_upstream_reads_as_one_is_refused(
    name: str, count: object
) -> None:
    check_bounds(request("openai_chat", **{name: None}), LIMITS)
    with pytest.raises(RequestInvalid) as caught:
        check_bounds(request("openai_chat", **{name: count}), LIMITS)

    assert caught.value.parameter == name


def test_a_kind_that_is_no_word_counts_for_nothing() -> None:
    output = [{"type": {}}, {"type": []}, {"type": "computer_screenshot", "image_url": "data:,"}]
    item = {"type": "computer_call_output", "call_id": "a", "output": output}
    check_bounds(request("openai_responses", input=[item]), LIMITS)


TREES = st.recursive(
    st.none() | st.text('",[{}]\\:a', max_size=8),
    lambda held: (
        st.lists(held, max_size=6)
        | st.dictionaries(st.text('",[{\\', max_size=4), held, max_size=6)
    ),
    max_leaves=40,
)


def values_in(tree: object) -> int:
    """Keys and elements of lists; what is empty counts for one more, as a look at bytes has it."""
    if not isinstance(tree, list | dict):
        return 0
    inner = tree.values() if isinstance(tree, dict) else tree
    return max(len(tree), 1) + sum(map(values_in, inner))


@given(tree=TREES, indent=st.sampled_from([None, 0, 1]), most=st.integers(0, 40))
def test_values_are_counted_before_a_body_is_parsed_and_those_in_texts_are_none(
    tree: object, indent: int | None, most: int
) -> None:
    raw = json.dumps({"x": tree}, indent=indent).encode()
    is_too_much = values_in({"x": tree}) > most and len(raw) > 2 * most
    with pytest.raises(RequestInvalid) if is_too_much else nullcontext():
        check_values(raw, most)


def test_as_many_values_as_there_may_be_pass_and_one_more_does_not() -> None:
    raw = b'{"x":["a,b","c"]}'
    check_values(raw, 3)
    with pytest.raises(RequestInvalid):
        check_values(raw, 2)


@pytest.mark.parametrize("said", ["[],", "{},", "7,", '"a",', '"\\\\",', "[", '"a":['])
def test_what_breaks_off_is_counted_up_to_there(said: str) -> None:
    with pytest.raises(RequestInvalid):
        check_values(b'{"x":[' + said.encode() * 400, 150)
    check_values(b'{"x":["' + said.replace('"', "").encode() * 400, 150)


def of_prompts(prompt: object) -> ChatRequest:
    body = json.dumps({"model": "m", "prompt": prompt}).encode()
    return DIALECTS["openai_completions"].decode_request(body, "req_1")


def test_only_so_many_texts_are_continued_at_once_however_long_one_of_them_is() -> None:
    limits = structs.replace(LIMITS, prompts_max=2)
    for prompt in ("a long text", ["one", "two"]):
        check_bounds(of_prompts(prompt), limits)
    with pytest.raises(RequestInvalid) as caught:
        check_bounds(of_prompts(["one", "two", "three"]), limits)
    assert caught.value.parameter == "prompt"


@pytest.mark.parametrize(
    ("fields", "answers"),
    [({}, 1), ({"n": 1}, 1), ({"n": 3}, 3), ({"n": 2, "best_of": 4}, 4), ({"n": None}, 1)],
)
def test_every_answer_that_is_made_counts_whoever_sees_it(
    fields: dict[str, Any], answers: int
) -> None:
    assert answers_of(request(**fields)) == answers
    assert answers_of(structs.replace(request(**fields), prompts=2)) == 2 * answers


@pytest.mark.parametrize("count", [0, -5])
def test_who_asks_for_no_answer_is_taken_to_get_one(count: int) -> None:
    assert answers_of(structs.replace(request(), tree={"n": count})) == 1


def test_an_input_longer_than_any_model_reads_is_refused_before_anything_is_reserved() -> None:
    check_bounds(structs.replace(request(), input_tokens_estimate=5000), LIMITS)
    long = structs.replace(request(), input_tokens_estimate=5001)

    with pytest.raises(ContextTooLong):
        check_bounds(long, LIMITS)
