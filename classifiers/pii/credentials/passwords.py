"""Pattern table of passwords in addresses, in configuration and in prose."""

# ruff: noqa: PLR2004 - the numbers here are those of the heuristics, explained where they stand.

import re

from classifiers.pii.credentials.secrets import is_placeholder, is_template
from classifiers.pii.rules import Rule


_NAMED = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|kennwort|passwort|\bpw|mot de passe|contrase[n?]a"
    r"|\bhas[l?]o|\bsenha|\bheslo|wachtwoord|losenord|adgangskode|salasana|\bjelszo|\bgeslo"
    r"|\blozinka"
    r"|\bparola|\bsifre|mat khau|kata sandi"
    r"|\b(?:db|user|root|admin|smtp|mail|mysql|ftp|ldap|ssh|login)[_\-]?pass\b)"
)
"""Words for a password in Latin script, without accents; other scripts are in `called`."""
_INSIDE = (
    r"(?:[\[{]\s{0,24}(?:[\"'](?:values?|text|plain_?text|plain|clear_?text|current|new|old"
    r"|secret|raw"
    r"|string_?value|string|content|data|s)[\"']\s?:\s{0,3})?)?"
)
"""Between a name and its value if the value is a list or an object in JSON."""
_BESIDE = r"(?:[\"'],\s{0,24}[\"']values?[\"']\s?:\s{0,3})"
"""The same if the name is a value itself, as in `{"name": "password", "value": …}`."""
_WHOSE = (
    r"(?:[ \t](?:du|de|del|des?|della|do|da|das?|dos?|pour|para|per|fur|von|vom|zum|der|die|dem"
    r"|den"
    r"|van|voor|het|for|of|to|do|dla|nuev[oa]|nouveau|neues?|new|nuova|nova|provis\w{1,8}"
    r"|tempor\w{1,8})"
    r"(?:[ \t][^\s:=]{1,16}){0,3}"
    r"(?:\s?[:=]|[ \t](?:is|was|ist|war|lautet|est|es|era|e|to|sera)[ \t]))"
)
"""Whose password it is, or which, and the word or mark before its value."""
_SAYS = re.compile(
    r"incorrect[aeo]?|invalid[aeo]?|wrong|required|missing|expired|empty"
    r"|falsch|ungultig|abgelaufen|faux|expire|oblig\w{3,8}|manquant|caducad[ao]"
    r"|erronea|errata|scadut[ao]|verkeerd|verlopen",
    re.IGNORECASE,
)
"""Words said about a password, which are never taken for one; "secret!" and "Right!!" are."""
_OF_FILES = re.compile(r"\.[A-Za-z]{2,5}\Z")
_LABEL = rf"(?:^|\n)[^\n\x1f]{{0,60}}{_NAMED}[^\n`\x1f]{{0,40}}\n(?:[ \t>]{{0,8}}\n){{0,2}}"
"""A line that names a password, and what may stand between it and the next line with words."""
_ALONE = r"([^\s\"'`\x1f,;<>|]{6,64})"
_GAP = r"[\s\"',]{1,4}"
"""What separates the words of a command, also as a list."""


def password_value(text: str) -> bool:
    """A password in prose or configuration: mixed kinds of characters, no expression."""
    if _SAYS.fullmatch(text.rstrip("!?")) is not None:
        return False
    if is_template(text) or any(mark in text for mark in ("(", "[", "->", "::", "//")):
        return False
    kinds = (
        any(map(str.islower, text)),
        any(map(str.isupper, text)),
        any(map(str.isdigit, text)),
        any(char in "!@#$%^&*~+?" for char in text),
    )
    return len(text) >= 6 and sum(kinds) >= 2 and (kinds[2] or kinds[3]) and len(set(text)) > 4


def told_password(text: str) -> bool:
    """A password by itself where words, commands and file names may stand as well."""
    if not password_value(text) or "/" in text or text.startswith(("#", "-", "$", "{", "%")):
        return False
    if _OF_FILES.search(text) is not None:
        return False
    kinds = (
        any(map(str.islower, text)),
        any(map(str.isupper, text)),
        any(map(str.isdigit, text)),
        any(char in "!@#$%^&*~+?=" for char in text.rstrip("!?.")),
    )
    return sum(kinds) > 2 or (text.isalnum() and len(text) >= 8 and sum(map(str.isdigit, text)) > 1)


def url_password(text: str) -> bool:
    plain = text.lower()
    return plain not in {"password", "pass", "pw", "secret", "pwd", "user"} and not is_placeholder(
        text
    )


