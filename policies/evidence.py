"""Words for the values that a rule looked at, fit for a reason, a page and a log.

Facts hold no message content, so neither does this; texts that a client chose are shortened.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from policies.expressions import Reading
from policies.facts import DATA_CLASSES, Facts, data_class_rank


_TEXT_LENGTH_MAX: Final = 64
_LABELS_MAX: Final = 8


class FactValue(msgspec.Struct, frozen=True):
    """A fact by the name a rule uses for it, and its value as text."""

    name: str
    value: str

    def __str__(self) -> str:
        joint = ": " if self.name == "findings" else " = "
        return f"{self.name}{joint}{self.value}"


def evidence(readings: Sequence[Reading], facts: Facts) -> tuple[FactValue, ...]:
    """The value of every fact read; a data class comes with the findings that caused it."""
    values = [_value(reading, facts) for reading in readings]
    wants_findings = Reading("data_class") in readings and Reading("findings") not in readings
    if wants_findings and facts.findings:
        values.append(_value(Reading("findings"), facts))
    return tuple(values)


def _value(reading: Reading, facts: Facts) -> FactValue:
    if reading.key is not None and reading.fact == "headers":
        text = facts.headers.get(reading.key, "")
        return FactValue(f"headers.{shortened(reading.key)}", shortened(text) or "absent")
    if reading.key is not None:
        count = facts.findings.get(reading.key, 0)
        return FactValue(f"findings.{shortened(reading.key)}", str(count))
    if reading.fact == "findings":
        return FactValue("findings", _listed(sorted(facts.findings)))
    if reading.fact == "data_class":
        note = "" if facts.inspection_complete else " (inspection incomplete)"
        return FactValue("data_class", DATA_CLASSES[data_class_rank(facts)] + note)
    value: object = getattr(facts, reading.fact)
    return FactValue(reading.fact, _in_words(value))


def _in_words(value: object) -> str:
    match value:
        case None:
            return "absent"
        case bool():
            return "true" if value else "false"
        case tuple():
            return _listed([str(entry) for entry in value])
    return shortened(str(value))


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "none"
    shown = ", ".join(shortened(name) for name in names[:_LABELS_MAX])
    return shown if len(names) <= _LABELS_MAX else f"{shown} and {len(names) - _LABELS_MAX} more"


def shortened(text: str) -> str:
    printable = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
    if len(printable) <= _TEXT_LENGTH_MAX:
        return printable
    return printable[: _TEXT_LENGTH_MAX - 1] + "…"
