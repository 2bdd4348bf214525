"""Sums up a list of workers in sentences, and says whether they all agree. Pure.

They agree if they serve by the same settings, keys, policies and prices.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from gateway.oversight.workers import WorkerReport, age_s, standing


Kind = Literal["good", "warn", "bad", "idle"]
SHORT: Final = 8
NOBODY: Final = (
    "No worker has said anything yet. "
    "A data plane says how it is within three seconds of its start."
)


class Verdict(Struct, frozen=True):
    """The state of all workers in a sentence, and one more for each thing that is not well."""

    kind: Kind
    sentence: str
    reasons: tuple[str, ...] = ()


def judged(reports: Sequence[WorkerReport], revision: int, now_us: int) -> Verdict:
    """All workers together.

    Args:
        reports: of every worker that is remembered.
        revision: of keys and policies, as the database has it.
        now_us: when this is said.
    """
    if not reports:
        return Verdict("idle", NOBODY)
    lost = [each for each in reports if standing(each, now_us) == "lost"]
    here = [each for each in reports if each not in lost]
    reasons = [
        f"{each.worker} counts as lost: it was last heard of {in_words(age_s(each, now_us))} ago."
        for each in lost
    ]
    for each in here:
        reasons += [f"{each.worker} has a problem: {problem}" for problem in each.problems]
    is_bad = bool(reasons)
    behind = [each.worker for each in here if each.revision < revision]
    if behind:
        verb = "serves" if len(behind) == 1 else "serve"
        reasons.append(
            f"{listed(behind)} still {verb} by an older revision than the database's {revision}."
        )
    for word, of in _SHARED:
        reasons += _differing(word, here, of)
    # One of a version that did not say its prices yet has not other ones for that.
    priced = [each for each in here if each.prices_digest]
    reasons += _differing("prices", priced, lambda each: each.prices_digest)
    if not reasons:
        stalest = max(each.stale_s + age_s(each, now_us) for each in here)
        return Verdict("good", _agreed(here, revision, stalest))
    serving = sum(standing(each, now_us) == "serving" for each in here)
    sentence = f"{serving} of {len(reports)} workers {'serves' if serving == 1 else 'serve'}"
    sentence += " as they should." if is_bad else ", not all by the same configuration."
    return Verdict("bad" if is_bad else "warn", sentence, tuple(reasons))


def most_served(reports: Sequence[WorkerReport], of: Callable[[WorkerReport], str]) -> str:
    """What most workers have; of equally many the first in the alphabet."""
    found = [of(each) for each in reports]
    return min(found, key=lambda value: (-found.count(value), value), default="")


def listed(names: Sequence[str]) -> str:
    """Names as people list them."""
    if len(names) < 2:  # noqa: PLR2004 - an "and" needs two
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def in_words(seconds: float) -> str:
    """A span as people say it, no more exact than they need."""
    for unit, length_s in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * length_s:
            return f"{round(seconds / length_s)} {unit}s"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004


def _agreed(here: Sequence[WorkerReport], revision: int, stalest_s: float) -> str:
    confirmed = f"(revision {revision}), confirmed {in_words(stalest_s)} ago"
    if len(here) == 1:
        return f"The one worker, {here[0].worker}, serves by the newest configuration {confirmed}."
    return (
        f"All {len(here)} workers serve by the same settings, keys, policies and prices "
        f"{confirmed} or less."
    )


def _differing(
    word: str, here: Sequence[WorkerReport], of: Callable[[WorkerReport], str]
) -> list[str]:
    groups: dict[str, list[str]] = {}
    for each in here:
        groups.setdefault(of(each), []).append(each.worker)
    if len(groups) < 2:  # noqa: PLR2004 - with one group nothing differs
        return []
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    said = "; ".join(f"{listed(names)} {_short(value)}" for value, names in ordered)
    return [f"Workers have different {word}: {said}."]


def _short(value: str) -> str:
    return value[:SHORT] if value else "unknown"


_SHARED: Final[Sequence[tuple[str, Callable[[WorkerReport], str]]]] = (
    ("settings", lambda each: each.settings_digest),
    ("policies", lambda each: each.policies_digest),
    ("versions of the program", lambda each: each.version),
    ("schemas that their programs know", lambda each: each.schema),
)


def positions(reports: Sequence[WorkerReport]) -> Mapping[str, Mapping[str, str]]:
    """Targets whose breaker is not closed somewhere: target → worker → position."""
    found: dict[str, dict[str, str]] = {}
    for each in reports:
        for target, position in each.breakers.items():
            if position != "closed":
                found.setdefault(target, {})[each.worker] = position
    return found
