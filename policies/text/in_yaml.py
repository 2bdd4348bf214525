"""Rewrites the entries of a YAML document that differ, and leaves the rest as it was written."""

import json
import re
from collections.abc import Sequence
from typing import Final

import yaml

from policies.text.texts import YAML_LOADER
from policies.text.writing import Rule, table_of


_INDENT: Final = 2
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z_-]*(?:[ ][A-Za-z][A-Za-z_-]*)*")
_WORDS_WITH_A_MEANING: Final = frozenset(
    {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
)


def yaml_entry(rule: Rule, indent: int = _INDENT) -> str:
    """A rule or a test case as one entry of its section."""
    margin = " " * indent
    pairs = [f"{key}: {_value(value)}\n" for key, value in table_of(rule).items()]
    return f"{margin}- " + f"{margin}  ".join(pairs)


def with_entries(text: str, section: str, olds: Sequence[Rule], news: Sequence[Rule]) -> str | None:
    """The text with `news` where `section` has `olds`; None if its lines cannot be told apart.

    Entries that differ are rewritten between those that do not. If a comment inside them would be
    lost, nothing is changed.
    """
    top = yaml.compose(text, Loader=YAML_LOADER)
    if not isinstance(top, yaml.MappingNode) or top.flow_style:
        return None
    there = next((value for key, value in top.value if key.value == section), None)
    if there is None:
        return f"{text.rstrip()}\n\n{section}:\n{''.join(map(yaml_entry, news))}"
    if not isinstance(there, yaml.SequenceNode):
        return None
    lines = text.splitlines(keepends=True)
    if there.flow_style:
        return None if there.value else _in_place_of_none(lines, there, news)
    return _between(lines, there, olds, news)


def _in_place_of_none(
    lines: list[str], none: yaml.SequenceNode, news: Sequence[Rule]
) -> str | None:
    """Replaces `tests: []`."""
    at, end = none.start_mark, none.end_mark
    if at.line != end.line or lines[end.line][end.column :].strip():
        return None
    lines[at.line] = f"{lines[at.line][: at.column].rstrip()}\n{''.join(map(yaml_entry, news))}"
    return "".join(lines)


def _between(
    lines: list[str], there: yaml.SequenceNode, olds: Sequence[Rule], news: Sequence[Rule]
) -> str | None:
    indent, starts = there.start_mark.column, [item.start_mark.line for item in there.value]
    if len(starts) != len(olds) or any(
        lines[start][: indent + 1] != f"{' ' * indent}-" for start in starts
    ):
        return None
    alike = _alike(olds, news)
    behind = _alike(olds[alike:][::-1], news[alike:][::-1])
    end = len(olds) - behind
    is_behind = alike == end and alike > 0
    first = _end_of(there.value[alike - 1]) if is_behind else starts[alike]
    last = _end_of(there.value[end - 1]) if alike < end else first
    if any("#" in line for line in lines[first:last]):
        return None
    is_spaced = len(starts) > 1 and not lines[starts[1] - 1].strip()
    written = [yaml_entry(rule, indent) for rule in news[alike : len(news) - behind]]
    made = ("\n" if is_spaced else "").join(written)
    if is_spaced and written and alike == end:
        made = f"\n{made}" if alike == len(olds) else f"{made}\n"
    before = "".join(lines[:first])
    if before and not before.endswith("\n"):
        before += "\n"
    return before + made + "".join(lines[last:])


def _alike(some: Sequence[Rule], others: Sequence[Rule]) -> int:
    """How many entries both have in common from the start."""
    pairs = enumerate(zip(some, others, strict=False))
    most = min(len(some), len(others))
    return next((place for place, (one, other) in pairs if one != other), most)


def _end_of(node: yaml.Node) -> int:
    """The line after the last one of a node; blank lines and comments after it do not count."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    line: int = node.end_mark.line
    return line + 1 if node.end_mark.column else line


def _value(value: object) -> str:
    """On one line; anything YAML would read differently is quoted, as in JSON."""
    is_word = isinstance(value, str) and _PLAIN.fullmatch(value) is not None
    if is_word and str(value).lower() not in _WORDS_WITH_A_MEANING:
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def yaml_section(section: str, entries: Sequence[Rule]) -> str:
    """Some entries, under their key."""
    return f"{section}:\n{''.join(map(yaml_entry, entries))}"
