"""Words that are numbers, written together too, and words that only begin like one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.caching.number_words import LENGTH_MAX, is_number


NUMBERS = {
    "English": "zero ten fortytwo half twice first fifth eighth ninth twelfth twentieth hundredth",
    "German": "zwei zweiundvierzig dreiundvierzig einundzwanzig hunderteins zweihundert elfte"
    " zweitausendvierundzwanzig zwölfte fünfundfünfzig fuenfundfuenfzig dreißig dritten zweimal"
    " siebzehntel dreifach siebte achter halbe"
    " siebenhundertsiebenundsiebzigtausendsiebenhundertsiebenundsiebzig",
    "Dutch": "twee tweeënveertig drieënveertig eenentwintig tweeentwintig honderdeen tweehonderd"
    " vierentwintigste achtste derde driemaal anderhalf",
    "French": "deux cinquième deuxième vingtième centaine première quatorze",
    "Spanish": "veintidós veintiuno dieciséis doscientos cuatrocientas quinientos segundo",
    "Italian": "ventuno quarantadue quarantotto ventitré duemila duecento centouno ventesimo",
}
OTHERS = (
    "one ein eine einer een en und un une uno often tender weight tenant center network seid seiten"
    " sein under vertex achtung neuner2 hundehütte zweifel dreist elfenbein viertelstunde"
    " einander undurchsichtig enen seize-mesures tweeling honderdje cinema mildew tresor"
)


@pytest.mark.parametrize("word", " ".join(NUMBERS.values()).split())
def test_a_number_is_one_however_it_is_written_together(word: str) -> None:
    assert is_number(word.casefold())


@pytest.mark.parametrize("word", OTHERS.split())
def test_a_word_that_begins_or_ends_like_a_number_is_none(word: str) -> None:
    assert not is_number(word.casefold())


@given(st.lists(st.sampled_from(["acht", "achttien", "tien", "en", "ein", "x", "e"]), max_size=60))
def test_no_word_takes_long_and_none_breaks_it(parts: list[str]) -> None:
    word = "".join(parts)

    found = is_number(word)

    assert not found or len(word) <= LENGTH_MAX
    assert not found or "x" not in word
