"""Scans answers on their way back, where policy obliges to: counts what they contain, or masks it.

A stream is read through a window of at most `WINDOW_LENGTH` characters per channel. Counting holds
nothing back. Masking holds back what may be the beginning of something sensitive, until what it is
can be said: plain words go on at once. Values are never kept, only counts by label.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import msgspec

from classifiers.adjoining import ScanText, scan_both_ways
from classifiers.pii.findings import Finding
from classifiers.pii.labels import SOFT, DataClass
from gateway.types import StreamEvent
from gateway.veiling.blocks import key_of, rewritten, threads_of, words_of
from gateway.veiling.masking import BEFORE_LENGTH, UNREAD, WINDOW_LENGTH, MaskingWindow, spaced
from gateway.veiling.retelling import (
    QUOTED_KEYS,
    TEXT_KEYS,
    TOKEN_KEYS,
    TREE_KEYS,
    retold,
    told_nothing,
)
from gateway.veiling.rewriting import (
    CONTENT,
    MAX_DEPTH,
    Lift,
    StreamRewriter,
    channel_of,
    check_room,
    goes_on_with,
    is_ping,
)


_BLOCK_LENGTH = 1024
_JSON_KINDS = frozenset({"tool_arguments", "arguments", "partial_json"})
_QUOTED = re.compile(rb'"(?:%b)"' % "|".join(sorted(QUOTED_KEYS)).encode())
_SPOKEN = "audio"
_UNREADABLE = re.compile(rb'"(?:%b)"' % "|".join(sorted({*TOKEN_KEYS, _SPOKEN})).encode())
_CALLERS = frozenset({"tools"})
"""What a response says again of its request."""
_BINARY = "data:"
_IN_PIECES = frozenset({"code", "transcript"})
"""What a stream quotes comes piece by piece, and is counted as that."""
_LONGEST_FLOAT = 1e20


class OutputScan:
    """For one request: reads its answer, and afterwards says what that contained."""

    def __init__(self, scan: ScanText, patterns: ScanText, masked_from: DataClass | None) -> None:
        """`scan` counts; `patterns` decide what is masked from this class on, None for nothing."""
        self._scan = scan
        self._patterns = patterns
        self._masked_from = masked_from
        self._quoted: set[int] = set()
        """Digests of what was quoted: the last events of some dialects say it once more."""
        self.found: Mapping[str, int] = {}
        """Findings by label in the answer that was given."""

    def lifted(self) -> Lift:
        return _StreamScan(self, self._rewriter())

    def unveiled(self, raw: bytes) -> bytes:
        """A whole answer; its findings replace what was counted before.

        Text that cannot be read as JSON is no answer, and is left to whoever decodes it.
        """
        try:
            tree = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return raw
        said = tree if self._masked_from is None else _without_tokens(tree)
        counts: Counter[str] = Counter()
        masked = _Tree(self._masking, said, partial(self._count, counts)).shown()
        self.found = dict(sorted(counts.items()))
        return raw if masked == tree else msgspec.json.encode(masked)

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

    def _count(self, counts: Counter[str], *texts: str) -> None:
        """Texts that follow each other."""
        if len(texts) == 1:
            counts.update(_labels(self._scan(spaced(texts[0])).findings))
            return
        window = self.window()
        for text in texts:
            window.feed(text)
            window.edge()
        window.flush()
        counts.update(window.counts)

    @property
    def _masking(self) -> Callable[[str], MaskingWindow] | None:
        least, patterns = self._masked_from, self._patterns
        if least is None:
            return None
        return lambda kind: MaskingWindow(patterns, least, in_json=kind in _JSON_KINDS)

    def _rewriter(self) -> StreamRewriter | None:
        masking = self._masking
        if masking is None:
            return None
        return StreamRewriter(masking, lambda tree: _Tree(masking, tree, None).shown())


class _Tree:
    """One pass over an answer's JSON: the model's words are counted and masked."""

    def __init__(
        self,
        masking: Callable[[str], MaskingWindow] | None,
        tree: object,
        count: Callable[..., None] | None,
    ) -> None:
        self._tree = tree
        self._masking = masking
        self._count = count
        threads = threads_of(tree)
        self._in_threads = {id(each) for _, blocks in threads for each in blocks}
        self._shown = {} if masking is None else rewritten(threads, masking)
        if count is not None:
            for _, blocks in threads:
                count(*[words_of(each) for each in blocks if each is not None])

    def shown(self) -> object:
        return self._node(self._tree, "", 0)

    def _node(self, node: object, key: str, depth: int, *, inside: bool = False) -> object:
        """What is shown instead of a node; `inside` the arguments of a tool.

        There the model also chose names and numbers. What is too deep to be read is not shown.
        """
        if isinstance(node, str):
            is_said = inside or (key in TEXT_KEYS and not node.startswith(_BINARY))
            return self._said(node, key) if is_said else node
        if inside and isinstance(node, int | float):
            written = _written(node)
            shown = self._said(written, key)
            return node if shown == written else shown
        if depth > MAX_DEPTH:
            return node if self._masking is None else UNREAD
        if isinstance(node, dict):
            own = key_of(node) if id(node) in self._in_threads else None
            is_text = node.get("type") == "text"
            return {
                self._said(name, "") if inside else name: self._shown.get(id(node), value)
                if name == own
                else value
                if name in _CALLERS and not inside
                else self._node(
                    value,
                    # A document that is a text stands where others have their bytes.
                    "text" if is_text and name == "data" else name,
                    depth + 1,
                    inside=inside or (name in TREE_KEYS and not isinstance(value, str)),
                )
                for name, value in node.items()
            }
        if isinstance(node, list):
            return [self._node(item, key, depth + 1, inside=inside) for item in node]
        return node

    def _said(self, text: str, key: str) -> str:
        """Words that stand alone."""
        if self._count is not None:
            self._count(text)
        return text if self._masking is None else self._masking(key).whole(text)


def _written(number: float) -> str:
    """A number as a reader takes it: an identifier may come with a point and a nought."""
    is_whole = abs(number) < _LONGEST_FLOAT and float(number).is_integer()
    return str(int(number) if is_whole else number)


def _untold(event: StreamEvent) -> StreamEvent:
    """An event without the tokens that its words were made of, and without its sound."""
    if _UNREADABLE.search(event.raw) is None:
        return event
    return msgspec.structs.replace(event, raw=retold(event.raw, _without_tokens))


def _without_tokens(node: object, depth: int = 0) -> object:
    """An answer's JSON without probabilities: they say every token of what is masked once more.

    So does the sound of a spoken answer; what is left of that is what it says in letters.
    """
    if depth > MAX_DEPTH and isinstance(node, dict | list):
        return UNREAD
    if isinstance(node, dict):
        return {name: _without(name, value, depth + 1) for name, value in node.items()}
    return [_without_tokens(item, depth + 1) for item in node] if isinstance(node, list) else node


def _without(name: str, value: object, depth: int) -> object:
    if name in TOKEN_KEYS:
        return told_nothing(value)
    if name == _SPOKEN and isinstance(value, dict) and "data" in value:
        return {**value, "data": ""}
    # What a tool is given is the model's own tree, whatever its names.
    return value if name == "input" else _without_tokens(value, depth)


def _labels(found: Iterable[Finding]) -> list[str]:
    return [finding.label for finding in found if finding.label not in SOFT]


def _quoted(node: object, key: str) -> Iterator[str]:
    """Texts that an answer quotes, to say where it has something from or what was done for it."""
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
    """Reads one stream; `owner` learns the counts with every event."""

    def __init__(self, owner: OutputScan, rewriter: StreamRewriter | None) -> None:
        self._owner = owner
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
        return self._rewriter.events([_untold(event) for event in events])

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
    """Counts findings in a text that comes in pieces, each once, in stretches that overlap."""

    def __init__(self, scan: ScanText) -> None:
        self._scan = scan
        self._text = ""
        self._edges: list[int] = []
        self._counted = 0
        self.counts: Counter[str] = Counter()

    def feed(self, piece: str) -> None:
        self._text += piece
        if len(self._text) >= _BLOCK_LENGTH + WINDOW_LENGTH + BEFORE_LENGTH:
            self._count(len(self._text) - WINDOW_LENGTH)

    def edge(self) -> None:
        """A block ends here; the next may go on with it."""
        if self._text and self._edges[-1:] != [len(self._text)]:
            self._edges.append(len(self._text))

    def flush(self) -> None:
        """Count the rest; more may come."""
        if len(self._text) > self._counted:
            self._count(len(self._text))

    def _count(self, limit: int) -> None:
        """Count what ends before `limit`; what begins before it and ends behind waits."""
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
