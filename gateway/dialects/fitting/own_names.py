"""Names lost or refused fields as they are called in the caller's own dialect.

Between two dialects a field has the hub's name. A caller who sent `stop_sequences` would not look
for `stop`.
"""

from collections.abc import Iterable, Mapping

from gateway.errors import FeatureUnsupported
from gateway.types import ChatRequest


OwnNames = Mapping[str, tuple[str, ...]]
"""The hub's names, or prefixes of them, and what the caller's dialect says instead.

Of several words it is the first that the request has, otherwise the last one.
"""


def own_names(
    lost: Iterable[str], read: Iterable[str], names: OwnNames, request: ChatRequest
) -> tuple[str, ...]:
    """Names of what was lost, each once; those in `read` are the caller's already."""
    kept = frozenset(read)
    own = (name if name in kept else _own(name, names, request) for name in lost)
    return tuple(dict.fromkeys(own))


def own_refusal(
    error: FeatureUnsupported, names: OwnNames, request: ChatRequest
) -> FeatureUnsupported:
    """A refusal that names the field as its caller does, also at the start of its sentence."""
    told = error.parameter or ""
    own = _own(told, names, request)
    if own == told:
        return error
    return FeatureUnsupported(own + error.message.removeprefix(told), parameter=own)


def _own(name: str, names: OwnNames, request: ChatRequest) -> str:
    head = name
    while head:
        if head in names:
            return _said(names[head], request) + name[len(head) :]
        head = head.rpartition(".")[0]
    return name


def _said(words: tuple[str, ...], request: ChatRequest) -> str:
    return next((word for word in words[:-1] if _has(request, word)), words[-1])


def _has(request: ChatRequest, word: str) -> bool:
    """Whether a request has a field: at its top, in an object there, or in any message."""
    first, _, inner = word.partition(".")
    held = request.tree.get(first)
    if isinstance(held, dict):
        return not inner or held.get(inner) is not None
    # In a list it is looked for by its letters: a report is not worth a walk.
    key = word.rpartition(".")[2]
    return (held is not None and not inner) or f'"{key}"'.encode() in request.raw
