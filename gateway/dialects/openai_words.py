"""Fields that OpenAI's chat completions and responses share, and write in the same way."""

from collections.abc import Iterable, Mapping

from gateway.conversation import Conversation, Kin, Reasoning, ResponseFormat, Tool
from gateway.dialects.fitting.parameters import LEAST_EFFORT, asks, cannot_rest, reasons_at, takes
from gateway.dialects.loss import AUTO_TIER, Losses, opaque_user
from gateway.dialects.openai_schemas import is_enforceable
from gateway.price import paid_tier
from gateway.types import Target


CHOICES: Mapping[str, str] = {"auto": "auto", "any": "required", "none": "none"}
"""Whether tools are called, if none is named."""

OPENAI_SAMPLING = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")

_ALIKE = ("prompt_cache_retention", "prompt_cache_options")
KIN = frozenset({*_ALIKE, "prompt_cache_key", "verbosity", "service_tier"})

_USER_LENGTH_MAX = 64
_SCHEMA_NAME = "structured_output"
"""OpenAI wants a name for every schema; other dialects give none."""

_EFFORT_OF_BUDGET = ((4096, "low"), (16384, "medium"))
"""Thinking budgets up to so many tokens, and the effort that they stand for; above: `high`."""


def is_vendors(target: Target) -> bool:
    """Whether it is OpenAI's own service, which alone wants the newer name of a limit.

    Compatible servers enforce any schema, or none, and know functions only.
    """
    return "max_completion_tokens" in target.capabilities


def effort_of(reasoning: Reasoning) -> str:
    """How much to think; empty if the request does not say."""
    if reasoning.disabled:
        return "none"
    effort, budget = reasoning.effort, reasoning.budget_tokens
    if not effort and budget:
        effort = next((word for limit, word in _EFFORT_OF_BUDGET if budget <= limit), "high")
    return effort


def effort_for(target: Target, reasoning: Reasoning, losses: Losses) -> str:
    """The same in words that the model takes; a model that always reasons gets little effort.

    A request that leaves it to the model says nothing here, and the model decides.
    """
    effort = effort_of(reasoning)
    if not cannot_rest(target, effort):
        return effort
    losses.add("reasoning_effort")
    return LEAST_EFFORT


def reasons_in(talk: Conversation, target: Target) -> bool:
    """Whether the model reasons before it answers; it may, unless told otherwise."""
    return reasons_at(target, effort_of(talk.reasoning) if talk.reasoning is not None else "")


def add_sampling(
    fields: dict[str, object],
    talk: Conversation,
    target: Target,
    losses: Losses,
    names: Iterable[str],
) -> None:
    """Add the requested sampling parameters that the model takes; report the others."""
    reasons = reasons_in(talk, target)
    for name in names:
        value: object = getattr(talk.sampling, name)
        if value is None:
            continue
        if takes(target, name, reasons=reasons, is_warm="temperature" in fields):
            fields[name] = value
        elif asks(name, value):
            losses.add(name)


def strictness(
    asked: Tool | ResponseFormat, losses: Losses, place: str, *, at_vendor: bool = True
) -> bool | None:
    """Whether a schema is to be enforced word for word.

    The vendor cannot enforce many schemas that others can; these are only asked for, which is
    reported.
    """
    if asked.strict and at_vendor and not is_enforceable(asked.schema):
        losses.add(place)
        return False
    return asked.strict


def named_schema(asked: ResponseFormat, strict: object) -> dict[str, object]:
    """The schema that an answer is held to, with its name and description."""
    written: dict[str, object] = {"name": asked.name or _SCHEMA_NAME, "schema": asked.schema}
    if strict is not None:
        written["strict"] = strict
    if asked.description:
        written["description"] = asked.description
    return written


def kin_of(tree: Mapping[str, object], verbosity: object, place: str) -> tuple[Kin, ...]:
    """Fields of a request of either dialect that the other one knows as well; `None` is nothing.

    `place` is this dialect's field for how much is to be said.
    """
    wanted = [(name, tree.get(name), name) for name in _ALIKE]
    wanted += [
        # Elsewhere a prefix is found again without a key, and answers are of medium length anyway.
        ("prompt_cache_key", tree.get("prompt_cache_key"), ""),
        ("verbosity", verbosity, "" if verbosity == "medium" else place),
    ]
    tier = tree.get("service_tier")
    if tier != AUTO_TIER:
        wanted.append(("service_tier", tier, "service_tier"))
    return tuple(Kin(*each) for each in wanted if each[1] is not None)


def kept_kin(
    talk: Conversation, target: Target, losses: Losses, *, at_vendor: bool = True
) -> dict[str, object]:
    """Those of them that a target of OpenAI's gets, by their names in chat completions."""
    kept: dict[str, object] = {}
    for each in talk.kin:
        is_priced = each.name != "service_tier" or (
            isinstance(each.value, str) and target.price.percent_of(paid_tier(each.value))
        )
        if at_vendor and is_priced:
            kept[each.name] = each.value
        elif each.told_as:
            losses.add(each.told_as)
    return kept


def told_user(talk: Conversation, *, at_vendor: bool = True) -> dict[str, object]:
    """An end user in the field that the caller used, if servers know it.

    A user's name too long for this vendor is replaced by one that identifies nobody.
    """
    if not talk.user:
        return {}
    name = "safety_identifier" if talk.is_user_safety and at_vendor else "user"
    return {name: talk.user if len(talk.user) <= _USER_LENGTH_MAX else opaque_user(talk.user)}
