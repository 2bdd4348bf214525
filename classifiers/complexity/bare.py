"""Strips from a prompt what must not count: blanks, greetings, thanks, claims of difficulty."""

import re
from typing import Final


HEAD_LENGTH = 2_000
TAIL_LENGTH = 1_000
BLANKS_FACTOR = 4
"""Blanks are removed from this many times the length that is read, so that they displace
nothing."""

_ENDING_LENGTH = 80
_GREETING = (
    r"(?:hi|hello|hey|good (?:morning|afternoon|evening)|dear (?:sir|madam|team|all)|hallo|"
    r"guten (?:tag|morgen|abend)|hola|buenos d\u00edas|buenas (?:tardes|noches)|bonjour|"
    r"bonsoir|salut|"
    "\u0928\u092e\u0938\u094d\u0924\u0947|\u3053\u3093\u306b\u3061\u306f|[\u4f60\u60a8]\u597d)"
    r"(?: there| all| everyone| team)?[,.!:;\uff01\uff0c\u3002\u3001] ?\s*"
)
_CLAIM = (
    r"(?:(?:this|here) is |it is |it's |just )?an? (?:very |really |extremely )?"
    r"(?:simple|easy|quick|trivial|basic|hard|difficult|complex|tough) "
    r"(?:question|task|request|one|problem)[:.,!-]+\s*"
)
_BEFORE = re.compile(rf"(?:{_GREETING}|{_CLAIM})+", re.IGNORECASE)
_AFTER = re.compile(
    r"(?:\s|(?<=[.?!\u3002\uff1f\u0964]))(?:many thanks|thanks|thank you|cheers|danke|vielen dank|"
    r"(?:muchas )?gracias|merci|\u0927\u0928\u094d\u092f\u0935\u093e\u0926|"
    r"\u3042\u308a\u304c\u3068\u3046(?:\u3054\u3056\u3044\u307e\u3059)?|\u8c22\u8c22)"
    r"(?: beaucoup|(?: so| very) much| a lot)?(?: in advance| im voraus| de antemano| d'avance)?"
    r"[.!\u3002\uff01\u0964\s]*$",
    re.IGNORECASE,
)
_SIGN = re.compile("[\u3040-\u309f\u3400-\u9fff]")
_MARKS: Final = dict.fromkeys(
    map(
        ord, "\u00a0\u00a1\u00ab\u00bb\u00bf\u0964\u2018\u2019\u201c\u201d\u201e\u2013\u2014\u2026"
    ),
    " ",
) | dict.fromkeys(
    map(ord, "\u3001\u3002\u300c\u300d\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"), " "
)


def bare(text: str) -> str:
    """The judged part of a text; at most HEAD_LENGTH + TAIL_LENGTH + 1 long, bounded work."""
    most = BLANKS_FACTOR * HEAD_LENGTH
    if len(text) > 2 * most:
        text = text[:most] + "\n" + text[-most:]
    text = "\n".join(filter(None, map(" ".join, map(str.split, text.split("\n")))))
    opening = _BEFORE.match(text)
    begin = opening.end() if opening else 0
    closing = _AFTER.search(text, max(begin, len(text) - _ENDING_LENGTH))
    text = text[begin : closing.start() if closing else None].strip() or text
    if len(text) > HEAD_LENGTH + TAIL_LENGTH:
        text = text[:HEAD_LENGTH] + "\n" + text[-TAIL_LENGTH:]
    return text


def worded(text: str) -> str:
    """A non-ASCII text in lower case, with blanks for its marks and around signs that are words."""
    return _SIGN.sub(r" \g<0> ", text.lower().translate(_MARKS))
