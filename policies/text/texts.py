"""Parses the text of a policy document (TOML, JSON or YAML) into plain tables with positions.

All three formats can express tables, lists, strings, numbers and truth values. Anything beyond that
in one of them (dates, anchors, tags, merge keys) is refused, because the canonical form could not
hold it.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NoReturn

import msgspec
import re2
import yaml

from policies.limits import DOCUMENT_LENGTH_MAX, KEY_PARTS_MAX, NESTING_MAX
from policies.problems import DocumentInvalid, Position, Problem, shown


Find = Callable[[Problem], Problem]
Form = Literal["json", "toml", "yaml"]

# tomllib's memory grows with the square of a dotted key's length, so long ones never reach it.
# In RE2, because a backtracking search would take the square of the time instead.
_LONG_KEY: Final = re2.compile(
    r"""(?:(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*)""" + f"{{{KEY_PARTS_MAX}}}"
)
_PLACE: Final = re.compile(r"\(at line (\d+), column (\d+)\)$")
_YAML_START: Final = re.compile(r"\s*(?:---\s|(?:#[^\n]*\n\s*)*[A-Za-z_]+[ \t]*:(?:\s|$))")
_YAML_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_YAML_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+]?[0-9]+)?")
_RULE_PATH: Final = re.compile(r"(constraints|preferences|tests)\[(\d+)\](?:\.(\w+))?")
_PLAIN_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp")
)
# The C one reads forty times as fast; a wheel without it is slower and as strict.
YAML_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_QUOTED: Final = frozenset({"'", '"', "|", ">"})
_YAML_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_YAML_TRUTHS: Final = {"true": True, "false": False}


def place_finder(text: str) -> Find:
    """A function that adds to a problem the position of its rule in this text."""
    lines: list[str] = []
    headers: dict[str, list[int]] = {}

    def find(problem: Problem) -> Problem:
        if not lines:
            lines.extend(text.splitlines())
            headers.update(_headers(lines))
        place = _RULE_PATH.match(problem.path)
        if place is None:
            return msgspec.structs.replace(problem, rule_at=_place_at_top(lines, problem.path))
        known, number = headers.get(place[1], []), int(place[2])
        if number < len(known):
            at: Position | None = _key_after(lines, known[number], place[3] or "")
        else:
            at = _place_of_name(text, problem.rule)
        return msgspec.structs.replace(problem, rule_at=at)

    return find


def _place_at_top(lines: Sequence[str], path: str) -> Position | None:
    """The position of a key of the document itself, or of a table of it; None if not found."""
    key, _, below = path.partition(".")
    if not key:
        return None
    plain = re2.compile(r"[\"']?" + re2.escape(key) + r"[\"']?\s*[:=]")
    is_inside = False
    for number, line in enumerate(lines, start=1):
        if line.startswith("["):
            is_inside = True
            if line.strip("[]# \t").partition("]")[0].partition(".")[0].strip() == key:
                return _key_after(lines, number, below)
        elif not is_inside and plain.match(line):
            return Position(number, 1)
    return None


def _place_of_name(text: str, rule: str | None) -> Position | None:
    """The first position of a rule's name, in JSON and YAML."""
    if rule is None:
        return None
    pattern = r"name[\"']?\s*:\s*[\"']?" + re2.escape(rule)
    found = re2.search(pattern, text)
    if found is None:
        return None
    start = found.start()
    return Position(text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))


def _headers(lines: Sequence[str]) -> Mapping[str, list[int]]:
    """Line of the n-th rule of each list, if the text shows it plainly: TOML's `[[list]]`."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(lines, start=1):
        header = line.strip()
        if header.startswith("[[") and header.partition("#")[0].rstrip().endswith("]]"):
            name = header.partition("]]")[0].removeprefix("[[").strip()
            found.setdefault(name, []).append(number)
    return found


def _key_after(lines: Sequence[str], header: int, key: str) -> Position:
    """The line of a rule's key, or of the rule if the key is written in another way."""
    for number, line in enumerate(lines[header:], start=header + 1):
        written = line.lstrip()
        if written.startswith("[["):
            break
        if key and written.startswith(key) and written[len(key) :].lstrip()[:1] in {"=", "."}:
            return Position(number, len(line) - len(written) + 1)
    line = lines[header - 1]
    return Position(header, len(line) - len(line.lstrip()) + 1)


