"""Scans answers on their way back, where policy obliges to: counts what they contain, or masks it.

A stream is read through a window of at most `WINDOW_LENGTH` characters per channel. Counting holds
nothing back. Masking holds back what may be the beginning of something sensitive, until what it is
can be said: plain words go on at once. Values are never kept, only counts by label.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

import msgspec

from classifiers.pii.detect import Scan
from classifiers.pii.findings import Finding
from classifiers.pii.labels import SOFT, DataClass, data_class_of
from gateway.types import StreamEvent
from gateway.veiling.rewriting import (
    CONTENT,
    MAX_DEPTH,
    TEXT_KEYS,
    Lift,
    StreamRewriter,
    channel_of,
    retold,
)


WINDOW_LENGTH: Final = 256
BEFORE_LENGTH: Final = 160
"""Of what was shown already, so much is read again: words that announce a value stand in it."""
_AFTER_LENGTH = 64
_BLOCK_LENGTH = 1024
_KEY_END = re.compile(r"-----END [^\n-]{0,60}-----")
_KEY_END_LENGTH = 80
# A word that may belong to a value: digits, marks of addresses and encodings, long runs, numbers
# that are said, and what stands behind a word that announces a password.
_SUSPICIOUS = re.compile(
    r"\S{16,}|\S*[\d@%&\\=]\S*|-{3,}\S*"
    r"|\b(?:zero|one|two|three|four|five|six|seven|eight|nine|double|triple)\b"
    r"|\u0936\u0942\u0928\u094d\u092f|\u090f\u0915|\u0926\u094b|\u0924\u0940\u0928|\u091a\u093e\u0930"
    r"|\u092a\u093e\u0902\u091a|\u091b\u0939|\u0938\u093e\u0924|\u0906\u0920|\u0928\u094c"
    r"|(?:[Pp](?:ass(?:word|wd|phrase|code|wort)|wd)|[Kk]ennwort)\S*(?:\s+(?:is|was|ist)\b)?(?:\s+\S+)?"
)
# A word that may begin an identifier which goes on behind it ("QQ 12 34 56 C").
_CAPITALS = re.compile(r"[A-Z]{1,4}[.:/\-]?")
_WORD_REST = re.compile(r"[^\s\"'`,;<>)\]}]*")
_ESCAPE = re.compile(r"\\(?:([bfnrt])|[^bfnrt])")
_CUT = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_TOKENS, _TOKENS_WRITTEN = "logprobs", b'"logprobs"'
_UNREAD = "[REDACTED]"
_LONGEST_FLOAT = 1e20
_BARE_BEFORE = re.compile(r"[:,\[]\s*\Z")

ScanText = Callable[[str], Scan]
Mode = Literal["count", "mask"]


class OutputScan:
    """For one request: reads its answer, and afterwards says what that contained."""

    def __init__(self, scan: ScanText, patterns: ScanText, masked_from: DataClass | None) -> None:
        """`scan` counts; `patterns` decide what is masked from this class on, None for nothing."""
        self._scan = scan
        self._patterns = patterns
        self._masked_from = masked_from
        self.found: Mapping[str, int] = {}
        """Findings by label in the answer that was given."""

    def lifted(self) -> Lift:
        return _StreamScan(self, self._rewriter())

    def unveiled(self, raw: bytes) -> bytes:
        """A whole answer; its findings replace what was counted before.

        Text that cannot be read as JSON is no answer, and is left to whoever decodes it.
        """
        counts: Counter[str] = Counter()
        try:
            tree = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return raw
        said = tree if self._masked_from is None else _without_tokens(tree)
        masked = self._whole(said, "", 0, counts)
        self.found = dict(sorted(counts.items()))
        return raw if masked == tree else msgspec.json.encode(masked)

    def window(self) -> "CountingWindow":
        return CountingWindow(self._scan)

    def _rewriter(self) -> StreamRewriter | None:
        least = self._masked_from
        if least is None:
            return None
        return StreamRewriter(
            lambda kind: MaskingWindow(self._patterns, least, in_json=kind == "tool_arguments"),
            lambda tree: self._whole(tree, "", 0, None),
        )

    def _whole(
        self,
        node: object,
        key: str,
        depth: int,
        counts: Counter[str] | None,
        *,
        inside: bool = False,
    ) -> object:
        """A JSON tree with the model's words masked; `inside` the arguments of a tool.

        There the model also chose names and numbers. What is too deep to be read is not shown.
        """
        if isinstance(node, str):
            return self._said(node, key, counts) if inside or key in TEXT_KEYS else node
        if inside and isinstance(node, int | float):
            written = _written(node)
            shown = self._said(written, key, counts)
            return node if shown == written else shown
        if depth > MAX_DEPTH:
            return node if self._masked_from is None else _UNREAD
        if isinstance(node, dict):
            return {
                self._said(name, "", counts) if inside else name: self._whole(
                    value, name, depth + 1, counts, inside=inside or name == "input"
                )
                for name, value in node.items()
            }
        if isinstance(node, list):
            return [self._whole(item, key, depth + 1, counts, inside=inside) for item in node]
        return node

    def _said(self, text: str, key: str, counts: Counter[str] | None) -> str:
        """Words of the model's, counted and masked."""
        if counts is not None:
            counts.update(_labels(self._scan(_spaced(text)).findings))
        if self._masked_from is None:
            return text
        in_json = key in {"arguments", "partial_json"}
        return MaskingWindow(self._patterns, self._masked_from, in_json=in_json).whole(text)


