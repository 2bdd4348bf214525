"""Texts are known again by names that tell nothing and that nobody can foresee."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.inspection.text_reader import namer


texts = st.binary(max_size=200)


@given(st.lists(texts, unique=True, max_size=30))
def test_different_texts_have_different_names_and_equal_ones_the_same(said: list[bytes]) -> None:
    name = namer()

    assert len({name(text) for text in said}) == len(said)
    assert all(name(text) == name(bytes(bytearray(text))) for text in said)


@given(texts)
def test_another_process_gives_other_names(text: bytes) -> None:
    assert namer()(text) != namer()(text)
