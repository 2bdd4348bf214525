"""The multi-pattern gate: one linear pass that says which rules are worth running."""

import re2

from classifiers.pii.rules import Rule


# The automaton's budget. A full cache is rebuilt, never an answer lost; clean text needs < 1 MiB.
_GATE_MEMORY_BYTES = 16 << 20
_RULE_MEMORY_BYTES = 4 << 20


def options(memory_bytes: int = _RULE_MEMORY_BYTES) -> re2.Options:
    """RE2 settings of every pattern here: bytes in, one byte per character."""
    chosen = re2.Options()
    chosen.max_mem = memory_bytes
    chosen.log_errors = False
    chosen.encoding = re2.Options.Encoding.LATIN1
    return chosen


class Gate:
    """A set of triggers; `hits` names those that occur in a text."""

    def __init__(self, triggers: tuple[str, ...]) -> None:
        self._set = re2.Set.SearchSet(options(_GATE_MEMORY_BYTES))
        for trigger in triggers:
            self._set.Add(trigger.encode())
        self._set.Compile()

    def hits(self, data: bytes) -> list[int]:
        """Indices of the triggers found, in no particular order."""
        found: list[int] | None = self._set.Match(data)
        return found or []


def trigger_of(rule: Rule) -> str:
    return rule.gate or rule.regex
