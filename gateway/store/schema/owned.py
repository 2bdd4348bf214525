"""Tables whose rows belong to a project: the columns that say which, and the queries on them."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, RowMapping, Table

from gateway.projects import Project


OWNER: Final = ("organisation", "workspace", "project")
"""The columns, in the order of `Project`."""


def owner_columns(table: Table) -> list[Column[Any]]:
    return [table.c[name] for name in OWNER]


def is_of(table: Table, project: Project) -> list[ColumnElement[bool]]:
    """The conditions under which a row is this project's."""
    return [column == part for column, part in zip(owner_columns(table), project, strict=True)]


def owned_by(project: Project) -> dict[str, str]:
    """The values of these columns in a row of this project."""
    return dict(zip(OWNER, project, strict=True))


def owner_of(row: RowMapping) -> Project:
    return Project(*(row[name] for name in OWNER))


def same_owner(one: Table, other: Table) -> Sequence[ColumnElement[bool]]:
    """The conditions under which rows of two tables are of one project."""
    pairs = zip(owner_columns(one), owner_columns(other), strict=True)
    return [left == right for left, right in pairs]
