"""`gatewright audit gone …`: what gone workers left is listed, and ended when a name is retired."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.audit.disk import Disk
from gateway.audit.projecting.projector import Projector
from gateway.audit.reckoning import GONE
from gateway.audit.segments import LOCK_NAME
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import StoppedClock, SystemClock
from gateway.configuration.reading import load_settings
from gateway.oversight.workers import WorkerReport
from gateway.secrets.credentials import master_key
from gateway.store.engine import open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.workers import WorkerTable
from gateway.types import AuditRecord
from tests.cli.operator import Operator
from tests.free_ports import free_port
from tests.gateway.audit.samples import LIMITS


HOUR_US = 3_600_000_000
END = ("audit", "gone", "end")
WHY = ("--reason", "its machine burnt down")


async def _left(config_file: Path) -> None:
    """The worker of the configuration has begun two requests, and was last heard of an hour ago."""
    settings = load_settings(config_file)
    directory, then_us = settings.path(settings.audit.directory), SystemClock().utc_us() - HOUR_US
    log = SegmentedAuditLog(
        *(directory, settings.audit.worker),
        keys=master_key(settings),
        clock=StoppedClock(),
        limits=LIMITS,
    )
    await log.start()
    begun = AuditRecord(stage="intent", request_id="", organisation="acme", utc_us=then_us)
    for name in ("req_1", "req_2"):
        await log.append(replace(begun, request_id=name, reserved_microusd=77))
    await log.close()
    database = open_database(settings.database_url)
    await Projector(directory, DatabaseAuditSink(database, directory)).catch_up()
    await WorkerTable(database).put(WorkerReport(settings.audit.worker, then_us))
    await database.close()


@pytest.fixture
def worker(operator: Operator) -> str:
    assert operator.config("database", "migrate").status == 0
    asyncio.run(_left(operator.config_file))
    return load_settings(operator.config_file).audit.worker


@pytest.fixture
def alive(operator: Operator, worker: str) -> Iterator[None]:
    """Somebody holds the lock of its segments."""
    disk = Disk()
    descriptor = disk.lock(operator.folder / "var" / "audit" / worker / LOCK_NAME)
    yield
    disk.close(descriptor)


def test_what_was_left_is_told_by_every_command_that_looks_at_the_log(
    operator: Operator, worker: str
) -> None:
    listed = operator.config("audit", "gone", "list")
    assert listed.status == 0
    (found,) = map(json.loads, listed.output.splitlines())
    assert (found["worker"], found["requests"]) == (worker, 2)
    for command in ("verify", "fsck"):
        told = operator.config("audit", command)
        assert told.status == 0
        assert f"open: worker {worker}: 2 without an outcome, the oldest of 2" in told.output


def test_damaged_logs_are_named_beside_what_the_others_left(
    operator: Operator, worker: str
) -> None:
    folder = operator.folder / "var" / "audit"
    for name in ("bad1", "bad2"):
        shutil.copytree(folder / worker, folder / name)
        (segment,) = (folder / name).glob("*.log")
        raw = bytearray(segment.read_bytes())
        raw[2] ^= 1
        segment.write_bytes(raw)

    listed = operator.config("audit", "gone", "list")

    assert listed.status == 1
    (found,) = map(json.loads, listed.output.splitlines())
    assert (found["worker"], found["requests"]) == (worker, 2)
    assert listed.errors.startswith("gatewright: not all records could be read: worker bad1 at ")
    assert "; worker bad2 at " in listed.errors
    assert listed.errors.count("\n") == 1


def test_nothing_is_done_before_it_is_said_to_be_meant(operator: Operator, worker: str) -> None:
    looked = operator.config(*END, worker, *WHY)
    assert looked.status == 0
    assert json.loads(looked.output.splitlines()[0])["requests"] == 2
    assert looked.last_line == "nothing was done without --yes"
    assert len(operator.config("audit", "gone", "list").output.splitlines()) == 1


def test_they_are_ended_on_record_and_the_name_is_never_taken_again(
    operator: Operator, worker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWRIGHT_DATA_PLANE__PORT", str(free_port()))
    ended = operator.config(*END, worker, *WHY, "--yes")
    assert ended.status == 0
    assert json.loads(ended.last_line)["requests"] == 2
    records = list(map(json.loads, operator.config("audit", "export").output.splitlines()))
    outcomes = [each for each in records if each["stage"] == "outcome"]
    assert {each["request_id"] for each in outcomes} == {"req_1", "req_2"}
    assert {(each["error"], each["cost_microusd"]) for each in outcomes} == {(GONE, 77)}
    deeds = {each["action"]: each for each in records if each["stage"] == "admin"}
    assert deeds["worker.retired"]["actor"].startswith("os:")
    assert "its machine burnt down" in deeds["worker.retired"]["detail"]["after"]
    assert deeds["worker.requests_ended"]["detail"]["requests"] == "2"
    assert operator.config("audit", "gone", "list").output == ""
    verified = operator.config("audit", "verify")
    assert verified.status == 0
    assert "open:" not in verified.output
    again = operator.config(*END, worker, *WHY, "--yes")
    assert json.loads(again.last_line)["requests"] == 0
    served = operator.starts("serve", "--config", operator.config_file)
    assert served.status == 2
    assert "this name was retired" in served.errors


@pytest.mark.usefixtures("alive")
def test_one_that_lives_is_left_alone_whatever_is_said_of_it(
    operator: Operator, worker: str
) -> None:
    refused = operator.config(*END, worker, *WHY, "--yes")
    assert refused.status == 2
    assert f"worker {worker} lives" in refused.errors


def test_a_name_that_nobody_knows_is_refused(operator: Operator, worker: str) -> None:
    refused = operator.config(*END, "w77", *WHY, "--yes")
    assert refused.status == 2
    assert "nothing of a worker w77 ever reached this database" in refused.errors
