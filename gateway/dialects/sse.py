"""Incremental parser for server-sent events: bytes, cut anywhere, to complete events.

Lines end at LF, CR or CRLF bytes and at nothing else (U+2028 inside an event is text). The ordinary
case, one network read that holds complete `data: …` events, costs one `bytes.split`.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct

from gateway.admission.answer_bounds import check_values_of
from gateway.admission.half_pairs import HalfPairs
from gateway.errors import UpstreamMalformed


EVENT_BYTES_MAX = 1024 * 1024
"""Larger events are refused: nothing honest is that large, and the rest must fit in memory."""

SHORT_BYTES_MAX = 32 * 1024
"""Nearly all are shorter, and read within a millisecond or two whatever they hold."""
VALUES_MAX = 30_000
"""Limit on keys and list elements in the JSON of a longer event, without token probabilities: at
its end a response repeats which tools it had."""
LINES_MAX = 1024
"""Limit on lines of a longer event; every line is looked at."""
_TOO_LARGE = "The upstream sent an event that is too large."

Read = TypeVar("Read")


_LINE_END = rb"(?:\r\n|\n|\r(?!\n))"
_LINES = re.compile(rb"\r\n|\n|\r")
_LONE_CR = re.compile(rb"\r(?!\n)")
_BLANK_LINE = re.compile(_LINE_END + _LINE_END)
_BOM = b"\xef\xbb\xbf"


class Event(Struct, frozen=True):
    """One event; `name` is empty if the stream gave none, `data` is None for a bare comment."""

    raw: bytes
    name: bytes
    data: bytes | None


class Splitter:
    """Feed it what arrives; it keeps the unfinished rest.

    `raw` is the event's exact bytes. There are five exceptions, all with the same meaning to every
    reader. Events ended by lone CRs get a plain blank line. Comments are emptied, so that an
    upstream cannot write lines that look like ours. Data in several lines, or behind a lone CR, is
    joined into one line, where the code that masks or rewrites an event looks for its JSON. Of the
    fields only names and data are passed on, together: nobody can resume a stream here, and
    OpenAI's clients take a name, an id or a wait without data for an event, and after an id every
    comment. Characters that are torn between two events come complete in the second one
    (`half_pairs`).
    """

    __slots__ = ("_halves", "_searched", "_values_max", "rest")

    def __init__(self, values_max: int = VALUES_MAX) -> None:
        """`values_max` replaces `VALUES_MAX`."""
        self._values_max = values_max
        self.rest = b""
        """Bytes that have no end yet."""
        self._searched = 0
        self._halves = HalfPairs()

    def sole(self, data: bytes) -> bytes | None:
        """The `data` of a read that is exactly one ordinary event, as most reads of a stream are.

        None leaves the read to `feed`.
        """
        length = len(data)
        if (
            data.find(b"\n") == length - 2
            and data[-1:] == b"\n"
            and data[:6] == b"data: "
            and not self.rest
            and b"\r" not in data
            and length <= SHORT_BYTES_MAX
        ):
            return data[6:-2] or None
        return None

    def is_untorn(self, data: bytes) -> bool:
        """Whether no character of a read can be torn: then `sole` gives the same as `feed`."""
        # Most events have no backslash, and one byte is found in no time.
        return b"\\" not in data and not self._halves.half

    @property
    def is_within(self) -> bool:
        """Whether an event, or a character between two of them, has begun and not ended."""
        return bool(self.rest or self._halves.half)

    def feed(self, data: bytes) -> list[Event]:
        """Events that are complete now.

        Raises:
            UpstreamMalformed: an event is larger than `EVENT_BYTES_MAX`, or holds too much.
        """
        if (only := self.sole(data)) is not None:
            event = Event(data, b"", only)
            return [event if self.is_untorn(data) else self._paired(event)]
        return [*map(self._paired, self._feed(data))]

    def _feed(self, data: bytes) -> list[Event]:
        if not self.rest and data.endswith(b"\n\n") and b"\r" not in data:
            blocks = data.split(b"\n\n")
            blocks.pop()
            if len(data) > SHORT_BYTES_MAX:
                for block in blocks:
                    self._check(block)
            return [_event(block, b"\n\n") for block in blocks if block.strip(b"\n")]
        return self._feed_slowly(data)

    def _feed_slowly(self, data: bytes) -> list[Event]:
        text = self.rest + data
        events: list[Event] = []
        start, searched = 0, self._searched
        while (found := _BLANK_LINE.search(text, searched)) is not None:
            ending = found.group()
            if ending == b"\r\n\r" and found.end() == len(text):
                break
            block = text[start : found.start()]
            self._check(block)
            start = searched = found.end()
            if block.strip(b"\r\n"):
                exact = ending in (b"\n\n", b"\r\n\r\n")
                events.append(_event(block, ending if exact else b"\n\n"))
        self.rest = text[start:]
        self._searched = max(len(self.rest) - 3, 0)
        if len(self.rest) > EVENT_BYTES_MAX:
            raise UpstreamMalformed(_TOO_LARGE)
        return events

    def _paired(self, event: Event) -> Event:
        if event.data is None or (b"\\" not in event.data and not self._halves.half):
            return event
        data = self._halves.joined(event.data)
        if data is event.data:
            return event
        head = b"event: %b\n" % event.name if event.name else b""
        # The data is JSON, in which a line end is a blank like any other.
        return Event(b"%bdata: %b\n\n" % (head, data.replace(b"\n", b" ")), event.name, data)

    def _check(self, block: bytes) -> None:
        """One event is parsed in one go, during which nobody else is served."""
        if len(block) <= SHORT_BYTES_MAX:
            return
        lines = block.count(b"\n") + block.count(b"\r")
        if len(block) > EVENT_BYTES_MAX or lines > LINES_MAX:
            raise UpstreamMalformed(_TOO_LARGE)
        check_values_of(block, self._values_max)

    def close(self) -> list[Event]:
        """What is left, closed as if a blank line had come; the caller judges it."""
        block = self.rest.rstrip(b"\r\n")
        self.rest = b""
        self._check(block)
        return [self._paired(_event(block, b"\n\n"))] if block.strip(b"\r\n") else []


class OwnSplitter(Splitter):
    """For complete events written here: they may repeat everything that a request says."""

    __slots__ = ()

    def _check(self, block: bytes) -> None:
        """What an upstream contributed to them was bounded when it came."""


def _event(block: bytes, ending: bytes) -> Event:
    if block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block:
        said = block[6:]
        # Some servers keep a connection awake so; it is no event (see `Splitter`).
        return Event(block + ending, b"", said) if said else Event(b":\n\n", b"", None)
    head, _, tail = block.partition(b"\n")
    is_ordinary = head.startswith(b"event: ") and tail.startswith(b"data: ")
    if is_ordinary and len(tail) > len(b"data: ") and b"\n" not in tail and b"\r" not in block:
        return Event(block + ending, head[7:], tail[6:])
    return _parsed(block.lstrip(b"\r\n").removeprefix(_BOM), ending)


def _parsed(block: bytes, ending: bytes) -> Event:
    """The specification's algorithm, for every event that is not of an ordinary shape."""
    name = b""
    data: list[bytes] = []
    has_comment = has_more = False
    lines = _LINES.split(block) if b"\r" in block else block.split(b"\n")
    for line in lines:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif field:
            has_more = True
        elif line:
            has_comment = True
    said = b"\n".join(data)
    if not said:
        return Event(b":\n\n", b"", None)
    if has_more or len(data) > 1 or _LONE_CR.search(block) is not None:
        # The data is JSON, in which a line end is a blank like any other.
        head = b"event: %b\n" % name if name else b""
        return Event(b"%bdata: %b\n\n" % (head, said.replace(b"\n", b" ")), name, said)
    if has_comment:
        block = b"\n".join(b":" if line.startswith(b":") else line for line in lines)
        ending = b"\n\n"
    return Event(block + ending, name, said)


def comment(text: str) -> bytes:
    """A comment of ours; line ends in it would start a field, so they become spaces."""
    return b": " + " ".join(text.split()).encode() + b"\n\n" if text.strip() else b""


def last_read(splitter: Splitter, read: Callable[[list[Event]], list[Read]]) -> list[Read]:
    """The rest of a stream that is over: an event without its blank line counts if complete.

    A cut one does not: whoever misses it reports that the stream broke.
    """
    found: list[Read] = []
    with suppress(UpstreamMalformed):
        for event in splitter.close():
            found += read([event])
    return found
