"""Each migration says how old a program may be that runs on it, and can be taken at its word."""

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import op
from alembic.script import ScriptDirectory
from sqlalchemy import insert, select

from gateway.errors import StartupRefused
from gateway.oversight.workers import WorkerReport
from gateway.store.engine import Database, open_database
from gateway.store.migrate import WorkersAlive, alembic_config, migrate
from gateway.store.schema.version import (
    known_schemas,
    lock_schema,
    newest_schema,
    require_newest_schema,
    require_permitted_schema,
    schema_floor,
)
from gateway.store.workers import WorkerTable
from tests.migrations.additions import no_addition, statements


FIRST = "0068"
"""The first migration that says it."""
SECOND_US = 1_000_000


def migrations() -> list[ModuleType]:
    """Oldest first."""
    scripts = ScriptDirectory.from_config(alembic_config())
    return [script.module for script in scripts.walk_revisions()][::-1]


def going_up(*steps: Callable[[], object]) -> ModuleType:
    def upgrade() -> None:
        for step in steps:
            step()

    made = ModuleType("made")
    vars(made)["upgrade"] = upgrade
    return made


def test_each_migration_keeps_the_floor_or_raises_it_to_itself() -> None:
    before = "0067"
    stated = [each for each in migrations() if each.revision >= FIRST]
    assert stated
    for each in stated:
        assert each.floor in (before, each.revision), each.__name__
        before = each.floor


def test_a_migration_that_keeps_the_floor_only_adds() -> None:
    for each in migrations():
        if each.revision >= FIRST and each.floor != each.revision:
            assert no_addition(statements(each)) == [], each.__name__


EMPTY_OR_DEFAULT = [
    lambda: op.add_column("workers", sa.Column("place", sa.Text)),
    lambda: op.add_column(
        "workers", sa.Column("zone", sa.Text, nullable=False, server_default="a, b = c")
    ),
    lambda: op.create_index("ix_workers_zone", "workers", ["zone"]),
    lambda: op.execute("UPDATE workers SET zone = COALESCE((SELECT 'x'), worker)"),
    lambda: op.create_table(
        "places",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("worker", sa.Text, sa.ForeignKey("workers.worker", ondelete="CASCADE")),
        sa.CheckConstraint("name <> ''", name="named"),
    ),
    lambda: op.create_index("ix_places_worker", "places", ["worker"], unique=True),
    lambda: op.execute("INSERT INTO places (name) SELECT worker FROM workers"),
]
NOT_TO_LIVE_WITH: dict[str, Callable[[], object]] = {
    "drops a table": lambda: op.drop_table("workers"),
    "drops a column": lambda: op.drop_column("workers", "seen_us"),
    "drops an index": lambda: op.drop_index("ix_budget_leases_worker", "budget_leases"),
    "renames a table": lambda: op.rename_table("workers", "people"),
    "renames a column": lambda: op.alter_column("workers", "seen_us", new_column_name="heard_us"),
    "alters a type": lambda: op.alter_column("workers", "report", type_=sa.Text),
    "needs a value": lambda: op.alter_column("workers", "report", nullable=False),
    "needs a value in a new column": lambda: op.add_column(
        "workers", sa.Column("zone", sa.Text, nullable=False)
    ),
    "bounds a new column": lambda: op.add_column(
        "workers", sa.Column("zone", sa.Text, sa.CheckConstraint("zone <> ''"))
    ),
    "binds a new column": lambda: op.add_column(
        "workers", sa.Column("lease", sa.Text, sa.ForeignKey("budget_leases.worker"))
    ),
    "allows no two": lambda: op.create_index("ix_host", "workers", ["started_us"], unique=True),
    "bounds what is there": lambda: op.create_check_constraint("seen", "workers", "seen_us > 0"),
    "holds rows back": lambda: op.create_table(
        "places",
        sa.Column("lease", sa.Text, sa.ForeignKey("budgets.account", ondelete="CASCADE")),
        sa.Column("worker", sa.Text, sa.ForeignKey("workers.worker")),
    ),
    "changes what is there": lambda: op.execute("UPDATE workers SET seen_us = 0"),
    "says two things at once": lambda: op.execute("CREATE TABLE t (a INT); DROP TABLE t"),
    "deletes what is there": lambda: op.execute("DELETE FROM workers"),
    "says it in words": lambda: op.execute("ALTER TABLE workers ALTER report SET NOT NULL"),
    "does what nobody knows": lambda: op.execute("SELECT tidy()"),
}


def test_what_only_adds_is_taken_for_that() -> None:
    assert no_addition(statements(going_up(*EMPTY_OR_DEFAULT))) == []


@pytest.mark.parametrize("kind", NOT_TO_LIVE_WITH)
def test_what_a_running_program_may_not_live_with_is_found(kind: str) -> None:
    assert len(no_addition(statements(going_up(NOT_TO_LIVE_WITH[kind])))) == 1


def test_a_new_columns_filling_may_change_no_other_column() -> None:
    def add() -> None:
        op.add_column("workers", sa.Column("zone", sa.Text))

    def fill() -> None:
        op.execute("UPDATE workers SET zone = 'a', seen_us = 0")

    assert len(no_addition(statements(going_up(add, fill)))) == 1


async def at_schema(database: Database, version: str, *floors: str) -> None:
    """As a newer program would leave it."""
    async with database.writing() as connection:
        await connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{version}'")  # noqa: S608 - ours
        await connection.execute(schema_floor.delete())
        for place, floor in enumerate(floors):
            await connection.execute(insert(schema_floor), {"id": 1 + place, "floor": floor})


