"""Retention destroys what is past its class unless held; people are found by keyed digest."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from sqlalchemy import delete

from gateway.audit.disk import Disk
from gateway.audit.entries import Entry, decode_entry
from gateway.audit.memory import MemoryAuditLog
from gateway.audit.projecting import projection
from gateway.audit.projecting.projection import SequencedRecord
from gateway.audit.writer import SegmentedAuditLog
from gateway.cli.deeds import opened_log
from gateway.clock import StoppedClock, SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.identity import Peppers
from gateway.money.budgets import end_user_subject
from gateway.secrets.credentials import master_key, pepper
from gateway.store.custody.orders import Custody
from gateway.store.engine import Database, open_database
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.retention import keeping, retaining
from gateway.store.retention.retaining import LOCK_NAME
from gateway.store.schema.audit import audit_checkpoints
from gateway.types import AuditRecord
from tests.cli.operator import Operator
from tests.cli.test_deeds import deeds
from tests.gateway.audit.samples import LIMITS
from tests.signed_days import sign_on


DAY_US = 86_400_000_000
RETENTION = """
[retention]
default = "standard"
[retention.classes]
standard = 365
brief = 30
[retention.organisations]
acme = "brief"
"""


def limit(operator: Operator) -> None:
    """Classes, in place of the table without any that a new folder has."""
    text = operator.config_file.read_text()
    written = '[retention]\nrun = "daily"\n'
    assert text.count(written) == 1
    operator.config_file.write_text(text.replace(written, "") + RETENTION)


def spoken(operator: Operator, organisation: str, user: str, days_ago: int, worker: str) -> None:
    """A request of an end user, with content, some days ago."""
    settings = load_settings(operator.config_file)
    peppers = Peppers({settings.secrets.pepper_version: pepper(settings)})
    clock = StoppedClock(SystemClock().utc_us() - days_ago * DAY_US)

    async def write() -> None:
        log = SegmentedAuditLog(
            settings.path(settings.audit.directory),
            worker,
            keys=master_key(settings),
            clock=clock,
            limits=LIMITS,
        )
        await log.start()
        record = AuditRecord(
            stage="intent",
            request_id=f"req_{worker}",
            organisation=organisation,
            utc_us=clock.utc_us(),
            subject=end_user_subject(organisation, user, peppers.keyed),
        )
        await log.append(record, f"what {user} said".encode())
        await log.close()

    asyncio.run(write())


def signed(operator: Operator, organisation: str, *days_ago: int) -> None:
    """Let workers have signed the log of an organisation so many days ago."""
    settings = load_settings(operator.config_file)

    async def sign() -> None:
        database = open_database(settings.database_url)
        parts = Integration(settings, database, SystemClock(), master_key(settings))
        await parts.projector.catch_up()
        await parts.sign()
        await sign_on(database, organisation, SystemClock().utc_us(), days_ago)
        await database.close()

    asyncio.run(sign())


@pytest.fixture
def talkative(operator: Operator) -> Operator:
    """Old and new words of two people, in organisations of two classes, under a running worker."""
    limit(operator)
    spoken(operator, "acme", "ann", 40, "w1")
    spoken(operator, "acme", "bob", 40, "w2")
    spoken(operator, "acme", "ann", 2, "w3")
    spoken(operator, "globex", "eve", 40, "w4")
    spoken(operator, "globex", "eve", 400, "w5")
    assert operator.config("audit", "export").status == 0
    for organisation in ("acme", "globex"):
        signed(operator, organisation, 1, 2)
    return operator


def contents(operator: Operator, monkeypatch: pytest.MonkeyPatch, organisation: str) -> list[str]:
    """What a reveal shows of an organisation: its content, or why there is none."""
    ask = ("audit", "reveal", "ask", "--organisation", organisation)
    asked = operator.config(*ask, "--reason", "test", "--ticket", "T-1").last_line
    with monkeypatch.context() as patched:
        patched.setattr("gateway.cli.audit.custody.actor", lambda: "os:second")
        assert operator.config("audit", "reveal", "approve", asked).status == 0
    shown = operator.config("audit", "reveal", "show", asked).output.splitlines()
    lines = [json.loads(line) for line in shown]
    return sorted(line.get("content") or line["content_error"] for line in lines)


def test_what_is_past_its_class_goes_and_the_rest_stays(
    talkative: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [json.loads(line) for line in talkative.config("audit", "retain").output.splitlines()]
    assert [(each["organisation"], each["class"], each["keys"]) for each in said] == [
        ("acme", "brief", 2),
        ("globex", "standard", 1),
    ]
    assert contents(talkative, monkeypatch, "acme") == ["what ann said"] * 2 + ["what bob said"]

    assert talkative.config("audit", "retain", "--yes").status == 0

    gone = "the content's key was destroyed"
    assert contents(talkative, monkeypatch, "acme") == [gone, gone, "what ann said"]
    assert contents(talkative, monkeypatch, "globex") == [gone, "what eve said"]
    assert talkative.config("audit", "verify").status == 0
    again = talkative.config("audit", "retain", "--yes").output.splitlines()
    assert {json.loads(line)["keys"] for line in again} == {0}
    told = [each for each in deeds(talkative) if each["action"] == "content.retired"]
    assert [(each["organisation"], each["class"], each["keys"]) for each in told] == [
        *(("acme", "brief", "2"), ("globex", "standard", "1")),
    ]


def unsign(operator: Operator, *days_ago: int) -> None:
    """Let no worker have run so many days ago."""
    settings = load_settings(operator.config_file)
    today = SystemClock().utc_us() // DAY_US

    async def forget() -> None:
        database = open_database(settings.database_url)
        async with database.writing() as connection:
            signed_on = audit_checkpoints.c.signed_us // DAY_US
            days = [today - days for days in days_ago]
            await connection.execute(delete(audit_checkpoints).where(signed_on.in_(days)))
        await database.close()

    asyncio.run(forget())


def test_a_clock_that_was_set_forth_destroys_nothing_until_somebody_says_that_it_is_right(
    talkative: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the log knows it is twenty days ago; what was due then goes."""
    signed(talkative, "acme", 20, 21, 22)
    signed(talkative, "globex", 3, 60)
    unsign(talkative, 1)

    asked = talkative.config("audit", "retain")
    ran = talkative.config("audit", "retain", "--yes")
    said = [json.loads(line) for line in ran.output.splitlines()]
    assert [(each["keys"], each["unsure"]) for each in said] == [(0, 2), (0, 1)]
    assert (asked.status, ran.status) == (0, 1)
    for each in (asked, ran):
        assert "was not signed on each of the last three days" in each.errors
    assert contents(talkative, monkeypatch, "acme") == ["what ann said"] * 2 + ["what bob said"]

    signed(talkative, "acme", 9, 8, 10)
    ran = talkative.config("audit", "retain", "--yes")
    operators, *said = [json.loads(line) for line in ran.output.splitlines()]
    assert (operators["organisation"], operators["unsure"]) == ("-operators", 0)
    assert [(each["keys"], each["unsure"]) for each in said] == [(2, 0), (0, 1)]

    assert talkative.config("audit", "retain", "--yes", "--clock-is-right").status == 0
    gone = "the content's key was destroyed"
    assert contents(talkative, monkeypatch, "globex") == [gone, "what eve said"]
    told = [each for each in deeds(talkative) if each["action"] == "content.retired"]
    assert [each.get("clock") for each in told] == [None, "said to be right"]


