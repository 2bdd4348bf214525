"""Masks sensitive text that arrives in pieces, cut anywhere, and in blocks.

It holds back whatever may be the beginning of something sensitive until that is certain; plain
words go on at once. The end of a block does not settle it: both readings count, the one that goes
on in the next block and the one that ends there.
"""

import re
from collections.abc import Sequence
from typing import Final

from classifiers.adjoining import ScanText, Seamed, scan_both_ways
from classifiers.pii.findings import Finding
from classifiers.pii.labels import DataClass, data_class_of
from gateway.veiling.blocks import Told, joined


WINDOW_LENGTH: Final = 256
BEFORE_LENGTH: Final = 160
"""How much shown text is read again, for words that announce a value."""
STEP_LENGTH: Final = 16 * 1024
"""A long text is read in steps of this length, so that deadlines and other texts need not wait for
all of it."""
_SOON_LENGTH = 2048
"""Of text that arrives at once, only the last part is judged for release as early as possible:
nobody waits for what precedes it, and judging that so would read it again for each of its words."""
UNREAD: Final = "[REDACTED]"
_AFTER_LENGTH = 64
_KEY_OPEN = re.compile(r"-----BEGIN (?!.*-----END )", re.DOTALL)
_KEY_END = re.compile(r"-----END [^\n-]{0,60}-----")
_KEY_END_LENGTH = 80
# A word that may belong to a value: digits, marks of addresses and encodings, long runs, spoken
# numbers, and the word after one that announces a password.
_SUSPICIOUS = re.compile(
    r"\S{16,}|\S*[\d@%&\\=]\S*|-{3,}\S*"
    r"|\b(?:zero|one|two|three|four|five|six|seven|eight|nine|double|triple)\b"
    r"|\u0936\u0942\u0928\u094d\u092f|\u090f\u0915|\u0926\u094b|\u0924\u0940\u0928|\u091a\u093e\u0930"
    r"|\u092a\u093e\u0902\u091a|\u091b\u0939|\u0938\u093e\u0924|\u0906\u0920|\u0928\u094c"
    r"|(?:[Pp](?:ass(?:word|wd|phrase|code|wort)|wd)|[Kk]ennwort)\S*(?:\s+(?:is|was|ist)\b)?(?:\s+\S+)?"
)
# A word that may begin an identifier with several parts ("QQ 12 34 56 C").
_CAPITALS = re.compile(r"[A-Z]{1,4}[.:/\-]?")
# An unfinished number, or word with a digit, that is already too long for a casual mention.
_TORN = re.compile(r"(?:\d[ .\-]{0,2}){4}\d[ \-]?\Z|(?=\S*\d)\S{15}[^\s.!?)]\Z")
_WORD_REST = re.compile(r"[^\s\"'`,;<>)\]}]*")
_ESCAPE = re.compile(r"\\(?:([bfnrt])|[^bfnrt])")
_CUT = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_BARE_BEFORE = re.compile(r"[:,\[]\s*\Z")
_BARE_END = re.compile(r"[:,]\s*[0-9]+\Z")


def spaced(text: str) -> str:
    """The text at the same length, without the letters of JSON's escapes for white space.

    The `n` of an escaped line feed would otherwise seem to belong to the number after it.
    """
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: "  " if match[1] else match[0], text)


