"""Reversible pseudonyms: values leave as surrogates of their kind, and return in the answer.

Surrogates are chosen by a key of the conversation, so that equal values have equal surrogates in
every turn and a provider's prompt cache still hits. Their check digits are wrong on purpose: they
can belong to nobody. Secrets are redacted one way. Everything here is pure; nothing is stored.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from hmac import digest
from math import isfinite
from typing import Final

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from classifiers.adjoining import Seamed
from classifiers.extraction import WIRE_WORDS, extract
from gateway.veiling.blocks import Told
from gateway.veiling.forms import Forms, Words, forms_of, in_json, joins
from gateway.veiling.surrogates import ONE_WAY, surrogate
from gateway.veiling.wraps import in_wrap


_KEY_LENGTH = 32
_LEAST_PART = 4
_MAX_DEPTH = 64
_TRIES = 64
_HEAD_LENGTH: Final = 64
_LONG_NUMBER: Final = 99_999
_JSON_BEGINS = re.compile(r"\s*(?:```(?:json)?\s*)?(?:\{\s*[\"}]|\[\s*[\[{\"\]])")
"""An object, or a list of strings, lists or objects; prose may begin with `[1]` or `{name}`."""


def conversation_key(tenant_key: bytes, conversation: str) -> bytes:
    """One tenant's key for a conversation (RFC 5869); other tenants' keys do not reveal it."""
    info = b"gatewright pseudonyms\x00" + conversation.encode("utf-8", "surrogatepass")
    return HKDF(SHA256(), _KEY_LENGTH, salt=None, info=info).derive(tenant_key)


class Pseudonyms(msgspec.Struct, frozen=True):
    """Surrogate → value for the answer, value → replacement for the request."""

    replacements: Mapping[str, str]
    values: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Pseudonyms(count={len(self.replacements)})"

    def forms(self) -> Forms:
        """The forms that surrogates may have in an answer; made once for all of its texts."""
        return forms_of(self.values)

    def restored(self, text: str) -> str:
        """A complete text with the values back in place of their surrogates."""
        restorer = Restorer(self)
        return restorer.feed(text) + restorer.flush()


def pseudonyms(
    key: bytes,
    found: Iterable[tuple[str, str]],
    texts: Iterable[str],
    *,
    one_way: bool = False,
) -> Pseudonyms:
    """Choose a surrogate for every (label, value); none of them occurs in the texts already.

    With `one_way` every value is blackened, and nothing comes back.
    """
    labels: dict[str, str] = {}
    for label, value in sorted(set(found), key=lambda item: (-len(item[1]), item)):
        labels.setdefault(value, label)
    drawn = _Drawn(key, "\n".join(texts).casefold())
    for value, label in labels.items():
        if one_way or label in ONE_WAY:
            drawn.replacements[value] = f"[REDACTED:{label}]"
    reversible = {v: label for v, label in labels.items() if v not in drawn.replacements}
    drawn.people([v for v, label in reversible.items() if label == "PERSON" and len(v.split()) > 1])
    for value, label in reversible.items():
        if value not in drawn.replacements:
            drawn.draw(label, value)
    return Pseudonyms(drawn.replacements, drawn.values)


class _Drawn:
    """Draws the surrogates of one conversation."""

    def __init__(self, key: bytes, said: str) -> None:
        """`said` are the texts in lower case."""
        self._key = key
        self._said = said
        self.replacements: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self._taken: set[str] = set()
        """In lower case, because an answer may use any case."""
        self._meant: dict[str, set[str]] = {}
        """For each word of a full name's surrogate, in lower case, the real words it stands for."""

    def draw(self, label: str, value: str) -> str:
        """The first surrogate that is neither in the texts, in any case, nor another value's."""
        message = f"{label}\x00{value}".encode("utf-8", "surrogatepass")
        for attempt in range(_TRIES):
            seed = digest(self._key, bytes([attempt]) + message, sha256)
            chosen = surrogate(label, value, seed)
            small = chosen.casefold()
            is_new = small not in self._taken and small not in self._meant
            if is_new and small not in self._said and chosen != value:
                break
        else:
            chosen = f"[{label}:{digest(self._key, message, sha256).hex()[:16]}]"
        self._taken.add(chosen.casefold())
        self.replacements[value], self.values[chosen] = chosen, value
        return chosen

    def people(self, names: Sequence[str]) -> None:
        """Full names, and each of their words: an answer may say "Dear Ms Lindqvist".

        A word that occurs in several people's surrogates is not restored, because it could be
        either person's; the word that it would have replaced gets a surrogate of its own.
        """
        meant: dict[str, set[str]] = {}
        pairs: list[tuple[str, str]] = []
        for name in names:
            parts, others = name.split(), self.draw("PERSON", name).split()
            if len(parts) == len(others):
                pairs += zip(parts, others, strict=True)
            else:
                parts = [name] * len(others)
            for part, other in zip(parts, others, strict=True):
                meant.setdefault(other.casefold(), set()).add(part)
        self._meant = meant
        for part, other in pairs:
            self._add_part(part, other)

    def _add_part(self, part: str, other: str) -> None:
        """Restore a word if it is one person's only; short ones may be anything and are sent."""
        small, known = other.casefold(), self.replacements.get(part)
        is_clear = len(self._meant[small]) == 1 and small not in self._said
        if is_clear and (known is None or known in self.values):
            self.values[other] = part
        if known is not None or len(part) < _LEAST_PART:
            return
        if is_clear:
            self.replacements[part] = other
        else:
            self.draw("PERSON", part)


