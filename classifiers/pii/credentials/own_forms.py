"""Self-describing forms such as UUIDs, digests and resource names, where matches are chance.

Every turn of an agent repeats dozens of them. What a strong rule found in one stays: a UUID behind
"api_key" is a key, and a card's number is a card's number wherever it stands.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from classifiers.pii.findings import Finding


_UUID: Final = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_FORM: Final = re.compile(
    rf"(?<![0-9A-Za-z])(?:[a-z]{{1,12}}[_-])?(?P<uuid>{_UUID})(?![0-9A-Za-z])"
    r"|(?<![0-9A-Za-z])sha(?:256-[A-Za-z0-9+/]{43}=|384-[A-Za-z0-9+/]{64}|512-[A-Za-z0-9+/]{86}==)"
    r"|(?<![0-9A-Za-z])(?:h1:[A-Za-z0-9+/]{43}=|SHA256:[A-Za-z0-9+/]{43})(?![0-9A-Za-z+/])"
    r"|(?<![0-9A-Za-z_.-])(?:[A-Za-z]{1,16}[_.-]){0,3}(?i:trace|span|parent|request|correlation|commit|sha"
    r"(?:1|256|512)?|md5|hash|digest|checksum|etag|rev(?:ision)?|fingerprint|build)[_.-]?(?:[iI][dD])?"
    r"=[0-9a-f]{16,128}(?![0-9A-Za-z])"
    r"|\barn:aws[a-z-]{0,10}:[a-z0-9-]{0,32}:[a-z0-9-]{0,20}:(?:[0-9]{12})?:[\w/:.*+=@-]{1,300}"
    r"|(?<![0-9A-Za-z-])(?:[a-z]{1,12}-){1,3}[0-9a-f]{8}(?:[0-9a-f]{9})?(?![0-9A-Za-z-])"
    r"|\bS-1-[0-9]{1,2}(?:-[0-9]{1,11}){1,8}"
    r"|\bU\+[0-9A-F]{4,6}(?:-(?:U\+)?[0-9A-F]{4,6})?"
)
_GUESSES: Final = frozenset(
    {"secret/assigned", "secret/random", "secret/unlisted-prefix", "secret/short-prefix"}
)
_MAY_BE_CHANCE: Final = _GUESSES | {"secret/keyword", "secret/vendor"}
_NAMED_GUESSES: Final = frozenset({"secret/assigned", "secret/unlisted-prefix", "secret/random"})
"""Rules whose findings are a thing's name if the field says so: `"id": "ord_1Mtp…"`."""
_NUMBERS: Final = frozenset(
    {"PHONE", "BANK_ACCOUNT", "US_ROUTING", "NATIONAL_ID", "PASSPORT", "DRIVER_LICENSE"}
)
_NAME_LENGTH: Final = 48
_end_of = attrgetter("end")
# What is behind one of these is a credential whatever its form.
_CREDENTIAL: Final = re.compile(
    r"pass|pwd|secret|token|(?:api|access|account|private|master|app)[_\- ]?key|auth|credential"
    r"|signing|encryption|bearer|cookie|kennwort",
    re.IGNORECASE,
)
_GIVEN: Final = r"[\"'`]?[ \t]{0,3}(?:=>|[:=\x1f])[ \t\"'`]{0,4}\Z"
_NAMES_A_THING: Final = re.compile(rf"(?:[Ii]ds?|ID|SID|Sid|[Aa]rn|ARN){_GIVEN}")
_NAMES_A_PLACE: Final = re.compile(
    rf"(?:cache|primary|foreign|partition|sort|public|idempotency|routing)[_\- ]?key{_GIVEN}",
    re.IGNORECASE,
)
# A cloud's account has twelve digits and no money on it; elsewhere an account's id may be a bank's.
# That a text mentions the cloud says nothing of a number: what its tools write has to stand near.
_CLOUD: Final = re.compile(
    r"\barn:aws|amazonaws\.com|\bAWS::[A-Z]|\bAWS_[A-Z]|\baws_[a-z]"
    r"|(?:^|[\s`$])aws [a-z0-9-]{2,30} (?:[a-z]+ )?[a-z]+-"
    r"|\b(?:us|eu|ap|ca|sa|af|me|il|mx)-(?:gov-)?(?:north|south|east|west|central)[a-z]{0,4}-[1-9]\b",
    re.MULTILINE,
)
_CLOUD_NEAR: Final = 400
_BANK: Final = re.compile(
    r"iban|\bbic\b|ifsc|sort code|routing|holder|balance|\bbank|konto", re.IGNORECASE
)
_BANK_NEAR: Final = 120
_CLOUD_ACCOUNT: Final = re.compile(r"(?:[Aa]ccount[_-]?[Ii][Dd]s?|ownerAccount)\W{1,5}\Z")
_CLOUD_DIGITS: Final = re.compile(r"[0-9]{12}")
_OF_BOOKS: Final = re.compile(
    r"\b(?:g/?l|ledger|nominal|expense|revenue|accruals?|clearing|suspense) accounts?"
    r"(?: (?:no\.?|numbers?|codes?))?\W{0,3}\Z",
    re.IGNORECASE,
)
"""Names of accounts that nobody owns: those of book-keeping."""
_YEARS: Final = re.compile(r"(?:19|20)[0-9]{2}(?:\W{1,3}(?:19|20)[0-9]{2}){0,9}")


