"""Limits on an upstream's JSON, counted piece by piece before a decoder sees it. Pure.

A decoder is one call during which nothing else runs in a worker, not even beside the loop: twenty
megabytes of keys take it seconds. What nothing here reads (probabilities of tokens, the numbers of
vectors) the decoder skips, so there may be much more of it.
"""

from itertools import accumulate
from typing import Final

from gateway.errors import UpstreamMalformed


SHORT_BYTES_MAX: Final = 256 * 1024
"""Shorter JSON is read within some milliseconds, whatever it holds."""
VALUES_MAX: Final = 100_000
"""Keys, elements of lists, objects and lists: ten thousand calls of tools have fewer."""
UNREAD_MAX: Final = 4_000_000
"""Of those that are passed over: vectors of 32 MB, or 25,000 tokens with twenty others each."""
ESCAPES_MAX: Final = 2_000_000
"""A decoder looks at each of them: this is a text of twelve megabytes that is nothing else."""
_MORSEL_BYTES: Final = 64 * 1024
_GAP_BYTES_MAX: Final = 4096
"""What may stand between two marks outside of texts: a number, or blanks. It is no value else."""
_SHORT_GAP_BYTES: Final = 64
_TOKENS: Final = (b"logprobs", b"token_ids", b"output_ids", b"completion_probabilities")
"""How names end under which it is told of what tokens words were made."""
_UNREAD: Final = (*_TOKENS, b"embedding")
_UNREAD_NAMES: Final = tuple(name + b'"' for name in _UNREAD)
_NAME_BYTES_MAX: Final = 32
_QUOTES_MAX: Final = 4
"""Around a key and a text behind it."""
_OPENING, _CLOSING, _COMMA = b"[{", b"]}", b","[0]
_STEPS: Final = {byte: 1 if byte in _OPENING else -1 for byte in _OPENING + _CLOSING}
_NO_STEPS: Final = bytes(byte for byte in range(256) if byte not in _STEPS)
_NOTHING: Final = {b"["[0]: b"[]", b"{"[0]: b"null"}


def check_json(raw: bytes) -> None:
    """Refuse JSON that a decoder would read for too long.

    Raises:
        UpstreamMalformed
    """
    if len(raw) > SHORT_BYTES_MAX:
        weighed(raw)


def is_readable(text: str) -> bool:
    """Whether JSON that is said in a text is not too much for a decoder."""
    try:
        check_json(text.encode("utf-8", "surrogatepass") if len(text) > SHORT_BYTES_MAX else b"")
    except UpstreamMalformed:
        return False
    return True


def weighed(raw: bytes) -> "Weight":
    """What a long JSON holds; for a thread beside the loop, which lets others run at any time.

    Raises:
        UpstreamMalformed: it holds more than any answer does.
    """
    weight = Weight(raw)
    marks = escapes = 0
    is_bare = False
    for at in range(0, len(raw), _MORSEL_BYTES):
        morsel = raw[at : at + _MORSEL_BYTES]
        marks += _marks_of(morsel)
        escapes += morsel.count(b"\\")
        is_bare = is_bare or morsel.isdigit() or morsel.isspace()
        if escapes > ESCAPES_MAX:
            raise _too_many("escapes")
    if marks > VALUES_MAX or is_bare:
        # Of those in texts a decoder takes no notice.
        weight.count()
    return weight


def holds_more(raw: bytes, values_max: int) -> bool:
    """Whether a short JSON, such as a refusal's, holds more than this."""
    try:
        check_values_of(raw, values_max)
    except UpstreamMalformed:
        return True
    return False


def check_values_of(raw: bytes, values_max: int) -> None:
    """Refuse a short JSON, such as an event's, that holds more than this.

    Raises:
        UpstreamMalformed
    """
    if _marks_of(raw) > values_max:
        Weight(raw, values_max).count()


