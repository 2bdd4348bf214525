"""Reversible pseudonyms: values leave as surrogates of their kind, and come back in the answer.

Surrogates are chosen by a key of the conversation, so that equal values have equal surrogates in
every turn and a provider's prompt cache still hits. Their check digits are wrong on purpose: they
can belong to nobody. Secrets are redacted one way. Everything here is pure; nothing is stored.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from hmac import digest
from typing import Final

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from classifiers.adjoining import Seamed
from classifiers.extraction import WIRE_WORDS, extract
from gateway.veiling.blocks import Told
from gateway.veiling.surrogates import ONE_WAY, surrogate


HELD_BACK_MAX: Final = 256
_KEY_LENGTH = 32
_LEAST_PART = 4
_MAX_DEPTH = 64
_TRIES = 64
_HEAD_LENGTH: Final = 64
_JSON_BEGINS = re.compile(r"\s*(?:```(?:json)?\s*)?(?:\{\s*[\"}]|\[\s*[\[{\"\]])")
"""An object, or a list of texts or of more; `[1]` and `{name}` stand at the beginning of prose."""
_DIGIT = re.compile(r"\d")
_LETTER = re.compile(
    r"[^\W\d_\u0e00-\u0eff\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc]"
)
"""Letters of scripts that part words; those of Thailand and the Far East write them together."""
_MIXED = re.compile(r"(?=\D*\d)(?=[\W\d_]*[^\W\d_])\S+")
"""Keys and names of letters and digits: either of them may go on with the other."""


def conversation_key(tenant_key: bytes, conversation: str) -> bytes:
    """The key of one conversation of one tenant (RFC 5869); other tenants' keys say nothing."""
    info = b"gatewright pseudonyms\x00" + conversation.encode("utf-8", "surrogatepass")
    return HKDF(SHA256(), _KEY_LENGTH, salt=None, info=info).derive(tenant_key)


class Pseudonyms(msgspec.Struct, frozen=True):
    """Surrogate → value for the answer, value → replacement for the request."""

    replacements: Mapping[str, str]
    values: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Pseudonyms(count={len(self.replacements)})"

    def restored(self, text: str) -> str:
        """A whole text with its values back in place of their surrogates."""
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
    said = "\n".join(texts)
    replacements: dict[str, str] = {}
    values: dict[str, str] = {}
    for label, value in sorted(set(found), key=lambda item: (-len(item[1]), item)):
        if value in replacements:
            continue
        if one_way or label in ONE_WAY:
            replacements[value] = f"[REDACTED:{label}]"
            continue
        chosen = _unused(key, label, value, said, values)
        replacements[value] = chosen
        values[chosen] = value
        if label == "PERSON":
            _add_parts(value, chosen, said, replacements, values)
    return Pseudonyms(replacements, values)


def _unused(key: bytes, label: str, value: str, said: str, taken: Mapping[str, str]) -> str:
    """The first surrogate that neither the texts nor another value has."""
    message = f"{label}\x00{value}".encode("utf-8", "surrogatepass")
    for attempt in range(_TRIES):
        seed = digest(key, bytes([attempt]) + message, sha256)
        chosen = surrogate(label, value, seed)
        if chosen not in taken and chosen not in said and chosen != value:
            return chosen
    return f"[{label}:{digest(key, message, sha256).hex()[:16]}]"


def _add_parts(
    value: str, chosen: str, said: str, replacements: dict[str, str], values: dict[str, str]
) -> None:
    """An answer may use one part of a name: "Dear Ms Lindqvist"."""
    parts, others = value.split(), chosen.split()
    if len(parts) < 2 or len(parts) != len(others):  # noqa: PLR2004 - a name of one word.
        return
    for part, other in zip(parts, others, strict=True):
        fits = len(part) >= _LEAST_PART and other not in values and other not in said
        if fits and part not in replacements:
            replacements[part] = other
            values[other] = part


def replaced(document: object, names: Pseudonyms) -> object:
    """A JSON document with every value replaced: in strings, keys, numbers and JSON in strings."""
    if not names.replacements:
        return document
    return _Replacing(names.replacements).node(document, 0)


def still_said(document: object, names: Pseudonyms) -> bool:
    """Whether any value is left in a document: in its strings, keys and numbers."""
    if not names.replacements:
        return False
    pattern = _pattern_of(names.replacements)
    texts = (segment.text for segment in extract(document).segments)
    return any(pattern.search(text) is not None for text in texts)


class _Replacing:
    """One pass over a document."""

    def __init__(self, replacements: Mapping[str, str]) -> None:
        self._replacements = replacements
        self._pattern = _pattern_of(replacements)

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
            return {self.node(k, depth + 1): self.node(v, depth + 1) for k, v in node.items()}
        if isinstance(node, list | tuple):
            return [self.node(item, depth + 1) for item in node]
        return node

    def _string(self, text: str, depth: int) -> str:
        if text in WIRE_WORDS:
            return text
        if "\\" in text and text.lstrip()[:1] in {"{", "[", '"'} and depth <= _MAX_DEPTH:
            try:
                inner = msgspec.json.decode(text)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                pass
            else:
                changed = self.node(inner, depth + 1)
                text = text if changed == inner else msgspec.json.encode(changed).decode()
        return self._pattern.sub(lambda match: self._replacements[match[0]], text)

    def _number(self, number: float) -> object:
        """A number that is a value: another number of the same digits, or text."""
        other = self._replacements.get(str(number))
        if other is None:
            return number
        return int(other) if other.isdigit() and not other.startswith("0") else other


