"""What a migration does, as PostgreSQL would be told it: whether a running older program lives on.

Only what is known to be harmless passes. A program names the columns that it reads and writes, so
it does not see a new table, a new index, or a new column that may be empty or has a default of the
server; whatever else there is has to be a migration with a floor of its own.
"""

import io
import re
from types import ModuleType

from alembic.migration import MigrationContext
from alembic.operations import Operations


_NAME = r'"?(\w+)"?'
_TABLE = re.compile(rf"CREATE TABLE {_NAME} \(", re.IGNORECASE)
_COLUMN = re.compile(rf"ALTER TABLE {_NAME} ADD COLUMN {_NAME} (.+)", re.IGNORECASE | re.DOTALL)
_INDEX = re.compile(rf"CREATE (UNIQUE )?INDEX {_NAME} ON {_NAME} ", re.IGNORECASE)
_FILLED = re.compile(rf"(?:INSERT INTO|DELETE FROM|UPDATE) {_NAME}", re.IGNORECASE)
_SET = re.compile(rf"UPDATE {_NAME} SET {_NAME} = (?!.*,\s*\w+ = )", re.IGNORECASE | re.DOTALL)  # noqa: S608 - none is sent
_BOUND = re.compile(r"\b(?:UNIQUE|CHECK|REFERENCES|PRIMARY KEY|GENERATED)\b", re.IGNORECASE)
_REFERENCE = re.compile(r"\bREFERENCES\b(?:(?!\bREFERENCES\b).)*", re.IGNORECASE | re.DOTALL)
_LETS_GO = re.compile(r"ON DELETE (?:CASCADE|SET NULL)", re.IGNORECASE)


def statements(migration: ModuleType) -> list[str]:
    """What going up says to PostgreSQL.

    One that asks the database what is there says so by an exception: nobody can tell without one.
    """
    said = io.StringIO()
    context = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": said}
    )
    with Operations.context(context):
        migration.upgrade()
    return [each.strip() for each in said.getvalue().split(";") if each.strip()]


def no_addition(told: list[str]) -> list[str]:
    """Those of the statements that a program which runs meanwhile may not live with."""
    tables: set[str] = set()
    columns: set[tuple[str, str]] = set()
    found = []
    for statement in told:
        if made := _TABLE.match(statement):
            tables.add(made[1])
            # A row of ours could hold one back that the older program deletes.
            is_harmless = all(map(_LETS_GO.search, _REFERENCE.findall(statement)))
        elif added := _COLUMN.match(statement):
            columns.add((added[1], added[2]))
            needs_value = "NOT NULL" in added[3] and "DEFAULT" not in added[3]
            is_harmless = added[1] in tables or not (needs_value or _BOUND.search(added[3]))
        elif index := _INDEX.match(statement):
            is_harmless = index[3] in tables or not index[1]
        elif written := _FILLED.match(statement):
            new = _SET.match(statement)
            is_harmless = written[1] in tables or (new is not None and (new[1], new[2]) in columns)
        else:
            is_harmless = False
        if not is_harmless:
            found.append(statement)
    return found
