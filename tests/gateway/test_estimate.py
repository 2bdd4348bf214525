"""Estimates of tokens against counts of the published vocabularies, written down here.

The counts are what `benchmarks/count_tokens.mjs` says; the texts are none that were fitted to.
"""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.estimate import (
    FAMILIES,
    KINDS,
    MARGIN_TOKENS,
    TYPICAL,
    UPPER,
    WHOLE,
    estimate_input_tokens,
    estimate_text_tokens,
    weight,
    without_escapes,
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
    "German": (
        "Die Brücke bauten Maurer aus dem Nachbartal, und sie ist 120 Jahre alt. "
        "Über sie gehen Karren, Kühe und, seit dem vorigen Jahr, an Markttagen "
        "ein kleiner Bus, der dort wenden muss.",
        50,
        59,
    ),
    "Czech": (
        "Most postavili zedníci ze sousedního údolí před sto dvaceti lety; dnes "
        "po něm jezdí povozy, krávy a ve dnech, kdy je trh, také malý autobus, "
        "který se tam musí otočit.",
        56,
        75,
    ),
    "Vietnamese": (
        "Cây cầu do những người thợ xây từ thung lũng bên cạnh dựng lên cách đây "
        "một trăm hai mươi năm; ngày nay xe bò, người đi bộ và một chiếc xe buýt "
        "nhỏ vẫn đi qua đó.",
        48,
        113,
    ),
    "Turkish": (
        "Köprüyü komşu vadiden gelen ustalar yüz yirmi yıl önce yapmış; bugün "
        "üzerinden arabalar, inekler ve pazar günleri küçük bir otobüs geçiyor, "
        "çünkü başka yol yok.",
        48,
        76,
    ),
    "Japanese": (
        "この橋は百二十年前に隣の谷から来た石工たちが建てたもので、今では荷車や牛、そして市の立つ日には小さなバスが通っています。",
        49,
        60,
    ),
    "Arabic": (
        "بنى الجسر بناؤون من الوادي المجاور قبل مئة وعشرين عاما، وتمر عليه اليوم "
        "العربات والأبقار وحافلة صغيرة في أيام السوق، لأنه لا يوجد طريق آخر.",
        42,
        126,
    ),
    "table": (
        "date;region;units;revenue\n2026-03-01;north;1203;45120.75\n"
        "2026-03-02;south;987;31002.10\n2026-03-03;west;77;2210.00\n"
        "2026-03-04;north;1410;52871.35\n",
        75,
        74,
    ),
    "base64": (
        "Q2hlY2tzIGFyZSBub3QgdGVzdHMsIGFuZCB0ZXN0cyBhcmUgbm90IHByb29m"
        "cy7w3+K7mfLxOaZ0dYp4Vv0HkqXWJzTbe5cQy8GfUo1r",
        79,
        76,
    ),
    "Markdown": (
        "## What it costs\n\n- **Reserved**: the worst price\n- **Settled**: what "
        "was counted\n\n| plan | price |\n|---|---|\n| small | 3.50 |\n\nSee "
        "`settle()` in [the code](money.md).\n",
        55,
        58,
    ),
    "emoji": ("🚲🚲🌉 ja! 👩\u200d🔧 fixed it 🎉🎉", 19, 23),
}


words = st.text(max_size=200)
vendors = st.sampled_from([*FAMILIES, "somebody-else"])


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_reserved_is_never_less_than_either_vocabulary_counts(name: str) -> None:
    text, openai, anthropic = COUNTED[name]
    # Twenty times the text, so that the margin for templates decides nothing.
    for ensure_ascii in (False, True):
        body = json.dumps({"content": text * 20}, ensure_ascii=ensure_ascii).encode()
        about, most = estimate_input_tokens(body, 0, 0, 0)
        assert 1 <= (most - MARGIN_TOKENS) / (20 * max(openai, anthropic)) <= 2.1
        assert abs((about - MARGIN_TOKENS) / (10 * (openai + anthropic)) - 1) < 0.35


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_a_letter_weighs_the_same_however_a_client_writes_it(text: str) -> None:
    plain = json.dumps({"content": text}, ensure_ascii=False, separators=(",", ":")).encode()
    escaped = json.dumps({"content": text}, separators=(",", ":")).encode()
    if b"\\u" in escaped:
        plain = msgspec.json.encode(json.loads(plain))
    assert estimate_input_tokens(escaped, 0, 0, 0) == estimate_input_tokens(plain, 0, 0, 0)


