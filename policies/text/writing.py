"""Writes a document as TOML the way people write it; it loads as exactly the same body."""

import json
from collections.abc import Mapping, Sequence

import msgspec

from policies.document import Case, Constraint, PolicyBody, Preference


Table = Mapping[str, object]
Rule = Constraint | Preference | Case
LISTS = ("example_targets", "constraints", "preferences", "tests")
_LINE_LENGTH_MAX = 100


def table_of(part: Rule | PolicyBody) -> dict[str, object]:
    """The keys of a rule or a document as a document writes them; defaults are left out."""
    encoded = msgspec.json.encode(part, order="deterministic")
    return msgspec.json.decode(encoded, type=dict[str, object])


def document_text(body: PolicyBody) -> str:
    """A whole document in TOML; loading it gives the same body."""
    table = table_of(body)
    lists = {key: table.pop(key, []) for key in LISTS}
    defaults = table.pop("defaults", None)
    parts = ["".join(f"{key} = {toml_value(value)}\n" for key, value in table.items())]
    if isinstance(defaults, dict) and defaults:
        parts.append("[defaults]\n" + _lines(defaults))
    for key, entries in lists.items():
        assert isinstance(entries, list)
        parts += [rule_text(key, entry) for entry in entries]
    return "\n".join(parts)


def rule_text(section: str, table: Table) -> str:
    """One entry of a list of tables: `[[constraints]]` and its keys."""
    return f"[[{section}]]\n{_lines(table)}"


def _lines(table: Table) -> str:
    return "".join(f"{toml_key(key)} = {toml_value(value)}\n" for key, value in table.items())


def toml_key(key: str) -> str:
    """A key, in quotes unless it is a plain word."""
    is_plain = key.isascii() and key.replace("-", "_").isidentifier()
    return key if is_plain else _basic(key)


def toml_value(value: object) -> str:
    """A value on one line; long lists of words on several."""
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        inner = ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items())
        return "{ " + inner + " }"
    if isinstance(value, Sequence):
        items = [toml_value(item) for item in value]
        short = "[" + ", ".join(items) + "]"
        if len(short) <= _LINE_LENGTH_MAX:
            return short
        return "[\n" + "".join(f"  {item},\n" for item in items) + "]"
    return json.dumps(value)  # Numbers and truth values are spelled alike.


def _string(text: str) -> str:
    """In single quotes if that saves escapes, as conditions are written."""
    if ('"' in text or "\\" in text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    return _basic(text)


def _basic(text: str) -> str:
    # TOML reads JSON's strings, but for the one control character that JSON leaves as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
