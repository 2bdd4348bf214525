"""Complete (non-streamed) responses: reads an upstream's, and writes ours."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from gateway.admission.half_pairs import paired
from gateway.conversation import PART_SEAM
from gateway.dialects.bodies import body
from gateway.dialects.figures import read_figures, written_in_all
from gateway.dialects.fitting.naming import made_at
from gateway.dialects.fitting.text_tools import text_as_arguments, text_of
from gateway.dialects.openai_chat.reply import served_tier, told_tier
from gateway.dialects.openai_responses import built_in
from gateway.dialects.openai_responses.foreign import is_text_call, item_of, searches_in, written_in
from gateway.dialects.openai_responses.marks import wrapped_block, wrapped_item
from gateway.dialects.openai_responses.tools import Called
from gateway.dialects.openai_responses.wire import Item, Part, Reply, UsageWire
from gateway.dialects.token_odds import Token, asks_odds, in_chat, whole
from gateway.errors import UpstreamFailed, UpstreamMalformed
from gateway.estimate import estimate_written_tokens
from gateway.money.budgets import NAMING_USERS
from gateway.thread import Thread
from gateway.types import ChatRequest, Completion, Delta, ToolCall, Usage


INCOMPLETE = {
    "length": "max_output_tokens",
    "pause": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Why an answer is incomplete; a caller who took a filtered one as complete would go on with half
of it."""
_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}
UNANSWERED = frozenset({"failed", "cancelled"})
_ECHOED: Mapping[str, object] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": None,
    "temperature": None,
    "text": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": None,
    "user": None,
}

Json = dict[str, object]

_REPLY = msgspec.json.Decoder(Reply)


class _Standing(Struct):
    status: object = None


_STANDING = msgspec.json.Decoder(_Standing)


def decode_reply(raw: bytes) -> Completion:
    """See `ports.Dialect.decode_reply`."""
    raw = paired(raw)
    try:
        wire = _REPLY.decode(raw)
        items = [item_of(each) for each in wire.output]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamMalformed("The upstream's answer is not a response.") from error
    if wire.status in UNANSWERED:
        failed = UpstreamFailed("The upstream failed to answer.")
        failed.counted = usage_of(wire)
        raise failed
    parts = [part for item in items for part in _parts(item)]
    refusal = "".join(part.refusal or "" for part in parts if part.type == "refusal")
    calls = tuple(call for item in items for call in _calls(item))
    is_called = any(not call.is_text for call in calls)
    return Completion(
        raw=raw,
        message_id=wire.id or "",
        model=wire.model or "",
        text="".join(part.text or "" for part in parts if part.type == "output_text"),
        tool_calls=calls,
        stop_reason=stop_reason(wire, has_calls=is_called, is_refused=bool(refusal)),
        stop_sequence=None,
        usage=usage_of(wire) or _estimated(items, wire.output),
        thinking=tuple(filter(_says_something, map(_thought, items))),
        refusal=refusal,
        is_repeatable=is_repeatable(wire, is_refused=bool(refusal)),
    )


def stop_reason(wire: Reply, *, has_calls: bool, is_refused: bool) -> str:
    """Why an answer ended, in the hub's words."""
    if is_refused:
        return "content_filter"
    if wire.status == "incomplete":
        reason = wire.incomplete_details.reason if wire.incomplete_details is not None else None
        return _REASONS.get(reason or "", "length")
    return "tool_use" if has_calls else "end"


def is_repeatable(wire: Reply, *, is_refused: bool) -> bool:
    """As in `Completion`."""
    reason = wire.incomplete_details.reason if wire.incomplete_details is not None else None
    is_cut = wire.status == "incomplete" and _REASONS.get(reason or "") == "length"
    return not is_refused and (is_cut or wire.status == "completed")


def _parts(item: Item) -> list[Part]:
    return _parts_of(item) if item.type == "message" else []


def _parts_of(item: Item) -> list[Part]:
    return item.content if isinstance(item.content, list) else []


def _calls(item: Item) -> tuple[ToolCall, ...]:
    if is_text_call(item):
        arguments = text_as_arguments(item.input or "")
        return (ToolCall(item.call_id or "", item.name or "", arguments, is_text=True),)
    if item.type != "function_call":
        return ()
    if not item.call_id or not item.name:
        raise UpstreamMalformed("The upstream called a tool without a name or an id.")
    return (ToolCall(item.call_id, item.name, item.arguments or ""),)


