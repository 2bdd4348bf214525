"""Finds number words in six languages, also compound ones such as `zweiundvierzig`. Pure.

Each language has parts that are numbers, parts that are numbers only beside one (articles, `und`)
and endings. A word that reads as a number and is not one (`second`, `elfen`) keeps more questions
apart than necessary, which is the side to err on.
"""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct


LENGTH_MAX: Final = 100
"""Of a word that is looked at; 777,777 in German has 65 letters."""


class _Tongue(Struct, frozen=True):
    numbers: frozenset[str]
    beside: frozenset[str]
    endings: frozenset[str]
    longest: int


def _tongue(numbers: str, beside: str = "", endings: str = "") -> _Tongue:
    parts = frozenset(numbers.split()), frozenset(beside.split())
    return _Tongue(*parts, frozenset(endings.split()), max(map(len, parts[0] | parts[1])))


# As `casefold` writes them: of `dreißig` it makes `dreissig`.
_TONGUES: Final[Mapping[str, _Tongue]] = {
    "English": _tongue(
        "zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
        " sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
        " twentie thirtie fortie fiftie sixtie seventie eightie ninetie hundred thousand million"
        " billion trillion dozen half third quarter twice thrice double triple first second fif"
        " eigh nin twelf",
        beside="one",
        endings="th ths fold s",
    ),
    "German": _tongue(
        "null zwei zwo drei dritt vier fünf fuenf sechs sieben siebt acht neun zehn elf zwölf"
        " zwoelf dreizehn vierzehn fünfzehn fuenfzehn sechzehn siebzehn achtzehn neunzehn zwanzig"
        " dreissig vierzig fünfzig fuenfzig sechzig siebzig achtzig neunzig hundert tausend"
        " million millionen milliarde milliarden billion billionen dutzend halb drittel viertel"
        " doppelt erste hälfte",
        beside="ein eins eine und",
        endings="te ten ter tes tem ste sten ster stes stem e en er es em ern n r s m mal fach"
        " tel stel tens stens",
    ),
    "French": _tongue(
        "zéro deux trois quatre quatr cinq cinqu six sept huit neuf neuv dix onze onz douze douz"
        " treize treiz quatorze quatorz quinze quinz seize seiz vingt vingts trente trent quarante"
        " quarant cinquante cinquant soixante soixant cent cents mille mill million millions"
        " milliard milliards moitié demi demie tiers quart double premier première premiers"
        " premières second seconde",
        endings="ième ièmes aine aines",
    ),
    "Spanish": _tongue(
        "cero dos dós tres trés cuatro cinco seis séis siete ocho nueve diez once doce trece"
        " catorce quince dieci veinte veinti treinta cuarenta cincuenta sesenta setenta ochenta"
        " noventa cien ciento cientos cientas quinientos quinientas setecientos setecientas"
        " novecientos novecientas mil millón millones mitad medio media tercio doble primero"
        " primera primer segundo segunda tercero tercera tercer cuarto cuarta quinto quinta sexto"
        " sexta séptimo séptima octavo octava noveno novena décimo décima",
        beside="uno una un ún",
    ),
    "Italian": _tongue(
        "zero due tre tré quattro cinque sei sette otto nove dieci undici dodici tredici"
        " quattordici quindici sedici diciassette diciotto diciannove venti vent trenta trent"
        " quaranta quarant cinquanta cinquant sessanta sessant settanta settant ottanta ottant"
        " novanta novant cento cent mille mila milione milioni miliardo miliardi mezzo mezza terzo"
        " terza doppio primo prima secondo seconda quarto quarta quinto quinta sesto sesta settimo"
        " settima ottavo ottava nono nona decimo decima",
        beside="uno una un",
        endings="esimo esima esimi esime",
    ),
    "Dutch": _tongue(
        "nul twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien vijftien"
        " zestien zeventien achttien negentien twintig dertig veertig vijftig zestig zeventig"
        " tachtig negentig honderd duizend miljoen miljard helft half kwart anderhalf dubbel derde"
        " eerste",
        beside="een één en ën",
        endings="de den ste sten en maal voud tal tallen",
    ),
}
_BEGINNINGS: Final = re.compile(
    "|".join(sorted({part for each in _TONGUES.values() for part in each.numbers | each.beside}))
)


def is_number(folded: str) -> bool:
    """Whether a word, as `casefold` writes it, is a number or made of numbers alone."""
    if len(folded) > LENGTH_MAX or _BEGINNINGS.match(folded) is None:
        return False
    return any(_is_made_of(tongue, folded) for tongue in _TONGUES.values())


def _is_made_of(tongue: _Tongue, word: str) -> bool:
    """Walks along all ways to take the word apart at once: each place is looked at once."""
    whole = len(word)
    plain, counting = {0}, set[int]()
    """Places that parts lead to, without a number among them and with one."""
    for at in range(whole):
        if at not in plain and at not in counting:
            continue
        if at in counting and word[at:] in tongue.endings:
            return True
        for end in range(at + 1, min(at + tongue.longest, whole) + 1):
            part = word[at:end]
            if part in tongue.numbers:
                counting.add(end)
            elif part in tongue.beside:
                if at in plain:
                    plain.add(end)
                if at in counting:
                    counting.add(end)
    return whole in counting
