"""Labels that say nothing about a person by themselves: dates, ages, titles, nations, web pages.

They never keep a text in-house, so the gateway does not look for them; `gatewright inspect pii`
does.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import re2

from classifiers.pii.findings import Finding
from classifiers.pii.gate import options
from classifiers.pii.views.normalise import normalise


_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_TIME = r"(?:[ T,]{1,3}(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?(?: ?[ap]m)?)?"
_DATES = (
    rf"(?:19|20)[0-9]{{2}}[-/.][01]?[0-9][-/.][0-3]?[0-9]{_TIME}"
    rf"|[0-3]?[0-9][-/.][01]?[0-9][-/.](?:19|20)[0-9]{{2}}{_TIME}"
    rf"|[0-3]?[0-9](?:st|nd|rd|th)? {_MONTH}\.?,? (?:19|20)[0-9]{{2}}"
    rf"|{_MONTH}\.? [0-3]?[0-9](?:st|nd|rd|th)?,? (?:19|20)[0-9]{{2}}"
    rf"|{_MONTH} (?:19|20)[0-9]{{2}}"
)
_NATIONS = (
    "afghan|albanian|algerian|american|angolan|argentin(?:e|ian)|armenian|australian|austrian|azerbaijani"
    "|bahamian|bahraini|bangladeshi|barbadian|belarusian|belgian|belizean|beninese|bhutanese|bolivian"
    "|bosnian|brazilian|british|bruneian|bulgarian|burmese|burundian|cambodian|cameroonian|canadian|chadian"
    "|chilean|chinese|colombian|congolese|croatian|cuban|cypriot|czech|danish|dominican|dutch|ecuador(?:ean|ian)"
    "|egyptian|emirati|english|eritrean|estonian|ethiopian|fijian|filipino|finnish|french|gabonese|gambian"
    "|georgian|german|ghanaian|greek|grenadian|guatemalan|guinean|guyanese|haitian|honduran|hungarian"
    "|icelandic|indian|indonesian|iranian|iraqi|irish|israeli|italian|ivorian|jamaican|japanese|jordanian"
    "|kazakh|kenyan|korean|kuwaiti|kyrgyz|laotian|latvian|lebanese|liberian|libyan|lithuanian|luxembourgish"
    "|macedonian|malagasy|malawian|malaysian|maldivian|malian|maltese|mauritanian|mauritian|mexican|moldovan"
    "|mongolian|montenegrin|moroccan|mozambican|namibian|nepalese|nepali|nicaraguan|nigerian|nigerien|norwegian"
    "|omani|pakistani|palestinian|panamanian|paraguayan|peruvian|portuguese|qatari|romanian|russian|rwandan"
    "|salvadoran|samoan|saudi|scottish|senegalese|serbian|singaporean|slovak|slovenian|somali|spanish|sudanese"
    "|surinamese|swazi|swedish|swiss|syrian|taiwanese|tajik|tanzanian|thai|togolese|tongan|tunisian|turkish"
    "|ugandan|ukrainian|uruguayan|uzbek|venezuelan|vietnamese|welsh|yemeni|zambian|zimbabwean"
    "|buddhist|catholic|christian|hindu|jain|jew(?:ish)?|muslim|protestant|shi(?:a|i|ite)|sikh|sunni"
    "|democrat|republican|conservative|communist|socialist"
)
_AGES = (
    r"aged?|age of|age is|turn(?:ed|ing|s)?|i'm|i am|(?:s?he|when (?:s?he|they)) (?:is|was|were)"
)
# The label, what a text must contain, a pattern whose first group is the finding, and a score.
_PATTERNS = (
    (
        "URL",
        ("://", "www."),
        r"(?i)\b((?:https?://|www\.)[^\s\"'<>\x1f]{3,400}[^\s\"'<>\x1f.,;:!?)\]])",
        0.8,
    ),
    ("DATE_TIME", ("19", "20"), rf"(?i)\b({_DATES})\b", 0.7),
    (
        "DATE_TIME",
        ("19", "20"),
        r"\b(?:in|since|of|until|from|by|year) ((?:19|20)[0-9]{2})\b",
        0.5,
    ),
    (
        "AGE",
        ("old", "/o", "yo", "of age"),
        r"(?i)\b([1-9][0-9]?|1[01][0-9])(?: ?-? ?years?[ -]old| y/?o\b| years of age)",
        0.8,
    ),
    (
        "AGE",
        ("age", "turn", "'m", " am ", " is ", " was ", " were "),
        rf"(?i)\b(?:{_AGES})[ :]{{1,3}}([1-9][0-9]|1[01][0-9])(?:[.,;!?)]|$| y| and| now)",
        0.6,
    ),
    (
        "TITLE",
        (),
        r"(?i)(?:^|[^A-Za-z0-9])((?:mr|mrs|ms|miss|mx|dr|prof|sir|madam|herr|frau)\b\.?) [A-Za-z]",
        0.7,
    ),
    ("NRP", (), rf"(?i)\b((?:{_NATIONS})(?:s|es)?)\b", 0.6),
)


@cache
def _compiled() -> tuple[tuple[str, tuple[str, ...], Any, float], ...]:
    return tuple(
        (label, needed, re2.compile(pattern.encode(), options()), score)
        for label, needed, pattern, score in _PATTERNS
    )


def soft_findings(text: str) -> Iterator[Finding]:
    """Dates, ages, titles, nations and addresses of pages, in the order of their kinds."""
    view = normalise(text)
    data = view.text.encode("ascii")
    for label, needed, pattern, score in _compiled():
        if needed and not any(word in view.text for word in needed):
            continue
        for match in pattern.finditer(data):
            start, end = match.span(1)
            yield Finding(view.origin(start), view.origin_end(end), label, score, "soft")
