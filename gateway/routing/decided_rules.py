"""Remembers which rules each decision applied, by the decision's digest.

The projection needs the rules of requests that ended, but a record has only the decision's digest.
The rules are noted where the digest is made, once for equal decisions, so that storing the record a
moment later does not mean deciding again.
"""

from hashlib import sha256
from threading import Lock
from typing import Final, NamedTuple

from policies.decision import Decision


KEPT_MAX: Final = 20_000
"""Half of what is kept: recently requested decisions stay."""
NO_RULE: Final = 0
"""The number if no rule held."""


class RuleSet(NamedTuple):
    """The rules of a decision; equal sets have the same number, in every process."""

    number: int
    names: tuple[str, ...]


NOTHING: Final = RuleSet(NO_RULE, ())


def rule_set_of(decision: Decision) -> RuleSet:
    """Every constraint that held, and the preference whose order was taken."""
    first = decision.matched_preference
    names = {*decision.matched_constraints, *((first,) if first else ())}
    return numbered(tuple(sorted(names)))


def numbered(names: tuple[str, ...]) -> RuleSet:
    """With a number made of the sorted names, from 1 to below 2**62; `NO_RULE` for no names."""
    if not names:
        return NOTHING
    digest = sha256("\x00".join(names).encode("utf-8", "surrogatepass")).digest()
    return RuleSet(int.from_bytes(digest[:8]) >> 2 | 1, names)


class DecidedRules:
    """A bounded memory, written on the event loop and read by a thread as well."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._new: dict[str, RuleSet] = {}
        self._old: dict[str, RuleSet] = {}
        self._sets: dict[int, RuleSet] = {}
        self._turning = Lock()

    def note(self, digest: str, decision: Decision) -> None:
        """Note a decision's rules under its digest."""
        found = rule_set_of(decision)
        self._keep(digest, self._sets.setdefault(found.number, found))

    def of(self, digest: str) -> RuleSet | None:
        """The rules; None if they are not known here, or not any more."""
        found = self._new.get(digest)
        if found is None and (found := self._old.get(digest)) is not None:
            self._keep(digest, found)
        return found

    def _keep(self, digest: str, found: RuleSet) -> None:
        with self._turning:
            if len(self._new) >= self._kept_max:
                self._old, self._new = self._new, {}
                self._sets = {each.number: each for each in self._old.values()}
            self._new[digest] = found


DECIDED_RULES: Final = DecidedRules()
"""The one of this process."""
