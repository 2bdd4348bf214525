"""What both of OpenAI's dialects say in the same words: one vendor's models read them."""

from collections.abc import Iterable, Mapping

from gateway.conversation import Conversation, Reasoning, ResponseFormat
from gateway.dialects.loss import Losses, opaque_user
from gateway.dialects.parameters import LEAST_EFFORT, asks, cannot_rest, reasons_at, takes
from gateway.types import Target


CHOICES: Mapping[str, str] = {"auto": "auto", "any": "required", "none": "none"}
"""Whether tools are called, where none is named."""

OPENAI_SAMPLING = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")

_USER_LENGTH_MAX = 64
_SCHEMA_NAME = "structured_output"
"""OpenAI wants a name for every schema; other dialects give none."""

_EFFORTS = {"max": "xhigh"}
_EFFORT_OF_BUDGET = ((4096, "low"), (16384, "medium"))
"""Thinking budgets up to so many tokens, and the effort that they ask for; above: `high`."""


def effort_of(reasoning: Reasoning) -> str:
    """How much to think; empty where the request does not say."""
    if reasoning.disabled:
        return "none"
    effort, budget = reasoning.effort, reasoning.budget_tokens
    if not effort and budget:
        effort = next((word for limit, word in _EFFORT_OF_BUDGET if budget <= limit), "high")
    return _EFFORTS.get(effort, effort)


def effort_for(target: Target, reasoning: Reasoning, losses: Losses) -> str:
    """The same in words that the model takes; one that cannot do without reasoning does little."""
    effort = effort_of(reasoning)
    if not cannot_rest(target, effort):
        return effort
    losses.add("reasoning_effort")
    return LEAST_EFFORT


def add_sampling(
    fields: dict[str, object],
    talk: Conversation,
    target: Target,
    losses: Losses,
    names: Iterable[str],
) -> None:
    """Add what the model takes of the sampling that was asked for; report what it does not."""
    effort = effort_of(talk.reasoning) if talk.reasoning is not None else ""
    reasons = reasons_at(target, effort)
    for name in names:
        value: object = getattr(talk.sampling, name)
        if value is None:
            continue
        if takes(target, name, reasons=reasons, is_warm="temperature" in fields):
            fields[name] = value
        elif asks(name, value):
            losses.add(name)


def named_schema(asked: ResponseFormat) -> dict[str, object]:
    """The schema that an answer is held to, with all that is said of it."""
    written: dict[str, object] = {"name": asked.name or _SCHEMA_NAME, "schema": asked.schema}
    if asked.strict is not None:
        written["strict"] = asked.strict
    if asked.description:
        written["description"] = asked.description
    return written


def told_user(user: str) -> str:
    """An end user's name, if it is short enough for this vendor; else one that names nobody."""
    return user if len(user) <= _USER_LENGTH_MAX else opaque_user(user)
