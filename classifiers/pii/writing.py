"""How the sentence around a place is written: with capitals, and in English or another language.

Who writes capitals where sentences begin writes them in names, too. In English the tagger has seen
so many posts in small letters that it is believed there; in other languages it takes any word.
"""

import re
from typing import Final

from classifiers.pii.everyday import is_of_other_language


_AROUND: Final = 60
_SENTENCE: Final = 240
_FOREIGN_MIN: Final = 2
_WORD: Final = re.compile(r"[^\W\d_]+")
_ENGLISH: Final = frozenset(
    """
    the of and to is are was were be been this these those it its for at by from with you your we
    our us they their them he she his her has have had will would can could should not but or if
    when which who what how please i my
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
)
_BOUND: Final = re.compile(r"[.?!:][ \n]|\n")
_FIRST_LETTER: Final = re.compile(r"[\W\d_]*([^\W\d_])")
_INTRODUCES: Final = re.compile(
    r"(?:\b(?:soy|llamo|nombre es|m['\u2019]appelle|je suis|chiamo|sono|bin|hei(?:\u00df|ss)e"
    r"|name ist|ik ben|heet|naam is|jestem|nazywam si\u0119|chamo|nome \u00e9|sou|se\u00f1ora?|sra?"
    r"|don|do\u00f1a|monsieur|madame|mme|mlle|sig|signor[ae]?|herr|frau|meneer|mevrouw|pani?"
    r"|senhora?)\b\.?|@)\s{0,2}\Z",
    re.IGNORECASE,
)


def has_capitals(text: str, start: int) -> bool:
    """Whether the sentence that goes on at `start` began with a capital."""
    first = max(0, start - _SENTENCE)
    for bound in _BOUND.finditer(text, first, start):
        first = bound.end()
    letter = _FIRST_LETTER.match(text, first, start)
    return letter is not None and letter[1].isupper()


def may_be_name_in_small_letters(text: str, start: int, end: int) -> bool:
    """Whether words in small letters may name somebody.

    They may not in a sentence with capitals in another language than English, but for behind what
    introduces a person.
    """
    around = text[max(0, start - _AROUND) : start] + " " + text[end : end + _AROUND]
    words = _WORD.findall(around.lower())
    foreign = sum(map(is_of_other_language, words))
    if foreign < _FOREIGN_MIN or foreign <= sum(word in _ENGLISH for word in words):
        return True
    before = text[max(0, start - _AROUND) : start]
    return not has_capitals(text, start) or _INTRODUCES.search(before) is not None
