"""Token counts of upstreams: which are possible for a request, and which cannot be true. Pure.

An impossible figure counts as left out: an estimate replaces it, which never raises a request's
cost above what was reserved. The bounds are generous on purpose. What a vendor really counted is
paid, even beyond the reservation; what is caught here is wrong by factors.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import structs

from gateway.admission.bounds import answers_of
from gateway.admission.hosted_tools import may_run_tools_there, searches_at_most
from gateway.types import Candidate, ChatRequest, Target, Usage


WINDOWS: Final = 2
"""Our figure of a model's window may be older than the model, and stops where its price does."""
ROUNDS: Final = 20
"""So often a vendor may read all of it again that runs tools before it answers."""
UNSEEN_TOKENS: Final = 131_072
"""Input that no byte of a body shows: templates, and what goes with tools and schemas."""
TOKENS_PER_BYTE: Final = 4
"""A vocabulary of bytes has one; values are exchanged for longer ones, schemas told twice."""
SEARCHES: Final = 100
"""Ten times what is reserved for a request that names no bound."""


def believing(request: ChatRequest, candidate: Candidate) -> Callable[[Usage], Usage]:
    """`believed` for one request at one target."""
    return partial(believed, request, candidate)


def believed(request: ChatRequest, candidate: Candidate, usage: Usage) -> Usage:
    """What an upstream counted, without figures that cannot be; those are zero, and noted."""
    # What was reserved for needs no second look, and that is nearly every answer.
    if (
        usage.input_tokens <= request.input_tokens_most
        and usage.output_tokens <= candidate.output_tokens_cap
        and _beside_input(usage) <= usage.input_tokens
        and not usage.web_searches
    ):
        return usage
    answers, rounds = answers_of(request), 1
    if may_run_tools_there(request):
        rounds = ROUNDS
    window = _window(candidate.target) * answers * rounds
    read_most = window
    if rounds == 1 and not request.has_images and not request.has_documents:
        shown = TOKENS_PER_BYTE * len(request.raw) + UNSEEN_TOKENS
        # Of vectors a window is that of each text, and there may be thousands.
        read_most = shown if request.purpose == "embedding" else min(window, shown * answers)
    return _within(usage, read_most, window, searches_at_most(request))


def believed_at_all(usage: Usage, target: Target) -> Usage:
    """The same where the request is gone: what no request for this model has."""
    window = _window(target) * ROUNDS
    return _within(usage, window, window, 0)


def _window(target: Target) -> int:
    return max(WINDOWS * target.context_window_tokens, UNSEEN_TOKENS)


def _within(usage: Usage, read_most: int, written_most: int, searches: int) -> Usage:
    """`searches` were reserved, and stand where a vendor says more of them than can be."""
    read = max(usage.input_tokens, _beside_input(usage))
    changes: dict[str, int] = {}
    disbelieved = 0
    if read > read_most:
        disbelieved += read
        changes |= {"input_tokens": 0, "cache_read_tokens": 0}
        changes |= {"cache_write_tokens": 0, "cache_write_1h_tokens": 0}
    if usage.output_tokens > written_most:
        disbelieved += usage.output_tokens
        changes |= {"output_tokens": 0, "reasoning_tokens": 0}
    if usage.web_searches > max(searches, SEARCHES):
        disbelieved += usage.web_searches
        changes["web_searches"] = searches
    if not changes:
        return usage
    return structs.replace(usage, **changes, estimated=True, disbelieved=disbelieved)


def _beside_input(usage: Usage) -> int:
    """What was read from a cache or written to one: a part of the input, where all is well."""
    return usage.cache_read_tokens + usage.cache_write_tokens + usage.cache_write_1h_tokens
