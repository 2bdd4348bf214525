"""Edits a document's text to match a changed body, and leaves its comments in place.

    text, wanted body ──▶ statements, blocks ──▶ only what differs is written anew ──▶ text

Whoever edits a rule in a form gets back the text that its author wrote: other rules, blank lines,
spelling and comments are untouched. The result is loaded again and compared. If the text is written
in a way that this cannot follow, the whole document is written anew, and the result says so.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from policies.document import PolicyBody
from policies.problems import DocumentInvalid
from policies.text.in_yaml import with_entries, yaml_section
from policies.text.loading import load_document
from policies.text.statements import Block, blocks_of
from policies.text.texts import Form, form_of, parse_text
from policies.text.writing import Rule, Table, document_text, rule_text, table_of


SECTIONS = ("constraints", "preferences", "tests")
_INDENT = re.compile(r"\{\s*\n( +)\"")


class Amended(msgspec.Struct, frozen=True):
    """A changed text; `comments_kept` is false if all of it had to be rewritten."""

    text: str
    comments_kept: bool


def amended(text: str, body: PolicyBody) -> Amended:
    """Change `text`, which loads, so that it loads as `body`.

    Raises:
        DocumentInvalid: the text, or the body, is no document.
    """
    before = load_document(text).body
    if before == body:
        return Amended(text, comments_kept=True)
    changed = _WAYS[form_of(text)](text, before, body)
    if changed is not None and _loads_as(changed, body):
        return Amended(changed, comments_kept=True)
    whole = document_text(body)
    load_document(whole)
    return Amended(whole, comments_kept="#" not in text)


def entry_as(text: str, section: str, rule: Rule) -> str:
    """A rule or a test case as it would be written into `text`: in TOML, YAML or JSON."""
    match form_of(text):
        case "json":
            return json.dumps(table_of(rule), ensure_ascii=False, indent=2)
        case "yaml":
            return yaml_section(section, [rule])
    return rule_text(section, table_of(rule))


def _loads_as(text: str, body: PolicyBody) -> bool:
    try:
        return load_document(text).body == body
    except DocumentInvalid:
        return False


def _in_json(text: str, before: PolicyBody, body: PolicyBody) -> str:
    """JSON has no comments; keys that did not change stay as they were spelled."""
    written = dict(parse_text(text))
    old, new = table_of(before), table_of(body)
    for key in old.keys() | new.keys():
        if key not in new:
            del written[key]
        elif old.get(key) != new[key]:
            written[key] = new[key]
    indent = _INDENT.match(text.lstrip())
    return json.dumps(written, ensure_ascii=False, indent=len(indent[1]) if indent else None)


def _in_yaml(text: str, before: PolicyBody, body: PolicyBody) -> str | None:
    """Only entries of the lists; for any other difference the text is rewritten."""
    changed: str | None = text
    for section in SECTIONS:
        olds, news = getattr(before, section), getattr(body, section)
        if changed is not None and olds != news:
            changed = with_entries(changed, section, olds, news)
    return changed


def _in_toml(text: str, before: PolicyBody, body: PolicyBody) -> str | None:
    blocks = blocks_of(text)
    if blocks is None:
        return None
    document = _Document(blocks)
    old, new = table_of(before), table_of(body)
    for section in SECTIONS:
        olds, news = getattr(before, section), getattr(body, section)
        if olds == news:
            continue
        units = document.units(section)
        if len(units) == len(olds):
            document.replace_rules(section, units, olds, news)
        else:
            document.set_key(section, old.get(section), new.get(section))
    for key in ("name", "description", "example_targets"):
        document.set_key(key, old.get(key), new.get(key))
    document.set_defaults(old.get("defaults"), new.get("defaults"))
    return document.text()


class _Unit:
    """A rule's own block, and the blocks of its tables."""

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks

    def change(self, old: Table, new: Table) -> None:
        """Rewrite the keys that differ."""
        main = self.blocks[0]
        for key in [*old, *(each for each in new if each not in old)]:
            if old.get(key) == new.get(key):
                continue
            self.blocks = _without(self.blocks, (main.header[0], key))
            main.set(key, new.get(key))