@pytest.mark.anyio
async def test_the_floor_goes_up_and_down_with_the_schema(empty_database_url: str) -> None:
    newest = migrations()[-1]
    await migrate(empty_database_url)
    database = open_database(empty_database_url, pooled=False)

    async def floor() -> list[str]:
        async with database.reading() as connection:
            return list((await connection.execute(select(schema_floor.c.floor))).scalars())

    assert await floor() == [newest.floor]
    for each in (each for each in migrations()[::-1] if each.revision >= FIRST):
        await migrate(empty_database_url, each.revision)
        assert await floor() == [each.floor]
    await migrate(empty_database_url, "0067")
    await migrate(empty_database_url)
    assert await floor() == [newest.floor]
    await database.close()


@pytest.mark.anyio
async def test_a_program_starts_on_a_newer_schema_that_permits_it(database: Database) -> None:
    assert await require_permitted_schema(database) == ""
    for floor in (FIRST, newest_schema()):
        await at_schema(database, "9999", floor)
        assert await require_permitted_schema(database) == (
            f"the database has schema 9999, which is newer than this program's {newest_schema()}"
            " and permits it for now: upgrade this process"
        )


@pytest.mark.anyio
async def test_a_schema_that_needs_a_newer_program_says_how_new(database: Database) -> None:
    await at_schema(database, "9999", "9998")
    with pytest.raises(StartupRefused, match="needs 9998 at least: upgrade this process"):
        await require_permitted_schema(database)


@pytest.mark.anyio
@pytest.mark.parametrize("floor", ["", "none", "-1", "²"])
async def test_a_newer_schema_with_a_floor_that_says_nothing_is_refused(
    database: Database, floor: str
) -> None:
    await at_schema(database, "9999", floor)
    with pytest.raises(StartupRefused, match="newer than this program knows: upgrade it"):
        await require_permitted_schema(database)


@pytest.mark.anyio
async def test_a_newer_schema_without_a_floor_is_refused(database: Database) -> None:
    await at_schema(database, "9999")
    with pytest.raises(StartupRefused, match="newer than this program knows"):
        await require_permitted_schema(database)
    async with database.writing() as connection:
        await connection.exec_driver_sql("DROP TABLE schema_floor")
    with pytest.raises(StartupRefused, match="newer than this program knows"):
        await require_permitted_schema(database)


@pytest.mark.anyio
async def test_a_floor_permits_neither_an_older_schema_nor_another_programs(
    database: Database,
) -> None:
    for version, said in {"0067": "run `gatewright database migrate`", "a1b2": "another"}.items():
        await at_schema(database, version, FIRST)
        with pytest.raises(StartupRefused, match=said):
            await require_permitted_schema(database)


@pytest.mark.anyio
async def test_what_goes_over_everything_needs_its_own_schema(database: Database) -> None:
    await at_schema(database, "9999", FIRST)
    with pytest.raises(StartupRefused, match="newer than this program knows: upgrade it"):
        await require_newest_schema(database)


@pytest.mark.anyio
async def test_going_up_waits_for_workers_that_are_older_than_the_floor(
    empty_database_url: str,
) -> None:
    before, newest = known_schemas()[-2:]
    await migrate(empty_database_url, before)
    database = open_database(empty_database_url, pooled=False)
    table = WorkerTable(database)
    floor = migrations()[-1].floor
    for name, schema in (
        ("old", "0001"),
        ("mute", ""),
        ("odd", "x"),
        ("fit", floor),
        ("newer", "9999"),
    ):
        await table.put(WorkerReport(name, 5 * SECOND_US, schema=schema))
    await table.put(WorkerReport("gone", 1, schema="0001"))

    with pytest.raises(WorkersAlive, match=r"^mute, odd, old$"):
        await migrate(empty_database_url, now_us=16 * SECOND_US)
    assert await migrate(empty_database_url, now_us=21 * SECOND_US) == newest
    await database.close()


@pytest.mark.anyio
@pytest.mark.postgres
async def test_a_worker_that_arrives_during_a_migration_sees_what_was_migrated(
    postgres_server: Any,
) -> None:
    """It has no row when the migration looks, so it waits, and looks at the schema itself."""
    url = postgres_server.create_migrated()
    database = open_database(url, pooled=False)
    table = WorkerTable(database)
    report = WorkerReport("w0", SECOND_US, schema=newest_schema())
    async with database.writing() as migrating:
        await lock_schema(migrating, shared=False)
        arriving = asyncio.create_task(table.arrive(report))
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not (await database.peek(waiting))[0][0]:
            assert not arriving.done()
            await asyncio.sleep(0.01)
        await migrating.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        await migrating.execute(schema_floor.update().values(floor="9999"))
    with pytest.raises(StartupRefused, match="needs 9999 at least: upgrade this process"):
        await arriving
    assert await table.all() == []
    await at_schema(database, "9999", newest_schema())
    await table.arrive(report)
    assert await table.all() == [report]
    await database.close()
    postgres_server.drop(url)


@pytest.mark.anyio
@pytest.mark.postgres
async def test_a_table_in_use_ends_a_migration_soon_and_changes_nothing(
    postgres_server: Any,
) -> None:
    """Everybody who asks for the table meanwhile would wait behind it."""
    url = postgres_server.create_migrated()
    database = open_database(url, pooled=False)
    async with database.writing() as reader:
        await reader.execute(select(schema_floor))
        with pytest.raises(StartupRefused, match="is in use for more than 2 seconds: nothing was"):
            await migrate(url, "0067")
    assert await require_permitted_schema(database) == ""
    await database.close()
    postgres_server.drop(url)
