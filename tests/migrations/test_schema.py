"""The way up to the newest schema and down again."""

import secrets

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Table, inspect, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError

from gateway.errors import NotReady, StartupRefused
from gateway.store.batching.files import kept_files
from gateway.store.engine import open_database
from gateway.store.kept_answers import kept_answers
from gateway.store.migrate import alembic_config, migrate
from gateway.store.schema.audit import audit_second_keys
from gateway.store.schema.batches import batches
from gateway.store.schema.tables import admin_sessions, key_checks
from gateway.store.schema.version import (
    known_schemas,
    newest_schema,
    require_newest_schema,
    schema_of,
)
from tests.databases import PostgresServer
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio
SEALED = {"f1": kept_files, "b1": batches, "a1": kept_answers}


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


async def test_budgets_keep_their_leases_when_an_account_may_have_several_and_one_when_not(
    empty_database_url: str,
) -> None:
    await migrate(empty_database_url, "0013")
    database = open_database(empty_database_url, pooled=False)

    async def run(*statements: str) -> None:
        async with database.writing() as connection:
            for statement in statements:
                await connection.exec_driver_sql(statement)

    async def rows(table: str, *columns: str) -> list[tuple[object, ...]]:
        query = f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1, 2"  # noqa: S608 - ours
        async with database.reading() as connection:
            return [tuple(row) for row in (await connection.exec_driver_sql(query)).all()]

    budget = "INSERT INTO budgets (account, limit_microusd, window_kind, window_start_us,"
    budget += " spent_microusd, leased_microusd) VALUES "
    lease = "INSERT INTO budget_leases (account, worker, incarnation, window_start_us,"
    lease += " amount_microusd, spent_microusd, expires_us"
    await run(
        budget + "('org:a', 100, 'day', 0, 5, 7), ('org:b', 9, 'month', 0, 0, 0)",
        lease + ") VALUES ('org:a', 'w1', 'run', 0, 9, 2, 60)",
        "INSERT INTO budget_alerts (account, window_start_us, percent, claimed_us)"
        " VALUES ('org:a', 0, 50, 1), ('org:gone', 0, 50, 1)",
    )
    await migrate(empty_database_url)
    await run(
        budget + "('org:a', 500, 'total', 0, 6, 1), ('org:b', 3, 'day', 0, 0, 0)",
        lease + ", window_kind) VALUES ('org:a', 'w1', 'run', 0, 3, 2, 60, 'total')",
    )

    assert await rows("budget_leases", "window_kind", "amount_microusd", "spent_microusd") == [
        *(("day", 9, 2), ("total", 3, 2))
    ]
    assert await rows("budget_alerts", "account", "window_kind") == [
        *(("org:a", "day"), ("org:gone", "total"))
    ]
    with pytest.raises(IntegrityError):
        await run(budget + "('org:a', 500, 'total', 0, 6, 1)")
    await migrate(empty_database_url, "0013")
    assert await rows("budgets", "account", "window_kind", "limit_microusd") == [
        *(("org:a", "total", 500), ("org:b", "month", 9))
    ]
    assert await rows("budget_leases", "account", "amount_microusd") == [("org:a", 3)]
    await run("DELETE FROM budgets WHERE account = 'org:a'")
    assert await rows("budget_leases", "account", "amount_microusd") == []
    await migrate(empty_database_url)
    await run("DELETE FROM budgets")
    await database.close()


async def test_days_that_were_added_up_stay_when_they_learn_of_policies_and_when_they_forget(
    empty_database_url: str,
) -> None:
    await migrate(empty_database_url, "0037")
    database = open_database(empty_database_url, pooled=False)
    places = "organisation, day, workspace, project, key_id, target, provider, jurisdiction"
    counters = "requests, failed, refused, found, unpriced, input_tokens, output_tokens"
    insert = f"INSERT INTO traffic_days ({places}, {counters}, cost_microusd, duration_us, last_us"
    place = "'acme', '2027-01-16', 'lab', 'bot', 'k1', 'house', 'engine', 'in-house'"

    async def run(statement: str) -> None:
        async with database.writing() as connection:
            await connection.exec_driver_sql(statement)

    async def days() -> list[tuple[object, ...]]:
        query = "SELECT requests, cost_microusd, last_us FROM traffic_days ORDER BY 1"
        async with database.reading() as connection:
            return [tuple(row) for row in (await connection.exec_driver_sql(query)).all()]

    await run(f"{insert}) VALUES ({place}, 3, 0, 0, 0, 0, 7, 8, 500, 9, 10)")
    await migrate(empty_database_url, "0039")
    assert await days() == [(3, 500, 10)]
    await run(f"{insert}, policy_digest) VALUES ({place}, 4, 0, 0, 0, 0, 7, 8, 40, 9, 30, 'a1')")
    assert await days() == [(3, 500, 10), (4, 40, 30)]
    await migrate(empty_database_url, "0038")
    assert await days() == [(7, 540, 30)]
    await database.close()


