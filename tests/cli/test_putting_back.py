"""What an operator meets whose database was put back, or whose schema is to go down."""

import asyncio
import re
import sys

import pytest
from sqlalchemy import delete, insert, update

from gateway.audit.proving.merkle import HASH_BYTES
from gateway.cli.deeds import opened_log
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.oversight.deeds import OPERATORS, Deeds
from gateway.oversight.workers import WorkerReport
from gateway.store.engine import Database, open_database
from gateway.store.evidence.awaited import AwaitedTable, await_records
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.schema.audit import audit_awaited_records, audit_positions, audit_records
from gateway.store.workers import WorkerTable
from tests.cli.operator import Ended, Operator
from tests.faults.test_kills import MAIN
from tests.faults.test_upgraded_in_turn import HELD
from tests.free_ports import free_port


pytestmark = pytest.mark.anyio


@pytest.fixture
async def awaits(operator: Operator) -> None:
    """Another worker, and a record of a number that was signed."""
    database = open_database(load_settings(operator.config_file).database_url)
    await AwaitedTable(database).expect(["other"])
    row = {"organisation": "acme", "leaf": bytes(32), "sequence": 7}
    async with database.writing() as connection:
        await connection.execute(insert(audit_awaited_records), row)
    await database.close()


@pytest.mark.usefixtures("awaits")
async def test_a_start_that_waits_for_others_says_so_and_ends_when_it_is_told(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWRIGHT_DATA_PLANE__PORT", str(free_port()))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "serve", "--config", str(operator.config_file)),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    line = await process.stderr.readline()
    process.terminate()
    _, rest = await process.communicate()

    assert b"audit:database_waits" in line
    assert b"workers other, 1 records of acme" in line
    assert b"process:started" not in rest
    assert b"Traceback" not in rest


async def test_what_a_start_made_safe_is_told_also_where_it_is_ended_before_it_serves(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made safe once, so no later start says it again."""
    monkeypatch.setenv("GATEWRIGHT_DATA_PLANE__PORT", str(free_port()))
    database = open_database(load_settings(operator.config_file).database_url)
    await AwaitedTable(database).expect(["w0"])
    there = operator.folder / "there"
    held = HELD.format(there=str(there), go=str(operator.folder / "never"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{held}\n{MAIN}"),
        *("serve", "--config", str(operator.config_file)),
        stderr=asyncio.subprocess.PIPE,
    )
    while not there.exists():
        assert process.returncode is None
        await asyncio.sleep(0.01)
    process.terminate()
    _, said = await process.communicate()
    left = await AwaitedTable(database).workers()
    await database.close()

    assert b"audit:database_older" in said
    assert b"process:started" not in said
    assert left == []


@pytest.mark.usefixtures("awaits")
async def test_what_is_lost_is_given_up_in_words(operator: Operator) -> None:
    told = await asyncio.to_thread(operator.config, "audit", "lost", "--reason", "burnt")
    done = await asyncio.to_thread(operator.config, "audit", "lost", "--reason", "burnt", "--yes")
    again = await asyncio.to_thread(operator.config, "audit", "lost", "--reason", "burnt", "--yes")
    database = open_database(load_settings(operator.config_file).database_url)
    table = AwaitedTable(database)
    given_up = await table.workers()
    await table.tell("other", (), 1)
    came_back = await table.workers()
    await database.close()

    assert (given_up, came_back) == ([], ["other"])
    awaited = "awaited: workers other, 1 records of acme\n"
    assert told.output == f"{awaited}nothing was done without --yes\n"
    assert done.output == awaited
    assert (done.status, again.status) == (0, 2)
    assert "nothing is awaited" in again.errors


async def test_what_cannot_be_done_again_is_accepted_in_words(operator: Operator) -> None:
    await asyncio.to_thread(operator.config, "limits", "remove", "org:acme")
    await asyncio.to_thread(operator.config, "audit", "export")
    database = open_database(load_settings(operator.config_file).database_url)
    table = AwaitedTable(database)
    await table.tell("w0", (), 1)
    await table.bring("w0", (), 1)
    await table.await_decision([1])
    accept = ("audit", "accept", "--reason", "looked at")
    told = await asyncio.to_thread(operator.config, *accept)
    lost = await asyncio.to_thread(operator.config, "audit", "lost", "--reason", "burnt", "--yes")
    waited = (await table.now()).deeds
    done = await asyncio.to_thread(operator.config, *accept, "--yes")
    again = await asyncio.to_thread(operator.config, *accept, "--yes")
    left = await table.workers()
    await database.close()

    assert re.fullmatch(
        r"1: rate_limit\.removed of acme, by os:\w+, 20[-0-9T:+]+\n"
        r"nothing was done without --yes\n",
        told.output,
    )
    assert (lost.status, len(waited)) == (2, 1)
    assert (done.status, again.status) == (0, 2)
    assert "nothing awaits a decision" in again.errors
    assert left == []


async def test_the_full_check_goes_on_past_records_that_a_deed_declared_lost(
    operator: Operator,
) -> None:
    def types(*arguments: str) -> Ended:
        return operator.config("audit", *arguments)

    for _ in range(3):
        await asyncio.to_thread(operator.config, "limits", "remove", "org:acme")
    await asyncio.to_thread(types, "export")
    database = open_database(load_settings(operator.config_file).database_url)
    leaves = await DatabaseAuditTrees(database).leaves(OPERATORS, 0, 3)
    await lose(database, 2, leaves[HASH_BYTES : 2 * HASH_BYTES])
    undone = await asyncio.to_thread(types, "fsck")
    await asyncio.to_thread(types, "lost", "--reason", "its disk burnt", "--yes")
    early = await asyncio.to_thread(types, "fsck")
    await asyncio.to_thread(types, "export")
    declared = await asyncio.to_thread(types, "fsck")
    await lose(database, 1, leaves[:HASH_BYTES])
    beyond = await asyncio.to_thread(types, "fsck")
    await AwaitedTable(database).give_up(1)
    forged = await asyncio.to_thread(types, "fsck")
    await database.close()

    assert "BAD: -operators, record 2: the record is missing" in undone.output
    assert "-operators: 3 records, 0 checkpoints" in declared.output
    assert "note: 1 records were declared lost: 2\n" in declared.output
    assert early.status == 0, "the deed has no number yet, as is said"
    assert (declared.status, declared.last_line) == (0, "the log is whole")
    assert "-operators: 0 records, 0 checkpoints" in beyond.output
    assert "BAD: -operators, record 1: the record is missing" in beyond.output
    assert "note: 2 records were declared lost: 1 to 2\n" in forged.output
    assert "BAD: 2 records are called lost, and deeds say so of 1\n" in forged.output
    assert [each.status for each in (undone, beyond, forged)] == [1, 1, 1]


async def lose(database: Database, sequence: int, leaf: bytes) -> None:
    """Take a record out of the database, which then awaits it."""
    columns = audit_records.c
    mine = (columns.organisation == OPERATORS) & (columns.sequence == sequence)
    async with database.writing() as connection:
        await connection.execute(delete(audit_records).where(mine))
        await await_records(connection, OPERATORS, sequence - 1, leaf)


async def test_the_schema_goes_down_under_workers_only_when_that_is_said(
    operator: Operator,
) -> None:
    database = open_database(load_settings(operator.config_file).database_url)
    await WorkerTable(database).put(WorkerReport("w7", SystemClock().utc_us()))
    await database.close()
    down = ("database", "migrate", "--revision", "0059")
    refused = await asyncio.to_thread(operator.config, *down)
    done = await asyncio.to_thread(operator.config, *down, "--under-workers")

    assert refused.status == 2
    assert "workers are running, and need the schema as it is: w7. Stop them" in refused.errors
    assert done.output == "schema: 0059\n"


async def test_nobody_writes_where_records_were_numbered_that_are_not_there_any_more(
    operator: Operator,
) -> None:
    """What was written there would never be numbered: a key would live, and no record say so."""

    def types(*arguments: str) -> Ended:
        return operator.config(*arguments)

    await asyncio.to_thread(types, "budgets", "set", "org:acme", "1000")
    await asyncio.to_thread(types, "audit", "export")  # It numbers the record.
    own = operator.folder / "var" / "audit" / "w0-operators"
    (newest,) = own.glob("*.log")
    kept = newest.rename(newest.with_suffix(".kept"))
    refused = await asyncio.to_thread(types, "budgets", "set", "org:acme", "2000")
    left, listed = list(own.glob("*.log")), await asyncio.to_thread(types, "budgets", "list")
    kept.rename(newest)
    done = await asyncio.to_thread(types, "budgets", "set", "org:acme", "2000")

    assert (refused.status, left) == (2, [])
    assert "audit worker w0-operators: the database knows segment 1 up to byte" in refused.errors
    assert "Restore the newest segments" in refused.errors
    assert '"limit_microusd": 1000' in listed.output
    assert done.status == 0


async def test_the_admin_listener_does_not_start_where_its_own_records_are_gone(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWRIGHT_ADMIN__PORT", str(free_port()))
    settings = load_settings(operator.config_file)
    async with opened_log(settings) as log:
        await Deeds(log, SystemClock()).record("os:root", "a.deed", "acme")
    await asyncio.to_thread(operator.config, "audit", "export")
    folder = operator.folder / "var" / "audit"
    database = open_database(settings.database_url)
    async with database.writing() as connection:
        # As though the admin listener had written it: the record is its own, and is not here.
        await connection.execute(update(audit_positions).values(worker="w0-admin"))
    await database.close()
    ended = await asyncio.to_thread(
        operator.starts, "admin", "serve", "--config", operator.config_file
    )

    assert ended.status == 2
    assert "audit worker w0-admin: the database knows segment 1 up to byte" in ended.errors
    assert not list(folder.glob("w0-admin/*.log"))
