"""Estimates of tokens against counts of the published vocabularies, written down here.

The counts are what `benchmarks/count_tokens.mjs` says; the texts are none that were fitted to.
"""

import json

import pytest

from gateway.dialects.estimate import (
    MARGIN_TOKENS,
    UPPER,
    estimate_input_tokens,
    estimate_text_tokens,
    shape,
)


# ruff: noqa: ISC004

COUNTED: dict[str, tuple[str, int, int]] = {
    "English": (
        "The bridge was built by masons from the next valley, and it is 120 years old. It carries "
        "carts, cows and, since last year, a small bus on market days.",
        38,
        39,
    ),
    "Chinese": (
        "关于税务登记的说法，错误的是：一般纳税人应当向其机构所在地主管税务机关申请资格认定，"
        "税务机关在二十日内作出决定。",
        42,
        60,
    ),
    "Hindi": (
        "उन्होंने कहा कि यह पुल बहुत पुराना है और इसे हर साल मरम्मत की ज़रूरत होती है, खासकर बारिश के बाद।",
        29,
        97,
    ),
    "Russian": (
        "Мост построили каменщики из соседней долины, и ему сто двадцать лет; по нему ходят "
        "повозки, коровы и автобус.",
        33,
        63,
    ),
    "Polish": (
        "Źdźbło trawy w żółtej mgle, gęślą jaźń; most zbudowali murarze z sąsiedniej doliny sto "
        "dwadzieścia lat temu.",
        45,
        55,
    ),
    "code": (
        "def find(nodes, key):\n    for index, node in enumerate(nodes):\n"
        "        if node.get('key') == key:\n            return index\n    raise KeyError(key)\n",
        35,
        38,
    ),
    "JSON": (
        '{"id": 4711, "rows": [[1, 2.5, null], [3, 4.25, true]], "path": "/a/b-c_d.e", '
        '"hash": "9f86d081884c7d65"}',
        55,
        57,
    ),
    "emoji": ("🚲🚲🌉 ja! 👩\u200d🔧 fixed it 🎉🎉", 19, 23),
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_reserved_is_never_less_than_either_vocabulary_counts(name: str) -> None:
    text, openai, anthropic = COUNTED[name]
    # Twenty times the text, so that the margin for templates decides nothing.
    for ensure_ascii in (False, True):
        body = json.dumps({"content": text * 20}, ensure_ascii=ensure_ascii).encode()
        _, most = estimate_input_tokens(body, 0, 0, 0)
        assert most - MARGIN_TOKENS >= 20 * max(openai, anthropic)
    about, most = estimate_input_tokens(json.dumps(text * 20, ensure_ascii=False).encode(), 0, 0, 0)
    assert most - MARGIN_TOKENS <= 20 * max(openai, anthropic) * 2.5
    assert 20 * openai * 0.6 <= about - MARGIN_TOKENS <= 20 * anthropic * 1.8


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted_is_near_what_each_vocabulary_counts(name: str) -> None:
    text, openai, anthropic = COUNTED[name]
    for vendor, counted in (("openai", openai), ("anthropic", anthropic)):
        assert abs(estimate_text_tokens(text.encode(), vendor) / counted - 1) < 0.45


def test_bodies_are_sorted_by_what_their_bytes_cost() -> None:
    assert shape(b"ab c") == (4, 0, 0, 0, 0, 0)
    assert shape(b"a1,\n") == (1, 3, 0, 0, 0, 0)
    assert shape("aéж中🚲".encode()) == (1, 0, 1, 1, 1, 1)


def test_an_attachment_counts_by_itself_and_not_by_its_bytes() -> None:
    text = b'{"content":"Hi"}'
    about, most = estimate_input_tokens(text + b"A" * 10_000, 1, 0, 10_000)
    assert about <= most <= len(text) * UPPER[1] + 1 + MARGIN_TOKENS + 1600
