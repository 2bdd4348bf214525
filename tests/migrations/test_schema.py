"""The way up to the newest schema and down again."""

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from gateway.errors import NotReady, StartupRefused
from gateway.store.engine import open_database
from gateway.store.migrate import alembic_config, migrate
from gateway.store.schema import (
    known_schemas,
    newest_schema,
    require_newest_schema,
    schema_of,
)


pytestmark = pytest.mark.anyio


def _tables(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def _check(connection: Connection) -> None:
    command.check(alembic_config(connection))


async def test_the_migrations_make_exactly_the_tables_that_the_code_declares(
    empty_database_url: str,
) -> None:
    assert await migrate(empty_database_url) == newest_schema()
    database = open_database(empty_database_url, pooled=False)
    async with database.writing() as connection:
        await connection.run_sync(_check)  # raises when a column, an index or a type differs
    await database.close()


def test_the_number_of_a_files_name_is_its_migrations_version() -> None:
    scripts = ScriptDirectory.from_config(alembic_config())

    assert [script.revision for script in scripts.walk_revisions()][::-1] == known_schemas()


async def test_going_down_leaves_nothing_and_going_up_again_works(empty_database_url: str) -> None:
    await migrate(empty_database_url)
    assert await migrate(empty_database_url, "base") == ""
    database = open_database(empty_database_url, pooled=False)
    async with database.reading() as connection:
        assert await connection.run_sync(_tables) <= {"alembic_version"}
    await migrate(empty_database_url)
    assert await schema_of(database) == newest_schema()
    await database.close()


async def test_migrating_twice_changes_nothing(database_url: str) -> None:
    assert await migrate(database_url) == newest_schema()


async def test_a_database_without_a_schema_is_refused_with_the_command_to_run(
    empty_database_url: str,
) -> None:
    database = open_database(empty_database_url, pooled=False)
    with pytest.raises(StartupRefused, match=r"no schema yet: run `gatewright database migrate`"):
        await require_newest_schema(database)
    await database.close()


async def test_the_newest_schema_is_accepted(database_url: str) -> None:
    database = open_database(database_url)
    await require_newest_schema(database)
    await database.close()


async def test_a_schema_from_the_future_is_refused(database_url: str) -> None:
    database = open_database(database_url)
    async with database.writing() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StartupRefused, match="newer than this program"):
        await require_newest_schema(database)
    await database.close()


async def test_an_unreachable_server_is_named_as_not_ready() -> None:
    database = open_database("postgresql+asyncpg://postgres@127.0.0.1:1/nothing", pooled=False)
    with pytest.raises(NotReady, match="the database does not answer"):
        await require_newest_schema(database)
    await database.close()
