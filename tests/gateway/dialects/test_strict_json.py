"""The short way to a tree finds what the strict way finds, or leaves the body to it."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.bodies.strict_json import DEPTH_MAX, _canonical, _read_strictly, decode_object
from gateway.errors import RequestInvalid


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
trees = st.dictionaries(st.text(), values, max_size=5)


def _strict(raw: bytes) -> dict[str, object] | None:
    try:
        return _read_strictly(raw)
    except RequestInvalid:
        return None


@given(trees, st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_both_ways_agree_on_every_encoding(
    tree: dict[str, Any], ascii_only: bool, separators: tuple[str, str]
) -> None:
    try:
        raw = json.dumps(tree, ensure_ascii=ascii_only, separators=separators).encode()
    except UnicodeEncodeError:
        return
    short = _canonical(raw)

    assert short is None or repr(short) == repr(_strict(raw))


@given(trees.filter(bool), st.data())
def test_a_body_with_a_byte_changed_is_never_read_in_two_ways(
    tree: dict[str, Any], data: st.DataObject
) -> None:
    try:
        raw = bytearray(msgspec.json.encode(tree))
    except (UnicodeEncodeError, OverflowError):
        return
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    short = _canonical(bytes(raw))

    assert short is None or repr(short) == repr(_strict(bytes(raw)))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1,"a":1}',
        b'{"a":1, "a":2.0}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":NaN}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":1e999}',
        b"[" * 100_000,
        b"[]",
        b"",
    ],
)
def test_what_has_no_single_meaning_is_left_to_the_strict_way(raw: bytes) -> None:
    assert _canonical(raw) is None


def test_bodies_of_the_official_clients_take_the_short_way() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": 'é 漢\n"x"'}], "t": 0.2, "n": 1}
    raw = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    assert _canonical(raw) == body


@given(st.integers(DEPTH_MAX - 3, DEPTH_MAX + 3), st.data())
def test_a_body_is_too_deep_from_one_level_on(depth: int, data: st.DataObject) -> None:
    """Objects and lists count alike, in whatever order, and brackets in texts do not."""
    inner = data.draw(st.sampled_from(["1", '"{[{["', '"' + "[{" * DEPTH_MAX + '"']))
    kinds = data.draw(st.lists(st.booleans(), min_size=depth - 1, max_size=depth - 1))
    for is_list in kinds:
        inner = f"[{inner}]" if is_list else f'{{"a":{inner}}}'
    raw = f'{{"a":{inner}}}'.encode()

    if depth > DEPTH_MAX:
        with pytest.raises(RequestInvalid, match="nested more than"):
            decode_object(raw)
    else:
        decode_object(raw)