def replaced(document: object, names: Pseudonyms) -> object:
    """A JSON document with every value replaced: in strings, keys, numbers and JSON in strings."""
    if not names.replacements:
        return document
    return _Replacing(names.replacements).node(document, 0)


def written(number: float) -> str:
    """A number in digits, as inspection reads it: whole floats have no point.

    A fraction that inspection does not read gives "".
    """
    if isinstance(number, float):
        if number.is_integer():
            return str(int(number))
        if -_LONG_NUMBER <= number <= _LONG_NUMBER:
            return ""
    return str(number)


def number_of(text: str) -> object:
    """The JSON number of a text; any other text, or one with a leading zero, stays as it is."""
    try:
        number = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
    return number if type(number) is int or (type(number) is float and isfinite(number)) else text


def still_said(document: object, names: Pseudonyms) -> bool:
    """Whether any value is left in a document: in its strings, keys and numbers."""
    if not names.replacements:
        return False
    words = Words(names.replacements)
    texts = (segment.text for segment in extract(document).segments)
    return any(True for text in texts for _ in words.places(text))


class _Replacing:
    """One pass over a document."""

    def __init__(self, replacements: Mapping[str, str]) -> None:
        self._replacements = replacements
        self._words = Words(replacements)

    def node(self, node: object, depth: int) -> object:
        if isinstance(node, str):
            return self._string(node, depth)
        if isinstance(node, bool) or node is None:
            return node
        if isinstance(node, int | float):
            return self._number(node)
        if depth > _MAX_DEPTH:
            raise RecursionError("a document that deep is not inspected either")
        if isinstance(node, dict):
            return {
                self.node(key, depth + 1): []
                if _tells_tokens(key, each)
                else self.node(each, depth + 1)
                for key, each in node.items()
            }
        if isinstance(node, list | tuple):
            return [self.node(item, depth + 1) for item in node]
        return node

    def _string(self, text: str, depth: int) -> str:
        if text in WIRE_WORDS:
            return text
        text = in_wrap(text, lambda inside: self.node(inside, depth + 1))
        if "\\" in text and text.lstrip()[:1] in {"{", "[", '"'} and depth <= _MAX_DEPTH:
            try:
                inner = msgspec.json.decode(text)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                pass
            else:
                changed = self.node(inner, depth + 1)
                text = text if changed == inner else msgspec.json.encode(changed).decode()
        parts: list[str] = []
        reached = 0
        for start, end, word in self._words.places(text):
            parts += (text[reached:start], self._replacements[word])
            reached = end
        return "".join((*parts, text[reached:])) if reached else text

    def _number(self, number: float) -> object:
        """Replace a number that holds a value by another with the same digits, or by a text."""
        said = written(number)
        other = self._string(said, _MAX_DEPTH)
        return number if other == said else number_of(other)


def _tells_tokens(key: object, value: object) -> bool:
    """Whether this holds the probabilities of an earlier answer's tokens.

    They repeat its words, cut anywhere and as numbers, so values in them are not found. Callers who
    send an answer back unchanged send them too, and no model reads them.
    """
    if key != "logprobs" or not isinstance(value, list) or not value:
        return False
    return all(isinstance(each, dict) and "token" in each for each in value)


