"""Checks whether a learned address can be one: not a code, an amount or a time."""

import re
from typing import Final

from classifiers.pii.names.everyday import is_everyday
from classifiers.pii.names.writing import has_capitals


_NOT_IN_ADDRESSES: Final = re.compile(r"[\[\]{}<>=_\\;|$`]|[A-Za-z_]\(|^[a-z]+:$")
_BESIDE_CODE: Final = frozenset("[]{}()<>=_\\$`")
_SHORT_WORD: Final = 4
_NAME_LENGTH: Final = 24
_KIND_LENGTH: Final = 5
_TELLS_LENGTH: Final = 40
# What is an address whatever stands beside it: a number and a word with a capital, a kind of
# street, a British postal code.
_SURELY_PLACE: Final = re.compile(
    r"[0-9][A-Za-z]?,? +(?:[\w.]+ +){0,3}[A-Z\u00c0-\u00de]\w{2,}"
    r"|[A-Z\u00c0-\u00de][\w.'-]{3,}(?: [\w.]+){0,2},? +[0-9]"
    r"|\b[A-Z]{1,2}[0-9][A-Z0-9]? ?[0-9][A-Z]{2}\b"
    r"|(?i:\b(?:street|road|lane|avenue|drive|boulevard|court|square|platz|weg|gasse|allee|rue|via"
    r"|calle|nagar|marg)\b|stra(?:\u00df|ss)e)"
)
_NO_PLACE: Final = re.compile(
    r"(?:an?|any|each|every|no|one|our|some|the|this|that|which|your) [^0-9A-Z\u00c0-\u00de]*"
    r"|[A-Za-z][0-9]"
)
_CODE_OF_TOWN: Final = re.compile(r"[0-9]{4,6}")
_TOWN: Final = re.compile(r" [A-Z\u00c0-\u00de]\w{2,}")
_COUNTED: Final = re.compile(
    r"\b(?:to|max|min|of|than|least|most|up|by|about|over|under|after|every|limit"
    r"|defaults?)\W{0,2}\Z",
    re.IGNORECASE,
)
_IS_TIME: Final = re.compile(r"[0-2]?[0-9] ?h ?[0-5][0-9]")
_GOES_ON_AS_NUMBER: Final = re.compile(r"[0-9]?[.,][0-9]")

_OF_COSTS: Final = re.compile(
    r"(?:(?:cost|profit)[ _-]?cent(?:er|re)s?|kostenstellen?|profitcenter|centros? de costes?"
    r"|centros? de custos?"
    r"|centro di costo|centres? de co[u\u00fb]ts?|kostenplaats)(?: ?(?:no|nr|id|code))?\W{0,4}\Z",
    re.IGNORECASE,
)

_KIND_OF_STREET: Final = re.compile(
    r"\b(?:street|road|lane|avenue|drive|boulevard|court|crescent|close|terrace|way|square|st"
    r"|rd|ave"
    r"|blvd|platz|weg|gasse|allee|rue|quai|chemin|impasse|place|via|viale|corso|piazza|calle"
    r"|avenida"
    r"|paseo|plaza|rua|travessa|ulic[ay]|ul|plac|aleja|vei|vej|v\u00e4g|gate|gata|katu|utca|cesta"
    r"|sokak|suite|apt|flat|box|floor|nagar|marg|colony|sector|plot)\b"
    r"|(?:stra(?:\u00df|ss)e|straat|laan|gracht|plein|kade|gatan|v\u00e4gen)\b|str\.",
    re.IGNORECASE,
)
_TELLS: Final = re.compile(
    r"\b(?:liv(?:es?|ing)|resid\w+|a[d]{1,2}res\w*|direcci[o\u00f3]n|indirizzo|endere\w+"
    r"|located|deliver\w*"
    r"|ship\w*|domicil\w+|wohn\w*|viv[eo]|habit\w+|abit\w+|demeur\w+|woon\w*|mieszka\w*|mora)\b"
    r"[^.\n]{0,24}\Z",
    re.IGNORECASE,
)
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_BEGUN: Final = re.compile(r"[A-Z\u00c0-\u00de][\w.'-]*[ ]?\Z")
_COUNTS: Final = re.compile(r"[0-9]+ [a-z\u00df-\u00ff]{4,}")
_UNITS: Final = (
    r"(?:%|\u20ac|\$|\u00a3|kg|g|mg|t|km|cm|mm|ml|kWh|MWh|GWh|kW|MW|GW|[KMGT]i?B|[kKMGT]o|ms"
    r"|min|sec"
    r"|px|dpi|EUR|USD|CHF|GBP|INR|euros?|dollars?|Mio|Mrd|mld|mln|Prozent|per ?cent|pour cent"
    r"|por ciento|per cento|procent|mill(?:ones|ions?|oni|onen|\u00f3n|arden?|iards?)"
    r"|mil(?:h\u00f5es|iardi|ione|ioni)|hours?|heures?|horas?|ore|Stunden?|uur|godzin|days?|jours?"
    r"|d[i\u00ed]as?|giorni|Tagen?|dagen|dni|weeks?|semaines?|semanas?|settimane|Wochen|weken"
    r"|months?"
    r"|mois|mes(?:es|i)?|Monaten?|maanden|years?|ans|a[n\u00f1]os|anni|Jahren?|jaar|minutes?"
    r"|minut[io]s?"
    r"|Minuten|lat|rok[ui]?)"
)
_MEASURED: Final = re.compile(
    rf"\D{{0,12}}[0-9][0-9.,\u00a0\u202f ]{{0,16}}(?:\w{{1,3}} [0-9.,]{{1,8}} ?)?{_UNITS}(?!\w)"
)
_UNIT: Final = re.compile(rf"[0-9.,]*[ \u00a0\u202f]?{_UNITS}(?!\w)")