def _refuse(message: str, position: Position | None = None) -> NoReturn:
    raise DocumentInvalid([Problem("", message, position=position)])


def parse_text(text: str) -> Mapping[str, object]:
    """The document's tables.

    Raises:
        DocumentInvalid: it is none of the three forms, or exceeds their limits.
    """
    if len(text) > DOCUMENT_LENGTH_MAX:
        before = text[:DOCUMENT_LENGTH_MAX]
        at = Position(before.count("\n") + 1, DOCUMENT_LENGTH_MAX - before.rfind("\n"))
        _refuse(f"the document is longer than {DOCUMENT_LENGTH_MAX} characters", at)
    try:
        text.encode()
        table = _READERS[form_of(text)](text)
    except UnicodeEncodeError:
        _refuse("the document holds a surrogate, which is not a character")
    except json.JSONDecodeError as error:
        _refuse(f"not JSON: {error.msg}", Position(error.lineno, error.colno))
    except ValueError as error:
        place = _PLACE.search(str(error))
        position = Position(int(place[1]), int(place[2])) if place else None
        _refuse(f"not a document: {_PLACE.sub('', str(error)).strip()}", position)
    except RecursionError:
        _refuse("the document is nested too deeply")
    if not isinstance(table, dict):
        _refuse("a document is a table")
    return table


def form_of(text: str) -> Form:
    """The form, of the three, that a text is read as."""
    if text.lstrip().startswith("{"):
        return "json"
    return "yaml" if _YAML_START.match(text) else "toml"


def _parse_yaml(text: str) -> object:
    """Plain YAML by YAML 1.2's core rules for words and numbers: `no` is a word."""
    try:
        node = yaml.compose(text, Loader=YAML_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = Position(mark.line + 1, mark.column + 1) if mark is not None else None
        _refuse(f"not YAML: {error.problem or error.context}", position)
    except yaml.YAMLError as error:
        raise ValueError("not YAML") from error
    return _yaml_value(node, 0, set())


def _parse_toml(text: str) -> object:
    if _LONG_KEY.search(text.encode()) is not None:
        raise ValueError(f"more than {KEY_PARTS_MAX} names are joined by dots")
    return tomllib.loads(text)


def _parse_json(text: str) -> object:
    parsed: object = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    # JSON can spell a lone surrogate as an escape; this refuses it.
    json.dumps(parsed, ensure_ascii=False).encode()
    return parsed


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {shown(twice)} stands twice in one object")
    return table


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _yaml_value(node: yaml.Node | None, depth: int, seen: set[int]) -> object:
    """A node as plain values; a node in two places came from an anchor, which may explode."""
    assert node is not None  # An empty text is TOML.
    place = Position(node.start_mark.line + 1, node.start_mark.column + 1)
    if depth > NESTING_MAX:
        _refuse("the document is nested too deeply", place)
    if node.tag not in _PLAIN_TAGS:
        _refuse(f"{shown(node.tag)} is no kind of value here", place)
    if id(node) in seen:
        _refuse("anchors are not known here; write it out", place)
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        return _yaml_scalar(node, place)
    if isinstance(node, yaml.SequenceNode):
        return [_yaml_value(item, depth + 1, seen) for item in node.value]
    table: dict[str, object] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            _refuse("a key is a plain word", place)
        if key.value in table:
            _refuse(f"the key {shown(key.value)} stands twice in one table", place)
        table[key.value] = _yaml_value(value, depth + 1, seen)
    return table


def _yaml_scalar(node: yaml.ScalarNode, place: Position) -> object:
    text: str = node.value
    if node.style in _QUOTED:
        return text
    if text in _YAML_TRUTHS:
        return _YAML_TRUTHS[text]
    if text in _YAML_NULLS:
        _refuse("a key without a value; leave it out", place)
    if _YAML_INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _YAML_DECIMAL.fullmatch(text) else text


_READERS: Final[Mapping[Form, Callable[[str], object]]] = {
    "json": _parse_json,
    "toml": _parse_toml,
    "yaml": _parse_yaml,
}
