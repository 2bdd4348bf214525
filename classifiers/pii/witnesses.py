"""What has to speak for a learned finding before it is believed: a word near it, or its own form.

The tagger learned from letters and forms, and takes much in code, logs and manuals for an address,
a password or an account. Text in other scripts, where these words are not known, is believed.
"""

import re
from typing import Final


_BEFORE: Final = 60
_AFTER: Final = 40
_LATIN_END: Final = "\u024f"
# Dashes, curly quotes, arrows and pictures are no script.
_OTHER_LETTER: Final = re.compile(r"[^\W\d_\u0000-\u024f]")


# Words of the languages of the templates; a part of a word is enough.
_NEAR: Final = {
    "PASSWORD": re.compile(
        r"pass|pwd|\bpw\b|\bpin\b|kennwort|log[ -]?in|credential|code|contrase|senha|has\u0142|"
        r"wachtwoord|parol|heslo|jelsz|lozink",
        re.IGNORECASE,
    ),
    "BANK_ACCOUNT": re.compile(
        r"account|acct|a/c\b|konto|iban|bank|compte|cuenta|conto|rekening|id number|routing|"
        r"sort code|n\u00famero|rachun|\u00fa\u010det|ucet|conta\b",
        re.IGNORECASE,
    ),
    "DRIVER_LICENSE": re.compile(
        r"licen[cs]e (?:no|num|#|id|is|:)|licen[cs]e\W{0,3}$|driv|f\u00fchrerschein|permis|\bdl\b|"
        r"patente|carn[e\u00e9]|rijbewijs|prawo jazdy",
        re.IGNORECASE,
    ),
    "MRN": re.compile(
        r"mrn|medical|patient|hospital|chart|health|clinic|krank|dossier", re.IGNORECASE
    ),
    "PHONE": re.compile(
        r"phone|\btel|call|mobil|cell|fax|dial|\bring\b|reach|whatsapp|sms|contact|\bext|number|"
        r"handy|llam|appel|chiam|bel\b|zadzwo|zavol|h\u00edv",
        re.IGNORECASE,
    ),
    "USERNAME": re.compile(
        r"user|log[ -]?in|handle|account|nick|profil|signed in|benutzer|usuario|pass|@",
        re.IGNORECASE,
    ),
    "DOB": re.compile(
        r"birth|born|dob|geb|n\u00e9|naiss|nac|nat[oa]\b|urodz|naro[dz]|sz\u00fcl|\bb\.|\*|age\b",
        re.IGNORECASE,
    ),
    "EMPLOYEE_ID": re.compile(
        r"emp|staff|personnel|badge|payroll|worker|mitarbeit|dipend|emplead", re.IGNORECASE
    ),
    "VEHICLE_REG": re.compile(
        r"vehicle|plate|registr|kennzeichen|\bcar\b|\bvan\b|truck|park|immatric|targa|matr[i\u00ed]c",
        re.IGNORECASE,
    ),
    "PASSPORT": re.compile(
        r"passport|\bpass\b|reisepass|passeport|pasaporte|passaport|paszport", re.IGNORECASE
    ),
    "NATIONAL_ID": re.compile(
        r"\bid\b|ident|national|ssn|social|tax|number|ausweis|cpf|dni|\bnif|pesel|codice|nummer",
        re.IGNORECASE,
    ),
}
_DIGITS_MIN: Final = {
    "BANK_ACCOUNT": 4,
    "DRIVER_LICENSE": 3,
    "MRN": 3,
    "PHONE": 4,
    "DOB": 4,
    "EMPLOYEE_ID": 2,
    "PASSPORT": 4,
    "NATIONAL_ID": 4,
}
_NOT_IN_ADDRESSES: Final = re.compile(r"[\[\]{}<>=_\\;|$`]|[A-Za-z_]\(|^[a-z]+:$")
_BESIDE_CODE: Final = frozenset("[]{}()<>=_\\$`")
_SHORT_WORD: Final = 4
# What is an address whatever stands beside it: a number and a word with a capital, a kind of
# street, a British postal code.
_SURELY_PLACE: Final = re.compile(
    r"[0-9][A-Za-z]?,? +(?:[\w.]+ +){0,3}[A-Z\u00c0-\u00de]\w{2,}"
    r"|[A-Z\u00c0-\u00de][\w.'-]{3,}(?: [\w.]+){0,2},? +[0-9]"
    r"|\b[A-Z]{1,2}[0-9][A-Z0-9]? ?[0-9][A-Z]{2}\b"
    r"|(?i:\b(?:street|road|lane|avenue|drive|boulevard|court|square|platz|weg|gasse|allee|rue|via"
    r"|calle|nagar|marg)\b|stra(?:\u00df|ss)e)"
)
_CODE_OF_TOWN: Final = re.compile(r"[0-9]{4,6}")
_TOWN: Final = re.compile(r" [A-Z\u00c0-\u00de]\w{2,}")
# A heading names a column once, however far away its rows are.
_HEADINGS: Final = {
    "DOB": re.compile(r"\bdob\b|birth|geburt|naissance|nacimiento|nascita", re.IGNORECASE),
    "BANK_ACCOUNT": re.compile(r"\biban\b|account n|bank|konto", re.IGNORECASE),
    "MRN": re.compile(r"\bmrn\b|medical record|patient", re.IGNORECASE),
    "PASSPORT": re.compile(r"passport|reisepass|pasaporte", re.IGNORECASE),
    "DRIVER_LICENSE": re.compile(r"driv\w{0,4}.{0,3} licen|f\u00fchrerschein", re.IGNORECASE),
    "EMPLOYEE_ID": re.compile(r"emp(?:loyee)?[ _]?(?:id|no)|personnel", re.IGNORECASE),
    "VEHICLE_REG": re.compile(r"number ?plate|licen[cs]e plate|kennzeichen", re.IGNORECASE),
    "NATIONAL_ID": re.compile(r"national[ _]?id|\bssn\b|ausweis|tax[ _]?id", re.IGNORECASE),
    "PHONE": re.compile(r"telephone|phone n|mobile n|telefon", re.IGNORECASE),
}
_COUNTED: Final = re.compile(
    r"\b(?:to|max|min|of|than|least|most|up|by|about|over|under|after|every|limit|defaults?)\W{0,2}\Z",
    re.IGNORECASE,
)
_ENDS_WORDS: Final = frozenset(" \t\r\n\"'`\x1f")
_SPACED: Final = re.compile(r"[\s\[\](){}<>]")
_IS_SAID: Final = re.compile(
    r"(?:\b(?:is|was|ist|war|est|es|\u00e8|jest|to)|[=:])[ \t]{0,3}[\"'`\u201c]?\Z", re.IGNORECASE
)
_GOES_ON_AS_CODE: Final = frozenset("[(.,)|:;]")
_PASSWORD_LENGTH_MIN: Final = 5
_NO_PASSWORDS: Final = re.compile(
    r"bytes|empty|false|field|input|missing|none|null|object|optional|password|required|secret|"
    r"string|token|undefined|unset|value|wrong"
)


