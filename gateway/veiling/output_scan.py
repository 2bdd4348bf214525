"""Scans answers on their way back if policy requires it: counts what they contain, or masks it.

A stream is read through a window of at most `WINDOW_LENGTH` characters per channel. Counting holds
nothing back. Masking holds back whatever may be the beginning of something sensitive until that is
certain; plain words go on at once. Values are never kept, only counts by label.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final

import msgspec

from classifiers.adjoining import ScanText, scan_both_ways
from classifiers.pii.detect import Scan
from classifiers.pii.findings import Finding
from classifiers.pii.labels import SOFT, DataClass
from gateway.admission.half_pairs import paired
from gateway.errors import UpstreamMalformed
from gateway.types import Delta, StreamEvent
from gateway.veiling.answer_tree import AnswerTree, Count, Harmless, Masking, without_guesses
from gateway.veiling.masking import (
    BEFORE_LENGTH,
    STEP_LENGTH,
    UNREAD,
    WINDOW_LENGTH,
    MaskingWindow,
    spaced,
)
from gateway.veiling.retelling import (
    QUOTED_KEYS,
    TOKENS,
    retold,
    says_tokens,
    told_beside,
    told_nothing,
)
from gateway.veiling.rewriting import MAX_DEPTH, Lift, StreamRewriter, check_room
from gateway.veiling.sole_reading import event_alone, read_solely
from gateway.veiling.speaking import CONTENT, channel_of, goes_on_with, is_ping


_BLOCK_LENGTH = 1024
LOOK_S_MAX: Final = 30.0
"""For a complete answer: enough for about ten megabytes of prose, more than any model writes."""
_JSON_KINDS = frozenset({"tool_arguments", "arguments", "partial_json"})
_QUOTED = re.compile(rb'"(?:%b)"' % "|".join(sorted(QUOTED_KEYS)).encode())
_SPOKEN, _SOUND = "audio", "audio.delta"
_UNREADABLE = re.compile(rb'(?:%b)"|audio|\\u' % "|".join(TOKENS).encode())
"""Names of parts that are left out, or escapes that could spell one."""
_CALLERS = frozenset({"tools"})
"""Parts of its request that a response repeats."""
_BINARY = "data:"
_IN_PIECES = frozenset({"code", "transcript"})
"""Quoted text that arrives in pieces in a stream, and is counted that way."""
_NUMBERED = re.compile(rb'"sequence_number":[0-9]{1,5}(?=[,}])')
"""Inside a string, these quotes would be escaped."""
_SEALED = "redacted_thinking"
_NAMING = frozenset({"start", "tool_start", "text_tool_start", "stop", "thinking"})
_NAMES = ("tool_id", "name", "message_id", "model", "stop_sequence", "signature")
"""Fields of an answer's pieces besides its words."""


