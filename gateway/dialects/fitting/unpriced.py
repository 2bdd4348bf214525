"""Tools without a price at a target of the caller's own dialect: refused, or left out.

If an administrator allows a target to leave out unpriced tools, they are removed, whoever would
have run them. Every other byte stays as it was, so that an upstream's prompt cache sees the same
prefix.
"""

from collections.abc import Collection, Mapping

import msgspec

from gateway.admission.bounds import tools_brought
from gateway.admission.hosted_tools import (
    NO_PRICE,
    Offered,
    is_unpriced,
    kind_of,
    unpriced_tools,
)
from gateway.dialects.bodies import body
from gateway.dialects.loss import unsupported
from gateway.price import Price
from gateway.types import ChatRequest, Target


_ABOUT_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
"""Fields that upstreams refuse in a request without tools."""
_HOLDERS = frozenset({"namespace", "additional_tools"})
"""Containers of tools, which are nothing without them."""
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def leave_out(
    fields: dict[str, msgspec.Raw | bytes], request: ChatRequest, target: Target
) -> tuple[str, ...]:
    """Remove unpriced tools from a request's fields; returns how each is reported.

    Raises:
        FeatureUnsupported: the target is not set to allow that, or the caller insists on one.
    """
    unpriced = unpriced_tools(request, target)
    if not unpriced:
        return ()
    tree, price = request.tree, target.price
    if not target.leaves_out_hosted:
        raise unsupported(unpriced[0].place, NO_PRICE, 19)
    is_none_left = _is_none_left(tree, unpriced)
    if _is_insisted_on(tree.get("tool_choice"), unpriced, price, is_none_left=is_none_left):
        raise unsupported("tool_choice", NO_PRICE, 19)
    for name in ("tools", "input"):
        listed = tree.get(name)
        if isinstance(listed, list):
            fields[name] = _thinned(fields[name], listed, price, are_tools=name == "tools")
    gone = [each.place for each in unpriced if each.is_field]
    if is_none_left:
        gone += _ABOUT_TOOLS
    elif fields.get("tools") == b"[]":
        gone.append("tools")
    for name in gone:
        fields.pop(name, None)
    return tuple(dict.fromkeys(each.told_as for each in unpriced))


def _thinned(
    raw: msgspec.Raw | bytes, listed: list[object], price: Price, *, are_tools: bool
) -> bytes:
    """A list of tools, or of their possible containers, without those that have no price."""
    kept: list[bytes] = []
    for own, member in zip(_LIST.decode(raw), listed, strict=True):
        about = member if isinstance(member, dict) else {}
        kind, inner = about.get("type"), about.get("tools")
        if are_tools and is_unpriced(kind_of(member), price):
            continue
        if not isinstance(inner, list):
            kept.append(bytes(own))
            continue
        left = _thinned(body.split(bytes(own))["tools"], inner, price, are_tools=True)
        if left != b"[]" or kind not in _HOLDERS:
            kept.append(body.patch(bytes(own), {"tools": left}))
    return b"[" + b",".join(kept) + b"]"


def _is_insisted_on(
    choice: object, unpriced: Collection[Offered], price: Price, *, is_none_left: bool
) -> bool:
    """Whether a call of one of them is required, or any call if no tool is left."""
    if not isinstance(choice, dict):
        return choice == "required" and is_none_left
    kind = choice.get("type")
    if kind == "any":
        return is_none_left
    if kind == "tool":
        return choice.get("name") in [each.tool.get("name") for each in unpriced]
    types = [each.tool.get("type") for each in unpriced]
    if kind != "allowed_tools":
        return kind in types or is_unpriced(kind, price)
    # Chat completions have one more level.
    inner = choice.get("allowed_tools", choice)
    listed = inner.get("tools") if isinstance(inner, dict) else None
    named = [
        each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, dict)
    ]
    return any(each.get("type") in types or is_unpriced(each.get("type"), price) for each in named)


def _is_none_left(tree: Mapping[str, object], unpriced: Collection[Offered]) -> bool:
    """Whether no tool stays; a mere container of tools does not count."""
    own = tree.get("tools")
    offered = [*(own if isinstance(own, list) else ()), *tools_brought(tree)]
    held = [
        each for each in offered if not (isinstance(each, dict) and each.get("type") == "namespace")
    ]
    return len(held) <= sum(not each.is_field for each in unpriced)
