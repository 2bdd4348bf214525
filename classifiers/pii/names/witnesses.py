"""The evidence that a learned finding needs to be believed: a word near it, or its own form.

The tagger has learned from code and logs, and is believed in most of what it says about them. Some
labels it still gives by mistake: passwords and usernames look like any word there, licences are
mostly those of software, addresses look like stretches of code, and a row of digits like anybody's
number. Text in other scripts, where most of these words are not known, is believed; but the words
for a password are known there.
"""

import re
import string
from typing import Final

from classifiers.pii.names.places import is_count, is_place
from classifiers.pii.names.unlearned import is_unlearned, speaks_for_unlearned


_BEFORE: Final = 60
_AFTER: Final = 40
_LATIN_END: Final = "\u024f"
# Dashes, curly quotes, arrows and pictures are no script.
_OTHER_LETTER: Final = re.compile(r"[^\W\d_\u0000-\u024f]")


# Words of the languages of the templates; a part of a word is enough.
_NEAR: Final = {
    "PASSWORD": re.compile(
        r"pass|pwd|\bpw\b|\bpin\b|kennwort|log[ -]?in|credential|\bcodes?\b|contrase|senha|"
        r"has\u0142|wachtwoord|parol|heslo|jelsz|lozink|dbname|connect|curl|\u043f\u0430\u0440\u043e\u043b|"
        r"\u092a\u093e\u0938\u0935\u0930\u094d\u0921|\u5bc6\u7801|\u5bc6\u78bc|\u30d1\u30b9\u30ef\u30fc\u30c9|"
        r"\ube44\ubc00\ubc88\ud638|\u03ba\u03c9\u03b4\u03b9\u03ba|\u05e1\u05d9\u05e1\u05de|\u0643\u0644\u0645\u0629",
        re.IGNORECASE,
    ),
    "DRIVER_LICENSE": re.compile(
        r"licen[cs]e (?:no|num|#|id|is|:)|licen[cs]e\W{0,3}$|driv|f\u00fchrerschein|permis|\bdl\b|"
        r"patente|carn[e\u00e9]|rijbewijs|prawo jazdy",
        re.IGNORECASE,
    ),
    "USERNAME": re.compile(
        r"user|log[ -]?in|handle|account|nick|profil|signed in|benutzer|usuario|pass|@|reviewer|"
        r"assignee|approver|dbname|connect|\bssh|sudo|chown",
        re.IGNORECASE,
    ),
    # What has digits alone is whatever it is called. Where patterns know the word, they find it.
    "PHONE": re.compile(
        r"phon|\b(?:call|cell|tel\b|ring\b|dial|text|reach|desk\b|handy|hotline|office|home\b|work\b)"
        r"|mobil|\bm[o\u00f3]vil|\bfax|sms|whatsapp|contact|extension|\bext\b|pager|number is|\bruf"
        r"|anruf"
        r"|t[e\u00e9]l[e\u00e9]|\bt[e\u00e9]l\b|appel|joindre|joignable|portable|cellul|llam|chiam|belle?n\b",
        re.IGNORECASE,
    ),
    "BANK_ACCOUNT": re.compile(
        r"\bac(?:c|ct|count)s?(?:num\w*)?\b|\baccounts?(?:\b|_?n)|\ba/c|iban|konto|compte|cuenta|\bcont[oa]\b|rekening"
        r"|\bbank|banque|banco|banca|deposit|savings|checking|transfer|\bid (?:no|num)",
        re.IGNORECASE,
    ),
    "MRN": re.compile(
        r"mrn|medical|patient|hospital|clinic|chart|record|krank|m[e\u00e9]dic|dossier",
        re.IGNORECASE,
    ),
    "PASSPORT": re.compile(
        r"pass\w*port|reisepass|pas[sz]apor|paspoort|passnummer|travel doc", re.IGNORECASE
    ),
    "NATIONAL_ID": re.compile(
        r"\bid\b|identi|national|tax|citizen|social|steuer|insurance|document|ident\w*|carte|c[e\u00e9]dula"
        r"|\bd\.?n\.?i\b|\bn\.?i\.?[ef]\b|fiscal|personn",
        re.IGNORECASE,
    ),
    "EMPLOYEE_ID": re.compile(
        r"employ|staff|personn?[ae]l|badge|payroll|\bemp\b|worker|mitarbeiter|matricul|empleado|colleague",
        re.IGNORECASE,
    ),
    "VEHICLE_REG": re.compile(
        r"vehicle|\bcars?\b|\bvans?\b|taxi|truck|bike|plate|regist|\breg\b|kennzeichen|immatric|matr[i\u00ed]c"
        r"|targa|drive|park|licen[cs]e",
        re.IGNORECASE,
    ),
    "DOB": re.compile(
        r"\bborn|birth|\bdob\b|\bd\.o\.b|\bb\.\s|\bgeb|naiss|\bn[e\u00e9]+s?\b|nac[ie]|\bnat[oa]\b|nascit|nascid|\bage",
        re.IGNORECASE,
    ),
}
_CALLED_WITHIN: Final = frozenset({"BANK_ACCOUNT", "MRN", "PASSPORT", "NATIONAL_ID", "EMPLOYEE_ID"})
"""Labels whose findings include the word: "ID number 987654321"."""
_OF_DIGITS: Final = _CALLED_WITHIN | {"PHONE", "DRIVER_LICENSE"}
_OF_WORDS: Final = frozenset({"PERSON", "LOCATION", "ORGANIZATION"})
_BY_ITS_FORM: Final = re.compile(r"\(?\+|\([0-9]|0[0-9]{1,4}[ /\-][0-9 \-]{5}")
"""Beginnings that identify a telephone number by themselves."""
OF_PERSONS: Final = {
    "PHONE": re.compile(r"[0-9]{2,5}(?:[ /\-][0-9]{2,5}){1,4}"),
    "DOB": re.compile(r"[\-./ ]?[0-9A-Za-z]"),
}
"""As telephone numbers and dates are written; beside a name, such a number is that person's."""
# Orders, invoices, receipts, tickets, goods, sums: in scripts where nothing else tells them apart.
_OTHERWISE: Final = re.compile(
    r"(?:"
    r"\u0906\u0926\u0947\u0936|\u0911\u0930\u094d\u0921\u0930|"
    r"\u091a\u093e\u0932\u093e\u0928|\u0907\u0928\u0935\u0949\u0907\u0938|"
    r"\u092c\u093f\u0932|\u0930\u0938\u0940\u0926|\u091f\u093f\u0915\u091f|"
    r"\u0917\u094d\u0930\u093e\u0939\u0915|\u092e\u0926\b|"
    r"\u0909\u0924\u094d\u092a\u093e\u0926|\u0915\u0941\u0932|\u0930\u093e\u0936\u093f|"
    r"\u091c\u0928\u0938\u0902\u0916\u094d\u092f\u093e|"
    r"\u092e\u093e\u0924\u094d\u0930\u093e|\u0938\u0902\u0926\u0930\u094d\u092d|"
    r"\u6ce8\u6587|\u8acb\u6c42\u66f8|\u4f1d\u7968|\u554f\u3044\u5408\u308f\u305b|"
    r"\u5546\u54c1|\u5408\u8a08|\u91d1\u984d|\u6570\u91cf|\u30c1\u30b1\u30c3\u30c8|"
    r"\u8ffd\u8de1|\u54c1\u756a|\u578b\u756a|"
    r"\u8ba2\u5355|\u8a02\u55ae|\u53d1\u7968|\u767c\u7968|\u5feb\u9012|\u8fd0\u5355|"
    r"\u5355\u53f7|\u55ae\u865f|\u5408\u8ba1|\u603b\u8ba1|\u91d1\u989d|\u6570\u91cf|"
    r"\u5ba2\u6237\u7f16\u53f7|\u8d27\u53f7|\u4eba\u53e3|"
    r"\uc8fc\ubb38|\uc1a1\uc7a5|\uc0c1\ud488|\ud569\uacc4|\uae08\uc561|\uc218\ub7c9|"
    r"\uc601\uc218\uc99d|\uccad\uad6c\uc11c|\ud2f0\ucf13|"
    r"\u0437\u0430\u043a\u0430\u0437|\u043d\u0430\u043a\u043b\u0430\u0434\u043d|"
    r"\u0430\u0440\u0442\u0438\u043a\u0443\u043b|\u0442\u0440\u0435\u043a|"
    r"\u0437\u0430\u044f\u0432\u043a|\u043d\u0430\u0441\u0435\u043b\u0435\u043d\u0438|"
    r"\u0441\u0443\u043c\u043c|\u0431\u0438\u043b\u0435\u0442|"
    r"\u043a\u0432\u0438\u0442\u0430\u043d\u0446|"
    r"\u0627\u0644\u0637\u0644\u0628|\u0627\u0644\u0641\u0627\u062a\u0648\u0631\u0629|"
    r"\u0627\u0644\u0634\u062d\u0646\u0629|\u0627\u0644\u062a\u0630\u0643\u0631\u0629|"
    r"\u0627\u0644\u0645\u0646\u062a\u062c|\u0627\u0644\u0645\u0628\u0644\u063a|"
    r"\u0627\u0644\u0633\u0643\u0627\u0646|\u0627\u0644\u0625\u064a\u0635\u0627\u0644|"
    r"\u0441\u0447[\u0435\u0451]\u0442(?= ?\u2116)|\u767b\u9332\u756a\u53f7(?=\W{0,3}T)"
    r")([^0-9\n]{0,16})\Z",
    re.IGNORECASE,
)
_OWN_WORD: Final = re.compile(
    r"account|\u0905\u0915\u093e\u0909\u0902\u091f|\u0916\u093e\u0924|\u092c\u0948\u0902\u0915|\u092a\u093e\u0938\u092a\u094b\u0930\u094d\u091f|\u0906\u0927\u093e\u0930"
    r"|\u53e3\u5ea7|\u65c5\u5238|\u514d\u8a31|\u8d26\u53f7|\u8d26\u6237|\u8cec\u865f|\u62a4\u7167|\u8eab\u4efd|\uacc4\uc88c|\uc5ec\uad8c"
    r"|\u0441\u0447\u0435\u0442\u0430|\u043f\u0430\u0441\u043f\u043e\u0440\u0442|\u062d\u0633\u0627\u0628|\u062c\u0648\u0627\u0632|\u0647\u0648\u064a\u0629",
    re.IGNORECASE,
)
"""Words for a person's number despite those: "the order's account"."""
_LONGEST_OTHERWISE: Final = 13
_LETTERS: Final = string.ascii_letters
_LICENCE_DIGITS_MIN: Final = 3
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