class Restorer:
    """Puts values back into a text that comes in pieces, cut anywhere.

    It holds back only what may still become a surrogate: at most `HELD_BACK_MAX` characters.
    `written` says how to write a value, e.g. `in_json` inside tool arguments; without it, a text
    that begins like JSON is treated as JSON. See `blocks.Piecewise`.
    """

    def __init__(
        self, names: Pseudonyms | Forms, written: Callable[[str], str] | None = None
    ) -> None:
        self._forms = names if isinstance(names, Forms) else names.forms()
        self._written = written
        self._head = ""
        """The beginning of the text, while it may still turn out to be JSON."""
        self._before = ""
        self._held = ""
        self._edges: list[int] = []
        """Where blocks end in both of them."""
        self._owed = 0
        """How many of the last block ends have not been shown yet."""

    def feed(self, piece: str) -> str:
        return "".join(self.shown(piece))

    def flush(self) -> str:
        return "".join(self.rest())

    @property
    def is_torn(self) -> bool:
        text = self._before + self._held
        return bool(self._held) and all(end < len(text) for _, end, _ in self._surrogates(text))

    def shown(self, piece: str) -> list[str]:
        if not self._forms.values:
            return [piece]
        self._held += piece
        if self._written is None and len(self._head) < _HEAD_LENGTH:
            self._head += piece[:_HEAD_LENGTH]
        return self._released(self._cut())

    def edge(self) -> bool:
        self._edges.append(len(self._before) + len(self._held))
        if self._held:
            self._owed += 1
        if not _JSON_BEGINS.match(self._head):
            self._head = ""  # Text after prose may be JSON, as the arguments of a tool are.
        return not self._held

    def rest(self) -> list[str]:
        return self._released(len(self._held))

    def _released(self, cut: int) -> list[str]:
        reached = len(self._before)
        end = reached + cut
        text = self._before + self._held
        told = Told(text, self._edges[-self._owed :] if self._owed else ())
        # One character more, so that a surrogate inside a longer word is left alone.
        for start, stop, chosen in self._surrogates(text[: end + 1]):
            if stop > end:
                break
            told.as_is(reached, start)
            told.instead(start, stop, self._as_written(self._forms.values[chosen]))
            reached = stop
        told.as_is(reached, end)
        blocks = told.until(end)
        self._owed -= len(blocks) - 1
        gone = max(0, end - 1)
        self._before, self._held = text[gone:end], text[end:]
        self._edges = [edge - gone for edge in self._edges if edge > gone]
        return blocks

    def _as_written(self, value: str) -> str:
        if self._written is not None:
            return self._written(value)
        return in_json(value) if _JSON_BEGINS.match(self._head) else value

    def _surrogates(self, text: str) -> list[tuple[int, int, str]]:
        """Where surrogates are in a text; the end of a block may also end a word."""
        first = len(self._before)
        found = [*self._forms.words.places(text, first)]
        edges = [edge for edge in self._edges if 0 < edge < len(text)]
        if not edges:
            return found
        apart = Seamed(text, edges)
        found += [
            (apart.origin(start), apart.origin(end), form)
            for start, end, form in self._forms.words.places(apart.text, first)
        ]
        kept: list[tuple[int, int, str]] = []
        for each in sorted(found, key=lambda place: (place[0], -place[1])):
            if not kept or each[0] >= kept[-1][1]:
                kept.append(each)
        return kept

    def _cut(self) -> int:
        """The end of what can be shown: before a possible surrogate, never inside one.

        The end of one surrogate may look like the beginning of another: "…7499 " and "499 Alder".
        """
        held, shift = self._held, len(self._before)
        cut = len(held) - self._unfinished(held, self._before)
        for start, stop, _ in self._surrogates(self._before + held):
            end = stop - shift
            if start - shift < cut < end:
                return len(held) - self._unfinished(held[end:], held[:end])
        return cut

    def _unfinished(self, text: str, before: str) -> int:
        """Length of the longest end of the text with which a surrogate can begin.

        None begins inside a word, unless a block ended there.
        """
        for size in range(min(self._forms.longest, len(text)), 0, -1):
            if text[-size:] in self._forms.beginnings and (
                self._edges or not joins((before + text[:-size])[-1:], text[-size])
            ):
                return size
        return 0