def test_what_is_no_letter_weighs_as_it_is_written() -> None:
    half = b'{"content":"\\ud83d"}'
    assert without_escapes(half) == half


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_counted_is_near_what_each_vocabulary_counts(name: str) -> None:
    text, openai, anthropic = COUNTED[name]
    for vendor, counted in (("openai", openai), ("anthropic", anthropic)):
        # These are a sentence or two; of hundreds together all kinds lie within a sixth.
        assert abs(estimate_text_tokens(text.encode(), vendor) / counted - 1) < 0.36


def test_texts_of_every_kind_together_are_near_what_each_vocabulary_counts() -> None:
    for place, vendor in ((1, "openai"), (2, "anthropic")):
        counted = sum(int(row[place]) for row in COUNTED.values())
        told = sum(estimate_text_tokens(row[0].encode(), vendor) for row in COUNTED.values())
        assert abs(told / counted - 1) < 0.05


def test_every_byte_that_begins_a_character_is_of_one_kind() -> None:
    for byte in range(256):
        is_continuation = 0x80 <= byte < 0xC0
        assert sum(byte in kind for kind in KINDS) == (not is_continuation)


@given(words, words, vendors)
def test_a_text_weighs_what_its_pieces_do_and_more_than_any_of_them(
    first: str, second: str, vendor: str
) -> None:
    one, other, both = (weight(text.encode(), vendor) for text in (first, second, first + second))

    assert both == one + other
    assert both > max(one, other) or not (first and second)


@given(st.lists(words, max_size=8), vendors)
def test_pieces_estimated_alone_are_at_most_a_token_each_beyond_the_whole(
    pieces: list[str], vendor: str
) -> None:
    whole = estimate_text_tokens("".join(pieces).encode(), vendor)
    alone = sum(estimate_text_tokens(piece.encode(), vendor) for piece in pieces)

    assert whole <= alone <= whole + len(pieces)
    assert whole <= len("".join(pieces).encode()), "no vocabulary has more tokens than bytes"


@given(text=words, more=words, ensure_ascii=st.booleans())
def test_a_body_has_about_no_more_than_at_most_and_both_grow_with_it(
    text: str, more: str, *, ensure_ascii: bool
) -> None:
    told = [
        estimate_input_tokens(json.dumps(said, ensure_ascii=ensure_ascii).encode(), 0, 0, 0)
        for said in (text, text + more)
    ]

    assert all(MARGIN_TOKENS < about <= most for about, most in told)
    assert told[0] <= told[1]
    assert told[0][1] <= told[1][1]


def test_no_kind_weighs_nothing_and_none_more_typically_than_at_most() -> None:
    for weights in (*FAMILIES.values(), TYPICAL):
        assert min(weights) > 0
    assert all(typical <= most for typical, most in zip(TYPICAL, UPPER, strict=True))
    # They are looked at together in a body.
    assert (TYPICAL[0], UPPER[0]) == (TYPICAL[1], UPPER[1])
    # A row of emoji has a token for each of its bytes at worst.
    assert UPPER[-1] == 4 * WHOLE


def test_an_attachment_counts_by_itself_and_not_by_its_bytes() -> None:
    text = b'{"content":"Hi"}'
    about, most = estimate_input_tokens(text + b"A" * 10_000, 1, 0, 10_000)
    assert about <= most <= len(text) + MARGIN_TOKENS + 1600


@pytest.mark.parametrize("text", ["7" * 40_000, "QZ" * 20_000, "\U0001f600" * 10_000])
def test_an_attachment_lowers_what_is_reserved_for_no_text(text: str) -> None:
    """Where text is not looked at for want of time it counts as the dearest there is."""
    body = json.dumps({"content": text}, ensure_ascii=False).encode()
    _, alone = estimate_input_tokens(body, 0, 0, 0)
    _, beside = estimate_input_tokens(body + b"A" * 100, 1, 0, 100)

    assert beside >= alone + 1600
