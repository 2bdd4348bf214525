"""Opens the database of a configuration for the length of one command."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.cli.known import require_organisation
from gateway.configuration.settings import Settings
from gateway.store.engine import Database, open_database
from gateway.store.schema.version import require_newest_schema


@asynccontextmanager
async def opened_database(
    settings: Settings, organisation: str | None = None, *, pooled: bool = True
) -> AsyncIterator[Database]:
    """At this program's schema; a command about an `organisation` is refused if it does not exist.

    Without a pool, long statements are waited for, not ended; see `open_database`.
    """
    database = open_database(settings.database_url, pooled=pooled)
    try:
        await require_newest_schema(database)
        await require_organisation(database, organisation)
        yield database
    finally:
        await database.close()
