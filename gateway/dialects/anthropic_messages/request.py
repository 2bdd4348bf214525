"""Parses Messages requests; patches their bytes for a target of the same dialect."""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.dialects.anthropic_messages import protocol, thinking, tools
from gateway.dialects.anthropic_messages.caching import FIELD, MARKER, is_worth_caching
from gateway.dialects.anthropic_messages.wire import (
    Block,
    InnerBlock,
    MessagesBody,
    Source,
    TurnWire,
)
from gateway.dialects.bodies import body
from gateway.dialects.bodies.reserved import check_not_reserved
from gateway.dialects.bodies.strict_json import checked, decode_object, invalid
from gateway.dialects.fitting.parameters import MESSAGES_SAMPLING, unfit
from gateway.dialects.fitting.unpriced import leave_out
from gateway.dialects.loss import check_schema_wanted, check_tier_priced, lets_out, unsupported
from gateway.estimate import estimate_input_tokens
from gateway.ports import UpstreamBody
from gateway.types import ChatRequest, Target


_OWN = frozenset({"mcp_servers", *protocol.KEPT_HERE})
"""Judged by their hosts, or left out."""

_REQUIRED_OF_BLOCK = {
    "text": "text",
    "image": "source",
    "document": "source",
    "tool_use": "name",
    "tool_result": "tool_use_id",
    "thinking": "thinking",
}


def decode_request(
    raw: bytes, request_id: str, headers: Sequence[tuple[bytes, bytes]] = ()
) -> ChatRequest:
    """See `ports.Dialect.decode_request`.

    Raises:
        FeatureUnsupported: it names something that the upstream holds; nobody could inspect it.
    """
    return read_request(decode_object(raw), raw, request_id, headers)


def read_request(
    tree: Mapping[str, object],
    raw: bytes,
    request_id: str,
    headers: Sequence[tuple[bytes, bytes]],
) -> ChatRequest:
    """Check a decoded body, and what its headers ask for; raises like the above."""
    if tree.get("thread") is not None:
        raise unsupported("thread", "Send the whole history; threads are not held here", 56)
    check_not_reserved(tree, but=_OWN)
    _check_container(tree.get("container"))
    wire = checked(tree, MessagesBody)
    _check(wire)
    destinations = _tool_servers(tree)
    images, documents, attached_bytes = _attachments(wire.messages, destinations)
    asked = protocol.read_headers(headers)
    about, most = estimate_input_tokens(raw, images, documents, attached_bytes)
    return ChatRequest(
        request_id=request_id,
        dialect="anthropic_messages",
        raw=raw,
        tree=tree,
        model=wire.model,
        stream=bool(wire.stream),
        max_output_tokens=wire.max_tokens,
        wants_stream_usage=True,
        has_tools=bool(wire.tools),
        has_images=images > 0,
        has_documents=documents > 0,
        wants_json_schema=wire.format is not None,
        input_tokens_estimate=about,
        input_tokens_most=most,
        destinations=tuple(destinations),
        version=asked.version,
        betas=asked.betas,
        dropped=asked.dropped + tuple(name for name in protocol.KEPT_HERE if name in tree),
    )


def _check_container(container: object) -> None:
    """A container of earlier turns holds what nobody here has seen; a new one is empty."""
    named = container.get("id") if isinstance(container, dict) else container
    if named:
        raise unsupported("container", "Containers that an upstream holds cannot be inspected", 56)


def _tool_servers(tree: Mapping[str, object]) -> list[tuple[str, str]]:
    """The addresses of `mcp_servers`; one that cannot be read counts as an unknown address."""
    servers = tree.get("mcp_servers")
    if not servers:
        return []
    if not isinstance(servers, list):
        raise invalid("mcp_servers", "A list is expected")
    places = []
    for index, server in enumerate(servers):
        url = server.get("url") if isinstance(server, dict) else None
        places.append((f"mcp_servers[{index}].url", url if isinstance(url, str) else ""))
    return places


