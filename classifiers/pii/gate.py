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
    """Sets of triggers; `hits` names those that occur in a text.

    One automaton for all triggers would meet a new state at almost every character; in a few
    automata their states stay few, and stay in the cache. The last set is only asked when a text
    has two digits in a row or one by one.
    """

    def __init__(self, sets: tuple[tuple[str, ...], ...], with_digits: tuple[str, ...]) -> None:
        self._sets = []
        first = 0
        for triggers in sets:
            self._sets.append((first, _compiled(triggers)))
            first += len(triggers)
        self._digits = re2.compile(rb"[0-9].{0,4}[0-9]", options())
        self._with_digits = first, _compiled(with_digits)

    def hits(self, data: bytes) -> list[int]:
        """Indices of the triggers found, counted through all sets, in no particular order."""
        found: list[int] = []
        for first, automaton in self._sets:
            matched = automaton.Match(data)
            if matched:
                found += [first + index for index in matched]
        if self._digits.search(data) is not None:
            first, automaton = self._with_digits
            found += [first + index for index in automaton.Match(data) or ()]
        return found


def _compiled(triggers: tuple[str, ...]) -> Any:
    automaton = re2.Set.SearchSet(options(_GATE_MEMORY_BYTES))
    for trigger in triggers:
        automaton.Add(trigger.encode())
    automaton.Compile()
    return automaton


def trigger_of(rule: Rule) -> str:
    return rule.gate or rule.regex
