"""Byte patching: what is not named stays as it was, byte for byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.bodies import body
from tests.gateway.dialects.samples import ANTHROPIC, OPENAI, target


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), JSON, max_size=6), st.booleans(), st.sampled_from([None, 1, 3]))
def test_untouched_values_keep_their_bytes_and_order(
    tree: dict[str, object], is_ascii: bool, indent: int | None
) -> None:
    tree = {key: value for key, value in tree.items() if not has_surrogates(key, value)}
    raw = json.dumps(tree, ensure_ascii=is_ascii, indent=indent).encode()
    before = body.split(raw)
    patched = body.patch(raw, {"model": b'"new"', "gone": None})
    after = body.split(patched)
    assert bytes(after["model"]) == b'"new"'
    assert [key for key in after if key != "model"] == [
        key for key in before if key not in {"model", "gone"}
    ]
    for key in after:
        if key != "model":
            assert bytes(after[key]) == bytes(before[key])


def has_surrogates(key: str, value: object) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in key + repr(value))


def test_a_patched_request_keeps_the_order_and_the_spelling_of_everything_else() -> None:
    raw = (
        b'{ "stream":true, "x_future": {"a" : 1.50, "b":"\\u00e9"},\n "messages" : '
        b'[{"role":"user", "content":"Hi"}], "model":"m", "max_tokens": 9,"x_n" :1e2}'
    )
    upstream = OPENAI.encode_request(OPENAI.decode_request(raw, "r"), target(), 100)
    assert upstream.body == (
        b'{"stream":true,"x_future":{"a" : 1.50, "b":"\\u00e9"},"messages":'
        b'[{"role":"user", "content":"Hi"}],"model":"upstream-model","max_tokens":9,"x_n":1e2'
        b',"stream_options":{"include_usage":true}}'
    )
    assert upstream.dropped == ()


def test_the_output_limit_is_lowered_and_never_raised() -> None:
    for asked, sent in ((50, 50), (100, 100), (500, 100)):
        raw = b'{"model":"m","max_tokens":%d,"messages":[{"role":"user","content":"x"}]}' % asked
        for dialect in (OPENAI, ANTHROPIC):
            upstream = dialect.encode_request(dialect.decode_request(raw, "r"), target(), 100)
            assert json.loads(upstream.body)["max_tokens"] == sent


def test_a_missing_output_limit_is_set_under_the_name_the_target_wants() -> None:
    request = OPENAI.decode_request(b'{"model":"m","messages":[{"role":"user","content":""}]}', "")
    older = json.loads(OPENAI.encode_request(request, target(), 7).body)
    newer = json.loads(OPENAI.encode_request(request, target("max_completion_tokens"), 7).body)
    assert (older["max_tokens"], "max_completion_tokens" in older) == (7, False)
    assert (newer["max_completion_tokens"], "max_tokens" in newer) == (7, False)


def test_the_callers_name_for_the_output_limit_is_kept() -> None:
    raw = (
        b'{"model":"m","max_completion_tokens":500,"max_tokens":null,'
        b'"messages":[{"role":"user","content":""}]}'
    )
    sent = json.loads(OPENAI.encode_request(OPENAI.decode_request(raw, ""), target(), 7).body)
    assert (sent["max_completion_tokens"], sent["max_tokens"]) == (7, None)


def test_the_callers_other_stream_options_are_kept() -> None:
    for given_options, sent in (
        (b"null", {"include_usage": True}),
        (b'{"include_obfuscation":false}', {"include_obfuscation": False, "include_usage": True}),
        (b'{"include_usage":false}', {"include_usage": True}),
    ):
        raw = (
            b'{"model":"m","stream":true,"messages":[{"role":"user","content":""}],'
            b'"stream_options":' + given_options + b"}"
        )
        request = OPENAI.decode_request(raw, "")
        upstream = OPENAI.encode_request(request, target(), 7)
        assert json.loads(upstream.body)["stream_options"] == sent
        assert not request.wants_stream_usage


@pytest.mark.parametrize("key", [b"thinking_blocks", b"thinking\\u005fblocks"])
def test_another_vendor_s_signed_thinking_stays_behind_however_it_is_spelt(key: bytes) -> None:
    block = b'[{"type":"thinking","thinking":"Hm.","signature":"c2lnbmVk"}]'
    raw = (
        b'{"model":"m","messages":[{"role":"user","content":"a"},'
        b'{"role":"assistant","content":"b","' + key + b'":' + block + b"}]}"
    )
    upstream = OPENAI.encode_request(OPENAI.decode_request(raw, ""), target(), 7)

    assert "thinking_blocks" not in json.loads(upstream.body)["messages"][1]
    assert upstream.dropped == ("messages.thinking_blocks",)