def _check(wire: MessagesBody) -> None:
    for index, turn in enumerate(wire.messages):
        if isinstance(turn.content, list):
            for position, block in enumerate(turn.content):
                _check_block(block, f"messages[{index}].content[{position}]")
    for index, tool in enumerate(wire.tools or ()):
        if tool.type in {None, "custom"}:
            if not tool.name:
                raise invalid(f"tools[{index}].name", "This field is required")
            if tool.input_schema is None:
                raise invalid(f"tools[{index}].input_schema", "This field is required")
    choice = wire.tool_choice
    if choice is not None and choice.type == "tool" and not choice.name:
        raise invalid("tool_choice.name", "This field is required")


def _check_block(block: Block, place: str) -> None:
    required = _REQUIRED_OF_BLOCK.get(block.type)
    if required is not None and getattr(block, required) is None:
        raise invalid(f"{place}.{required}", "This field is required")


def _attachments(
    messages: list[TurnWire], destinations: list[tuple[str, str]]
) -> tuple[int, int, int]:
    """Images, documents, and the bytes of both that are inline; including those in tool results.

    Appends the addresses that are named instead.
    """
    images = documents = attached_bytes = 0
    for index, turn in enumerate(messages):
        if isinstance(turn.content, str):
            continue
        blocks: list[tuple[str, Block | InnerBlock]] = []
        for position, block in enumerate(turn.content):
            place = f"messages[{index}].content[{position}]"
            blocks.append((place, block))
            if isinstance(block.content, list):
                inner = enumerate(block.content)
                blocks += ((f"{place}.content[{number}]", each) for number, each in inner)
        for place, any_block in blocks:
            images += any_block.type == "image"
            documents += any_block.type == "document"
            attached_bytes += _inline_bytes(any_block)
            source = any_block.source
            if isinstance(source, Source) and source.url is not None:
                destinations.append((f"{place}.source.url", source.url))
    return images, documents, attached_bytes


def _inline_bytes(block: Block | InnerBlock) -> int:
    source = block.source
    if source is None or isinstance(source, str) or source.type != "base64":
        return 0
    return len(source.data or "")


def patch_request(request: ChatRequest, target: Target, output_tokens_cap: int) -> UpstreamBody:
    """The caller's own bytes with model and output limit set.

    Raises:
        FeatureUnsupported: the model cannot do what is asked.
    """
    place = "output_config.format" if "output_format" not in request.tree else "output_format"
    check_schema_wanted(target, place, is_wanted=request.wants_json_schema)
    check_tier_priced(request, target)
    fields: dict[str, msgspec.Raw | bytes] = dict(body.split(request.raw))
    fields["model"] = msgspec.json.encode(target.model)
    lost = thinking.fit(fields, request.tree, target)
    asked = request.max_output_tokens
    if asked is None or asked > output_tokens_cap:
        fields["max_tokens"] = b"%d" % output_tokens_cap
        lost = lost or thinking.shorten(fields, request.tree, output_tokens_cap)
    if is_worth_caching(request, target):
        fields[FIELD] = MARKER
    left_out = leave_out(fields, request, target)
    left_out += tools.leave_to_the_model(fields, request.tree, target)
    misfits = unfit(request.tree, target, MESSAGES_SAMPLING, reasons=True)
    for name in misfits.fields:
        del fields[name]
    dropped = left_out + request.dropped + misfits.dropped + lost
    if lets_out(request, target):
        del fields["inference_geo"]
        dropped += ("inference_geo",)
    for name in protocol.KEPT_HERE:
        # Which models may answer is the decision's to say, not the request's.
        fields.pop(name, None)
    if thinking.may_be_foreign(request.raw):
        own = thinking.without_foreign(bytes(fields["messages"]))
        if own is not None:
            fields["messages"] = own
            dropped += (thinking.LOST,)
            if thinking.needs_earlier(request.tree):
                fields.pop("thinking", None)
                dropped += ("thinking",)
    return UpstreamBody(body.join(fields), dropped, is_less=bool(left_out))