def without_own_forms(text: str, found: list[Finding]) -> list[Finding]:
    """Findings without those that only guessed at something which itself says what it is."""
    if not any(_may_be_chance(finding) for finding in found):
        return found
    forms = list(_forms(text))
    return [f for f in found if not _is_chance(f, text, forms)]


def _may_be_chance(finding: Finding) -> bool:
    rule = finding.detector.partition("+")[0]
    if rule == "tagger" and finding.label == "ADDRESS":
        return True
    return rule in _MAY_BE_CHANCE or finding.label in _NUMBERS


class _Form(NamedTuple):
    """The place of such a form, and whether it is a UUID."""

    start: int
    end: int
    is_uuid: bool


def _forms(text: str) -> Iterator[_Form]:
    for match in _FORM.finditer(text):
        yield _Form(match.start(), match.end(), match["uuid"] is not None)


def _is_chance(finding: Finding, text: str, forms: Sequence[_Form]) -> bool:
    if not _may_be_chance(finding):
        return False
    rule = finding.detector.partition("+")[0]
    name = text[max(0, finding.start - _NAME_LENGTH) : finding.start]
    if _is_named_otherwise(finding, rule, name, text):
        return True
    if finding.label == "BANK_ACCOUNT" and _CLOUD_ACCOUNT.search(name):
        return _is_of_cloud(finding, text)
    at = bisect_right(forms, finding.start, key=_end_of)
    if rule == "secret/vendor" or at == len(forms) or forms[at].start >= finding.end:
        return False
    form = forms[at]
    within = form.start <= finding.start and finding.end <= form.end
    if rule == "secret/keyword":
        return form.is_uuid and within and _CREDENTIAL.search(name) is None
    return within or rule in _GUESSES or rule == "tagger"


def _is_named_otherwise(finding: Finding, rule: str, name: str, text: str) -> bool:
    """Whether the text before it says that it is something else: a thing's id, a ledger's."""
    start, end = finding.start, finding.end
    if rule == "secret/vendor":
        return text[start:end].isdigit() and _NAMES_A_THING.search(name) is not None
    if rule in _NAMED_GUESSES:
        return _NAMES_A_THING.search(name) is not None and _CREDENTIAL.search(name) is None
    if rule == "secret/keyword":
        return _NAMES_A_PLACE.search(name) is not None and _CREDENTIAL.search(name) is None
    if finding.label == "DRIVER_LICENSE":
        return _YEARS.fullmatch(text, start, end) is not None  # "MIT License. Copyright 2014-2020"
    if finding.label == "BANK_ACCOUNT" and _OF_BOOKS.search(name) is not None:
        return _BANK.search(text, max(0, start - _BANK_NEAR), end + _BANK_NEAR) is None
    return False


def _is_of_cloud(finding: Finding, text: str) -> bool:
    """Whether an account is a cloud's: output of its tools is near, and nothing about a bank."""
    start, end = finding.start, finding.end
    if _CLOUD_DIGITS.fullmatch(text, start, end) is None:
        return False
    if _BANK.search(text, max(0, start - _BANK_NEAR), end + _BANK_NEAR) is not None:
        return False
    return _CLOUD.search(text, max(0, start - _CLOUD_NEAR), end + _CLOUD_NEAR) is not None
