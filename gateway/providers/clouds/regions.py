"""The clouds' regions, and the jurisdiction labels that they plainly contradict. Pure.

A label is the operator's choice, and most say nothing to us. But if a label is the name of a
country or a union, a region elsewhere is a mistake: data that may go to that label would leave the
place it names.
"""

import re
from collections.abc import Mapping
from typing import Final


Countries = frozenset[str]

REGION: Final = re.compile(r"[a-z]{2,12}(?:-[a-z]{2,14}){0,4}(?:-?[0-9]{1,2})?")
ANYWHERE: Final = "global"
_EU: Final = frozenset(
    {
        *("at", "be", "bg", "cy", "cz", "de", "dk", "ee", "es", "fi", "fr", "gr", "hr", "hu"),
        *("ie", "it", "lt", "lu", "lv", "mt", "nl", "pl", "pt", "ro", "se", "si", "sk"),
    }
)
_EEA: Final = _EU | {"is", "li", "no"}
_EUROPE: Final = _EEA | {"ch", "gb"}
_AMERICA: Final = frozenset({"us", "ca", "mx"})
_APAC: Final = frozenset(
    {
        "au",
        "hk",
        "id",
        "in",
        "jp",
        "kr",
        "my",
        "nz",
        "sg",
        "th",
        "tw",
    }  # As the clouds use the word.
)
_OTHERS: Final = frozenset({"ae", "bh", "br", "cl", "il", "qa", "sa", "za"})
_ALL: Final = _EUROPE | _AMERICA | _APAC | _OTHERS

_LABELS: Final[Mapping[str, Countries]] = {
    **{country: frozenset({country}) for country in _ALL},
    "usa": frozenset({"us"}),
    "uk": frozenset({"gb"}),
    "eu": _EU,
    "eea": _EEA,
    "europe": _EUROPE,
    "america": _AMERICA,
    "apac": _APAC,
}
_PLACES: Final[Mapping[str, str]] = {
    # Amazon's.
    "eu-central-1": "de",
    "eu-central-2": "ch",
    "eu-north-1": "se",
    "eu-south-1": "it",
    "eu-south-2": "es",
    "eu-west-1": "ie",
    "eu-west-2": "gb",
    "eu-west-3": "fr",
    "eusc-de-east-1": "de",
    "ca-central-1": "ca",
    "ca-west-1": "ca",
    "mx-central-1": "mx",
    "ap-east-1": "hk",
    "ap-east-2": "tw",
    "ap-northeast-1": "jp",
    "ap-northeast-2": "kr",
    "ap-northeast-3": "jp",
    "ap-south-1": "in",
    "ap-south-2": "in",
    "ap-southeast-1": "sg",
    "ap-southeast-2": "au",
    "ap-southeast-3": "id",
    "ap-southeast-4": "au",
    "ap-southeast-5": "my",
    "ap-southeast-6": "nz",
    "ap-southeast-7": "th",
    "af-south-1": "za",
    "il-central-1": "il",
    "me-central-1": "ae",
    "me-south-1": "bh",
    "sa-east-1": "br",
    # Google's.
    "europe-central2": "pl",
    "europe-north1": "fi",
    "europe-north2": "se",
    "europe-southwest1": "es",
    "europe-west1": "be",
    "europe-west2": "gb",
    "europe-west3": "de",
    "europe-west4": "nl",
    "europe-west6": "ch",
    "europe-west8": "it",
    "europe-west9": "fr",
    "europe-west10": "de",
    "europe-west12": "it",
    "northamerica-northeast1": "ca",
    "northamerica-northeast2": "ca",
    "northamerica-south1": "mx",
    "southamerica-east1": "br",
    "southamerica-west1": "cl",
    "asia-east1": "tw",
    "asia-east2": "hk",
    "asia-northeast1": "jp",
    "asia-northeast2": "jp",
    "asia-northeast3": "kr",
    "asia-south1": "in",
    "asia-south2": "in",
    "asia-southeast1": "sg",
    "asia-southeast2": "id",
    "australia-southeast1": "au",
    "australia-southeast2": "au",
    "africa-south1": "za",
    "me-west1": "il",
    "me-central1": "qa",
    "me-central2": "sa",
}
_FIRST_WORDS: Final[Mapping[str, Countries]] = {
    "us": frozenset({"us"}),
    "ca": frozenset({"ca"}),
    "mx": frozenset({"mx"}),
    "eu": _EUROPE,
    "europe": _EUROPE,
    "eusc": _EU,
    "northamerica": _AMERICA,
    "ap": _APAC,
    "apac": _APAC,
    "asia": _APAC,
    "australia": frozenset({"au"}),
    "au": frozenset({"au"}),
    "jp": frozenset({"jp"}),
    "sa": frozenset({"br", "cl"}),
    "southamerica": frozenset({"br", "cl"}),
    "af": frozenset({"za"}),
    "africa": frozenset({"za"}),
    "me": frozenset({"ae", "bh", "il", "qa", "sa"}),
    "il": frozenset({"il"}),
}
"""For regions newer than this list, and for profiles and multi-regions that span several."""
_SPANS: Final[Mapping[str, Countries]] = {
    "us": frozenset({"us"}),
    "eu": _EU,
    "apac": _APAC,
    "jp": frozenset({"jp"}),
    "au": frozenset({"au"}),
    "ca": frozenset({"ca"}),
    "us-gov": frozenset({"us"}),
    ANYWHERE: _ALL,
}
"""Countries in which a model's prefix at Amazon, or a multi-region at Google, may answer."""


def spans(word: str) -> bool:
    """Whether it stands for several regions, of which the cloud chooses one for each request."""
    return word in _SPANS


def contradiction(where: str, jurisdiction: str) -> str:
    """Why requests to a region, or to those of a profile, leave a jurisdiction.

    Empty if it fits, and if the label is unknown to us: then the operator's word counts.
    """
    allowed = _LABELS.get(jurisdiction.lower())
    if allowed is None:
        return ""
    exact = _SPANS.get(where) or _exactly(where)
    if exact is not None:
        return "" if exact <= allowed else _said(where, jurisdiction)
    if "-" not in where:  # Several unknown regions.
        return _said(where, jurisdiction)
    about = _FIRST_WORDS.get(where.partition("-")[0])
    # For an unknown region only its first word can be used.
    return "" if about is None or about & allowed else _said(where, jurisdiction)


def regions_in(host: str) -> frozenset[str]:
    """The regions that occur in a host name."""
    words = re.split(r"\.|-aiplatform", host)
    return frozenset(word for word in words if word in _PLACES or _US.fullmatch(word))


def _exactly(region: str) -> Countries | None:
    country = "us" if _US.fullmatch(region) else _PLACES.get(region)
    return None if country is None else frozenset({country})


def _said(where: str, jurisdiction: str) -> str:
    if where == ANYWHERE:
        return f"`{where}` may be answered in any country, outside of `{jurisdiction}`"
    return f"`{where}` is not in `{jurisdiction}`, or not only there"


_US: Final = re.compile(r"us-(?:gov-)?(?:east|west|central|south)-?[0-9]{1,2}")
