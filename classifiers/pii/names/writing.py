"""How the sentence around a place is written: with or without capitals, in English or not.

Whoever writes capitals at the start of sentences writes them in names, too. In English the tagger
has seen so many posts in small letters that it is believed there; in other languages it takes any
word.
"""

import re
from typing import Final

from classifiers.pii.names.everyday import OF_OTHER_LANGUAGES


_AROUND: Final = 60
_SENTENCE: Final = 240
_FOREIGN_MIN: Final = 2
_ENGLISH: Final = frozenset(
    """
    the of and to is are was were be been this these those it its for at by from with you your we
    our us they their them he she his her has have had will would can could should not but or if
    when which who what how please i my
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
)
_BOUNDS: Final = ("\n", ". ", "? ", "! ", ": ")
_FIRST_LETTER: Final = re.compile(r"[\W\d_]*([^\W\d_])")
_INTRODUCES: Final = re.compile(
    r"(?:\b(?:soy|llamo|nombre es|m['\u2019]appelle|je suis|chiamo|sono|bin|hei(?:\u00df|ss)e"
    r"|name ist|ik ben|heet|naam is|jestem|nazywam si\u0119|chamo|nome \u00e9|sou|se\u00f1ora?|sra?"
    r"|don|do\u00f1a|monsieur|madame|mme|mlle|sig|signor[ae]?|herr|frau|meneer|mevrouw|pani?"
    r"|senhora?)\b\.?|@)\s{0,2}\Z",
    re.IGNORECASE,
)


def has_capitals(text: str, start: int) -> bool:
    """Whether the sentence that includes `start` began with a capital."""
    first = max(0, start - _SENTENCE)
    first = max(first, *[text.rfind(bound, first, start) + 1 for bound in _BOUNDS])
    letter = _FIRST_LETTER.match(text, first, start)
    return letter is not None and letter[1].isupper()


def may_name(text: str, start: int, end: int) -> bool:
    """Whether lower-case words may name a person or a place.

    They may not in a sentence with capitals in a language other than English, unless the words
    before them introduce a person.
    """
    before = text[max(0, start - _AROUND) : start]
    words = {*before.lower().split(), *text[end : end + _AROUND].lower().split()}
    if words.isdisjoint(OF_OTHER_LANGUAGES):
        return True
    foreign = len(words & OF_OTHER_LANGUAGES)
    if foreign < _FOREIGN_MIN or foreign <= len(words & _ENGLISH):
        return True
    return not has_capitals(text, start) or _INTRODUCES.search(before) is not None
