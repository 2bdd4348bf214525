"""What an operator meets whose database was put back, or whose schema is to go down."""

import asyncio
import re
import sys

import pytest
from sqlalchemy import insert

from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.oversight.workers import WorkerReport
from gateway.store.engine import open_database
from gateway.store.evidence.awaited import AwaitedTable
from gateway.store.schema.audit import audit_awaited_records
from gateway.store.workers import WorkerTable
from tests.cli.operator import Operator


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
    operator: Operator,
) -> None:
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


@pytest.mark.usefixtures("awaits")
async def test_what_is_lost_is_given_up_in_words(operator: Operator) -> None:
    told = await asyncio.to_thread(operator.config, "audit", "lost", "--reason", "burnt")
    done = await asyncio.to_thread(operator.config, "audit", "lost", "--reason", "burnt", "--yes")
    again = await asyncio.to_thread(operator.config, "audit", "lost", "--reason", "burnt", "--yes")

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
