"""Counts and masks everything said in an answer's JSON, in one pass and in any field.

No field is skipped because of its name: what an upstream adds tomorrow is read today. Only names of
calls and items, seals, the bytes of images and sounds, and what an answer repeats of its request
are left alone.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

from classifiers.adjoining import ScanText
from classifiers.identifiers import is_name
from classifiers.opaque import is_binary, kind_of_media
from classifiers.pieces import bytes_said, pieces_of
from classifiers.pii.detect import Scan
from classifiers.sealed import is_noise
from gateway.veiling.blocks import key_of, rewritten, said_again, threads_of, words_of
from gateway.veiling.masking import UNREAD, MaskingWindow
from gateway.veiling.rewriting import MAX_DEPTH
from gateway.veiling.wraps import in_wrap


Masking = Callable[[str], MaskingWindow]
Count = Callable[..., None]
_PLAIN: Final = re.compile(r"[a-z_.]{0,48}|[A-Za-z]{0,16}")
"""Short words of a wire format: nothing that has to be hidden looks like this."""
_MARKS: Final = frozenset(
    {
        *("id", "signature", "encrypted_content", "encrypted_index", "encrypted_stdout"),
        *("system_fingerprint", "prompt_cache_key", "obfuscation", "thought_signature"),
    }
)
_ID_END: Final = "_id"
_GUESSES: Final = ("secret/random", "secret/unlisted-prefix")
"""Detectors that recognise a secret only by its random letters; names of things look like that."""
_SEALED_DATA: Final = frozenset({"redacted_thinking", "reasoning.encrypted"})
_BYTES: Final = frozenset({"data", "file_data", "b64_json", "partial_image_b64", "result"})
_MEDIA: Final = frozenset({"image", "audio", "video"})
_ECHOES: Final = frozenset(
    {
        *("tools", "instructions", "input", "metadata", "prompt", "text", "tool_choice", "user"),
        *("safety_identifier", "prompt_cache_key"),
    }
)
"""Names under which a response repeats parts of its request."""
_RESPONSE: Final = "response"
_LONG_NUMBER: Final = 99_999
_LONGEST_FLOAT: Final = 1e20
_MOMENTS: Final = ((10**9, 2 * 10**9), (10**12, 2 * 10**12), (10**18, 2 * 10**18))
"""Seconds, milliseconds and nanoseconds since 1970, from 2001 to 2033."""
_COUNTED, _TOKENS_MAX = "_tokens", 10**9
_KNOWN_MAX: Final = 256
_KNOWN_LENGTH_MAX: Final = 1024


class Harmless:
    """Texts of a stream in which nothing was found; every event repeats some of them."""

    def __init__(self) -> None:
        self._seen: set[object] = set()

    def has(self, said: bytes | tuple[str, bool]) -> bool:
        return said in self._seen

    def add(self, said: bytes | tuple[str, bool]) -> None:
        length = len(said) if isinstance(said, bytes) else len(said[0])
        if length <= _KNOWN_LENGTH_MAX and len(self._seen) < _KNOWN_MAX:
            self._seen.add(said)


class AnswerTree:
    """One answer, or one event of a stream."""

    def __init__(
        self,
        tree: object,
        masking: Masking | None,
        marking: Masking | None,
        count: Count | None = None,
        *,
        asked: Mapping[str, object] | None = None,
        known: Harmless | None = None,
    ) -> None:
        """`marking` masks names of things, which are random letters; `asked` is the request.

        Without `masking` nothing is masked, and without `count` nothing is counted.
        """
        self._tree = tree
        self._masking = masking
        self._marking = marking
        self._count = count
        self._asked = asked or {}
        self._known = known
        threads = threads_of(tree)
        self._in_threads = {id(each) for _, blocks in threads for each in blocks}
        self._shown = {} if masking is None else rewritten(threads, masking)
        if count is not None:
            for _, blocks in threads:
                count(*[words_of(each) for each in blocks if each is not None])

    def shown(self) -> object:
        return self._node(self._tree, "", {}, 0)

    def _node(
        self, node: object, key: str, holder: dict[str, object], depth: int, *, again: bool = False
    ) -> object:
        """What is shown instead of a node; `again` if the request may have contained it.

        What is nested too deeply to be read is not shown.
        """
        if isinstance(node, str):
            return self._text(node, key, holder, again=again)
        if isinstance(node, int | float):
            return self._number(node, key)
        if depth > MAX_DEPTH:
            return node if self._masking is None else UNREAD
        if isinstance(node, dict):
            return self._object(node, depth, again=again)
        if isinstance(node, list):
            said = "".join(pieces_of(node)) or bytes_said(node)
            if said is not None and self._said(said, key) != said:
                return [self._said(said, key)]
            return [self._node(item, key, holder, depth + 1, again=again) for item in node]
        return node

    def _object(self, node: dict[str, object], depth: int, *, again: bool) -> object:
        own = key_of(node) if id(node) in self._in_threads else None
        is_whole = depth <= 1 and node.get("object") == _RESPONSE
        # Masked like everything else, and counted where it first appears.
        twice = frozenset() if self._count is None else frozenset(said_again(node))
        shown: dict[str, object] = {}
        for name, value in node.items():
            if name == own:
                shown[name] = self._shown.get(id(node), value)
                continue
            is_echo = again or (is_whole and name in _ECHOES)
            if name in twice:
                shown[name] = self._text(str(value), name, node, again=is_echo, counts=False)
                continue
            named = name if _PLAIN.fullmatch(name) else self._text(name, "", {}, again=is_echo)
            shown[named] = self._node(value, name, node, depth + 1, again=is_echo)
        return shown

    def _text(
        self,
        text: str,
        key: str,
        holder: dict[str, object],
        *,
        again: bool,
        counts: bool = True,
    ) -> str:
        if _PLAIN.fullmatch(text):
            return text
        is_mark = key in _MARKS or key.endswith(_ID_END)
        is_mark = is_mark or (key == "data" and str(holder.get("type")) in _SEALED_DATA)
        if is_mark and (is_name(text) or is_noise(text)):
            return text
        if is_mark and (opened := self._opened(text, again=again)) is not None:
            return opened
        if _is_bytes(text, key) or (again and text in self._texts_asked):
            return text
        known = self._known
        if known is not None and known.has((text, is_mark)):
            return text
        shown = self._said(text, key, is_mark=is_mark, counts=counts)
        if known is not None and shown == text:
            known.add((text, is_mark))
        return shown

    def _opened(self, text: str, *, again: bool) -> str | None:
        """One of our wraps with its content replaced; None if this is no wrap."""
        found: list[object] = []

        def change(inside: object) -> object:
            found.append(inside)
            return self._node(inside, "", {}, 0, again=again)

        shown = in_wrap(text, change)
        return shown if found else None

    def _number(self, number: float, key: str) -> object:
        """An identifier may also come as a number, even with a point and a zero."""
        if -_LONG_NUMBER <= number <= _LONG_NUMBER or _is_moment(number):
            return number
        if key.endswith(_COUNTED) and 0 <= number <= _TOKENS_MAX:
            return number
        is_whole = abs(number) < _LONGEST_FLOAT and float(number).is_integer()
        written = str(int(number) if is_whole else number)
        shown = self._said(written, key)
        return number if shown == written else shown

    def _said(self, text: str, key: str, *, is_mark: bool = False, counts: bool = True) -> str:
        """A string that stands alone."""
        if self._count is not None and counts:
            self._count(text, is_mark=is_mark)
        masking = self._marking if is_mark else self._masking
        return text if masking is None else masking(key).whole(text)

    @cached_property
    def _texts_asked(self) -> frozenset[str]:
        found: set[str] = set()
        pending: list[object] = [self._asked]
        while pending:
            node = pending.pop()
            if isinstance(node, str):
                found.add(node)
            elif isinstance(node, Mapping):
                pending += (*node, *node.values())
            elif isinstance(node, list):
                pending += node
        return frozenset(found)


def without_guesses(scan: ScanText) -> ScanText:
    """The same scan, but random-looking letters do not count as a secret."""

    def scanned(text: str) -> Scan:
        seen = scan(text)
        sure = tuple(f for f in seen.findings if not f.detector.startswith(_GUESSES))
        return Scan(sure, seen.complete)

    return scanned


def _is_bytes(text: str, key: str) -> bool:
    """Whether it is binary: an image or sound rather than text."""
    if text[:5].lower() == "data:" and ";base64," in text[:200]:
        payload = text.partition(",")[2]
        return is_binary(payload) and kind_of_media(text[5:200], payload) in _MEDIA
    return key in _BYTES and is_binary(text)


def _is_moment(number: float) -> bool:
    return any(first <= number < last for first, last in _MOMENTS)
