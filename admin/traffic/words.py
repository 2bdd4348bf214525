"""A request's end in one sentence of plain words."""

from msgspec import Struct

from admin.preferences import Preferences
from admin.traffic.story import Story


class Verdict(Struct, frozen=True):
    """`kind` is a route or bad, warn, idle; `reason` is the decision's own sentence."""

    kind: str
    sentence: str
    reason: str


def verdict_of(story: Story, way: Preferences) -> Verdict:
    """What happened, and why it went there."""
    reason = story.decided.decision_reason
    if story.explanation is not None and story.intent is not None:
        reason = reason or story.explanation.decision.reason
    record = story.outcome
    if record is None:
        return Verdict(
            "idle",
            f"Let through to {story.decided.target}, and no outcome was recorded yet.",
            reason,
        )
    took = way.span(record.duration_us)
    if record.status == "refused":
        said = f"Refused after {took} with HTTP {record.http_status}: nothing was sent anywhere."
        return Verdict("refused", said, reason)
    where = f"{record.target} ({record.jurisdiction})" if record.target else "no target"
    cost = way.money(record.cost_microusd)
    if record.status == "ok" and "cache_of" in record.detail:
        said = f"Given again from the response cache in {took}: an answer of {where}, for nothing."
        return Verdict(story.route, said, reason)
    if record.status == "ok":
        return Verdict(story.route, f"Answered by {where} in {took}, for {cost}.", reason)
    if record.status == "cancelled":
        said = f"The caller left after {took}; {where} was asked, for {cost}."
        return Verdict("warn", said, reason)
    count = len(record.attempts)
    attempts = "one attempt" if count == 1 else f"{count} attempts"
    word = "Broke off" if record.status == "incomplete" else "Failed"
    error = record.error or "unknown"
    said = f"{word} after {took} and {attempts} with “{error}” (HTTP {record.http_status})."
    return Verdict("bad", said, reason)
