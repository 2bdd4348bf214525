"""Converts a text completion to a chat with one user turn, and reports it (decision 0046)."""

from gateway.conversation import Conversation, Sampling, TextPart, Turn
from gateway.dialects.bodies.strict_json import checked
from gateway.dialects.fitting.own_names import OwnNames
from gateway.dialects.loss import AUTO_TIER, Losses, unsupported
from gateway.dialects.openai_completions.wire import CompletionsBody
from gateway.types import ChatRequest


AS_CHAT = "bare_text"
"""Reported as lost: the prompt is put into a chat template, and the model answers it."""

_PLACED = frozenset({*CompletionsBody.__struct_fields__, "top_k"})
OWN_NAMES: OwnNames = {"max_output_tokens": ("max_tokens",), "messages": ("prompt",)}
"""Fields that the hub calls by other names."""


def read_conversation(request: ChatRequest) -> Conversation:
    """See `conversation` for what crosses.

    Raises:
        FeatureUnsupported: dropping what it asks would change its meaning.
    """
    wire = checked(request.tree, CompletionsBody)
    _refuse_unsupported(wire)
    losses = Losses((AS_CHAT,))
    losses.add_unknown(request.tree, _PLACED)
    if wire.logit_bias:
        losses.add("logit_bias")
    if wire.service_tier not in {None, AUTO_TIER}:
        losses.add("service_tier")
    prompt = wire.prompt if isinstance(wire.prompt, str) else wire.prompt[0]
    return Conversation(
        system=(),
        turns=(Turn("user", (TextPart(prompt),)),),
        stream=request.stream,
        sampling=_sampling(wire, request.tree.get("top_k"), losses),
        user=wire.user or "",
        service_tier=AUTO_TIER if wire.service_tier == AUTO_TIER else "",
        unplaced=losses.names(),
    )


def _refuse_unsupported(wire: CompletionsBody) -> None:
    if not isinstance(wire.prompt, str) and len(wire.prompt) > 1:
        raise unsupported("prompt", "A chat model is asked one prompt per request", 24)
    if wire.n is not None and wire.n > 1:
        raise unsupported("n", "Only one answer per request is possible there", 24)
    if wire.logprobs is not None:
        raise unsupported("logprobs", "Token probabilities do not cross into another dialect", 24)
    if wire.echo:
        raise unsupported("echo", "A chat model does not repeat its prompt", 24)


def _sampling(wire: CompletionsBody, top_k: object, losses: Losses) -> Sampling:
    stop = (wire.stop,) if isinstance(wire.stop, str) else tuple(wire.stop or ())
    if top_k is not None and type(top_k) is not int:
        losses.add("top_k")
    return Sampling(
        temperature=wire.temperature,
        top_p=wire.top_p,
        # For engines, values below one mean no limit.
        top_k=top_k if type(top_k) is int and top_k > 0 else None,
        stop=stop,
        seed=wire.seed,
        presence_penalty=wire.presence_penalty or None,
        frequency_penalty=wire.frequency_penalty or None,
    )
