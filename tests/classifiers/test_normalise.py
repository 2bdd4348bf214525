"""The ASCII view keeps what patterns need and finds every character back."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from classifiers.pii.views.normalise import normalise


@given(st.text())
def test_each_view_character_points_at_one_original_in_order(text: str) -> None:
    view = normalise(text)
    places = [view.origin(index) for index in range(len(view.text))]
    assert view.text.isascii()
    assert places == sorted(set(places))
    assert all(0 <= place < len(text) for place in places)
    assert len(view.text) + len(view.kept_before) == len(text)


@given(st.text(st.characters(min_codepoint=1, max_codepoint=127)))
def test_an_ascii_text_is_its_own_view(text: str) -> None:
    assert normalise(text).text == text


def test_digits_of_all_scripts_and_full_width_letters_become_ascii() -> None:
    assert normalise("\u0967\u0968\uff13\u0664\U0001d7d3").text == "12345"
    assert normalise("\uff21\u0430\u0435").text == "Aae"


def test_whatever_stands_for_one_digit_is_that_digit() -> None:
    """In scripts that nobody writes any more, in circles, in brackets, as strokes and as rods."""
    for code in range(0x80, 0x110000):
        said = unicodedata.numeric(chr(code), -1.0)
        is_letter = "ROMAN NUMERAL" in unicodedata.name(chr(code), "") and said in {1.0, 5.0}
        is_han = unicodedata.category(chr(code)) == "Lo" and unicodedata.decimal(chr(code), -1) < 0
        if said in range(10) and not is_letter and not is_han:
            assert normalise(chr(code)).text == str(int(said)), hex(code)
    han = "\u3007\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d"
    assert normalise(han).text == "0123456789"
    assert (
        normalise("\u96f6\u58f1\u5f10\u53c2\u8086\u4f0d\u9678\u67d2\u634c\u7396").text
        == "0123456789"
    )


def test_invisible_characters_vanish_and_offsets_skip_them() -> None:
    view = normalise("4\u200b1\u00ad1\ufeff1")
    assert view.text == "4111"
    assert [view.origin(i) for i in range(4)] == [0, 2, 4, 6]
    assert view.origin_end(4) == 7


def test_a_view_does_not_show_its_text() -> None:
    assert "4111" not in repr(normalise("4111"))