def _written(number: float) -> str:
    """A number as a reader takes it: an identifier may come with a point and a nought."""
    is_whole = abs(number) < _LONGEST_FLOAT and float(number).is_integer()
    return str(int(number) if is_whole else number)


def _spaced(text: str) -> str:
    """A text of the same length without the letters of JSON's escapes for white space.

    The letter of a line feed's would stand at the number behind it, as if it were part of that.
    """
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: "  " if match[1] else match[0], text)


def _untold(event: StreamEvent) -> StreamEvent:
    """An event without the tokens that its words were made of."""
    if _TOKENS_WRITTEN not in event.raw:
        return event
    return msgspec.structs.replace(event, raw=retold(event.raw, _without_tokens))


def _without_tokens(node: object) -> object:
    """An answer's JSON without probabilities: they say every token of what is masked once more."""
    if isinstance(node, dict):
        return {name: _without(name, value) for name, value in node.items()}
    return [_without_tokens(item) for item in node] if isinstance(node, list) else node


def _without(name: str, value: object) -> object:
    if name == _TOKENS:
        return [] if isinstance(value, list) else None
    # What a tool is given is the model's own tree, whatever its names.
    return value if name == "input" else _without_tokens(value)


def _labels(found: Iterable[Finding]) -> list[str]:
    return [finding.label for finding in found if finding.label not in SOFT]


