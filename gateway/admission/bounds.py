"""Limits on the contents of one request: counts of messages, tools, values, attachments.

The body's size alone does not bound the work: ten megabytes can hold three million lists.
"""

from collections.abc import Mapping

import msgspec

from gateway.configuration.settings import Limits
from gateway.errors import ContextTooLong, RequestInvalid
from gateway.types import ChatRequest


VALUE_BYTES = 2
"""An element of a list and what separates it from the next."""

_TURNS = ("messages", "input")
_TOOLS = ("tools", "functions")
"""Chat completions know both; the second is the older word."""
CHOICES = frozenset({"n", "best_of"})
"""How many answers are made to each prompt; compatible servers know the second one."""
_COUNTED = CHOICES.union(_TURNS, _TOOLS, ("prompt",))
_ATTACHED = frozenset(
    {
        *("image", "image_url", "input_image", "computer_screenshot"),
        *("document", "file", "input_file"),
    }
)


def check_values(raw: bytes, most: int) -> None:
    """Refuse a body with more keys and elements of lists than that, before it is parsed.

    Nothing else runs in a worker while a body is parsed, and of ten megabytes of lists that would
    be some seconds. What is no JSON is parsed up to its flaw, and up to there it is counted.

    Raises:
        RequestInvalid
    """
    # Most bodies are too short for too many, and of most others a look at each byte is enough.
    if len(raw) > VALUE_BYTES * most and _marks_of(raw) > most and _holds_more(raw, most):
        reason = f"The body holds more than {most} keys and elements of lists."
        raise RequestInvalid(reason, parameter="$")


def _marks_of(text: bytes) -> int:
    """At least as many as values: each stands behind one, and in texts there are some as well."""
    return len(text) - len(text.translate(None, b",[{"))


def _holds_more(raw: bytes, most: int) -> bool:
    """The same without those in texts; each text is a value, or the key of one."""
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    is_full_of_texts = plain.count(b'"') > 4 * most
    return is_full_of_texts or _marks_of(b" ".join(plain.split(b'"')[::2])) > most


def check_bounds(request: ChatRequest, limits: Limits) -> None:
    """Refuse a request that holds more of something than any honest one does.

    Raises:
        RequestInvalid: with the path of what is too much, and how much there may be.
        ContextTooLong: no model of today reads that much.
    """
    tree = request.tree
    for name, value in tree.items():
        if name in _COUNTED:
            _check_count(name, value, limits)
    if request.has_tools and (brought := tools_brought(tree)):
        own = tree.get("tools")
        brought += own if isinstance(own, list) else ()
        _check_length("tools", brought, limits.tools_max)
    if request.has_images or request.has_documents:
        _check_attachments(request, limits.attachments_max)
    if len(request.raw) > limits.schema_bytes_max:
        _check_schemas(request, limits.schema_bytes_max)
    if request.input_tokens_estimate > limits.input_tokens_max:
        raise ContextTooLong(
            f"The input is about {request.input_tokens_estimate} tokens long; "
            f"{limits.input_tokens_max} are possible here."
        )


def answers_of(request: ChatRequest) -> int:
    """How many answers are made, and so paid for: of `best_of` the caller sees but the best."""
    if CHOICES.isdisjoint(request.tree):
        return request.prompts
    counts = [request.tree.get(name) for name in CHOICES]
    return request.prompts * max([1, *(count for count in counts if isinstance(count, int))])


def _check_count(name: str, value: object, limits: Limits) -> None:
    if name in CHOICES:
        _check_choices(name, value, limits.choices_max)
    elif name in _TURNS:
        _check_length(name, value, limits.messages_max)
    elif name in _TOOLS:
        _check_length(name, value, limits.tools_max)
    else:
        _check_length(name, value, limits.prompts_max)


def _check_length(place: str, value: object, most: int) -> None:
    if isinstance(value, list) and len(value) > most:
        raise _too_many(place, most)


def tools_brought(tree: Mapping[str, object]) -> list[object]:
    """Tools that are not the request's own: those that items bring, and those in namespaces."""
    pending = [*_with_tools(tree.get("tools")), *_with_tools(tree.get("input"))]
    found: list[object] = []
    while pending:
        tools = pending.pop()["tools"]
        if isinstance(tools, list):
            found += tools
            pending += _with_tools(tools)
    return found


def _with_tools(listed: object) -> list[dict[str, object]]:
    return [
        each
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and "tools" in each
    ]


def _check_choices(name: str, choices: object, most: int) -> None:
    """Nothing that only some upstreams take for a number: what they would make is paid for."""
    if choices is None:
        return
    if not isinstance(choices, int) or isinstance(choices, bool):
        raise RequestInvalid(f"{name}: Expected a whole number.", parameter=name)
    if choices > most:
        raise _too_many(name, most)


def _too_many(place: str, most: int) -> RequestInvalid:
    return RequestInvalid(f"{place}: At most {most} are possible here.", parameter=place)


def _check_attachments(request: ChatRequest, most: int) -> None:
    """Images and documents, those in tool results too."""
    count = 0
    for name in _TURNS:
        turns = request.tree.get(name)
        for index, turn in enumerate(turns if isinstance(turns, list) else ()):
            count += _attachments_of(turn)
            if count > most:
                raise _too_many(f"{name}[{index}].content", most)


def _attachments_of(turn: object) -> int:
    count, pending = 0, [turn]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            kind = node.get("type")
            count += isinstance(kind, str) and kind in _ATTACHED
            pending += (node.get("content"), node.get("output"))
    return count


def _check_schemas(request: ChatRequest, most_bytes: int) -> None:
    """Schemas of tools and answers, which become grammars upstream: not the size of a book."""
    for name in (*_TOOLS, "response_format", "output_config", "output_format", "text"):
        value = request.tree.get(name)
        for index, each in enumerate(value if isinstance(value, list) else (value,)):
            if each is not None and len(msgspec.json.encode(each)) > most_bytes:
                raise _too_long(f"{name}[{index}]" if isinstance(value, list) else name, most_bytes)
    for each in tools_brought(request.tree) if request.has_tools else ():
        if len(msgspec.json.encode(each)) > most_bytes:
            raise _too_long("tools", most_bytes)


def _too_long(place: str, most_bytes: int) -> RequestInvalid:
    return RequestInvalid(f"{place}: Longer than {most_bytes} bytes.", parameter=place)
