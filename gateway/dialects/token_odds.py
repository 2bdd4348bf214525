"""Token probabilities (logprobs) of an answer, in both of OpenAI's chat dialects.

They are read from the upstream's answer after output masking: probabilities repeat the answer's
text, so they are removed along with it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from gateway.conversation import Odds
from gateway.dialects import sse
from gateway.dialects.fitting.parameters import check_odds
from gateway.dialects.loss import unsupported
from gateway.types import Target


INCLUDED: Final = "message.output_text.logprobs"
"""The value of `include` by which responses ask for them."""


class Rival(Struct, frozen=True):
    """A token that was nearly chosen."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class Token(Rival, frozen=True, kw_only=True):
    top_logprobs: list[Rival] | None = None
    """Some servers send null if there are none."""


class _Told(Struct):
    content: list[Token] | None = None


class _Choice(Struct):
    logprobs: _Told | None = None


class _Chat(Struct):
    """A whole chat completion, or a chunk of one."""

    choices: list[_Choice]


class _Part(Struct):
    logprobs: list[Token] | None = None


class _Item(Struct):
    content: list[_Part] | None = None


class _Response(Struct):
    output: list[_Item]


class _End(Struct):
    """The last event of a response's stream."""

    response: _Response


_CHAT = msgspec.json.Decoder(_Chat)
_RESPONSE = msgspec.json.Decoder(_Response)
_PART = msgspec.json.Decoder(_Part)
_END = msgspec.json.Decoder(_End)


def odds_of_chat(tree: Mapping[str, object]) -> Odds | None:
    """What a chat asks for; `top_logprobs` alone asks for nothing that its vendor would send.

    Raises:
        FeatureUnsupported: only that is set.
    """
    beside = tree.get("top_logprobs")
    if tree.get("logprobs"):
        return Odds("logprobs", beside if isinstance(beside, int) else 0)
    if beside:
        raise unsupported("top_logprobs", "It goes with logprobs, which is not asked for", 24)
    return None


def odds_of_response(include: Iterable[str] | None, beside: int | None) -> Odds | None:
    """What a response asks for."""
    if INCLUDED in (include or ()):
        return Odds("include", beside or 0)
    return Odds("top_logprobs", beside) if beside else None


def asks_odds(tree: Mapping[str, object]) -> bool:
    """Whether a response was asked for them."""
    include, beside = tree.get("include"), tree.get("top_logprobs")
    return bool(beside) or (isinstance(include, list) and INCLUDED in include)


def told_to_chat(odds: Odds | None, target: Target, *, reasons: bool) -> dict[str, object]:
    """The fields that ask a chat completion for them.

    Raises:
        FeatureUnsupported: the model gives none.
    """
    if odds is None:
        return {}
    check_odds(target, odds.place, reasons=reasons)
    beside = {"top_logprobs": odds.beside} if odds.beside else {}
    return {"logprobs": True, **beside}


def told_to_response(odds: Odds | None, target: Target, *, reasons: bool) -> int | None:
    """How many alternatives for each token a response is asked for; None for no odds at all.

    Raises:
        FeatureUnsupported: the model gives none.
    """
    if odds is None:
        return None
    check_odds(target, odds.place, reasons=reasons)
    return odds.beside


def in_chat(raw: bytes) -> list[Token]:
    """From a complete chat completion, or a chunk; unreadable ones count as missing."""
    try:
        told = [choice.logprobs for choice in _CHAT.decode(raw).choices]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return [token for each in told if each is not None for token in each.content or ()]


def in_response(raw: bytes) -> list[Token]:
    """From a complete response."""
    try:
        return _said_in(_RESPONSE.decode(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def in_end(event: bytes) -> list[Token]:
    """From the event that ends a response's stream and repeats all of it."""
    try:
        return _said_in(_END.decode(_data_of(event)).response)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def _said_in(response: _Response) -> list[Token]:
    parts = [part for item in response.output for part in item.content or ()]
    return [token for part in parts for token in part.logprobs or ()]


def in_chunk(event: bytes) -> list[Token]:
    """From a server-sent event of a chat."""
    return in_chat(_data_of(event))


def in_piece(event: bytes) -> list[Token]:
    """From a server-sent event of a response with a piece of its words."""
    try:
        return _PART.decode(_data_of(event)).logprobs or []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def _data_of(event: bytes) -> bytes:
    found = sse.Splitter().feed(event)
    return (found[0].data or b"") if found else b""


def whole(tokens: Iterable[Token]) -> list[dict[str, object]]:
    """As a complete answer gives them, in either dialect; a response needs the bytes of each."""
    return [
        _rival(token) | {"top_logprobs": [_rival(each) for each in token.top_logprobs or ()]}
        for token in tokens
    ]


def _rival(token: Rival) -> dict[str, object]:
    letters = [*token.token.encode()] if token.bytes is None else token.bytes
    return {"token": token.token, "logprob": token.logprob, "bytes": letters}


def in_pieces(tokens: Iterable[Token]) -> list[dict[str, object]]:
    """As an event of a response gives them: without bytes."""
    return [
        {
            "token": token.token,
            "logprob": token.logprob,
            "top_logprobs": [
                {"token": each.token, "logprob": each.logprob} for each in token.top_logprobs or ()
            ],
        }
        for token in tokens
    ]