class _StreamScan:
    """Reads one stream; `owner` learns the counts with every event."""

    def __init__(self, owner: OutputScan, rewriter: StreamRewriter | None) -> None:
        self._owner = owner
        self._rewriter = rewriter
        self._windows: dict[tuple[str, int], CountingWindow] = {}

    def events(self, events: list[StreamEvent]) -> list[StreamEvent]:
        ended = False
        for event in events:
            ended = ended or event.is_closing or event.is_terminal
            for delta in event.deltas:
                if delta.kind in CONTENT and delta.text:
                    channel = channel_of(delta)
                    window = self._windows.get(channel)
                    if window is None:
                        window = self._windows[channel] = self._owner.window()
                    window.feed(delta.text)
        if ended:
            for window in self._windows.values():
                window.flush()
        self._owner.found = self._counted()
        if self._rewriter is None:
            return events
        return self._rewriter.events([_untold(event) for event in events])

    def _counted(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for window in self._windows.values():
            counts.update(window.counts)
        return dict(sorted(counts.items()))


class CountingWindow:
    """Counts findings in a text that comes in pieces, each once, in blocks that overlap."""

    def __init__(self, scan: ScanText) -> None:
        self._scan = scan
        self._text = ""
        self._counted = 0
        self.counts: Counter[str] = Counter()

    def feed(self, piece: str) -> None:
        self._text += piece
        if len(self._text) >= _BLOCK_LENGTH + WINDOW_LENGTH + BEFORE_LENGTH:
            self._count(len(self._text) - WINDOW_LENGTH)

    def flush(self) -> None:
        """Count the rest; more may come."""
        if len(self._text) > self._counted:
            self._count(len(self._text))

    def _count(self, limit: int) -> None:
        """Count what ends before `limit`; what begins before it and ends behind waits."""
        findings = self._scan(_spaced(self._text)).findings
        reached = limit
        for finding in findings:
            if finding.start < limit < finding.end and limit < len(self._text):
                reached = finding.start
                break
        self.counts.update(_labels(f for f in findings if self._counted < f.end <= reached))
        keep = max(0, reached - BEFORE_LENGTH)
        self._text = self._text[keep:]
        self._counted = reached - keep


class MaskingWindow:
    """Blackens findings of class `least` and above in a text that comes in pieces, cut anywhere."""

    def __init__(self, scan: ScanText, least: DataClass, *, in_json: bool = False) -> None:
        self._scan = scan
        self._least = least
        self._in_json = in_json
        self._before = ""
        self._held = ""
        self._in_key = False
        self._swallows = False

    def whole(self, text: str) -> str:
        """A text that comes in one piece."""
        self._held = text
        return self.flush()

    def feed(self, piece: str) -> str:
        self._held += piece
        shown: list[str] = []
        while cut := self._safe_cut():
            left = len(self._held)
            shown.append(self._released(cut))
            if len(self._held) == left:
                break
        return "".join(shown)

    def flush(self) -> str:
        shown: list[str] = []
        while self._held:
            left = len(self._held)
            shown.append(self._released(left))
            if len(self._held) == left:
                self._held = ""  # The end of a private key that was cut off.
        return "".join(shown)

    def _safe_cut(self) -> int:
        """How much of what is held back can be judged now."""
        held = self._held
        if self._in_key or self._swallows:
            return len(held)
        longest = len(held) - WINDOW_LENGTH
        if self._least < DataClass.S3:
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

    def _released(self, cut: int) -> str:
        """The first `cut` characters held back, masked; more where a finding goes on."""
        if self._in_key:
            return self._inside_key()
        if self._swallows:
            return self._swallowed()
        base = len(self._before)
        text = self._before + self._held
        end = base + cut
        parts: list[str] = []
        reached = base
        found = self._scan(_spaced(text))
        if not found.complete:
            end = len(text)
            parts, reached = [_UNREAD], end
        for f in found.findings:
            if f.end <= reached or f.start >= end or data_class_of(f.label) < self._least:
                continue
            parts += [text[reached : max(reached, f.start)], self._mask(f, text)]
            # A backslash at the end belongs to what follows it: without it the JSON would break.
            is_cut = self._in_json and _CUT.search(text, f.start, f.end) is not None
            reached = f.end - is_cut
            if f.end == len(text):
                self._in_key = f.label == "PRIVATE_KEY" and _KEY_END.search(text, f.start) is None
                self._swallows = not self._in_key and not text[-1].isspace()
        end = max(end, reached)
        parts.append(text[reached:end])
        self._before = text[max(0, end - BEFORE_LENGTH) : end]
        self._held = text[end:]
        return "".join(parts)

    def _mask(self, finding: Finding, text: str) -> str:
        mask = f"[REDACTED:{finding.label}]"
        value = text[finding.start : finding.end]
        bare = self._in_json and value.isdigit() and _BARE_BEFORE.search(text[: finding.start])
        return f'"{mask}"' if bare else mask

    def _inside_key(self) -> str:
        """Nothing of a private key is shown, however long it is."""
        end = _KEY_END.search(self._held)
        if end is None:
            self._held = self._held[-_KEY_END_LENGTH:]
        else:
            self._in_key = False
            self._before, self._held = "", self._held[end.end() :]
        return ""

    def _swallowed(self) -> str:
        """The rest of a word whose beginning was blackened."""
        rest = _WORD_REST.match(self._held)
        length = rest.end() if rest is not None else 0
        if length < len(self._held):
            self._swallows = False
        self._before += self._held[:length]
        self._before = self._before[-BEFORE_LENGTH:]
        self._held = self._held[length:]
        return ""


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
