"""What an upstream's JSON holds is counted right, however it is cut, and refused where it is much.

The figures are counts of what a decoder would be given, so they say the same on every machine.
"""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission import answer_bounds
from gateway.admission.answer_bounds import (
    ESCAPES_MAX,
    SHORT_BYTES_MAX,
    UNREAD_MAX,
    VALUES_MAX,
    Weight,
    check_json,
    is_readable,
    weighed,
)
from gateway.errors import UpstreamMalformed


NAMES = ("a", "logprobs", "top_logprobs", "embedding", 'em"bedding', "b\\", 'logprobs"', "[{,")
TEXTS = ("", 'a"\\,[{', "\\", "x\\\\", "logprobs", '"logprobs":[', "é漢")
trees = st.recursive(
    st.none() | st.integers() | st.sampled_from(TEXTS),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=30,
)


def is_unread(name: object, value: object) -> bool:
    names = ("logprobs", "embedding")
    return isinstance(name, str) and name.endswith(names) and isinstance(value, list | dict)


def counted(node: object, *, unread: bool = False) -> tuple[int, int]:
    """Values that are read, and others: of each list and object one more than it has commas."""
    if not isinstance(node, list | dict):
        return 0, 0
    members = [*node.items()] if isinstance(node, dict) else [(None, each) for each in node]
    own = 1 + max(0, len(members) - 1)
    sums = [0, own] if unread else [own, 0]
    for name, value in members:
        read, passed = counted(value, unread=unread or is_unread(name, value))
        sums = [sums[0] + read, sums[1] + passed]
    return sums[0], sums[1]


def thinned(node: object) -> object:
    if isinstance(node, list):
        return [thinned(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        name: ([] if isinstance(value, list) else None)
        if is_unread(name, value) and name != "embedding"
        else (value if is_unread(name, value) else thinned(value))
        for name, value in node.items()
    }


@given(tree=st.lists(trees, min_size=3), indent=st.sampled_from([None, 1]))
def test_what_stands_outside_of_texts_is_counted_wherever_it_is_cut(
    tree: object, indent: int | None
) -> None:
    raw = json.dumps(tree, indent=indent, ensure_ascii=False).encode()
    for morsel in (70, 101, 10_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(answer_bounds, "_MORSEL_BYTES", morsel)
            weight = Weight(raw)
            weight.count()
        assert (weight.values, weight.unread) == counted(tree)
        assert json.loads(weight.without_tokens()) == thinned(tree)


def listed(part: bytes, count: int, name: bytes = b"x") -> bytes:
    return b'{"%b":[%b]}' % (name, b",".join([part] * count))


TOO_MUCH = {
    "keys": b"{%b}" % b",".join(b'"%d":1' % at for at in range(VALUES_MAX + 1)),
    "objects": listed(b"{}", VALUES_MAX),
    "numbers": listed(b"1", 2 * VALUES_MAX),
    "texts": listed(b'""', VALUES_MAX + 1),
    "lists in lists": b"[" * (2 * SHORT_BYTES_MAX),
    "figures": listed(b"1", UNREAD_MAX + 1, b"logprobs"),
    "escapes": b'{"x":"%b"}' % (b"\\n" * (ESCAPES_MAX + 1)),
    "a number": b'{"x":1%b}' % (b"0" * 2 * SHORT_BYTES_MAX),
    "blanks": b'{"x":%b1}' % (b" " * 2 * SHORT_BYTES_MAX),
    "quotes": b'"logprobs":[1,' + b'"' * 4 * SHORT_BYTES_MAX + b"," * (VALUES_MAX + 1),
}


@pytest.mark.parametrize("raw", TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_json_that_a_decoder_would_be_busy_with_for_long_is_refused(raw: bytes) -> None:
    with pytest.raises(UpstreamMalformed):
        check_json(raw)
    assert not is_readable(raw.decode())


TOKEN = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "a"}] * 20}
GOOD: dict[str, Any] = {
    "prose": {"x": "some, prose [of it] " * 200_000},
    "an image": {"x": "QUJD" * 1_000_000},
    "a line in each of a million": {"x": "line\n" * 1_000_000},
    "calls": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}] * 9_000},
    "probabilities": {"logprobs": {"content": [TOKEN] * 20_000}},
    "vectors": {"data": [{"embedding": [0.25] * 1536}] * 1024},
}


@pytest.mark.parametrize("tree", GOOD.values(), ids=GOOD.keys())
def test_long_answers_that_models_give_are_read(tree: object) -> None:
    raw = msgspec.json.encode(tree)
    assert len(raw) > SHORT_BYTES_MAX
    assert weighed(raw).values <= VALUES_MAX


def test_nothing_is_left_of_tokens_where_that_would_be_too_much() -> None:
    tree = {"choices": [{"message": {"content": "a"}, "logprobs": {"content": [TOKEN] * 9_000}}]}
    weight = weighed(msgspec.json.encode(tree))
    assert not weight.is_light
    assert msgspec.json.decode(weight.without_tokens()) == thinned(tree)