class MaskingWindow:
    """Blackens findings of class `least` and above; see `blocks.Piecewise`."""

    def __init__(self, scan: ScanText, least: DataClass, *, in_json: bool = False) -> None:
        self._scan = scan
        self._least = least
        self._in_json = in_json
        self._before = ""
        self._held = ""
        self._edges: list[int] = []
        """Where blocks end in both of them."""
        self._owed = 0
        """How many of the last block ends have not been shown yet."""
        self._in_key = False
        self._swallows = False

    @property
    def is_torn(self) -> bool:
        if self._in_key or self._swallows or _KEY_OPEN.search(self._held):
            return True
        return _TORN.search((self._before + self._held)[-WINDOW_LENGTH:]) is not None

    def whole(self, text: str) -> str:
        """A text that arrives complete; a long one is read in steps, like a stream."""
        if len(text) > STEP_LENGTH:
            return self.feed(text) + self.flush()
        self._held = text
        return self.flush()

    def feed(self, piece: str) -> str:
        return "".join(self.shown(piece))

    def flush(self) -> str:
        return "".join(self.rest())

    def shown(self, piece: str) -> list[str]:
        blocks = [""]
        start = 0
        while (early := len(piece) - start - _SOON_LENGTH) > 0:
            end = start + min(early, STEP_LENGTH)
            self._held += piece[start:end]
            start = end
            joined(blocks, self._released(self._safe_cut(soon=False)))
        self._held += piece[start:]
        while cut := self._safe_cut():
            left = len(self._held)
            joined(blocks, self._released(cut))
            if len(self._held) == left:
                break
        return blocks

    def edge(self) -> bool:
        self._edges.append(len(self._before) + len(self._held))
        if self._held:
            self._owed += 1
        return not self._held

    def rest(self) -> list[str]:
        blocks = [""]
        while self._held:
            left = len(self._held)
            joined(blocks, self._released(left))
            if len(self._held) == left:
                joined(blocks, self._dropped(left))  # The end of a private key that was cut off.
        self._in_key = self._swallows = False
        return blocks

    def _safe_cut(self, *, soon: bool = True) -> int:
        """How much of the held-back text can be judged now."""
        if self._in_key or self._swallows:
            return len(self._held)
        cut = self._cut_of(self._held, soon=soon)
        if not self._owed:
            return cut
        base = len(self._before)
        apart = Seamed(self._held, [edge - base for edge in self._edges[-self._owed :]], "\n")
        return min(cut, apart.origin(self._cut_of(apart.text, soon=soon)))

    def _cut_of(self, held: str, *, soon: bool) -> int:
        longest = len(held) - WINDOW_LENGTH
        if self._least < DataClass.S3 or not soon:
            # Names of hosts and people have no marks of their own: only distance is safe.
            return max(0, longest)
        first = _SUSPICIOUS.search(held)
        if first is None:
            return max(_open_from(held, len(held)), longest)
        end = first.end()
        for following in _SUSPICIOUS.finditer(held, end):
            if following.start() - end >= _AFTER_LENGTH:
                break
            end = following.end()
        if len(held) - end >= _AFTER_LENGTH:
            return end
        return max(_open_from(held, first.start()), longest)

    def _released(self, cut: int) -> list[str]:
        """The first `cut` characters held back, masked; more if a finding continues beyond them."""
        if self._in_key:
            return self._inside_key()
        if self._swallows:
            return self._swallowed()
        reached = len(self._before)
        text = self._before + self._held
        end = reached + cut
        told = Told(text, self._owed_edges())
        found = scan_both_ways(self._scan, spaced(text), self._edges, self._least)
        if not found.complete:
            end = len(text)
            told.instead(reached, end, UNREAD)
            reached = end
        for f in found.findings:
            if f.end <= reached or f.start >= end or data_class_of(f.label) < self._least:
                continue
            start = max(reached, f.start)
            told.as_is(reached, start)
            # A backslash at the end belongs to the next character: without it the JSON would break.
            is_cut = self._in_json and _CUT.search(text, f.start, f.end) is not None
            reached = f.end - is_cut
            told.instead(start, reached, self._mask(f, text))
            if f.end == len(text):
                self._in_key = f.label == "PRIVATE_KEY" and _KEY_END.search(text, f.start) is None
                self._swallows = not self._in_key and not text[-1].isspace()
        end = max(end, reached)
        told.as_is(reached, end)
        return self._went_on(text, end, told.until(end))

    def _mask(self, finding: Finding, text: str) -> str:
        mask = f"[REDACTED:{finding.label}]"
        value = text[finding.start : finding.end]
        if not self._in_json:
            return mask
        # A JSON number becomes a string; two values that form one number may each do so.
        is_bare = value[:1].isdigit() and value[-1:].isdigit()
        begins = is_bare and _BARE_BEFORE.search(text[: finding.start]) is not None
        ends = begins if value.isdigit() else is_bare and _BARE_END.search(value) is not None
        return '"' * begins + mask + '"' * ends

    def _inside_key(self) -> list[str]:
        """Nothing of a private key is shown, however long it is."""
        end = _KEY_END.search(self._held)
        if end is None:
            return self._dropped(max(0, len(self._held) - _KEY_END_LENGTH))
        self._in_key = False
        blocks = self._dropped(end.end())
        self._edges = [edge - len(self._before) for edge in self._owed_edges()]
        self._before = ""
        return blocks

    def _swallowed(self) -> list[str]:
        """Drop the rest of a word whose beginning was blackened."""
        rest = _WORD_REST.match(self._held)
        length = rest.end() if rest is not None else 0
        if length < len(self._held):
            self._swallows = False
        end = len(self._before) + length
        text = self._before + self._held
        return self._went_on(text, end, Told(text, self._owed_edges()).until(end))

    def _dropped(self, length: int) -> list[str]:
        """Drop this much of the held-back text without reading it."""
        base = len(self._before)
        end = base + length
        blocks = Told("", self._owed_edges()).until(end)
        self._owed -= len(blocks) - 1
        self._edges = [min(edge, max(base, edge - length)) for edge in self._edges]
        self._held = self._held[length:]
        return blocks

    def _went_on(self, text: str, end: int, blocks: list[str]) -> list[str]:
        """What is shown now, up to this place in a text whose rest is held back."""
        self._owed -= len(blocks) - 1
        start = max(0, end - BEFORE_LENGTH)
        self._before, self._held = text[start:end], text[end:]
        self._edges = [edge - start for edge in self._edges if edge > start]
        return blocks

    def _owed_edges(self) -> Sequence[int]:
        return self._edges[-self._owed :] if self._owed else ()


def _open_from(text: str, end: int) -> int:
    """Where the last word before `end` begins, or the capitals in front of it."""
    start = _word_start(text, end)
    while start > 0:
        before = _word_start(text, start - 1)
        if _CAPITALS.fullmatch(text, before, start - 1) is None:
            break
        start = before
    return start


def _word_start(text: str, end: int) -> int:
    return max(text.rfind(" ", 0, end), text.rfind("\n", 0, end)) + 1