def is_place(said: str, before: str, after: str) -> bool:
    """Not a piece of code: not torn out of a word, not between marks, not only short words.

    Nor a kind of road without a name or a number ("a sovereign route"), nor a grade ("S0").
    """
    if _SURELY_PLACE.search(said) is not None:
        return True
    if _CODE_OF_TOWN.fullmatch(said) is not None and _TOWN.match(after) is not None:
        return True
    if _NOT_IN_ADDRESSES.search(said) is not None or _is_torn(said, before, after):
        return False
    if before[-1:] in _BESIDE_CODE or after[:1] in _BESIDE_CODE or said.endswith("-"):
        return False
    if said.isdigit() and _COUNTED.search(before) is not None:
        return False
    if _IS_TIME.fullmatch(said) is not None or _is_amount(said, before, after):
        return False
    if _NO_PLACE.fullmatch(said) is not None:
        return False
    words = [word for word in re.findall(r"\w+", said) if not is_everyday(word)]
    return any(len(word) > _SHORT_WORD or not word.islower() for word in words)


def is_count(text: str, start: int, end: int) -> bool:
    """Whether it says how much there is of something.

    The same goes for words without a capital in a sentence that has some.
    """
    said = text[start:end]
    if _KIND_OF_STREET.search(said) is not None:
        return False
    if _MEASURED.match(said) is not None:
        return True
    if said[-1:].isdigit() and _UNIT.match(text, end) is not None:
        return True
    words = _LETTERS.findall(said)
    if words and all(map(is_everyday, words)):
        return True
    small = said.islower() or _COUNTS.match(said) is not None
    begun = _BEGUN.search(text, max(0, start - _NAME_LENGTH), start) is not None
    return small and not begun and has_capitals(text, start)


def is_told(text: str, start: int, end: int) -> bool:
    """Whether words alone are an address: they name a kind of street, or somebody lives there."""
    if _KIND_OF_STREET.search(text, start, end + _KIND_LENGTH) is not None:
        return True
    return _TELLS.search(text, max(0, start - _TELLS_LENGTH), start) is not None


def _is_amount(said: str, before: str, after: str) -> bool:
    """Whether it has no letters, and the number continues after a point or a comma."""
    if any(map(str.isalpha, said)):
        return False
    return (said[:1] in ".," and before[-1:].isdigit()) or (
        _GOES_ON_AS_NUMBER.match(said[-1:] + after) is not None
    )


def _is_torn(said: str, before: str, after: str) -> bool:
    """Whether the word continues on either side."""
    return (said[:1].isalnum() and before[-1:].isalnum()) or (
        said[-1:].isalnum() and after[:1].isalnum()
    )


def is_of_costs(text: str, start: int) -> bool:
    """Whether a number is a cost centre's, whose name contains a word for a place."""
    return _OF_COSTS.search(text, max(0, start - _TELLS_LENGTH), start) is not None
