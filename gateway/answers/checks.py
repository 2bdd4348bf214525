"""Checks whether an answer has the format that was asked for, and passes the checks of a canary.

Nothing here knows what is true. A format is checked where no upstream enforced it; a canary's
checks are made on the answers of every target that its rule could have chosen.
"""

from collections.abc import Iterable

from msgspec import Struct

from gateway.answers.traits import AnswerTraits, traits_of
from gateway.passage import Passage
from gateway.rollout.trials import TargetTrial
from gateway.types import FORMATS, Completion


UNMET = "response_format.unmet"
"""In a record: an answer that nothing upstream held to its schema, and that differs from it."""


class OnTrial(Struct, frozen=True):
    """A request that a canary among the targets could have got, or got."""

    trial: TargetTrial
    checks: tuple[str, ...]
    is_canary: bool


def on_trial(passage: Passage) -> OnTrial | None:
    """The canary that a request's preference gives a share; None for most requests."""
    decision, policies = passage.ruling.decision, passage.arrival.snapshot.policies
    if not policies.tries_targets or decision.matched_preference is None:
        return None
    document = policies.document_for(passage.principal)
    rules = document.body.preferences
    rule = next((each for each in rules if each.name == decision.matched_preference), None)
    canary = rule.canary if rule is not None else None
    if rule is None or canary is None or canary.target not in decision.candidates:
        return None
    trial = TargetTrial(decision.document_digest, rule.name, canary.target)
    return OnTrial(trial, canary.checks, decision.candidates[0] == canary.target)


def is_unenforced(dropped: Iterable[str]) -> bool:
    """Whether the answer's format was left out or weakened, so that it has to be looked at."""
    return any(name.startswith(FORMATS) for name in dropped)


def unmet_format(passage: Passage, dropped: tuple[str, ...], text: str) -> str:
    """Where an answer differs from the format that its request asked for and no upstream enforced.

    A path in ASCII without line breaks; empty where it is as asked.
    """
    if not dropped or not is_unenforced(dropped):
        return ""
    path = passage.arrival.dialect.unmet(passage.request, text)
    return "".join(each if each.isascii() and each.isprintable() else "*" for each in path)[:100]


def unsound(
    passage: Passage, traits: AnswerTraits, text: str, checks: tuple[str, ...]
) -> tuple[str, ...]:
    """Those of the checks that an answer fails."""
    return traits.failed(checks, lambda: bool(passage.arrival.dialect.unmet(passage.request, text)))


def unsound_whole(
    passage: Passage, completion: Completion, checks: tuple[str, ...]
) -> tuple[str, ...]:
    """The same of a whole answer."""
    return unsound(passage, traits_of(completion), completion.text, checks)
