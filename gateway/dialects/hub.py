"""Finds the reader for each dialect, so that an adapter can convert other dialects' requests."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, structs

from gateway.conversation import Conversation, ToolCallPart, ToolResultPart, Turn
from gateway.dialects.anthropic_messages import reader as anthropic_messages
from gateway.dialects.bodies import schema_check
from gateway.dialects.fitting.call_ids import told_apart
from gateway.dialects.fitting.own_names import OwnNames, own_names, own_refusal
from gateway.dialects.loss import Losses, is_opaque, unsupported
from gateway.dialects.openai_chat import reader as openai_chat
from gateway.dialects.openai_completions import reader as openai_completions
from gateway.dialects.openai_responses import reader as openai_responses
from gateway.errors import FeatureUnsupported
from gateway.ports import UpstreamBody
from gateway.types import ChatRequest, DialectName, Target


class _Caller(Struct, frozen=True):
    """What the hub knows about a dialect of callers."""

    read: Callable[[ChatRequest], Conversation]
    names: OwnNames


_CALLERS: Mapping[DialectName, _Caller] = {
    "openai_chat": _Caller(openai_chat.read_conversation, openai_chat.OWN_NAMES),
    "anthropic_messages": _Caller(
        anthropic_messages.read_conversation, anthropic_messages.OWN_NAMES
    ),
    "openai_responses": _Caller(openai_responses.read_conversation, openai_responses.OWN_NAMES),
    "openai_completions": _Caller(
        openai_completions.read_conversation, openai_completions.OWN_NAMES
    ),
}


def read_conversation(request: ChatRequest) -> Conversation:
    """A request of any dialect as a conversation with tool calls and results in pairs.

    Raises:
        FeatureUnsupported: dropping what it asks would change its meaning.
    """
    caller = _CALLERS.get(request.dialect)
    if caller is None:
        raise unsupported("model", "This model does not do what is asked", 59)
    talk = caller.read(request)
    if talk.user and request.end_user and not is_opaque(talk.user):
        talk = structs.replace(talk, user=request.end_user)
    if talk.turns:
        turns = told_apart(talk.turns)
        try:
            _check_pairs(turns)
        except FeatureUnsupported as error:
            raise own_refusal(error, caller.names, request) from None
        talk = talk if turns is talk.turns else structs.replace(talk, turns=turns)
    return talk


def put_to(
    target: Target,
    request: ChatRequest,
    output_tokens_cap: int,
    write: Callable[[Conversation, Target, int], UpstreamBody],
) -> UpstreamBody:
    """A request for a target of another dialect, written by `write`.

    What is left out or refused has the caller's field names, whatever the names in between. The
    body says so if it asks for less than the caller did.

    Raises:
        FeatureUnsupported: dropping what it asks would change its meaning.
    """
    talk = _asked_of(target, request)
    names = _CALLERS[request.dialect].names
    try:
        upstream = write(talk, target, output_tokens_cap)
    except FeatureUnsupported as error:
        raise own_refusal(error, names, request) from None
    is_less = upstream.is_less or bool(talk.hosted)
    if upstream.dropped:
        dropped = own_names(upstream.dropped, talk.unplaced, names, request)
        return structs.replace(upstream, dropped=dropped, is_less=is_less)
    return structs.replace(upstream, is_less=True) if is_less else upstream


def _asked_of(target: Target, request: ChatRequest) -> Conversation:
    """The conversation to ask a target of another dialect.

    Tools that only a vendor runs are removed and reported, if the target is set to allow that. They
    are named first, because the list of what is reported is limited.

    Raises:
        FeatureUnsupported: dropping what it asks would change its meaning.
    """
    talk = read_conversation(request)
    if not talk.hosted:
        return talk
    first = talk.hosted[0]
    if not target.leaves_out_hosted:
        raise unsupported(first.place, first.reason, first.rule)
    if talk.tool_choice is not None and talk.tool_choice.mode == "any" and not talk.tools:
        raise unsupported("tool_choice", "No tool is left that could be called", 19)
    names = Losses([*(each.name for each in talk.hosted), *talk.unplaced]).names()
    return structs.replace(talk, unplaced=names)


def unmet(request: ChatRequest, text: str) -> str:
    """See `ports.Dialect.unmet`."""
    asked = read_conversation(request).response_format
    return schema_check.unmet(asked, text) if asked is not None else ""


def _check_pairs(turns: Iterable[Turn]) -> None:
    """Upstreams refuse a call without a result, and the reverse, each in its own words.

    Ours name no id: what is said here is recorded, and an id may be anything.
    """
    waiting: set[str] = set()
    for turn in turns:
        results = [part.tool_id for part in turn.parts if isinstance(part, ToolResultPart)]
        for tool_id in results:
            if tool_id not in waiting:
                raise unsupported("messages", "A tool's result has no open call", 14)
            waiting.remove(tool_id)
        if waiting and not results and turn.role != "system":
            break
        waiting.update(part.tool_id for part in turn.parts if isinstance(part, ToolCallPart))
    if waiting:
        raise unsupported("messages", "A tool's call has no result", 14)