class _Document:
    def __init__(self, blocks: list[Block]) -> None:
        self.head, self.rest = blocks[0], blocks[1:]

    def text(self) -> str:
        return "".join(block.text() for block in [self.head, *self.rest])

    def units(self, section: str) -> list[_Unit]:
        """The rules of a list that are written as `[[section]]`, each with its tables."""
        units: list[_Unit] = []
        for block in self.rest:
            if block.header == (section,):
                units.append(_Unit([block]))
            elif block.header[:1] == (section,) and units:
                units[-1].blocks.append(block)
        return units

    def set_key(self, key: str, old: object, new: object) -> None:
        """Set a key of the document itself, however it was written."""
        if old == new:
            return
        blocks = _without([self.head, *self.rest], (key,))
        self.rest = blocks[1:]
        self.head.set(key, new)

    def set_defaults(self, old: object, new: object) -> None:
        own = [block for block in self.rest if block.header == ("defaults",)]
        if len(own) == 1 and isinstance(old, dict) and isinstance(new, dict) and new:
            _Unit(own).change(old, new)
        else:
            self.set_key("defaults", old or None, new or None)

    def replace_rules(
        self, section: str, units: Sequence[_Unit], old: Sequence[Rule], new: Sequence[Rule]
    ) -> None:
        """Put the new rules in the places of the old ones; text that follows a rule stays there."""
        taken = {id(block) for unit in units for block in unit.blocks}
        places = _matched(old, new)
        wanted: list[_Unit] = []
        for rule, place in zip(new, places, strict=True):
            if place is None:
                wanted.append(_Unit(_new_blocks(section, rule)))
                continue
            units[place].change(table_of(old[place]), table_of(rule))
            wanted.append(units[place])
        tails = [unit.blocks[-1].take_tail() for unit in units]
        at = self._start_of(section, units)
        before = [block for block in self.rest[:at] if id(block) not in taken]
        after = [block for block in self.rest[at:] if id(block) not in taken]
        filled = [block for unit in wanted for block in unit.blocks]
        for number, unit in enumerate(wanted):
            tail = tails[number] if number < len(tails) else []
            is_cut = not tail and number < len(wanted) - 1 and None in places
            unit.blocks[-1].tail = ["\n"] if is_cut else tail
        left_over = [line for tail in tails[len(wanted) :] for line in tail]
        if wanted:
            wanted[-1].blocks[-1].tail += left_over[1:] if left_over[:1] == ["\n"] else left_over
        else:
            [self.head, *before][-1].tail += left_over
        if None in places[:1]:
            self._end_line(before)
        self.rest = [*before, *filled, *after]

    def _start_of(self, section: str, units: Sequence[_Unit]) -> int:
        """Where the rules of a list begin, or would begin."""
        if units:
            return next(n for n, block in enumerate(self.rest) if block is units[0].blocks[0])
        later = SECTIONS[SECTIONS.index(section) + 1 :]
        found = (n for n, block in enumerate(self.rest) if block.header[0] in later)
        return next(found, len(self.rest))

    def _end_line(self, before: Sequence[Block]) -> None:
        """A new rule begins on its own line, after an empty one."""
        last = before[-1] if before else self.head
        if last.tail[-1:] != ["\n"]:
            last.tail.append("\n")


def _without(blocks: Sequence[Block], path: tuple[str, ...]) -> list[Block]:
    """The blocks not under the path; the tail of a removed one joins the block before it."""
    kept = [blocks[0]]
    for block in blocks[1:]:
        if block.header[: len(path)] == path:
            kept[-1].tail += block.take_tail()
        else:
            kept.append(block)
    return kept


def _new_blocks(section: str, rule: Rule) -> list[Block]:
    blocks = blocks_of(rule_text(section, table_of(rule)))
    assert blocks is not None
    return blocks[1:]


def _matched(old: Sequence[Rule], new: Sequence[Rule]) -> list[int | None]:
    """For each new rule, the index of the old one that it replaces: by name, else by place."""
    by_name = {rule.name: place for place, rule in enumerate(old)}
    named = [by_name.get(rule.name) for rule in new]
    free = set(range(len(old))) - {place for place in named if place is not None}
    return [
        place if place is not None else (number if number in free else None)
        for number, place in enumerate(named)
    ]


_WAYS: Final[Mapping[Form, Callable[[str, PolicyBody, PolicyBody], str | None]]] = {
    "json": _in_json,
    "toml": _in_toml,
    "yaml": _in_yaml,
}
