"""Remembers which target a conversation used lately: its prompt may still be cached there.

A worker keeps this by hashes only, and only if a policy asks for it. All of it may be lost, at the
price of a cold prompt. Policy decides from facts whether to stay; nothing is decided here.
"""

import hashlib
from collections import OrderedDict

import msgspec
from msgspec import Struct

from gateway.types import ChatRequest, Principal, Usage


KEPT_S = 300.0
"""How long vendors keep a prompt at least after its last use."""
CONVERSATIONS_MAX = 20_000
MESSAGES_MAX = 1_000


class Warm(Struct, frozen=True):
    """Where the beginning of a conversation is cached, and how much of it."""

    target: str = ""
    tokens: int = 0


COLD = Warm()


class Warmth:
    """Remembers conversations by their messages so far."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, tuple[Warm, float]] = OrderedDict()

    def find(self, principal: Principal, request: ChatRequest, now_s: float) -> Warm:
        """The target that answered the longest beginning of these messages, if still recent."""
        for key in reversed(_beginnings(principal, request)):
            known = self._known.get(key)
            if known is not None and now_s < known[1]:
                return known[0]
        return COLD

    def answered(
        self, principal: Principal, request: ChatRequest, target: str, usage: Usage, now_s: float
    ) -> None:
        """Note that a target has just read all messages of this request."""
        keys = _beginnings(principal, request)
        if not keys:
            return
        self._known[keys[-1]] = Warm(target, usage.input_tokens), now_s + KEPT_S
        self._known.move_to_end(keys[-1])
        while len(self._known) > CONVERSATIONS_MAX:
            self._known.popitem(last=False)


def _beginnings(principal: Principal, request: ChatRequest) -> list[bytes]:
    """One hash per message, over everything before it as well; other keys' hashes differ."""
    tree = request.tree
    messages = tree.get("messages", tree.get("input"))
    if not isinstance(messages, list) or len(messages) > MESSAGES_MAX:
        return []
    head: list[object] = [principal.organisation, principal.key_id, request.dialect]
    head += [tree.get(name) for name in ("system", "tools", "instructions")]
    previous = hashlib.blake2b(msgspec.json.encode(head), digest_size=16).digest()
    keys = []
    for message in messages:
        text = msgspec.json.encode(message)
        previous = hashlib.blake2b(text, digest_size=16, key=previous).digest()
        keys.append(previous)
    return keys