class Weight:
    """What of a JSON stands outside of texts, and where it is told of tokens."""

    __slots__ = (
        "_deep",
        "_is_of_tokens",
        "_name",
        "_raw",
        "_start",
        "_values_max",
        "of_tokens",
        "unread",
        "values",
    )

    def __init__(self, raw: bytes, values_max: int = VALUES_MAX) -> None:
        self._raw, self._values_max = raw, values_max
        self._name = b""
        self._deep = self._start = 0
        """How many lists and objects are open of what is passed over, and where that began."""
        self._is_of_tokens = False
        self.of_tokens: list[tuple[int, int]] = []
        """From where to where."""
        self.values = 0
        self.unread = 0
        """Those within what is passed over."""

    @property
    def is_light(self) -> bool:
        """Whether it is not too much for who reads all of it."""
        return self.values + self.unread <= VALUES_MAX

    def without_tokens(self) -> bytes:
        """The JSON, with nothing where it is told of what tokens its words were made."""
        kept: list[bytes] = []
        at = 0
        for start, end in self.of_tokens:
            kept += (self._raw[at:start], _NOTHING[self._raw[start]])
            at = end
        return b"".join([*kept, self._raw[at:]])

    def count(self) -> None:
        """Raises UpstreamMalformed as soon as it is too much."""
        raw, at, is_text, quotes = self._raw, 0, False, 0
        while at < len(raw):
            end = at + _MORSEL_BYTES
            while raw[end - 1 : end] == b"\\":
                end += 1  # What it stands before belongs to it.
            # As long as before, so that places stay what they are.
            plain = raw[at:end].replace(b"\\\\", b"__").replace(b'\\"', b"__")
            *pieces, last = plain.split(b'"')
            quotes += len(pieces)
            if quotes > _QUOTES_MAX * (self.values + self.unread) + _MORSEL_BYTES:
                raise UpstreamMalformed("The upstream's answer is not JSON.")
            if self._is_alike(plain, b"".join([*pieces, last][is_text::2]), is_text=is_text):
                is_text ^= len(pieces) % 2 == 1
                self._name = last[-_NAME_BYTES_MAX:] if is_text else b""
                at += len(plain)
                continue
            for piece in pieces:
                self._take(piece, at, is_text=is_text)
                at += len(piece) + 1
                is_text = not is_text
                if is_text:
                    self._name = b""
            is_cut = not is_text and pieces and len(last) < _SHORT_GAP_BYTES and end < len(raw)
            if not is_cut:  # Else it is taken with what follows.
                self._take(last, at, is_text=is_text)
                at += len(last)

    def _take(self, piece: bytes, at: int, *, is_text: bool) -> None:
        if is_text:
            self._name = (self._name + piece)[-_NAME_BYTES_MAX:]
        elif self._deep:
            self._pass_over(piece, at)
        else:
            self._look_at(piece, at)

    def _look_at(self, piece: bytes, at: int) -> None:
        if self._name.endswith(_UNREAD) and piece[:1] == b":":
            value = piece[1:].lstrip()
            if value[:1] and value[0] in _OPENING:
                self._is_of_tokens = self._name.endswith(_TOKENS)
                self._start = at + len(piece) - len(value)
                self._pass_over(value, self._start)
                return
        self._find(piece)

    def _find(self, piece: bytes) -> None:
        found = _marks_of(piece)
        self.values += found
        if self.values > self._values_max:
            raise _too_many("keys and elements of lists")
        if not found and len(piece) > _GAP_BYTES_MAX:
            raise UpstreamMalformed("The upstream's answer holds a number that is too long.")

    def _is_alike(self, plain: bytes, bare: bytes, *, is_text: bool) -> bool:
        """Whether all of it is read, or all of it passed over, as mostly; then it is counted."""
        if self._deep:
            steps = [*accumulate(map(_STEPS.__getitem__, bare.translate(None, _NO_STEPS)))]
            if steps and self._deep + min(steps) <= 0:
                return False
            self._deep += steps[-1] if steps else 0
            self._pass(_marks_of(bare))
            return True
        if is_text:
            plain = self._name + plain
        if any(name in plain for name in _UNREAD_NAMES) or self._name.endswith(_UNREAD):
            return False
        self._find(bare)
        return True

    def _pass_over(self, piece: bytes, at: int) -> None:
        """Up to its end, if that is in this piece."""
        found = 0
        for place, byte in enumerate(piece, start=1):
            if byte in _OPENING:
                self._deep += 1
                found += 1
            elif byte == _COMMA:
                found += 1
            elif byte in _CLOSING:
                self._deep -= 1
                if not self._deep:
                    self._end(piece[place:], at + place)
                    break
        self._pass(found)

    def _pass(self, found: int) -> None:
        self.unread += found
        if self.unread > UNREAD_MAX:
            raise _too_many("figures")

    def _end(self, rest: bytes, at: int) -> None:
        if self._is_of_tokens:
            self.of_tokens.append((self._start, at))
        self._name = b""
        self._look_at(rest, at)


def _too_many(what: str) -> UpstreamMalformed:
    return UpstreamMalformed(f"The upstream's answer holds too many {what}.")


def _marks_of(piece: bytes) -> int:
    return piece.count(b",") + piece.count(b"[") + piece.count(b"{")
