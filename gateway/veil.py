"""What `pseudonymise` and `redact` oblige to: a request without values, an answer with them.

The veiled request is what every target gets; the audit keeps the caller's own. Answers and streams
are unveiled on their way back, inside tool arguments too.
"""

from collections.abc import Iterable, Mapping

import msgspec

from classifiers.extraction import extract
from gateway.errors import ClosedByPolicy
from gateway.ports import Dialect
from gateway.redaction import (
    Pseudonyms,
    Restorer,
    conversation_key,
    in_json,
    pseudonyms,
    replaced,
    still_said,
)
from gateway.types import ChatRequest, Delta, StreamEvent


_CONTENT = frozenset({"text", "thinking", "refusal", "tool_arguments"})
_DATA = b"data:"
_NOT_VEILED = "Something in the request cannot be given a pseudonym, so it does not leave."
_MAX_DEPTH = 64


class Veil(msgspec.Struct, frozen=True):
    """The request as it leaves, and how to read what comes back."""

    request: ChatRequest
    names: Pseudonyms

    def unveiled(self, raw: bytes) -> bytes:
        """A whole answer's body with the values in it; anything but JSON stays as it is."""
        if not self.names.values:
            return raw
        try:
            tree = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return raw
        return msgspec.json.encode(_restored(tree, self.names, 0))

    def lifted(self) -> "StreamLift":
        return StreamLift(self.names)


def veiled(
    request: ChatRequest,
    headers: list[tuple[bytes, bytes]],
    dialect: Dialect,
    found: Iterable[tuple[str, str]],
    tenant_key: bytes,
    *,
    one_way: bool,
) -> Veil:
    """The request with a surrogate for every (label, value); `one_way` blackens instead.

    Raises:
        ClosedByPolicy: a value is still there afterwards; nothing may leave.
    """
    extraction = extract(request.tree)
    texts = [segment.text for segment in extraction.segments]
    # The first message names the conversation: every turn repeats it.
    first = next((unit.text for unit, _ in extraction.units()), "")
    names = pseudonyms(conversation_key(tenant_key, first), found, texts, one_way=one_way)
    tree = replaced(dict(request.tree), names)
    if still_said(tree, names):
        raise ClosedByPolicy(_NOT_VEILED)
    changed = dialect.decode_request(msgspec.json.encode(tree), request.request_id, headers)
    return Veil(
        msgspec.structs.replace(changed, thread=request.thread, end_user=request.end_user), names
    )


def _restored(node: object, names: Pseudonyms, depth: int) -> object:
    """A JSON tree with values back in all of its strings."""
    if isinstance(node, str):
        is_json = node[:1] in {"{", "["}
        restorer = Restorer(names, in_json) if is_json else Restorer(names)
        return restorer.feed(node) + restorer.flush()
    if depth > _MAX_DEPTH:
        return node
    if isinstance(node, dict):
        return {key: _restored(value, names, depth + 1) for key, value in node.items()}
    if isinstance(node, list):
        return [_restored(item, names, depth + 1) for item in node]
    return node


class StreamLift:
    """Lifts the veil from a stream: one restorer for the text, one for each tool call."""

    def __init__(self, names: Pseudonyms) -> None:
        self._names = names
        self._channels: dict[tuple[str, int], Restorer] = {}
        self._last: dict[tuple[str, int], StreamEvent] = {}

    def events(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        """The events with values; an event that is complete comes after all that was held back."""
        out: list[StreamEvent] = []
        for event in events:
            channels = {_channel(d) for d in event.deltas if d.kind in _CONTENT and d.text}
            if not _is_ping(event):
                out += self._flushed(keep=frozenset(channels))
            out.append(self._lifted(event))
        return out

    def _lifted(self, event: StreamEvent) -> StreamEvent:
        changes: dict[str, str] = {}
        deltas: list[Delta] = []
        for delta in event.deltas:
            if delta.kind not in _CONTENT or not delta.text:
                deltas.append(delta)
                continue
            channel = _channel(delta)
            restorer = self._channels.get(channel) or self._opened(channel)
            text = restorer.feed(delta.text)
            if event.is_closing or event.is_terminal:
                text += restorer.flush()
            self._last[channel] = event
            changes[delta.text] = text
            deltas.append(msgspec.structs.replace(delta, text=text))
        if not changes and self._names.values:
            # An event that repeats what was said, as the last ones of some dialects do.
            return self._repeated(event)
        if all(before == after for before, after in changes.items()):
            return event
        return msgspec.structs.replace(
            event, raw=_with_texts(event.raw, changes), deltas=tuple(deltas)
        )

    def _repeated(self, event: StreamEvent) -> StreamEvent:
        lines = event.raw.split(b"\n")
        for at, line in enumerate(lines):
            if not line.startswith(_DATA):
                continue
            try:
                tree = msgspec.json.decode(line[len(_DATA) :])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            restored = _restored(tree, self._names, 0)
            if restored != tree:
                lines[at] = _DATA + b" " + msgspec.json.encode(restored)
        return msgspec.structs.replace(event, raw=b"\n".join(lines))

    def _opened(self, channel: tuple[str, int]) -> Restorer:
        is_json = channel[0] == "tool_arguments"
        restorer = Restorer(self._names, in_json) if is_json else Restorer(self._names)
        self._channels[channel] = restorer
        return restorer

    def _flushed(self, keep: frozenset[tuple[str, int]]) -> list[StreamEvent]:
        """What other channels held back, each as an event like their last one."""
        out = []
        for channel in [c for c in self._channels if c not in keep]:
            text = self._channels.pop(channel).flush()
            event = self._last.pop(channel, None)
            if not text or event is None:
                continue
            old = next(d for d in event.deltas if _channel(d) == channel and d.text)
            delta = msgspec.structs.replace(old, text=text)
            raw = _with_texts(event.raw, {old.text: text})
            out.append(msgspec.structs.replace(event, raw=raw, deltas=(delta,)))
        return out


def _is_ping(event: StreamEvent) -> bool:
    """Something that says nothing and may come in the middle of a word."""
    return not event.deltas and (b"ping" in event.raw[:32] or event.raw[:1] == b":")


def _channel(delta: Delta) -> tuple[str, int]:
    return delta.kind, delta.index


def _with_texts(raw: bytes, changes: Mapping[str, str]) -> bytes:
    """A server-sent event whose JSON says other texts."""
    lines = raw.split(b"\n")
    for at, line in enumerate(lines):
        if line.startswith(_DATA):
            try:
                tree = msgspec.json.decode(line[len(_DATA) :])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            changed = _changed(tree, changes, "")
            lines[at] = _DATA + b" " + msgspec.json.encode(changed)
    return b"\n".join(lines)


_TEXT_KEYS = frozenset({"content", "text", "arguments", "partial_json", "refusal", "thinking"})
_TEXT_KEYS |= {"delta", "reasoning_content", "reasoning"}


def _changed(node: object, changes: Mapping[str, str], key: str) -> object:
    if isinstance(node, str):
        return changes.get(node, node) if key in _TEXT_KEYS else node
    if isinstance(node, dict):
        return {name: _changed(value, changes, str(name)) for name, value in node.items()}
    if isinstance(node, list):
        return [_changed(item, changes, key) for item in node]
    return node