@pytest.mark.parametrize(
    ("signed_on", "day"),
    [
        ({100, 99, 98}, 100),
        ({99, 98, 97}, 100),
        ({98, 97, 96}, 99),
        ({100, 98, 97, 96}, 99),
        ({100, 99, 60, 59, 57, 30, 29, 28}, 31),
        ({101, 100, 99}, 0),
        (set(), 0),
    ],
)
@pytest.mark.anyio
async def test_a_day_counts_that_follows_three_on_which_somebody_signed(
    database_url: str, signed_on: set[int], day: int
) -> None:
    database = open_database(database_url)
    row = {"organisation": "acme", "size": 1, "root": b"", "note": ""}
    rows = [row | {"signed_us": each * DAY_US + DAY_US - 1} for each in signed_on]
    rows += [row | {"organisation": "globex", "signed_us": each * DAY_US} for each in range(102)]
    async with database.writing() as connection:
        await connection.execute(audit_checkpoints.insert(), rows)
    assert await keeping.borne_out(database, "acme", 100) == day
    await database.close()


def test_content_that_a_clock_far_back_dated_is_not_destroyed_before_its_time(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a battery starts in 1970 until it has asked somebody what time it is."""
    limit(operator)
    for user, days_ago in (("ann", 40), ("bob", 20_000), ("cleo", 2), ("dan", 20_000)):
        spoken(operator, "acme", user, days_ago, "w1")
    assert operator.config("audit", "export").status == 0
    signed(operator, "acme", 1, 2)
    done = operator.config("audit", "retain", "--yes")
    said = json.loads(done.output.splitlines()[0])
    assert (done.status, said["keys"], said["unsure"]) == (0, 1, 0)
    assert operator.config("audit", "retain", "--yes").status == 0
    assert contents(operator, monkeypatch, "acme") == [
        "the content's key was destroyed",
        "what bob said",
        "what cleo said",
        "what dan said",
    ]


def test_what_a_clock_far_back_dated_last_stays_until_a_later_key_says_how_young_it_is(
    operator: Operator,
) -> None:
    limit(operator)
    spoken(operator, "acme", "ann", 40, "w1")
    spoken(operator, "acme", "bob", 20_000, "w1")
    assert operator.config("audit", "export").status == 0
    signed(operator, "acme", 1, 2)

    def retained(status: int) -> tuple[int, int]:
        done = operator.config("audit", "retain", "--yes")
        assert done.status == status
        assert ("a clock that stood far back dated it" in done.errors) == bool(status)
        said = json.loads(done.output.splitlines()[0])
        return said["keys"], said["unsure"]

    assert [retained(1), retained(1)] == [(1, 1), (0, 1)]
    spoken(operator, "acme", "cleo", 1, "w1")
    assert retained(0) == (0, 0)


def test_a_hold_goes_before_retention(talkative: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = ("audit", "hold", "set", "--organisation", "acme", "--user", "ann", "--reason", "case")
    assert talkative.config(*hold).status == 0

    said = json.loads(talkative.config("audit", "retain", "--yes").output.splitlines()[0])

    assert (said["keys"], said["held"]) == (1, 1)
    assert contents(talkative, monkeypatch, "acme").count("what ann said") == 2


@pytest.mark.parametrize("at", ["reading", "doubting", "recording"])
def test_a_hold_that_is_set_while_retention_reads_or_destroys_goes_before_it(
    talkative: Operator, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Holds were read before the keys, and once more is not enough: a record takes its time."""
    said_held = list[str]()
    read, doubt, write = keeping.aged_content_keys, keeping.borne_out, SegmentedAuditLog.append

    async def hold(database: Database) -> None:
        if said_held:
            return
        said_held.append("acme")
        log = MemoryAuditLog()
        await log.start()
        await Custody(database, log, SystemClock()).set_hold("os:leo", "acme", "", "a lawsuit")

    async def reading(
        settings: Settings, database: Database, days: Mapping[str, int], today: int
    ) -> Any:
        found = await read(settings, database, days, today)
        if at == "reading":
            await hold(database)
        return found

    async def doubting(database: Database, organisation: str, today: int) -> int:
        if at == "doubting":
            await hold(database)
        return await doubt(database, organisation, today)

    async def recording(log: SegmentedAuditLog, record: AuditRecord, *more: Any) -> Any:
        written = await write(log, record, *more)
        if at == "recording" and record.action == "content.retired":
            database = open_database(load_settings(talkative.config_file).database_url)
            await hold(database)
            await database.close()
        return written

    monkeypatch.setattr(keeping, "aged_content_keys", reading)
    monkeypatch.setattr(keeping, "borne_out", doubting)
    monkeypatch.setattr(SegmentedAuditLog, "append", recording)
    said = talkative.config("audit", "retain", "--yes").output.splitlines()
    told = [(each["keys"], each["held"]) for each in map(json.loads, said)]
    assert (said_held, told) == (["acme"], [(0, 2), (1, 0)])
    assert contents(talkative, monkeypatch, "acme") == ["what ann said"] * 2 + ["what bob said"]
    retired = [each for each in deeds(talkative) if each["action"] == "content.retired"]
    wrong = [each["organisation"] for each in retired if each.get("record")]
    assert wrong == (["acme"] if at == "recording" else [])


def test_one_process_at_a_time_destroys_in_a_folder(talkative: Operator) -> None:
    settings = load_settings(talkative.config_file)
    disk = Disk()
    lock = disk.lock(settings.path(settings.audit.directory) / LOCK_NAME)
    refused = talkative.config("audit", "retain", "--yes")
    assert (refused.status, refused.output) == (2, "")
    assert "another process carries it out in this audit folder: try again" in refused.errors
    assert talkative.config("audit", "retain").status == 0, "who only looks waits for nobody"
    disk.close(lock)
    assert talkative.config("audit", "retain", "--yes").status == 0


def test_keys_that_cannot_be_destroyed_are_on_record_as_not_destroyed(
    talkative: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise OSError("broken on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(retaining, "destroy", fails)
        done = talkative.config("audit", "retain", "--yes")
    assert done.status == 2
    assert "doing it again is safe: " in done.errors
    assert done.errors.endswith(": broken on purpose\n")
    exported = talkative.config("audit", "export", "--organisation", "-operators").output
    told = [json.loads(line) for line in exported.splitlines()]
    retired = [each for each in told if each["action"] == "content.retired"]
    assert [(each["detail"]["organisation"], each["error"]) for each in retired] == [
        *(("acme", ""), ("globex", ""), ("acme", "OSError"), ("globex", "OSError")),
    ]
    assert "what bob said" in contents(talkative, monkeypatch, "acme")


def test_a_person_is_found_by_digest_in_their_organisation_and_the_search_is_on_record(
    talkative: Operator,
) -> None:
    search = ("audit", "search", "--organisation", "acme", "--user")
    found = talkative.config(*search, "ann")
    nobody = talkative.config("audit", "search", "--organisation", "globex", "--user", "ann")

    assert sorted(json.loads(line)["request_id"] for line in found.output.splitlines()) == [
        "req_w1",
        "req_w3",
    ]
    assert nobody.output == ""
    assert "what ann said" not in found.output
    exported = talkative.config("audit", "export", "--organisation", "-operators")
    details = [json.loads(line)["detail"] for line in exported.output.splitlines()]
    assert [each["found"] for each in details] == ["2", "0"]
    assert '"ann"' not in exported.output


def test_records_that_do_not_name_a_person_are_not_decoded_to_find_that_out(
    talkative: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = ("audit", "search", "--organisation", "acme", "--user", "ann")
    before = talkative.config(*search).output  # All requests have their numbers by now.
    decoded: list[bytes] = []

    def noting(raw: bytes) -> Entry:
        decoded.append(raw)
        return decode_entry(raw)

    monkeypatch.setattr(projection, "decode_entry", noting)
    assert talkative.config(*search).output == before
    requests = [raw for raw in decoded if b'"stage":"admin"' not in raw]
    assert requests
    assert all(b"req_w1" in raw or b"req_w3" in raw for raw in requests)


def test_while_a_search_reads_others_record_what_they_do(
    talkative: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It held the commands' log for as long as it read: no key could be revoked meanwhile."""
    settings, read = load_settings(talkative.config_file), DatabaseAuditSink.records

    async def reading(sink: DatabaseAuditSink, query: AuditQuery) -> AsyncIterator[SequencedRecord]:
        async with opened_log(settings) as log:
            await log.append(AuditRecord("admin", "adm_meanwhile", "-operators", 1))
        async for row in read(sink, query):
            yield row

    monkeypatch.setattr(DatabaseAuditSink, "records", reading)
    found = talkative.config("audit", "search", "--organisation", "acme", "--user", "ann")
    assert len(found.output.splitlines()) == 2
    monkeypatch.undo()
    exported = talkative.config("audit", "export", "--organisation", "-operators").output
    assert "adm_meanwhile" in exported
    assert "subject.searched" in exported