class OutputScan:
    """Scans the answer to one request, and afterwards reports what it contained."""

    def __init__(
        self,
        scan: ScanText,
        patterns: ScanText,
        masked_from: DataClass | None,
        asked: Mapping[str, object] | None = None,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        """`scan` counts; `patterns` mask findings from this class on, None masks nothing.

        `asked` is the request: what an answer repeats of it came from the caller. Without `now_s`,
        complete answers may take any time.
        """
        self._now_s, self._until_s, self._looks = now_s, inf, 0
        scan, patterns = self._timed(scan), self._timed(patterns)
        self._scan, self._scan_marks = scan, without_guesses(scan)
        self._patterns, self._patterns_of_marks = patterns, without_guesses(patterns)
        self._asked = asked
        self._masked_from = masked_from
        self._quoted: set[int] = set()
        """Digests of quoted texts: the last events of some dialects repeat them."""
        self.found: Mapping[str, int] = {}
        """Findings by label in the answer that was given."""

    def lifted(self) -> Lift:
        known = Harmless()
        return _StreamScan(self, self._rewriter(known), known)

    def unveiled(self, raw: bytes) -> bytes:
        """Scan a complete answer; its findings replace earlier counts.

        Text that is not JSON is no answer: unless something is masked, it is left to whoever
        decodes it.

        Raises:
            UpstreamMalformed: it cannot be read, so not masked, or takes too long.
        """
        raw = paired(raw)
        self._looks = look = self._looks + 1
        self._until_s = inf if self._now_s is None else self._now_s() + LOOK_S_MAX
        counts: Counter[str] = Counter()
        count = partial(self._count, counts)
        if self._masked_from is None:
            try:
                tree = msgspec.json.decode(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                return raw
            self._tree(tree, count).shown()
            masked: object = tree
        else:
            tree, raw = read_solely(raw)
            masked = self._tree(_without_tokens(tree), count).shown()
        if look == self._looks:
            # Discard what was found in an attempt that was given up for another.
            self.found = dict(sorted(counts.items()))
        return raw if masked == tree else msgspec.json.encode(masked)

    def _timed(self, scan: ScanText) -> ScanText:
        now_s = self._now_s
        if now_s is None:
            return scan

        def timed(text: str) -> Scan:
            if self._until_s < inf and now_s() > self._until_s:
                raise UpstreamMalformed("The upstream's answer takes too long to be looked at.")
            return scan(text)

        return timed

    def window(self) -> "CountingWindow":
        return CountingWindow(self._scan)

    def count_quoted(self, event: StreamEvent, counts: Counter[str]) -> None:
        """Count what an event of a stream quotes, unless it was quoted before."""
        words = {delta.text for delta in event.deltas}

        def read(tree: object) -> object:
            for text in _quoted(tree, ""):
                digest = hash(text)
                if digest not in self._quoted and text not in words:
                    self._quoted.add(digest)
                    self._count(counts, text)
            return tree

        if _QUOTED.search(event.raw) is not None:
            retold(event.raw, read)

    def _count(self, counts: Counter[str], *texts: str, is_mark: bool = False) -> None:
        """Count texts that follow each other, or the name of a thing."""
        if len(texts) == 1 and len(texts[0]) <= STEP_LENGTH:
            scan = self._scan_marks if is_mark else self._scan
            counts.update(_labels(scan(spaced(texts[0])).findings))
            return
        window = CountingWindow(self._scan_marks if is_mark else self._scan)
        for text in texts:
            window.feed(text)
            window.edge()
        window.flush()
        counts.update(window.counts)

    def _tree(self, tree: object, count: Count | None, known: Harmless | None = None) -> AnswerTree:
        masking, marking = self._masking(self._patterns), self._masking(self._patterns_of_marks)
        return AnswerTree(tree, masking, marking, count, asked=self._asked, known=known)

    def _masking(self, patterns: ScanText) -> Masking | None:
        least = self._masked_from
        if least is None:
            return None
        return lambda kind: MaskingWindow(patterns, least, in_json=kind in _JSON_KINDS)

    def masked_event(self, event: StreamEvent, known: Harmless) -> StreamEvent:
        """An event that everybody reads alike, with sensitive parts besides its words masked.

        Raises:
            UpstreamMalformed: it cannot be read.
        """
        words = [d.text for d in event.deltas if d.kind in CONTENT and d.text]
        frame = _frame(event, words)
        if frame is not None and known.has(frame):
            return event
        made = msgspec.structs.replace(
            event,
            raw=event_alone(event.raw),
            deltas=tuple([self._renamed(delta, known) for delta in event.deltas]),
        )
        made = _untold(made)
        if words:
            raw = told_beside(made.raw, words, lambda tree: self._tree(tree, None, known).shown())
            made = msgspec.structs.replace(made, raw=raw)
        if frame is not None and made == event:
            known.add(frame)
        return made

    def _renamed(self, delta: Delta, known: Harmless) -> Delta:
        given = {name: getattr(delta, name) for name in _NAMES if getattr(delta, name)}
        if delta.redacted:
            given |= {"type": _SEALED, "data": delta.redacted}
        if delta.kind not in _NAMING or not given:
            return delta
        shown = self._tree(given, None, known).shown()
        if shown == given or not isinstance(shown, dict):
            return delta
        if delta.redacted:
            del shown["type"]
            shown["redacted"] = shown.pop("data")
        return msgspec.structs.replace(delta, **shown)

    def _rewriter(self, known: Harmless) -> StreamRewriter | None:
        masking = self._masking(self._patterns)
        if masking is None:
            return None
        return StreamRewriter(masking, lambda tree: self._tree(tree, None, known).shown())


def _untold(event: StreamEvent) -> StreamEvent:
    """An event without the tokens of its words, and without its sound."""
    if _UNREADABLE.search(event.raw) is None:
        return event
    return msgspec.structs.replace(event, raw=retold(event.raw, _without_tokens))


def _frame(event: StreamEvent, words: Sequence[str]) -> bytes | None:
    """What surrounds the only piece of text in an event; None if there is more than one.

    Nearly all events of a stream share two or three such frames.
    """
    if len(words) != 1 or len(event.deltas) != 1:
        return None
    raw, said = event.raw, msgspec.json.encode(words[0])
    at = raw.find(said)
    if at < 0 or raw.find(said, at + 1) >= 0:
        return None
    return _NUMBERED.sub(b"", raw[:at]) + b"\0" + _NUMBERED.sub(b"", raw[at + len(said) :])


def _without_tokens(node: object, depth: int = 0) -> object:
    """An answer's JSON without token probabilities, which would repeat every token that is masked.

    The sound of a spoken answer would too; only its transcript is kept.
    """
    if depth > MAX_DEPTH and isinstance(node, dict | list):
        return UNREAD
    if isinstance(node, dict):
        told = {name: _without(name, value, depth + 1) for name, value in node.items()}
        return told | _silent(node) if _SPOKEN in str(node.get("type")) else told
    return [_without_tokens(item, depth + 1) for item in node] if isinstance(node, list) else node


def _silent(node: dict[str, object]) -> dict[str, object]:
    """The part of a spoken answer, or of a piece of its sound, that is heard and not read."""
    is_piece = str(node["type"]).endswith(_SOUND)
    names = {"data", *({"delta"} if is_piece else ())}
    return {name: "" for name in names & node.keys() if isinstance(node[name], str)}


def _without(name: str, value: object, depth: int) -> object:
    if says_tokens(name):
        return told_nothing(value)
    if name == _SPOKEN and isinstance(value, dict) and "data" in value:
        return {**value, "data": ""}
    # A tool's input is the model's own tree, whatever its names.
    return value if name == "input" else _without_tokens(value, depth)


def _labels(found: Iterable[Finding]) -> list[str]:
    return [finding.label for finding in found if finding.label not in SOFT]


def _quoted(node: object, key: str) -> Iterator[str]:
    """Texts that an answer quotes: sources, and results of work done for it."""
    if isinstance(node, str):
        if key in QUOTED_KEYS - _IN_PIECES and not node.startswith(_BINARY):
            yield node
    elif isinstance(node, dict):
        for name, value in node.items():
            if name not in _CALLERS:
                yield from _quoted(value, name)
    elif isinstance(node, list):
        for item in node:
            yield from _quoted(item, key)


class _StreamScan:
    """Reads one stream; `owner` receives the counts with every event."""

    def __init__(self, owner: OutputScan, rewriter: StreamRewriter | None, known: Harmless) -> None:
        self._owner = owner
        self._known = known
        self._rewriter = rewriter
        self._windows: dict[tuple[str, int], CountingWindow] = {}
        self._last: dict[tuple[str, int], StreamEvent] = {}
        self._quoted: Counter[str] = Counter()

    def events(self, events: list[StreamEvent]) -> list[StreamEvent]:
        ended = False
        for event in events:
            ended = ended or event.is_closing or event.is_terminal
            self._read(event)
        if ended:
            for window in self._windows.values():
                window.flush()
        self._owner.found = self._counted()
        if self._rewriter is None:
            return events
        masked = [self._owner.masked_event(event, self._known) for event in events]
        return self._rewriter.events(masked)

    def _read(self, event: StreamEvent) -> None:
        said: set[tuple[str, int]] = set()
        for delta in event.deltas:
            if delta.kind in CONTENT and delta.text:
                channel = channel_of(delta)
                said.add(channel)
                self._last[channel] = event
                window = self._windows.get(channel)
                if window is None:
                    check_room(self._windows)
                    window = self._windows[channel] = self._owner.window()
                window.feed(delta.text)
        if not is_ping(event):
            for channel, window in self._windows.items():
                if channel not in said and goes_on_with(event, self._last[channel]):
                    window.edge()
        self._owner.count_quoted(event, self._quoted)

    def _counted(self) -> dict[str, int]:
        counts = Counter(self._quoted)
        for window in self._windows.values():
            counts.update(window.counts)
        return dict(sorted(counts.items()))


class CountingWindow:
    """Counts each finding once in a text that comes in pieces, by reading overlapping stretches."""

    def __init__(self, scan: ScanText) -> None:
        self._scan = scan
        self._text = ""
        self._edges: list[int] = []
        self._counted = 0
        self.counts: Counter[str] = Counter()

    def feed(self, piece: str) -> None:
        for start in range(0, len(piece), STEP_LENGTH):
            self._text += piece[start : start + STEP_LENGTH]
            if len(self._text) >= _BLOCK_LENGTH + WINDOW_LENGTH + BEFORE_LENGTH:
                self._count(len(self._text) - WINDOW_LENGTH)

    def edge(self) -> None:
        """A block ends here; the next may continue it."""
        if self._text and self._edges[-1:] != [len(self._text)]:
            self._edges.append(len(self._text))

    def flush(self) -> None:
        """Count the rest; more may come."""
        if len(self._text) > self._counted:
            self._count(len(self._text))

    def _count(self, limit: int) -> None:
        """Count what ends before `limit`; what begins before it and ends after it waits."""
        findings = scan_both_ways(self._scan, spaced(self._text), self._edges).findings
        reached = limit
        for finding in findings:
            if finding.start < limit < finding.end and limit < len(self._text):
                reached = finding.start
                break
        self.counts.update(_labels(f for f in findings if self._counted < f.end <= reached))
        keep = max(0, reached - BEFORE_LENGTH)
        self._text = self._text[keep:]
        self._edges = [edge - keep for edge in self._edges if edge > keep]
        self._counted = reached - keep