def _thought(item: Item) -> Delta:
    """The thinking, as a summary or, from compatible servers, in full."""
    if item.type != "reasoning":
        return Delta("thinking")
    text = PART_SEAM.join(each.text for each in item.summary or ())
    text += "".join(part.text or "" for part in _parts_of(item))
    return Delta("thinking", text, redacted=wrapped_item(item))


def _says_something(thought: Delta) -> bool:
    return bool(thought.text or thought.redacted)


def usage_of(reply: Reply) -> Usage | None:
    """None if the upstream counted nothing; its cached tokens are part of the input."""
    wire, is_sound = read_figures(reply.usage, UsageWire)
    if wire.input_tokens is None and wire.output_tokens is None:
        return None
    read, written = wire.input_tokens_details, wire.output_tokens_details
    reasoning = (written.reasoning_tokens or 0) if written is not None else 0
    input_tokens, output_tokens = wire.input_tokens or 0, wire.output_tokens or 0
    return Usage(
        input_tokens=input_tokens,
        output_tokens=written_in_all(input_tokens, output_tokens, reasoning, wire.total_tokens),
        cache_read_tokens=(read.cached_tokens or 0) if read is not None else 0,
        cache_write_tokens=read.written_for_short if read is not None else 0,
        cache_write_1h_tokens=read.written_for_long if read is not None else 0,
        reasoning_tokens=reasoning,
        estimated=not is_sound,
        service_tier=served_tier(reply.service_tier),
        web_searches=sum(map(searches_in, reply.output)),
    )


def _estimated(items: Iterable[Item], output: Sequence[msgspec.Raw]) -> Usage:
    texts: list[str | None] = []
    for item in items:
        texts += (item.name, item.arguments)
        texts += [part.text or part.refusal for part in _parts_of(item)]
        texts += [part.text for part in item.summary or ()]
    texts += map(written_in, output)
    return Usage(
        output_tokens=estimate_written_tokens(texts),
        estimated=True,
        web_searches=sum(map(searches_in, output)),
    )


def own_fields(request: ChatRequest) -> dict[str, bytes | None]:
    """The fields of a response that are ours whoever made it: its id, and where it is stored."""
    thread = request.thread
    assert thread is not None
    own: dict[str, bytes | None] = {
        "id": msgspec.json.encode(response_id(request)),
        "previous_response_id": msgspec.json.encode(thread.previous_id or None),
        "store": b"true" if thread.keeps else b"false",
    }
    if thread.conversation_id:
        own["conversation"] = msgspec.json.encode(_conversation_said(thread))
    own["background"] = b"true" if thread.background else b"false"
    if request.end_user:
        own |= {name: msgspec.json.encode(value) for name, value in _naming(request).items()}
    return own


def _naming(request: ChatRequest) -> Json:
    """Fields that say whose it is: used to find kept answers when an end user is erased."""
    return {name: value for name, value in request.tree.items() if name in NAMING_USERS}


def _conversation_said(thread: Thread) -> Json | None:
    """The conversation to which the answer is added; None without one."""
    return {"id": thread.conversation_id} if thread.adds else None


def response_id(request: ChatRequest) -> str:
    """The id under which it is kept here, or this request's own id, which leads nowhere."""
    thread = request.thread
    kept = thread.answer_id if thread is not None else ""
    return kept or "resp_" + request.request_id.removeprefix("req_")


def status_at_end(response: bytes, *, is_cut: bool = False) -> bytes:
    """How an answer that has arrived in full ended; no other words of an upstream are passed on.

    `is_cut` if the stream in which it came says so.
    """
    is_cut = is_cut or _STANDING.decode(response).status == "incomplete"
    return b'"incomplete"' if is_cut else b'"completed"'


def patched(completion: Completion, request: ChatRequest) -> bytes:
    """The upstream's own bytes with our id, and our estimate if it counted nothing."""
    changes = own_fields(request)
    changes["status"] = status_at_end(completion.raw)
    if completion.usage.estimated:
        changes["usage"] = msgspec.json.encode(encode_usage(completion.usage))
    return body.patch(completion.raw, changes)