def _pattern_of(words: Iterable[str]) -> re.Pattern[str]:
    """Any of the words, the longest first, not inside longer words or numbers.

    Beside letters a number is one, and beside a line below so is a word: `card4111…`, `_Ingrid_`.
    """
    parts = []
    for word in sorted(words, key=len, reverse=True):
        before, after = _kind_of(word[:1]), _kind_of(word[-1:])
        parts.append(
            (rf"(?<!{before})" if before else "")
            + re.escape(word)
            + (rf"(?!{after})" if after else "")
        )
    return re.compile("|".join(parts) or r"(?!)")


def _kind_of(char: str) -> str:
    """What must not stand beside a character where a word begins or ends with it."""
    if _DIGIT.match(char):
        return _DIGIT.pattern
    return _LETTER.pattern if _LETTER.match(char) else ""


def whole_place(text: str, start: int, end: int) -> tuple[int, int]:
    """A place with all of the word and the number that it begins and ends in.

    What was found may be a part of one, such as the first hundred characters of a key: only whole
    words are replaced, and a rest of it would leave.
    """
    first, last = _kind_of(text[start : start + 1]), _kind_of(text[end - 1 : end])
    if _MIXED.fullmatch(text, start, end):
        first = last = rf"(?:{_DIGIT.pattern}|{_LETTER.pattern})"
    while first and start and re.match(first, text[start - 1]):
        start -= 1
    while last and end < len(text) and re.match(last, text[end]):
        end += 1
    return start, end


def in_json(value: str) -> str:
    """A value as it stands inside a JSON string."""
    return msgspec.json.encode(value).decode()[1:-1]


class Restorer:
    """Puts values back into a text that comes in pieces, cut anywhere.

    It holds back no more than what may still become a surrogate: at most `HELD_BACK_MAX`
    characters. `written` says how a value is to be written, e.g. `in_json` inside tool arguments;
    without it a text that begins like JSON is taken for that. See `blocks.Piecewise`.
    """

    def __init__(self, names: Pseudonyms, written: Callable[[str], str] | None = None) -> None:
        self._written = written
        self._head = ""
        """How the text began, as long as that may be the beginning of JSON."""
        self._values = {
            form: value
            for chosen, value in names.values.items()
            for form in {chosen, in_json(chosen), _escaped(chosen)}
            if len(form) <= HELD_BACK_MAX
        }
        self._pattern = _pattern_of(self._values)
        self._beginnings = frozenset(
            form[:size] for form in self._values for size in range(1, len(form) + 1)
        )
        self._longest = max(map(len, self._values), default=0)
        self._before = ""
        self._held = ""
        self._edges: list[int] = []
        """Where blocks end in both of them."""
        self._owed = 0
        """How many of the last of those were not reached by what was shown."""

    def feed(self, piece: str) -> str:
        return "".join(self.shown(piece))

    def flush(self) -> str:
        return "".join(self.rest())

    def shown(self, piece: str) -> list[str]:
        if not self._values:
            return [piece]
        self._held += piece
        if self._written is None and len(self._head) < _HEAD_LENGTH:
            self._head += piece[:_HEAD_LENGTH]
        return self._released(self._cut())

    def edge(self) -> bool:
        self._edges.append(len(self._before) + len(self._held))
        if self._held:
            self._owed += 1
        return not self._held

    def rest(self) -> list[str]:
        return self._released(len(self._held))

    def _released(self, cut: int) -> list[str]:
        reached = len(self._before)
        end = reached + cut
        text = self._before + self._held
        told = Told(text, self._edges[-self._owed :] if self._owed else ())
        # One character behind it, so that a surrogate inside a longer word is left alone.
        for start, stop, chosen in self._surrogates(text[: end + 1]):
            if stop > end:
                break
            told.as_is(reached, start)
            told.instead(start, stop, self._as_written(self._values[chosen]))
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
        """Where surrogates stand in a text; where a block ends, a word may end as well."""
        first = len(self._before)
        found = [(m.start(), m.end(), m[0]) for m in self._pattern.finditer(text, first)]
        edges = [edge for edge in self._edges if 0 < edge < len(text)]
        if not edges:
            return found
        apart = Seamed(text, edges)
        found += [
            (apart.origin(m.start()), apart.origin(m.end()), m[0])
            for m in self._pattern.finditer(apart.text, first)
        ]
        kept: list[tuple[int, int, str]] = []
        for each in sorted(found, key=lambda place: (place[0], -place[1])):
            if not kept or each[0] >= kept[-1][1]:
                kept.append(each)
        return kept

    def _cut(self) -> int:
        """Where what can be shown ends: before what may become a surrogate, never inside one.

        The end of one surrogate may read like the beginning of another: "…7499 " and "499 Alder".
        """
        held, shift = self._held, len(self._before)
        cut = len(held) - self._unfinished(held)
        for start, stop, _ in self._surrogates(self._before + held):
            end = stop - shift
            if start - shift < cut < end:
                return len(held) - self._unfinished(held[end:])
        return cut

    def _unfinished(self, text: str) -> int:
        """Length of the longest end of the text that a surrogate can begin with."""
        for size in range(min(self._longest, len(text)), 0, -1):
            if text[-size:] in self._beginnings:
                return size
        return 0


def _escaped(text: str) -> str:
    """Pure ASCII JSON, as many models write it."""
    if text.isascii():
        return text
    units = text.encode("utf-16-be")
    return "".join(
        chr(code) if code < 0x80 else f"\\u{code:04x}"  # noqa: PLR2004 - ASCII.
        for code in (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    )
