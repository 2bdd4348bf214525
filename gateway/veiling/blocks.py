"""Cuts an answer's text into blocks, and puts the rewritten text back block by block.

Consecutive blocks are one text to their reader: they may be separated by no more than a citation.
What a model thought, did or was told between two blocks separates them for good.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol


PROSE: Final = frozenset({"text", "thinking", "refusal"})
"""Kinds of deltas whose text may continue in the next block; a call's arguments end with theirs."""
_LEAVES: Final[Mapping[str, tuple[str, str]]] = {
    "text": ("text", "text"),
    "output_text": ("text", "text"),
    "refusal": ("refusal", "refusal"),
    "thinking": ("thinking", "thinking"),
    "summary_text": ("thinking", "text"),
    "reasoning_text": ("thinking", "text"),
}
"""Types of blocks of words: the kind of words, and the key that holds them."""
_HOLDERS: Final = frozenset({"message", "reasoning"})
"""Items that only hold blocks."""
_MAX_DEPTH: Final = 64

Json = dict[str, object]
Thread = tuple[str, list[Json | None]]
"""Consecutive blocks of one kind; None where something separates them."""


class Piecewise(Protocol):
    """Rewrites a text that comes in pieces, and may hold some of it back.

    It returns strings by block: one more than the number of blocks that end in what is shown.
    """

    @property
    def is_torn(self) -> bool:
        """Whether the text so far seems to end in the middle of something."""
        ...

    def shown(self, piece: str) -> list[str]:
        """What can be shown now."""
        ...

    def edge(self) -> bool:
        """A block ends here, and the next may continue it; returns whether all of it was shown."""
        ...

    def rest(self) -> list[str]:
        """What was held back; what comes later does not continue it."""
        ...


def joined(blocks: list[str], more: Sequence[str]) -> list[str]:
    """Join what was shown to what follows it."""
    blocks[-1] += more[0]
    blocks += more[1:]
    return blocks


class Told:
    """Puts a text out block by block, some of it replaced; `edges` are the ends of blocks in it."""

    def __init__(self, text: str, edges: Sequence[int]) -> None:
        self._text = text
        self._edges = edges
        self._at = 0
        self._blocks = [""]

    def as_is(self, start: int, end: int) -> None:
        """Put out the text as it is."""
        if not self._edges:
            self._blocks[-1] += self._text[start:end]
            return
        while (edge := self._next()) is not None and edge < end:
            self._blocks[-1] += self._text[start:edge]
            start = max(start, edge)
            self._end_block()
        self._blocks[-1] += self._text[start:end]

    def instead(self, start: int, end: int, words: str) -> None:
        """Put out other words, in the block in which the replaced ones begin.

        A block that holds nothing else gets a letter of them: vendors refuse empty blocks when a
        conversation continues.
        """
        self.as_is(start, start)
        while self._next() == start:
            self._end_block()
        inner: list[int] = []
        while (edge := self._next()) is not None and edge < end:
            inner.append(edge)
            self._at += 1
        last = end if self._next() == end or end == len(self._text) else None
        ends = [*inner[1:], last] if inner else []
        filled = [b is not None and a < b for a, b in zip(inner, ends, strict=True)]
        left = min(sum(filled), max(len(words) - 1, 0))
        cut = len(words) - left
        self._blocks[-1] += words[:cut]
        for is_filled in filled:
            letter = words[cut : cut + 1] if is_filled else ""
            cut += len(letter)
            self._blocks.append(letter)

    def until(self, end: int) -> list[str]:
        """Everything that was put out up to this place."""
        while (edge := self._next()) is not None and edge <= end:
            self._end_block()
        return self._blocks

    def _next(self) -> int | None:
        return self._edges[self._at] if self._at < len(self._edges) else None

    def _end_block(self) -> None:
        self._at += 1
        self._blocks.append("")


def rewritten(threads: Iterable[Thread], opened: Callable[[str], Piecewise]) -> dict[int, str]:
    """The new text of each block, by its identity; `opened` makes the rewriter for a kind."""
    shown: dict[int, str] = {}
    for kind, blocks in threads:
        texts = [None if each is None else words_of(each) for each in blocks]
        told = iter(_told(opened(kind), texts))
        shown.update({id(block): next(told) for block in blocks if block is not None})
    return shown


def words_of(block: Json) -> str:
    """The words of a block; empty for anything else."""
    text = block.get(key_of(block))
    return text if isinstance(text, str) else ""


def said_again(node: Json) -> Iterator[str]:
    """Names under which an object of an answer repeats what it says elsewhere."""
    text, output = node.get("output_text"), node.get("output")
    if isinstance(text, str) and isinstance(output, list):
        prose = (each for each in _flat(output) if _kind_of(each) == "text")
        if text == "".join(map(words_of, prose)):
            yield "output_text"
    reasoning = node.get("reasoning")
    if isinstance(reasoning, str) and reasoning == node.get("reasoning_content"):
        yield "reasoning"


def _kind_of(block: Json) -> str:
    leaf = _LEAVES.get(_type_of(block))
    return leaf[0] if leaf is not None else ""


def key_of(block: Json) -> str:
    """The key that holds a block's words; empty if it is no block of words."""
    leaf = _LEAVES.get(_type_of(block))
    return leaf[1] if leaf is not None else ""


def _told(window: Piecewise, texts: Sequence[str | None]) -> list[str]:
    told = [""]
    for text in texts:
        if text is None:
            joined(told, window.rest())
            continue
        joined(told, window.shown(text))
        if window.edge():
            told.append("")
    return joined(told, window.rest())


def threads_of(tree: object) -> list[Thread]:
    """Blocks of one kind in an answer's JSON, where there are several."""
    found: list[Thread] = []
    for blocks in _lists(tree, 0):
        threads: dict[str, list[Json | None]] = {}
        for block in _flat(blocks):
            leaf = _LEAVES.get(_type_of(block))
            kind = leaf[0] if leaf is not None and isinstance(block.get(leaf[1]), str) else ""
            if kind:
                threads.setdefault(kind, []).append(block)
            for other, thread in threads.items():
                if other != kind and thread[-1] is not None:
                    thread.append(None)
        found += [(kind, each) for kind, each in threads.items() if _is_several(each)]
    return found


def _is_several(thread: list[Json | None]) -> bool:
    return sum(each is not None for each in thread) > 1


def _lists(node: object, depth: int) -> Iterator[list[object]]:
    """Lists of blocks; a tool's input is not searched, since its tree is the model's own."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(node, dict):
        for name, value in node.items():
            if name != "input":
                yield from _lists(value, depth + 1)
    elif isinstance(node, list):
        if any(isinstance(item, dict) and _type_of(item) for item in node):
            yield node
        for item in node:
            if not (isinstance(item, dict) and _type_of(item) in _HOLDERS):
                yield from _lists(item, depth + 1)


def _type_of(block: Json) -> str:
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def _flat(blocks: list[object]) -> Iterator[Json]:
    """The blocks of a list, and those of the messages in it."""
    for block in blocks:
        if not isinstance(block, dict):
            continue
        if _type_of(block) not in _HOLDERS:
            yield block
            continue
        for key in ("summary", "content"):
            inner = block.get(key)
            if isinstance(inner, list):
                yield from (each for each in inner if isinstance(each, dict))
