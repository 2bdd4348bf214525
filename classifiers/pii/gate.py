"""The multi-pattern gate: one linear pass that says which rules are worth running."""

from typing import Any

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
    """Sets of triggers; `hits` returns those that occur in a text.

    One automaton for all triggers would meet a new state at almost every character; in a few
    automata the states stay few, and stay in the cache. A set is only searched if its condition
    occurs: two digits near each other, or a long run of letters and digits.
    """

    def __init__(self, sets: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
        """`sets` are pairs of a condition ("" for none) and triggers."""
        self._sets = []
        first = 0
        for condition, triggers in sets:
            guard = re2.compile(condition.encode(), options()) if condition else None
            self._sets.append((first, guard, _compiled(triggers)))
            first += len(triggers)

    def hits(self, data: bytes) -> list[int]:
        """Indices of the triggers found, counted through all sets, in no particular order."""
        found: list[int] = []
        for first, guard, automaton in self._sets:
            if guard is not None and guard.search(data) is None:
                continue
            matched = automaton.Match(data)
            if matched:
                found += [first + index for index in matched]
        return found


def _compiled(triggers: tuple[str, ...]) -> Any:
    automaton = re2.Set.SearchSet(options(_GATE_MEMORY_BYTES))
    for trigger in triggers:
        automaton.Add(trigger.encode())
    automaton.Compile()
    return automaton


def trigger_of(rule: Rule) -> str:
    return rule.gate or rule.regex