# Which day it is, as programs tell models, up to any part of the date: nobody is born on it.
_TODAY: Final = re.compile(
    r"\b(?:today(?:['\u2019]?s)?|current) date(?: is|[ \t:=\"'>*]){0,4}"
    r"(?:(?:mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
    r"|[0-9]{1,4}|[ ,/.-]){0,12}\Z",
    re.IGNORECASE,
)


def speaks_for(text: str, label: str, start: int, end: int) -> bool:
    """Whether a place that the tagger gave this label may really be that."""
    is_ascii = text.isascii()
    if is_ascii and label in _OF_WORDS:
        return True
    before = text[max(0, start - _BEFORE) : start]
    after = text[end : end + _AFTER]
    said = text[start:end]
    if label == "DOB" and _TODAY.search(before) is not None:
        return False
    near = _NEAR.get(label)
    if label == "PASSWORD" and near is not None:
        return near.search(before) is not None and _is_password(text, start, end)
    if label == "DRIVER_LICENSE" and sum(map(str.isdigit, said)) < _LICENCE_DIGITS_MIN:
        return False
    around = before + said + after
    if not is_ascii and _is_other_script(around):
        return (not is_unlearned(around) or speaks_for_unlearned(text, label, start, end)) and (
            label not in _OF_DIGITS or not _is_called_otherwise(before, said)
        )
    if label == "ADDRESS":
        return is_place(said, before, after) and not is_count(text, start, end)
    if near is None or (label == "PHONE" and _BY_ITS_FORM.match(said) is not None):
        return True
    beside = (before, after, said) if label in _CALLED_WITHIN else (before, after)
    return any(near.search(part) is not None for part in beside)


def may_be_of_person(text: str, label: str, start: int, end: int) -> bool:
    """Whether a person named beside a place speaks for it, if no word does."""
    form = OF_PERSONS.get(label)
    if form is None or form.match(text, start, end) is None:
        return False
    return label != "DOB" or _TODAY.search(text[max(0, start - _BEFORE) : start]) is None


def _is_called_otherwise(before: str, said: str) -> bool:
    """Whether a word before a number says that it belongs to nobody."""
    if sum(map(str.isdigit, said)) > _LONGEST_OTHERWISE:
        return False
    called = _OTHERWISE.search(before + said[: len(said) - len(said.lstrip(_LETTERS))])
    return called is not None and _OWN_WORD.search(called[1]) is None


def _is_other_script(text: str) -> bool:
    return max(text, default="") > _LATIN_END and _OTHER_LETTER.search(text) is not None


def _is_password(text: str, start: int, end: int) -> bool:
    """One word; if it has only letters, right after text that calls it the password.

    The tagger separates letters from digits, so the word is the text between spaces.
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
