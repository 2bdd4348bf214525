"""Describes in a plain sentence how a request ended, and which obligations it met."""

from msgspec import Struct

from admin.preferences import Preferences
from admin.traffic.error_words import meaning_of
from admin.traffic.story import Story


class Verdict(Struct, frozen=True):
    """`kind` is a route or bad, warn, idle; `reason` is the decision's own sentence."""

    kind: str
    sentence: str
    reason: str
    meaning: str = ""
    """Of what was not answered: what its error means, and what helps."""


def verdict_of(story: Story, way: Preferences) -> Verdict:
    """What happened, and why it went there."""
    reason = story.decided.decision_reason
    if story.explanation is not None and story.intent is not None:
        reason = reason or story.explanation.decision.reason
    record = story.outcome
    if record is None:
        return Verdict(
            "idle",
            f"Allowed to go to {story.decided.target}; no outcome is recorded yet.",
            reason,
        )
    took = way.span(record.duration_us)
    if record.status == "refused":
        named = f"“{record.error or 'unknown'}” (HTTP {record.http_status})"
        said = f"Refused after {took} with {named}: nothing was sent anywhere."
        # Of what policy let through the decision says where it was sent, which it was not.
        was_let_through = story.explanation and story.explanation.decision.effect == "allow"
        why = "" if was_let_through else reason
        return Verdict("refused", said, why, meaning_of(record.error))
    where = record.target or "no target"
    if record.target and record.jurisdiction != record.target:
        where = f"{record.target} ({record.jurisdiction})"
    cost = way.money(record.cost_microusd)
    if record.status == "ok" and "cache_of" in record.detail:
        said = f"Answered from the response cache in {took}, with an answer of {where}, at no cost."
        return Verdict(story.route, said, reason)
    if record.status == "ok":
        return Verdict(story.route, f"Answered by {where} in {took}, for {cost}.", reason)
    if record.status == "cancelled":
        said = f"The caller disconnected after {took}; {where} had been called, for {cost}."
        return Verdict("warn", said, reason)
    count = len(record.attempts)
    attempts = "one attempt" if count == 1 else f"{count} attempts"
    word = "Broke off" if record.status == "incomplete" else "Failed"
    error = record.error or "unknown"
    said = f"{word} after {took} and {attempts} with “{error}” (HTTP {record.http_status})."
    return Verdict("bad", said, reason, meaning_of(error))


def findings_sent_as(story: Story) -> str:
    """How what was found in a request went to its target; empty where nobody can say, or need."""
    is_known = story.explanation is not None and story.is_same_decision
    if not is_known or not story.decided.findings or not (story.outcome and story.outcome.attempts):
        return ""
    assert story.explanation is not None
    asked = story.explanation.decision.obligations
    if asked.redact:
        return "redacted"
    return "as surrogates" if asked.pseudonymise else "as written"


def obeyed_in(story: Story) -> tuple[str, ...]:
    """What the decision asked for besides a target, each in a sentence."""
    if story.explanation is None or not story.is_same_decision:
        return ()
    asked = story.explanation.decision.obligations
    way = findings_sent_as(story)
    scanned = "Its answer was scanned" + (
        ", and sensitive values were redacted." if asked.scan_output == "mask" else "."
    )
    said = (
        (bool(way), f"Findings were sent {way}."),
        (asked.scan_output is not None, scanned),
        (asked.no_cache, "The response cache was neither read nor written."),
        (asked.audit_content == "none", "Its content was not kept."),
        (asked.audit_content == "redacted", "Its content was kept with findings redacted."),
    )
    return tuple(sentence for holds, sentence in said if holds)
