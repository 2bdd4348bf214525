"""Finds a rule that others changed while somebody filled in its card: its place, and how. Pure.

A rule is recognised by the name that its card was opened under. Its place alone may belong to
another rule by now: saved there, the typed rule would overwrite that one.
"""

from msgspec import Struct

from admin.policy_room.cards import rules_of
from admin.policy_room.marks import DiffLine, line_difference
from policies.document import Constraint, PolicyBody, Preference
from policies.text.writing import rule_text, table_of


class Standing(Struct, frozen=True):
    """Where a rule is among its phase's, and what keeping the typed one would change of it."""

    place: int | None
    """None where it is there no more: it was taken out, or has another name."""
    lines: tuple[DiffLine, ...] = ()
    """From the rule as it stands to the one that was typed; empty where they are the same."""


def standing_of(
    body: PolicyBody | None, section: str, was: str, place: int, typed: Constraint | Preference
) -> Standing:
    """The rule that was called `was`, and stood at `place`, in a document that somebody changed.

    Raises:
        NotFoundException: there is no such section.
    """
    rules = rules_of(body, section) if body else ()
    found = [at for at, rule in enumerate(rules) if rule.name == was]
    if not found:
        return Standing(None)
    now = place if place in found else found[0]
    texts = [rule_text(section, table_of(rule)) for rule in (rules[now], typed)]
    return Standing(now, line_difference(*texts))