def encode_reply(
    completion: Completion, request: ChatRequest, names: Mapping[str, Called]
) -> bytes:
    """An answer of another dialect as a response."""
    output: list[Json] = []
    for delta in completion.thinking:
        output.append(reasoning_item(request, len(output), delta))
    parts: list[Json] = []
    if completion.text:
        tokens = in_chat(completion.raw) if asks_odds(request.tree) else ()
        parts.append(text_part(completion.text, tokens))
    if completion.refusal:
        parts.append({"type": "refusal", "refusal": completion.refusal})
    for part in parts:
        output.append(message_item(request, len(output), [part]))
    for call in completion.tool_calls:
        called = names.get(call.name) or Called(call.name)
        if call.is_text and not called.is_custom:
            continue
        output.append(
            call_item(request, len(output), (call.tool_id, called), call.arguments_json or "{}")
        )
    stop = ended(completion.stop_reason, is_refused=bool(completion.refusal))
    response = response_object(request, completion.model, stop)
    response |= {"output": output, **counted(completion.usage)}
    return msgspec.json.encode(response)


def ended(stop: str, *, is_refused: bool) -> str:
    """Why an answer ended, in a response's words: a refusal in words is a complete answer."""
    return "end" if is_refused and stop == "content_filter" else stop


def response_object(request: ChatRequest, model: str, stop: str | None) -> Json:
    """A response without its output; `stop` is None while it is still being made."""
    thread = request.thread
    assert thread is not None
    tree = request.tree
    reason = INCOMPLETE.get(stop or "")
    status = "in_progress" if stop is None else "incomplete" if reason else "completed"
    response: Json = {
        "id": response_id(request),
        "object": "response",
        "created_at": float(made_at(request.request_id)),
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "model": model or request.model,
        "output": [],
        "previous_response_id": thread.previous_id or None,
        # The tier that serves, never the one that was asked for: see `counted`.
        "service_tier": None,
        "store": thread.keeps,
        "usage": None,
    }
    for name, default in _ECHOED.items():
        value = tree.get(name)
        response[name] = default if value is None else value
    if thread.conversation_id:
        response["conversation"] = _conversation_said(thread)
    if thread.background:
        response["background"] = True
    if request.end_user:
        response |= _naming(request)
    return response


def item_id(request: ChatRequest, prefix: str, index: int) -> str:
    return f"{prefix}_{request.request_id.removeprefix('req_')}_{index}"


def text_part(text: str, tokens: Iterable[Token] = ()) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": whole(tokens)}


def message_item(
    request: ChatRequest, index: int, parts: list[Json], status: str = "completed"
) -> Json:
    return {
        "id": item_id(request, "msg", index),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": parts,
    }


def call_item(
    request: ChatRequest,
    index: int,
    called: tuple[str, Called],
    arguments: str,
    status: str = "completed",
) -> Json:
    """`called` is the id that results refer to, and the tool."""
    call_id, tool = called
    if tool.is_built_in:
        item: Json = {"id": item_id(request, built_in.PREFIXES[tool.kind], index)}
        item |= {"type": f"{tool.kind}_call", "call_id": call_id}
        return item | built_in.call_fields(tool.kind, arguments)
    named = (
        {"name": tool.name, "namespace": tool.namespace} if tool.namespace else {"name": tool.name}
    )
    if tool.is_custom:
        return {
            "id": item_id(request, "ctc", index),
            "type": "custom_tool_call",
            "call_id": call_id,
            **named,
            "input": text_of(arguments),
        }
    return {
        "id": item_id(request, "fc", index),
        "type": "function_call",
        "call_id": call_id,
        **named,
        "arguments": arguments,
        "status": status,
    }


def reasoning_item(request: ChatRequest, index: int, thought: Delta) -> Json:
    summary = [{"type": "summary_text", "text": thought.text}] if thought.text else []
    return {
        "id": item_id(request, "rs", index),
        "type": "reasoning",
        "summary": summary,
        "encrypted_content": wrapped_block(thought),
    }


def counted(usage: Usage) -> Json:
    """The fields at the end of a response about its making: usage, and the tier that served it."""
    tier = told_tier(usage)
    return {"usage": encode_usage(usage), **({"service_tier": tier} if tier else {})}


def encode_usage(usage: Usage) -> Json:
    """Usage in this dialect's words, in which the input's count includes cached parts."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens + usage.cache_write_1h_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