class Witnesses:
    """What speaks for learned findings in one text; headings are looked for once a label."""

    __slots__ = ("_headings", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._headings: dict[str, bool] = {}

    def speak_for(self, label: str, start: int, end: int) -> bool:
        """Whether a place that the tagger took for something of this label may be that."""
        text = self._text
        before = text[max(0, start - _BEFORE) : start]
        after = text[end : end + _AFTER]
        said = text[start:end]
        if _is_other_script(before + said + after):
            return True
        if label == "ADDRESS":
            return _is_place(said, before, after)
        near = _NEAR.get(label)
        if near is None:
            return True
        if sum(map(str.isdigit, said)) < _DIGITS_MIN.get(label, 0) and not _ends_in(label, before):
            return False
        if label == "PASSWORD":
            return near.search(before) is not None and _is_password(text, start, end)
        is_near = near.search(before) is not None or near.search(after) is not None
        return is_near or self._is_headed(label)

    def _is_headed(self, label: str) -> bool:
        found = self._headings.get(label)
        if found is None:
            heading = _HEADINGS.get(label)
            found = heading is not None and heading.search(self._text) is not None
            self._headings[label] = found
        return found


def _is_other_script(text: str) -> bool:
    return max(text, default="") > _LATIN_END and _OTHER_LETTER.search(text) is not None


def _is_place(said: str, before: str, after: str) -> bool:
    """No stretch of code: not torn out of a word, not between marks, not of short words alone."""
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
    words = re.findall(r"\w+", said)
    return any(len(word) > _SHORT_WORD or not word.islower() for word in words)


def _is_torn(said: str, before: str, after: str) -> bool:
    """Whether the word goes on beside it."""
    return (said[:1].isalnum() and before[-1:].isalnum()) or (
        said[-1:].isalnum() and after[:1].isalnum()
    )


def _is_password(text: str, start: int, end: int) -> bool:
    """One word; where it is letters alone, right behind what says that it is the password.

    The tagger parts letters from digits, so the word is what stands between spaces.
    """
    if _SPACED.search(text[start:end]) is not None:
        return False
    first, last = start, end
    while first > max(0, start - _BEFORE) and text[first - 1] not in _ENDS_WORDS:
        first -= 1
    while last < min(len(text), end + _AFTER) and text[last] not in _ENDS_WORDS:
        last += 1
    whole = text[first:last]
    if _SPACED.search(whole) is not None:
        return False
    word = whole.strip(".,;:!")
    if not word.isalpha():
        return any(map(str.isdigit, word)) and any(map(str.isalpha, word))
    before, after = text[max(0, first - _BEFORE) : first], text[last : last + _AFTER]
    is_word = (
        word.islower()
        and len(word) >= _PASSWORD_LENGTH_MIN
        and _NO_PASSWORDS.fullmatch(word) is None
    )
    behind = (whole[len(whole.rstrip(",;:")) :] + after).lstrip()[:1]
    return is_word and _IS_SAID.search(before) is not None and behind not in _GOES_ON_AS_CODE


def _ends_in(label: str, before: str) -> bool:
    """The last digits of a number are told apart from it: "ending in 78"."""
    return label == "BANK_ACCOUNT" and "ending" in before
