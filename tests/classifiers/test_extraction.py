"""Extraction: whatever stands in a request is seen, and what cannot be seen is named."""

import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.extraction import MAX_DEPTH, extract
from classifiers.units import SEAM
from tests.classifiers import samples


CANARY = "canary-4711"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=25,
)
REQUEST: dict[str, Any] = {
    "model": "m",
    "system": [{"type": "text", "text": "be kind"}],
    "messages": [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "result"},
        {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text"}]}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}],
    "metadata": {"user_id": "u"},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    "stop": ["###"],
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every position in a JSON document at which something stands."""
    found = [path]
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            found += places(inner, (*path, index))
    return found


def planted(value: Any, path: tuple[Any, ...], what: Any) -> Any:
    if not path:
        return what
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = planted(value[path[0]], path[1:], what)
    return copy


def seen(document: object) -> str:
    return extract(document).joined()


@pytest.mark.parametrize("path", places(REQUEST))
@pytest.mark.parametrize(
    "what",
    [
        CANARY,
        [CANARY],
        {CANARY: 1},
        {"type": CANARY},
        {"role": CANARY},
        {"deeper": {"still": [[CANARY]]}},
        json.dumps({"a": CANARY}),
        json.dumps({"a": json.dumps({"b": CANARY})}),
    ],
)
def test_a_canary_is_seen_wherever_it_is_put(path: tuple[Any, ...], what: object) -> None:
    assert CANARY in seen(planted(REQUEST, path, what))


@given(JSON, st.data())
def test_a_canary_at_any_place_of_any_json_is_seen(document: object, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(places(document)))
    assert CANARY in seen(planted(document, path, CANARY))


@given(JSON)
def test_any_json_can_be_walked(document: object) -> None:
    extraction = extract(document)
    starts = extraction.starts()
    joined = extraction.joined()
    assert len(starts) == len(extraction.segments)
    for start, segment in zip(starts, extraction.segments, strict=True):
        assert joined[start : start + len(segment.text)] == segment.text


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_escapes_in_nested_json_strings_are_decoded(levels: int) -> None:
    text: str = '{"card": "\\u0034\\u0031\\u0031\\u0031"}'
    for _ in range(levels - 1):
        text = json.dumps({"arguments": text})
    assert "4111" in seen({"arguments": text})


def test_json_nested_deeper_than_the_bound_is_named() -> None:
    text = '{"a": "\\u0041"}'
    for _ in range(5):
        text = json.dumps([text])
    assert "json-in-string-too-deep" in extract({"x": text}).reasons


def test_depth_beyond_the_bound_is_named_and_does_not_raise() -> None:
    deep: Any = CANARY
    for _ in range(MAX_DEPTH + 5):
        deep = [deep]
    assert extract(deep).reasons == ("too-deep",)
    assert "too-deep" in extract({"x": '["\\u0041",' + "[" * 50_000 + "]" * 50_000 + "]"}).reasons


def test_long_numbers_are_text_and_short_ones_are_not() -> None:
    rng = random.Random(1)
    card = samples.card(rng)
    assert seen({"card": int(card), "share": 12}) == f"card{SEAM}{card}{SEAM}share"
    assert "4111111111111111" in seen({"card": 4111111111111111.0})
    assert extract({"n": 10**400}).reasons == ("huge-number",)


def test_values_that_are_no_json_are_named() -> None:
    assert extract({"x": object()}).reasons == ("unknown-type",)
    assert extract(b"bytes").reasons == ("unknown-type",)


PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(200))).decode()
PDF = base64.b64encode(b"%PDF-1.7" + bytes(range(200))).decode()


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG}}, "image"),
        ({"type": "image", "source": {"media_type": "image/png", "data": PNG}}, "image"),
        ({"type": "image", "source": {"type": "url", "url": "https://a.example/x.png"}}, "image"),
        ({"type": "input_audio", "input_audio": {"data": PDF, "format": "wav"}}, "audio"),
        ({"type": "document", "source": {"media_type": "text/pdf", "data": PDF}}, "document"),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64," + PDF}}, "document"),
        ({"type": "input_file", "file_id": "file-1"}, "document"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64," + PDF}}, "binary"),
    ],
)  # fmt: skip
def test_content_that_is_no_text_is_named_and_not_read(part: dict[str, Any], kind: str) -> None:
    extraction = extract({"messages": [{"role": "user", "content": [part]}]})
    assert kind in extraction.opaque_kinds
    assert PNG not in extraction.joined()
    assert PDF not in extraction.joined()


@pytest.mark.parametrize(
    "item",
    [
        {
            "type": "computer_call_output",
            "output": {"type": "computer_screenshot", "file_id": "file-1"},
        },
        {
            "type": "computer_call_output",
            "output": {"type": "computer_screenshot", "image_url": "https://a.example/b.png"},
        },
        {"type": "image_generation_call", "status": "completed", "result": PNG},
    ],
)
def test_pictures_that_a_tool_took_or_made_are_named_too(item: dict[str, Any]) -> None:
    assert extract({"input": [item]}).opaque_kinds == ("image",)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": CANARY}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,my " + CANARY}},
        {
            "type": "x",
            "data": f"a long text with spaces that only claims to be data: {CANARY} " * 2,
        },
    ],
)
def test_text_that_pretends_to_be_binary_is_read(part: dict[str, Any]) -> None:
    assert CANARY in seen({"messages": [{"role": "user", "content": [part]}]})


def test_the_newest_user_turn_is_pointed_at() -> None:
    assert extract(REQUEST).newest_user_text() == "hello"
    assert extract({"input": "hi", "instructions": "short"}).newest_user_text() == "hi"
    assert extract({"prompt": "hi", "suffix": "x"}).newest_user_text() == "hi"
    assert extract({"prompt": ["hi"]}).newest_user_text() == "hi"
    beside = extract({"messages": [{"role": "user", "content": "hello"}], "prompt": "hi"})
    assert beside.newest_user_text() == "hello"
    assert "hi" in [segment.text for segment in beside.segments]


def test_nothing_of_the_request_shows_in_a_repr() -> None:
    extraction = extract({"messages": [{"role": "user", "content": CANARY}]})
    assert CANARY not in repr(extraction)
    assert CANARY not in repr(extraction.segments)


def test_tools_that_an_item_of_the_history_brings_are_read_like_any() -> None:
    inner = {"type": "custom", "name": "exec", "description": CANARY}
    tools = [
        {"type": "namespace", "name": "functions", "tools": [inner]},
        {"type": "function", "name": "f", "parameters": {"type": "object"}},
        {"type": "custom", "name": "patch"},
        {"type": "web_search"},
    ]
    item = {"type": "additional_tools", "role": "developer", "tools": tools}

    assert extract({"input": [item]}).opaque_kinds == ()
    assert CANARY in seen({"input": [item]})
    strange = {**item, "tools": [{"type": "telepathy"}]}
    assert extract({"input": [strange]}).opaque_kinds == ("unknown",)
