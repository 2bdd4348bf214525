"""Says whose an account is; one that belongs to nobody may get a limit, which limits nobody."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Column, select

from gateway.store.engine import Database
from gateway.store.schema.tables import organisations, projects, virtual_keys, workspaces


_NAMED_BY: Final[Mapping[str, tuple[str, tuple[Column[str], ...]]]] = {
    "org": ("organisation", (organisations.c.name,)),
    "ws": ("workspace", (workspaces.c.organisation, workspaces.c.name)),
    "proj": ("project", (projects.c.organisation, projects.c.workspace, projects.c.name)),
    "key": ("key", (virtual_keys.c.id,)),
    "user": ("organisation", (organisations.c.name,)),
}


async def missing(database: Database, account: str) -> str:
    """What kind of thing the account refers to, if that does not exist; empty if it does.

    Raises:
        NotReady: the database does not answer.
    """
    kind, _, path = account.partition(":")
    what, columns = _NAMED_BY[kind]
    names = path.removesuffix("/*").split("/")
    query = select(columns[0]).where(
        *(column == name for column, name in zip(columns, names, strict=True))
    )
    async with database.reading() as connection:
        found = (await connection.execute(query)).first()
    return "" if found is not None else what
