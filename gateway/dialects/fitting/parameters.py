"""Looks up in the catalogue which request parameters a target's model accepts.

Sampling parameters that a model does not accept are left out and reported: the caller could have
got the same answer anyway. Parameters whose effect the caller would miss in the answer itself, such
as token probabilities or further answers, are refused. If the catalogue says nothing, the parameter
counts as accepted.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.dialects.loss import unsupported
from gateway.money.catalogue import PARAMETER_FIELDS
from gateway.types import Target


LEAST_EFFORT = "low"
"""What a model that always reasons is asked for instead of `none`: the vendor's own advice."""

CHAT_WORDS = (
    *("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"),
    *("logit_bias", "n", "logprobs", "top_logprobs"),
)
MESSAGES_SAMPLING = ("temperature", "top_p", "top_k")
RESPONSES_SAMPLING = ("temperature", "top_p")
RESPONSES_WORDS = (*RESPONSES_SAMPLING, "top_logprobs", "include")

_DEFAULTS: Mapping[str, object] = {
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "n": 1,
    "logprobs": False,
    "top_logprobs": 0,
}
"""Values that ask for nothing: every model does that anyway, so leaving them out is no loss."""

_COLUMNS = {"logprobs": "logprobs", "top_logprobs": "logprobs", "include": ""}
"""Fields that ask for token probabilities, and their columns in the table.

`include` asks for other things as well, so it is never left out as a whole.
"""

_INCLUDED = "message.output_text.logprobs"


class Unfit(Struct, frozen=True):
    """Fields of a request that its target's model does not take."""

    fields: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    """Those of them that asked for something."""


FITS = Unfit()


def takes(target: Target, name: str, *, reasons: bool = True, is_warm: bool = False) -> bool:
    """Whether the model takes a parameter.

    `reasons` is false for a request that tells it not to; `is_warm` is true if a temperature is
    named.
    """
    stance = target.parameters.get(name, "unknown")
    if stance == "without_reasoning":
        return not reasons
    if stance == "without_temperature":
        return not is_warm
    return stance != "no"


def asks(name: str, value: object) -> bool:
    """Whether a value asks for anything that a model would not do anyway."""
    return value is not None and value != _DEFAULTS.get(name)


def reasons_at(target: Target, effort: object) -> bool:
    """Whether the model reasons at this effort; it may, unless told otherwise."""
    return effort != "none" or not takes(target, "effort_none")


def cannot_rest(target: Target, effort: object) -> bool:
    """Whether the model is told not to reason but always does."""
    return effort == "none" and not takes(target, "effort_none")


def unfit(
    tree: Mapping[str, object], target: Target, words: Sequence[str], *, reasons: bool
) -> Unfit:
    """What has to be left out of a request in the target's own dialect, by its own field names.

    Raises:
        FeatureUnsupported: the answer would lack what was asked for.
    """
    if not target.parameters or PARAMETER_FIELDS.isdisjoint(tree):
        return FITS
    _check_answer(tree, target, words, reasons=reasons)
    is_warm = takes(target, "temperature", reasons=reasons) and tree.get("temperature") is not None
    left_out = [
        name
        for name in words
        if name in tree
        and not takes(target, _COLUMNS.get(name, name), reasons=reasons, is_warm=is_warm)
    ]
    if not left_out:
        return FITS
    return Unfit(tuple(left_out), tuple(name for name in left_out if asks(name, tree[name])))


def _check_answer(
    tree: Mapping[str, object], target: Target, words: Sequence[str], *, reasons: bool
) -> None:
    """Refuse what the answer would lack."""
    count = tree.get("n")
    if "n" in words and isinstance(count, int) and count > 1 and not takes(target, "n"):
        raise unsupported("n", "This model gives one answer per request", 24)
    for name in _COLUMNS:
        asked = tree.get(name)
        if name in words and (_INCLUDED in asked if isinstance(asked, list) else asked):
            check_odds(target, name, reasons=reasons)


def check_odds(target: Target, place: str, *, reasons: bool) -> None:
    """Refuse to ask for token probabilities if the model gives none; `place` asks for them.

    Raises:
        FeatureUnsupported
    """
    if takes(target, "logprobs", reasons=reasons):
        return
    only = target.parameters.get("logprobs") == "without_reasoning"
    told = "only where its reasoning effort is none" if only else "to nobody"
    raise unsupported(place, f"This model tells token probabilities {told}", 24)
