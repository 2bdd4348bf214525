"""Reads untrusted tables key by key and collects every problem instead of raising the first."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from policies.limits import (
    COUNT_MAX,
    LIST_LENGTH_MAX,
    NAME_LENGTH_MAX,
    PROBLEMS_MAX,
    TEXT_LENGTH_MAX,
)
from policies.problems import Position, Problem, shown, suggestion


T = TypeVar("T")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class TableReader:
    """One table of a document at its path; values that do not fit are reported and read as None.

    Every key that was read counts as known; `finish` reports the others.
    """

    def __init__(self, table: Mapping[str, object], path: str, problems: list[Problem]) -> None:
        self._table = table
        self._path = path
        self._problems = problems
        self._known: list[str] = []
        self._rule: str | None = None

    def rule_name(self) -> str:
        """The table's `name`, which later problems also mention; "" if it has none."""
        self._rule = self.name() or None
        return self._rule or ""

    def name(self) -> str:
        """The table's `name`, printable and on one line; "" if it has none."""
        name = self.text("name", length_max=NAME_LENGTH_MAX)
        if name is None:
            if "name" not in self._table:
                self.report("name", "a name is required")
            return ""
        if not name.strip() or not name.isprintable():
            self.report("name", "a name is printable text on one line")
        return name

    def report(self, key: str, message: str, position: Position | None = None) -> None:
        """Note a problem with one key of this table, or with the table itself for ""."""
        if len(self._problems) < PROBLEMS_MAX:
            path = ".".join(part for part in (self._path, key) if part)
            self._problems.append(Problem(path, message, self._rule, position))

    @property
    def is_full(self) -> bool:
        """Whether no more problems are listed: slow checks can be skipped."""
        return len(self._problems) >= PROBLEMS_MAX

    def has(self, key: str) -> bool:
        return key in self._table

    def text(self, key: str, length_max: int = TEXT_LENGTH_MAX) -> str | None:
        value = self._typed(key, str, "a string")
        if value is not None and len(value) > length_max:
            self.report(key, f"longer than {length_max} characters")
            return None
        return value

    def count(self, key: str, lowest: int = 1) -> int | None:
        value = self._typed(key, int, "a whole number")
        if value is not None and not lowest <= value <= COUNT_MAX:
            self.report(key, f"not between {lowest} and {COUNT_MAX}")
            return None
        return value

    def percent(self, key: str) -> float | None:
        """A share above 0 and up to 100."""
        value = self.raw(key)
        if key not in self._table:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 100:  # noqa: PLR2004
            self.report(key, "expected a number above 0 and up to 100")
            return None
        return float(value)

    def keys(self, length_max: int) -> tuple[str, ...]:
        """The table's own keys, if they are names that its author chose."""
        if len(self._table) > length_max:
            self.report("", f"more than {length_max} entries")
            return ()
        return tuple(self._table)

    def flag(self, key: str) -> bool | None:
        return self._typed(key, bool, "true or false")

    def choice(self, key: str, options: Mapping[str, T]) -> T | None:
        """The value that the name of an option stands for."""
        name = self.text(key)
        if name is None:
            return None
        if name not in options:
            self.report(key, f"{shown(name)} is not one of {', '.join(options)}")
            return None
        return options[name]

    def texts(self, key: str, options: tuple[str, ...] | None = None) -> tuple[str, ...] | None:
        """A list of different strings with at least one entry; a single string is one entry."""
        if isinstance(self._table.get(key), str):
            entries: list[object] = [self.raw(key)]
        else:
            found: list[object] | None = self._typed(key, list, "a list of strings")
            if found is None:
                return None
            entries = found
        names = tuple(entry for entry in entries if isinstance(entry, str))
        if len(names) < len(entries):
            self.report(key, "expected a list of strings only")
            return None
        self._check_names(key, names, options)
        return names

    def _check_names(
        self, key: str, names: tuple[str, ...], options: tuple[str, ...] | None
    ) -> None:
        if not names:
            self.report(key, "the list is empty")
        if len(names) > LIST_LENGTH_MAX:
            self.report(key, f"the list has more than {LIST_LENGTH_MAX} entries")
            return
        if len(set(names)) < len(names):
            self.report(key, "an entry stands twice in the list")
        for name in names:
            if options is not None and name not in options:
                hint = suggestion(name, options) or f"; one of {', '.join(options)}"
                self.report(key, f"{shown(name)} is not known{hint}")
            elif not name or len(name) > NAME_LENGTH_MAX:
                self.report(key, f"an entry has 1 to {NAME_LENGTH_MAX} characters")

    def table(self, key: str) -> "TableReader | None":
        value: dict[str, object] | None = self._typed(key, dict, "a table")
        if value is None:
            return None
        reader = TableReader(value, f"{self._path}.{key}" if self._path else key, self._problems)
        reader._rule = self._rule
        return reader

    def tables(self, key: str, length_max: int) -> "Iterator[TableReader]":
        """A list of tables, in TOML written [[key]]."""
        entries: list[object] = self._typed(key, list, f"a list of tables, [[{key}]]") or []
        if len(entries) > length_max:
            self._report_surplus(f"{key}[{length_max}]", length_max, entries[length_max])
            return
        for place, entry in enumerate(entries):
            path = f"{self._path}{'.' if self._path else ''}{key}[{place}]"
            if isinstance(entry, dict):
                yield TableReader(entry, path, self._problems)
            else:
                self.report(f"{key}[{place}]", f"expected a table, not {_kind(entry)}")

    def _report_surplus(self, key: str, length_max: int, first: object) -> None:
        name = first.get("name") if isinstance(first, dict) else None
        self._rule = name if isinstance(name, str) and len(name) <= NAME_LENGTH_MAX else None
        self.report(key, f"there are more than {length_max} entries")
        self._rule = None

    def raw(self, key: str) -> object:
        """The value as it is, for a reader of its own; None if it is missing."""
        self._known.append(key)
        return self._table.get(key)

    def finish(self) -> None:
        """Report every key that was never read."""
        for key in self._table:
            if len(self._problems) >= PROBLEMS_MAX:
                return
            if key not in self._known:
                # A plain name leads to its line; any other could be taken for a path.
                at = key if _PLAIN.fullmatch(key) else ""
                self.report(at, f"unknown key {shown(key)}{suggestion(key, self._known)}")

    def _typed(self, key: str, kind: type[T], expected: str) -> T | None:
        value = self.raw(key)
        if key not in self._table:
            return None
        # A truth value is also an int, but nobody who writes true means 1.
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        self.report(key, f"expected {expected}, not {_kind(value)}")
        return None


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case dict():
            return "a table"
        case list():
            return "a list"
    return "a value of another kind"
