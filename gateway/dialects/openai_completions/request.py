"""Parses text completion requests; patches their bytes for a target that continues bare text."""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.admission.hosted_tools import check_tools_priced
from gateway.dialects.bodies import body
from gateway.dialects.bodies.reserved import check_not_reserved
from gateway.dialects.bodies.strict_json import checked, decode_object, invalid
from gateway.dialects.fitting.parameters import takes, unfit
from gateway.dialects.loss import check_tier_priced, unsupported
from gateway.dialects.openai_chat.request import with_usage_asked
from gateway.dialects.openai_completions.wire import CompletionsBody
from gateway.estimate import estimate_input_tokens, estimate_longest_tokens
from gateway.ports import UpstreamBody
from gateway.types import ChatRequest, Target


OUTPUT_TOKENS_DEFAULT = 16
"""The default of this endpoint without a limit, at OpenAI and at compatible servers."""

WORDS = (
    *("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"),
    *("logit_bias", "n"),
)
"""Parameters of sampling; not every model takes all of them."""

_REFUSED: Mapping[str, str] = {
    "suffix": "Nothing is filled in before a suffix here",
    "prompt_logprobs": "Ask for `echo` with `logprobs`",
    "use_beam_search": "Beams are not searched here",
    "messages": "Send them to /v1/chat/completions",
}
"""What the answer would lack, or what nobody could read."""

_TEXT_ONLY = "Send text; token numbers cannot be inspected"


def decode_request(raw: bytes, request_id: str) -> ChatRequest:
    """See `ports.Dialect.decode_request`.

    Raises:
        FeatureUnsupported: it asks for something that nothing here does, or that nobody could read.
    """
    tree = decode_object(raw)
    check_not_reserved(tree)
    prompts = _listed(tree.get("prompt"))
    if any(not isinstance(each, str) for each in prompts):
        raise unsupported("prompt", _TEXT_ONLY, 59)
    wire = checked(tree, CompletionsBody)
    for name, reason in _REFUSED.items():
        if tree.get(name):
            raise unsupported(name, reason, 24)
    _check_counts(wire)
    options = wire.stream_options
    about, most = estimate_input_tokens(raw, 0, 0, 0)
    return ChatRequest(
        request_id=request_id,
        dialect="openai_completions",
        raw=raw,
        tree=tree,
        model=wire.model,
        stream=bool(wire.stream),
        max_output_tokens=OUTPUT_TOKENS_DEFAULT if wire.max_tokens is None else wire.max_tokens,
        wants_stream_usage=options is not None and bool(options.include_usage),
        has_tools=False,
        has_images=False,
        has_documents=False,
        wants_json_schema=False,
        input_tokens_estimate=about,
        input_tokens_most=most,
        prompts=max(len(prompts), 1),
        longest_tokens_estimate=estimate_longest_tokens(wire.prompt),
    )


def _listed(prompt: object) -> Sequence[object]:
    return prompt if isinstance(prompt, list) else ()


def _check_counts(wire: CompletionsBody) -> None:
    if wire.best_of not in {None, wire.n or 1}:
        # They would be paid for, and nobody could say which of them was the best.
        raise unsupported("best_of", "Answers are not ranked here; ask for as many as `n`", 24)
    if wire.max_tokens == 0 and not wire.echo:
        raise invalid("max_tokens", "At least 1, unless the prompt is repeated (`echo`)")


def patch_request(request: ChatRequest, target: Target, output_tokens_cap: int) -> UpstreamBody:
    """The caller's own bytes with model, output limit and `include_usage` set.

    Raises:
        RequestInvalid: the stream options are no object.
        FeatureUnsupported: the model cannot do what is asked.
    """
    tree = request.tree
    check_tier_priced(request, target)
    check_tools_priced(request, target)
    if tree.get("logprobs") is not None and not takes(target, "logprobs"):
        raise unsupported("logprobs", "This model tells token probabilities to nobody", 24)
    left_out = unfit(tree, target, WORDS, reasons=True)
    changes: dict[str, bytes | None] = dict.fromkeys(left_out.fields)
    changes["model"] = msgspec.json.encode(target.model)
    changes["max_tokens"] = b"%d" % output_tokens_cap
    # Here it asks for nothing more than `n` does, and newer servers do not know the field.
    changes["best_of"] = None
    prompt = tree["prompt"]
    if isinstance(prompt, list) and len(prompt) == 1:
        # Not every compatible server takes a list with one prompt.
        changes["prompt"] = msgspec.json.encode(prompt[0])
    if request.stream and not request.wants_stream_usage:
        changes["stream_options"] = with_usage_asked(body.split(request.raw))
    return UpstreamBody(body.patch(request.raw, changes), left_out.dropped)