PASSWORDS: tuple[Rule, ...] = (
    Rule(
        "PASSWORD",
        "url",
        r"\b[A-Za-z][A-Za-z0-9+.\-]{1,20}://[^\s:/@\"'\x1f]{0,64}:([^\s/\"'\x1f]{2,128})@",
        0.95,
        url_password,
        gate=r"://[^\s:/@\"'\x1f]{0,64}:[^\s/\"'\x1f]{1,128}@",
    ),
    Rule(
        "PASSWORD",
        "keyword",
        rf"(?i){_NAMED}"
        rf"(?:{_WHOSE}|[\w.\-]{{0,16}}[\"'`*]{{0,3}}\s?"
        r"(?:[:=|\x1f]|=>|:=|(?: is| was| ist| lautet| est| es| e| to| je| on| ar)? ))"
        rf"[*\s]{{0,3}}{_INSIDE}[\"'`]?([^\s\"'`\x1f,;<>]{{6,64}})",
        0.8,
        password_value,
        gate=rf"(?i){_NAMED}[\"'`*]*[\w.\-\"'`*]*[\s:=|\x1f]",
    ),
    Rule(
        "PASSWORD",
        "named",
        rf"(?i){_NAMED}{_BESIDE}[\"'`]([^\s\"'`\x1f,;<>]{{6,64}})",
        0.8,
        password_value,
        gate=rf"(?i){_NAMED}[\"'],\s*[\"']values?[\"']",
    ),
    Rule(
        "PASSWORD",
        "tag",
        rf"(?i)<[\w:.\-]{{0,24}}{_NAMED}[\w.\-]{{0,16}}(?:\s[^<>]{{0,60}})?>\s?([^\s<>]{{6,64}})",
        0.8,
        password_value,
        gate=rf"(?i)<[\w:.\-]*{_NAMED}[\w.\-]*(?:\s[^<>]*)?>",
    ),
    Rule(
        "PASSWORD",
        "field",
        rf"(?i){_NAMED}[\"']?\s(?:[a-z]{{1,12}}=[\"']?[\w.\-]{{0,24}}[\"']?\s){{0,2}}"
        r"value=[\"']([^\s\"'<>]{6,64})",
        0.8,
        password_value,
        gate=rf"(?i){_NAMED}[\"']?\s[^<>]*value=",
    ),
    Rule(
        "PASSWORD",
        "command",
        r"(?i)(?:\bidentified\s(?:with\s\w{1,40}\s)?by\s[\"']"
        rf"|\b(?:mysql|mysqldump|mysqladmin|mariadb){_GAP}(?:[^\n|]{{0,80}}[\s\"',])?-p[\"']?"
        rf"|\bcurl{_GAP}(?:[^\n|]{{0,80}}[\s\"',])?(?:-u[\"']?|(?:-u|--user)(?:=[\"']?|{_GAP}))"
        r"[\w.@\-]{1,64}:)([^\s\"']{6,64})",
        0.8,
        password_value,
        gate=r"(?i)\b(?:identified|mysql|mysqldump|mysqladmin|mariadb|curl)[\s\"',]",
    ),
    Rule(
        "PASSWORD",
        "link",
        rf"(?i)\[[^\[\]\n]{{0,60}}{_NAMED}[\w .\-]{{0,24}}(?:[:=]| is| was| ist| est"
        rf"| es)[ \t]{{0,2}}"
        r"([^\s\"'`\]<>]{6,64})\]\(",
        0.8,
        password_value,
        gate=rf"(?i)\[[^\[\]\n]*{_NAMED}[^\[\]\n]*\]\(",
    ),
    Rule(
        "PASSWORD",
        "linked",
        rf"(?i){_NAMED}[\w .\-]{{0,24}}(?:[:=]| is| was| ist| est"
        rf"| es)[ \t*_]{{0,4}}\[([^\s\[\]]{{6,64}})\]\(",
        0.8,
        told_password,
        gate=rf"(?i){_NAMED}[^\[\n]*\[[^\s\[\]]*\]\(",
    ),
    Rule(
        "PASSWORD",
        "link-target",
        rf"(?i)\[[^\[\]\n]{{0,40}}{_NAMED}[^\[\]\n]{{0,16}}\]\(<?([^\s()<>/]{{6,64}})>?\)",
        0.7,
        told_password,
        gate=rf"(?i)\[[^\[\]\n]*{_NAMED}[^\[\]\n]*\]\(",
    ),
    Rule(
        "PASSWORD",
        "fence",
        rf"(?i){_LABEL}[ \t>]{{0,8}}(?:```|~~~)[\w\-]{{0,12}}[ \t]?\n[ \t>]{{0,8}}{_ALONE}[ \t]?\n"
        r"[ \t>]{0,8}(?:```|~~~)",
        0.8,
        told_password,
        gate=rf"(?i){_NAMED}[^\n`]*\n[ \t>\n]*(?:```|~~~)",
    ),
    Rule(
        "PASSWORD",
        "next-line",
        rf"(?i)(?:^|\n)[ \t>#*_+\-]{{0,8}}(?:[\w\-]{{1,16}} ){{0,3}}{_NAMED}"
        r"(?:(?: [\w\-]{1,16}){0,3}[ \t]?[*_]{0,2}:|(?: (?:is|ist|est|es|e))?[ \t]?)[*_#]{0,4}"
        r"[ \t]?\n(?:[ \t>]{0,8}\n){0,2}[ \t>*+\-]{0,8}`{0,3}" + _ALONE + r"`{0,3}[ \t]?(?:\n|$)",
        0.7,
        told_password,
        gate=rf"(?i){_NAMED}[\w \-]*[:*_# \t]*\n[ \t>\n*+\-]*`*[^\s`]",
    ),
    Rule(
        "PASSWORD",
        "hashed",
        # As files of passwords keep it: it can be guessed from that.
        r"(?:[$](?:apr1|1)[$][./0-9A-Za-z]{1,8}[$][./0-9A-Za-z]{22}"
        r"|[$]2[abxy]?[$][0-9]{2}[$][./0-9A-Za-z]{53}"
        r"|[$][56][$](?:rounds=[0-9]{1,9}[$])?[./0-9A-Za-z]{1,16}[$][./0-9A-Za-z]{43,86}"
        r"|[$]y[$][./0-9A-Za-z]{1,12}[$][./0-9A-Za-z]{1,86}[$][./0-9A-Za-z]{43})",
        0.9,
        gate=r"[$](?:apr1|1|2[abxy]?|[56]|y)[$][./0-9A-Za-z=]{1,16}[$]",
    ),
)
