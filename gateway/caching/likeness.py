"""Similarity of questions: which parts must be equal, and how close the wording is. Pure.

Two requests are of one family when everything but the newest question is equal, byte for byte.
Inside a family, questions are compared by the angle between their vectors. But what changes an
answer and hardly changes a vector (numbers, names, quotations, negations, one word in another's
place) keeps them apart, whatever the vectors say.
"""

import hashlib
import re
import unicodedata
from array import array
from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct, structs

from gateway.caching.number_words import is_number


QUESTION_LENGTH_MAX: Final = 2_000
FAMILY_MAX: Final = 256
"""Questions of one family that are compared; who was kept first goes first."""
DIMENSIONS_MAX: Final = 8_192
SUBSTITUTED_MAX: Final = 2
"""So few words in the place of others make another question of the same form."""
_PLACE: Final = {"": "the newest question"}
_TEXT_KINDS: Final = frozenset({"text", "input_text"})
_TOKEN: Final = re.compile(
    '"[^"]*"|`[^`]*`|\u201c[^\u201d]*\u201d|\u00ab[^\u00bb]*\u00bb'
    "|\\w+(?:['\u2019]\\w+)*|[^\\w\\s]"
)
"""Quotations whole, words, and signs one by one."""
_PLAIN: Final = frozenset(".,;:?!…")
# As `casefold` writes them: of `außer` it makes `ausser`.
_NEGATIONS: Final = frozenset(
    {
        *("not", "no", "never", "none", "nor", "neither", "without", "except", "only", "cannot"),
        *("nicht", "kein", "keine", "keinen", "nie", "ohne", "nur", "ausser"),
        *("ne", "pas", "sans", "jamais", "aucun", "aucune", "non", "sauf"),
        *("ni", "nunca", "sin", "nada", "salvo", "senza", "mai", "solo"),
        *("niet", "geen", "nooit", "zonder", "bez", "не", "нет", "без", "никогда"),
    }
)
_HASH: Final = "q"

# `numpy.typing` says the same, and is a dozen modules more.
Vector = np.ndarray[Any, np.dtype[np.float32]]


class Question(Struct, frozen=True):
    """The newest question of a request, and what decides with whom it is compared."""

    family: bytes
    text: str
    words: bytes
    """Eight bytes for each: as texts they take ten times that."""
    anchors: bytes


def question_of(tree: Mapping[str, object], start: bytes) -> Question | None:
    """The question at the end of a request's body; None where there is none to compare.

    `start` is all that an answer depends on beside the body. A question is text alone, not too
    long, and in a script that tells names by their first letter.
    """
    found = _newest(tree)
    if found is None:
        return None
    text, rest = found
    if not text.strip() or len(text) > QUESTION_LENGTH_MAX or not _has_case(text):
        return None
    body = msgspec.json.encode(rest, order="deterministic")
    tokens = _TOKEN.findall(_as_read(text))
    words = _hashed(token for token in tokens if token not in _PLAIN)
    anchors = _hashed(token for place, token in enumerate(tokens) if _is_anchor(token, place))
    return Question(hashlib.sha256(start + body).digest(), text, words, anchors)


def is_comparable(one: Question, other: Question) -> bool:
    """Whether a small angle means the same: nothing decisive differs."""
    if one.anchors != other.anchors:
        return False
    if len(one.words) != len(other.words):
        return True
    mine_all, yours_all = (memoryview(each.words).cast(_HASH) for each in (one, other))
    pairs = zip(mine_all, yours_all, strict=True)
    substituted = sum(mine != yours for mine, yours in pairs)
    return not 0 < substituted <= SUBSTITUTED_MAX


def vector_of(numbers: Sequence[float]) -> Vector | None:
    """A vector of length 1; None for one that has no direction or is too long."""
    if not 0 < len(numbers) <= DIMENSIONS_MAX:
        return None
    vector = np.asarray(numbers, dtype=np.float64)
    length = float(np.linalg.norm(vector))
    if not np.isfinite(length) or length == 0:
        return None
    return (vector / length).astype(np.float32)


class _Known(Struct, frozen=True):
    question: Question
    """Without its text, with which nothing is compared."""
    vector: Vector
    key: bytes


class Likenesses:
    """Which questions were asked, by family; bounded, who was not asked for longest goes first."""

    def __init__(self, vectors_max: int) -> None:
        self._vectors_max = vectors_max
        self._families: OrderedDict[bytes, list[_Known]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def nearest(self, question: Question, vector: Vector) -> list[tuple[float, bytes]]:
        """Cosine and key of the comparable questions, the nearest first."""
        family = self._families.get(question.family, [])
        if family:
            self._families.move_to_end(question.family)
        near = [
            (float(each.vector @ vector), each.key)
            for each in family
            if each.vector.shape == vector.shape and is_comparable(question, each.question)
        ]
        return sorted(near, reverse=True)

    def keep(self, question: Question, vector: Vector, key: bytes) -> None:
        family = self._families.setdefault(question.family, [])
        self._families.move_to_end(question.family)
        others = [each for each in family if each.key != key]
        known = others[max(len(others) + 1 - min(FAMILY_MAX, self._vectors_max), 0) :]
        self._count += 1 + len(known) - len(family)
        new = _Known(structs.replace(question, text=""), vector, key)
        self._families[question.family] = [*known, new]
        while self._count > self._vectors_max:
            _, gone = self._families.popitem(last=False)
            self._count -= len(gone)

    def keep_only(self, keys: Container[bytes]) -> None:
        """Forget all questions but those of these keys."""
        for name, family in [*self._families.items()]:
            left = [each for each in family if each.key in keys]
            self._count -= len(family) - len(left)
            if left:
                self._families[name] = left
            else:
                del self._families[name]


def _newest(tree: Mapping[str, object]) -> tuple[str, dict[str, object]] | None:
    """The newest message's text, and the body with a place holder instead."""
    name = "messages" if "messages" in tree else "input"
    turns = tree.get(name)
    if isinstance(turns, str):
        return turns, {**tree, name: _PLACE}
    if not isinstance(turns, list) or not turns or not isinstance(turns[-1], dict):
        return None
    last: dict[str, object] = turns[-1]
    text = _only_text(last.get("content"))
    if text is None or last.get("role") != "user":
        return None
    return text, {**tree, name: [*turns[:-1], {**last, "content": _PLACE}]}


def _only_text(content: object) -> str | None:
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        part = content[0]
        content = part.get("text") if set(part) == {"type", "text"} else None
        return content if part.get("type") in _TEXT_KINDS and isinstance(content, str) else None
    return content if isinstance(content, str) else None


def _hashed(tokens: Iterable[str]) -> bytes:
    """Tokens in any letters, told apart as this process tells texts apart."""
    return array(_HASH, [hash(token.casefold()) for token in tokens]).tobytes()


def _as_read(text: str) -> str:
    """The text in one writing, without what nobody sees (soft hyphens, spaces of no width)."""
    composed = unicodedata.normalize("NFKC", text)
    return "".join([each for each in composed if unicodedata.category(each) != "Cf"])


def _has_case(text: str) -> bool:
    return all(each.lower() != each.upper() for each in text if each.isalpha())


def _is_anchor(token: str, place: int) -> bool:
    if not token[0].isalnum() and token[0] != "_":
        return token not in _PLAIN
    folded = token.casefold().replace("\u2019", "'")
    is_name = place > 0 and token != token.lower() and folded.split("'")[0] != "i"
    is_negation = folded in _NEGATIONS or folded.endswith("n't")
    has_digits = any(each.isdigit() for each in token)
    return is_name or is_negation or has_digits or is_number(folded)