async def test_what_was_added_up_before_is_there_over_all_keys_and_stays_by_key(
    empty_database_url: str,
) -> None:
    await migrate(empty_database_url, "0044")
    database = open_database(empty_database_url, pooled=False)
    counters = "requests, failed, refused, found, unpriced, input_tokens, output_tokens"
    counters += ", cost_microusd, duration_us, last_us"

    async def rows(query: str) -> list[tuple[object, ...]]:
        async with database.writing() as connection:
            found = await connection.exec_driver_sql(query)
            return [tuple(map(str, row)) for row in found] if found.returns_rows else []

    places = {
        "hour": ("hour_us", "3600"),
        "day": ("day, workspace, project", "'2027-01-16', 'lab', 'bot'"),
    }
    keys = {"k1": "3, 1, 0, 2, 0, 7, 8, 500, 9, 10", "k2": "4, 0, 1, 0, 1, 1, 1, 40, 1, 30"}
    for kind, (names, values) in places.items():
        insert = f"INSERT INTO traffic_{kind}s (organisation, key_id, target, provider,"
        insert += f" jurisdiction, {names}, {counters}) VALUES ('acme'"
        for key, sums in keys.items():
            await rows(f"{insert}, '{key}', 'house', 'engine', 'in-house', {values}, {sums})")
    await migrate(empty_database_url)
    for kind in places:
        found = await rows(f"SELECT {counters} FROM traffic_{kind}_totals")  # noqa: S608 - ours
        assert found == [("7", "1", "1", "2", "1", "8", "9", "540", "10", "30")]
    found = await rows(f"SELECT {counters} FROM traffic_key_days ORDER BY key_id")  # noqa: S608 - ours
    assert [", ".join(map(str, row)) for row in found] == [*keys.values()]
    await migrate(empty_database_url, "0044")
    assert await rows("SELECT count(*) FROM traffic_days") == [("2",)]
    await database.close()


async def test_what_lies_sealed_says_which_master_key_it_is_of_and_going_down_forgets_it(
    empty_database_url: str,
) -> None:
    """All of it is the database's own key's, but for lines that name theirs themselves."""
    await migrate(empty_database_url)
    database = open_database(empty_database_url, pooled=False)
    line = '{"master":"theirs"}'
    async with database.writing() as connection:
        for name, key_id in (("master_key", "own"), ("master_key:own", "own"), ("pepper:1", "p")):
            await connection.execute(filled(key_checks, name=name, key_id=key_id))
        for name, sealed in SEALED.items():
            await connection.execute(filled(sealed, id=name))
        await connection.execute(filled(admin_sessions, digest=b"1", id_token_key=b"w"))
        await connection.execute(filled(admin_sessions, digest=b"2", id_token_key=None))
        await connection.execute(filled(audit_second_keys, key="k", line=line))
    await migrate(empty_database_url, "0065")

    async def told(table: Table, column: str) -> list[object]:
        async with database.reading() as connection:
            query = select(table.c[column]).order_by(table.c[column])
            return list((await connection.execute(query)).scalars())

    assert await told(key_checks, "name") == ["master_key", "pepper:1"]
    await migrate(empty_database_url)
    for sealed in SEALED.values():
        assert await told(sealed, "master_key_id") == ["own"]
    assert await told(admin_sessions, "master_key_id") == ["", "own"]
    assert await told(audit_second_keys, "master_key_id") == ["theirs"]
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
    for revision in ("head", "base"):
        with pytest.raises(StartupRefused, match="newer than this program"):
            await migrate(database_url, revision)


async def test_an_unreachable_server_is_named_as_not_ready() -> None:
    database = open_database("postgresql+asyncpg://postgres@127.0.0.1:1/nothing", pooled=False)
    with pytest.raises(NotReady, match="the database does not answer"):
        await require_newest_schema(database)
    await database.close()


@pytest.mark.postgres
async def test_a_database_that_cannot_hold_every_text_gets_no_schema(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create()
    name = make_url(url).database
    postgres_server.drop(url)
    postgres_server._execute(
        f"CREATE DATABASE \"{name}\" ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
        " TEMPLATE template0"
    )
    with pytest.raises(StartupRefused, match="encoding is LATIN1: make one with ENCODING 'UTF8'"):
        await migrate(url)
    postgres_server.drop(url)


@pytest.mark.postgres
async def test_who_may_not_create_tables_is_told_so(postgres_server: PostgresServer) -> None:
    url = postgres_server.create()
    role = f"gw_test_{secrets.token_hex(4)}"
    postgres_server._execute(f'CREATE ROLE "{role}" LOGIN')
    theirs = make_url(url).set(username=role).render_as_string(hide_password=False)
    with pytest.raises(StartupRefused, match="permission denied for schema public: whoever"):
        await migrate(theirs)
    postgres_server.drop(url)
    postgres_server._execute(f'DROP ROLE "{role}"')
