"""The alarms of docs/operations/metrics.md as Prometheus rules, generated from that page.

`python -m tests.alarms` writes them; `tests/test_alarms.py` fails if that was forgotten.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct


ROOT = Path(__file__).resolve().parent.parent / "docs" / "operations"
PAGE = ROOT / "metrics.md"
FILE = ROOT / "prometheus" / "gatewright.rules.yml"
ROW = re.compile(r"\| (?P<when>[^|]+) \| `(?P<ask>[^`]+)` \| (?P<means>.+) \|")
FOR = {", for a minute": "1m", ", for five minutes": "5m"}
KEPT: Mapping[str, str] = {}
"""By the name that a row's words would give now, the name under which it was published."""
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Alarm(Struct, frozen=True):
    """One line of the table."""

    name: str
    ask: str
    holds: str
    """How long it must hold before it fires; empty if it fires at once."""
    summary: str
    means: str


def alarms() -> list[Alarm]:
    """All of them, in the order of the page."""
    part = PAGE.read_text("utf-8").partition("## Worth an alarm")[2].partition("\n## ")[0]
    return [_alarm(found) for found in map(ROW.fullmatch, part.splitlines()) if found]


def rules() -> str:
    """The file as Prometheus reads it."""
    lines = [
        "# Made of ../metrics.md by `python -m tests.alarms`: change that page, not this file.",
        "groups:",
        "  - name: gatewright",
        "    rules:",
    ]
    for alarm in alarms():
        lines += [f"      - alert: {alarm.name}", f"        expr: {_quoted(alarm.ask)}"]
        if alarm.holds:
            lines.append(f"        for: {alarm.holds}")
        lines += [
            "        annotations:",
            f"          summary: {_quoted(alarm.summary)}",
            f"          description: {_quoted(alarm.means)}",
        ]
    return "\n".join(lines) + "\n"


def _alarm(found: re.Match[str]) -> Alarm:
    when = found["when"]
    words = next((each for each in FOR if when.endswith(each)), "")
    when = when.removesuffix(words)
    words_of_name = re.findall(r"[a-z0-9]+", when.lower().replace("'s", ""))
    name = "Gatewright" + "".join(
        word.capitalize() for word in words_of_name if word not in {"a", "an", "the"}
    )
    name = KEPT.get(name, name)
    means = LINK.sub(r"\1", found["means"]).replace("`", "")
    return Alarm(name, found["ask"], FOR.get(words, ""), when, means)


def _quoted(text: str) -> str:
    """In single quotes only quotes are special to YAML; two braces are so to Prometheus."""
    return "'" + text.replace("'", "''") + "'"


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(rules(), "utf-8")
