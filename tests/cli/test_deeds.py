"""Every command that changes something leaves an admin record: who, what was, what is ordered."""

import asyncio
import io
import json
import os
import pwd
import secrets
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import click
import pytest

from gateway.__main__ import commands
from gateway.audit.disk import Disk
from gateway.audit.segments import LOCK_NAME
from gateway.cli.deeds import RECORDING
from gateway.cli.opening import opened_database
from gateway.cli.users import opened_people
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.oversight.access import TOKEN_PERSON
from gateway.oversight.deeds import OPERATORS
from gateway.secrets.secret import Secret
from gateway.store.identity.invitations import Invitations
from gateway.store.identity.people import PeopleStore
from tests.cli.operator import Operator, subcommands


READING = """
    audit copies, audit erasure list, audit erasure show, audit export, audit fsck,
    audit gone list, audit hold list, audit key, audit pack, audit prove, audit reveal report,
    audit verify, budgets asked, budgets list, cascade check, config check,
    costs export, costs forecast, costs reconcile, costs report, costs savings,
    keys list, keys proposals, limits list, policy check, policy diff, policy explain,
    policy guard, policy history, policy replay, policy schedules, policy show, policy versions,
    pool list, secrets keys, secrets list, teams list, users list
"""
IN_CUSTODY = """
    audit erase, audit erasure approve, audit erasure decline, audit hold release, audit hold set,
    audit reveal approve, audit reveal ask, audit reveal show
"""
OF_THE_MACHINE = """
    admin serve, database copy, database migrate, serve
"""
"""What runs an installation: the process writes records of its own, or there is no log yet."""


def names(text: str) -> set[str]:
    return {" ".join(name.split()) for name in text.split(",")}


def members(group: click.Group, above: str = "") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in subcommands(group):
        if isinstance(command, click.Group):
            found |= members(command, f"{above}{name} ")
        else:
            found[above + name] = command
    return found


def test_a_command_that_records_nothing_is_known_to_change_nothing() -> None:
    known = names(READING) | names(IN_CUSTODY) | names(OF_THE_MACHINE)
    for name, command in members(commands).items():
        if all(parameter.name != "config_file" for parameter in command.params):
            continue  # It knows no installation that it could change.
        callback = command.callback
        assert callback is not None
        records = callback.__qualname__ + callback.__module__ in RECORDING
        assert records is (name not in known), name


def deeds(operator: Operator) -> list[dict[str, str]]:
    """Action, actor, status and detail of every admin record, in order."""
    ended = operator.config("audit", "export", "--organisation", OPERATORS)
    assert ended.status == 0, ended.errors
    lines = [json.loads(line) for line in ended.output.splitlines()]
    return [
        {"action": line["action"], "actor": line["actor"], "status": line["status"]}
        | line["detail"]
        for line in lines
    ]


def test_keys_budgets_limits_people_and_roles_are_on_record(operator: Operator) -> None:
    place = ("--organisation", "acme", "--workspace", "w", "--project", "p")
    key = operator.config("keys", "issue", *place, "--name", "for tests").last_line
    key_id = key.split("_")[2]
    operator.config("keys", "rotate", key_id)
    operator.config("keys", "revoke", key_id)
    operator.config("budgets", "set", "org:acme", "5")
    operator.config("budgets", "set", "org:acme", "7", "--window", "month")
    operator.config("budgets", "zone", "acme", "Asia/Kolkata")
    operator.config("budgets", "remove", "org:acme")
    operator.config("limits", "set", "ws:acme/w", "--rpm", "3")
    operator.config("limits", "remove", "ws:acme/w")

    found = deeds(operator)

    assert [each["action"] for each in found] == [
        *("key.issued", "key.rotated", "key.revoked", "budget.set", "budget.set"),
        *("budget.zone_set", "budget.removed", "rate_limit.set", "rate_limit.removed"),
    ]
    assert {each["actor"] for each in found} == {f"os:{pwd.getpwuid(os.getuid()).pw_name}"}
    assert {each["status"] for each in found} == {"ok"}
    assert json.loads(found[0]["after"])["key_id"] == key_id
    assert json.loads(found[2]["before"])["name"] == "for tests"
    assert [each["organisation"] for each in found[3:]] == ["acme"] * 6
    assert [each["limit_microusd"] for each in json.loads(found[4]["before"])] == [5]
    assert json.loads(found[4]["after"])["limit_microusd"] == "7"
    assert json.loads(found[8]["before"])["requests_per_minute"] == 3
    assert key not in str(found)


def test_a_role_that_somebody_holds_elsewhere_is_not_said_to_be_taken(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(secrets.token_hex(20)))
    operator.config("users", "add", "ann")
    revoke = ("users", "revoke", "ann", "viewer")
    nothing = operator.config(*revoke)
    operator.config("users", "grant", "ann", "viewer")
    elsewhere = operator.config(*revoke, "--organisation", "acme")
    taken = operator.config(*revoke)

    assert (nothing.status, elsewhere.status, taken.status) == (2, 2, 0)
    assert nothing.errors == "gatewright: ann is not viewer in *; held: no role\n"
    assert elsewhere.errors == "gatewright: ann is not viewer in acme; held: viewer in *\n"
    assert taken.output == "ann: no longer viewer in *\n"


def test_whom_a_role_keeps_from_signing_in_is_named_with_what_lets_them_in(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def invite(name: str) -> None:
        async with opened_database(load_settings(operator.config_file)) as database:
            people, clock = PeopleStore(database, SystemClock()), SystemClock()
            await people.add(name)
            await Invitations(database, clock).make(name, TOKEN_PERSON.name, TOKEN_PERSON)

    for name in ("ann", "ben"):
        asyncio.run(invite(name))
    given = operator.config("users", "grant", "ben", "viewer")
    shut = operator.config("users", "grant", "ann", "approver")
    assert (given.status, given.errors, shut.status) == (0, "", 0)
    said = "no password, and no link that lets them in: `gatewright users password ann`"
    assert shut.errors == f"gatewright: ann has {said}\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(secrets.token_hex(20)))
    operator.config("users", "password", "ann")
    assert operator.config("users", "grant", "ann", "compliance").errors == ""


def test_a_secret_and_a_password_are_on_record_without_their_value(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, password = secrets.token_hex(20), secrets.token_hex(20)
    monkeypatch.setattr("sys.stdin", io.StringIO(value))
    assert operator.config("secrets", "set", "upstream").status == 0
    listed = operator.config("secrets", "list")
    monkeypatch.setattr("sys.stdin", io.StringIO(password))
    assert operator.config("users", "add", "ann", "--title", "Ann").status == 0
    operator.config("users", "grant", "ann", "viewer", "--organisation", "acme")
    operator.config("users", "revoke", "ann", "viewer", "--organisation", "acme")
    people = operator.config("users", "list")
    operator.config("users", "disable", "ann")
    operator.config("secrets", "remove", "upstream")

    found = deeds(operator)

    assert [each["action"] for each in found] == [
        *("secret.set", "person.added", "role.granted", "role.revoked", "person.disabled"),
        "secret.removed",
    ]
    assert json.loads(listed.output)["name"] == "upstream"
    assert json.loads(people.output)["roles"] == []
    assert json.loads(found[3]["before"])["roles"] == [["viewer", "acme"]]
    assert json.loads(found[5]["before"])["version"] == 1
    everything = str(found) + listed.output + people.output
    files = [path.read_bytes() for path in operator.folder.rglob("*") if path.is_file()]
    for told in (value, password):
        assert told not in everything
        assert not any(told.encode() in content for content in files)


def test_a_password_that_is_set_replaces_the_one_before(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def signs_in(password: Secret[str]) -> bool:
        async with opened_people(operator.config_file) as store:
            return await store.by_password("ann", password) is not None

    first, second = Secret(secrets.token_hex(20)), Secret(secrets.token_hex(20))
    for command, password in (("add", first), ("password", second)):
        monkeypatch.setattr("sys.stdin", io.StringIO(password.reveal()))
        assert operator.config("users", command, "ann").status == 0
    assert (asyncio.run(signs_in(second)), asyncio.run(signs_in(first))) == (True, False)


def test_whoever_is_disabled_is_listed_so_until_they_are_enabled(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_disabled() -> bool:
        return bool(json.loads(operator.config("users", "list").output)["disabled"])

    monkeypatch.setattr("sys.stdin", io.StringIO(secrets.token_hex(20)))
    operator.config("users", "add", "ann")
    seen = [is_disabled()]
    for command in ("disable", "enable"):
        assert operator.config("users", command, "ann").status == 0
        seen.append(is_disabled())
    assert seen == [False, True, False]


def test_nobody_is_made_known_with_an_empty_or_an_endless_password(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for typed in ("", "\n", "x" * 2_000_000):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        refused = operator.config("users", "add", "ann")
        said = "gatewright: a password has 12 to 1024 characters\n"
        assert (refused.status, refused.errors) == (2, said)
    for subject in ("nobody", "https://id.example|", "|7"):
        refused = operator.config("users", "add", "ann", "--subject", subject)
        assert (refused.status, "ISSUER|SUBJECT" in refused.errors) == (2, True)
    assert operator.config("users", "list").output == ""


@pytest.mark.parametrize(
    "order", [("secrets", "set", "upstream"), ("users", "add", "ann"), ("users", "password", "ann")]
)
@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_nothing_is_begun_before_what_is_typed_was_read_as_text(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...], errors: str
) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"caf\xe9 in another encoding"), "utf-8", errors)
    monkeypatch.setattr("sys.stdin", typed)

    ended = operator.config(*order)

    said = "gatewright: standard input is not UTF-8 text\n"
    assert (ended.status, ended.output, ended.errors) == (2, "", said)
    assert deeds(operator) == []


def test_a_user_whom_no_list_names_acts_under_its_number(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1_234_567_890)

    assert operator.config("budgets", "set", "org:acme", "5").status == 0

    (found,) = deeds(operator)
    assert (found["actor"], found["status"]) == ("os:1234567890", "ok")


def test_a_record_says_what_was_there_of_just_what_changes(operator: Operator) -> None:
    operator.config("budgets", "set", "org:acme", "5", "--window", "day")
    operator.config("budgets", "set", "org:acme", "70", "--window", "month")
    operator.config("budgets", "set", "org:acme", "6", "--window", "day")
    operator.config("budgets", "remove", "org:acme")
    place = ("--organisation", "acme", "--workspace", "w", "--project", "p", "--name", "k")
    operator.config("keys", "issue", *place)
    acme = ("--organisation", "acme")
    operator.config("teams", "change", *acme, "w", "--title", "First")
    operator.config("teams", "archive", *acme, "w")
    operator.config("limits", "set", "user:acme/*", "--rpm", "3")

    found = deeds(operator)

    before = [json.loads(each.get("before", "null")) for each in found]
    assert [each["limit_microusd"] for each in before[2]] == [5]
    assert sorted(each["limit_microusd"] for each in before[3]) == [6, 70]
    assert [each["title"] for each in before[5:7]] == ["w", "First"]
    assert {each["organisation"] for each in found} == {"acme"}


def test_a_command_waits_for_another_that_is_writing(operator: Operator) -> None:
    assert operator.config("budgets", "set", "org:acme", "5").status == 0
    lock, disk = operator.folder / "var" / "audit" / "w0-operators" / LOCK_NAME, Disk()
    descriptor = disk.lock(lock)
    letting_go = threading.Timer(0.3, disk.close, [descriptor])
    letting_go.start()
    assert operator.config("budgets", "set", "org:acme", "6").status == 0
    letting_go.join()


@pytest.mark.parametrize(
    "command",
    [
        ("hold", "set", "--organisation", "acme", "--reason"),
        ("reveal", "ask", "--organisation", "acme", "--ticket", "T-1", "--reason"),
        ("reveal", "ask", "--organisation", "acme", "--reason", "r", "--ticket"),
        ("erase", "--organisation", "acme", "--yes", "--ticket"),
        ("erasure", "approve", "case", "--comment"),
        ("gone", "end", "w7", "--yes", "--reason"),
    ],
)
def test_a_reason_that_says_nothing_is_refused(
    operator: Operator, command: tuple[str, ...]
) -> None:
    for nothing in ("", " ", "\t\n"):
        refused = operator.config("audit", *command, nothing)
        assert (refused.status, "say something" in refused.errors) == (2, True)
    assert deeds(operator) == []


@pytest.mark.parametrize(
    "command",
    [
        ("hold", "set", "--reason", "r"),
        ("reveal", "ask", "--reason", "r", "--ticket", "T-1"),
        ("erase", "--ticket", "T-1", "--yes"),
        ("search", "--user", "ann"),
        ("export",),
    ],
)
def test_a_misspelt_organisation_is_refused_and_not_on_record(
    operator: Operator, command: tuple[str, ...]
) -> None:
    refused = operator.config("audit", *command, "--organisation", "acmee")
    said = "gatewright: there is no organisation acmee\n"
    assert (refused.status, refused.output, refused.errors) == (2, "", said)
    assert deeds(operator) == []


def test_what_failed_says_so_in_a_second_record(operator: Operator) -> None:
    assert operator.config("keys", "revoke", "0" * 12).status == 2

    first, second = deeds(operator)

    assert (first["action"], first["status"]) == ("key.revoked", "ok")
    assert (second["action"], second["status"]) == ("key.revoked", "failed")


def test_the_steps_of_a_policy_are_on_record_with_the_versions_they_met(
    operator: Operator,
) -> None:
    file = operator.folder / "closed.toml"
    file.write_text('name = "closed"\nversion = 1\n')
    assert operator.config("policy", "draft", file, "--by", "ann").status == 0
    for name in ("bob", "ANN", "x, typed by os:bob", "y" * 300):
        refused = operator.config("policy", "approve", "1", "--by", name)
        assert (refused.status, "another user of the machine" in refused.errors) == (2, True)
    assert operator.config("policy", "publish", "1", "--by", " ").status == 2
    before = len(deeds(operator))
    operator.becomes("robert")
    for step, who in (("approve", "bob"), ("publish", "robert")):
        assert operator.config("policy", step, "1", "--by", who).status == 0, step
    history = operator.config("policy", "history").output.splitlines()
    user = deeds(operator)[0]["actor"]
    assert [json.loads(each)["actor"] for each in history] == [
        *(f"ann, typed by {user}", "bob, typed by os:robert", "os:robert"),
    ]

    every = deeds(operator)
    found = [every[0], *every[before:]]

    assert [each["action"] for each in found] == [
        *("policy.drafted", "policy.approve", "policy.publish"),
    ]
    assert json.loads(found[1]["before"]) == [[1, "draft"]]
    assert json.loads(found[1]["after"])["actor"] == "bob, typed by os:robert"
    assert [each["actor"] for each in found] == [user, "os:robert", "os:robert"]


@pytest.fixture
def _zone_of_before() -> Iterator[None]:
    yield
    time.tzset()


@pytest.mark.usefixtures("_zone_of_before")
def test_a_version_is_left_to_a_time_with_its_zone_and_called_off_again(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = operator.folder / "closed.toml"
    file.write_text('name = "closed"\nversion = 1\n')
    operator.config("policy", "draft", file, "--by", "ann")
    operator.becomes("bob")
    operator.config("policy", "approve", "1", "--by", "bob")
    when = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    here = when.astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat()
    order = ("policy", "schedule", "1", "--by", "bob", "--canary", "5", "--at")
    assert operator.config(*order, "soon").status == 2
    assert "within a year" in operator.config(*order, "2020-01-01").errors
    said = json.loads(operator.config(*order, here).last_line)
    assert (said["action"], said["percent"], said["state"]) == ("canary", 5.0, "waiting")
    assert said["at_us"] == round(when.timestamp() * 1_000_000)
    assert operator.config("policy", "unschedule", "1", "--by", "bob").status == 0
    (listed,) = map(json.loads, operator.config("policy", "schedules").output.splitlines())
    assert listed["state"] == "cancelled"
    assert operator.config("policy", "unschedule", "1", "--by", "bob").status == 2
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    nowhere = when.replace(tzinfo=None).isoformat()
    said = json.loads(operator.config(*order, nowhere).last_line)
    assert said["at_us"] == round(when.timestamp() * 1_000_000), "without a zone it is UTC"


@pytest.mark.parametrize("number", ["99999999999999999999", "2147483648", "\u00b2"])
def test_a_number_that_no_version_can_have_is_refused(operator: Operator, number: str) -> None:
    for order in (("show", number), ("diff", number, "1"), ("rollback", "--to", number)):
        by = ("--by", "ann") if order[0] == "rollback" else ()
        assert operator.config("policy", *order, *by).status == 2


def test_wider_limits_of_a_canary_are_approved_only_by_who_says_so(operator: Operator) -> None:
    file = operator.folder / "closed.toml"
    file.write_text('name = "closed"\nversion = 1\n')
    draft = ("policy", "draft", file, "--by", "ann")
    assert "no limit is called pace" in operator.config(*draft, "--guard", "pace=1").errors
    assert "NAME=VALUE" in operator.config(*draft, "--guard", "requests_min").errors
    drafted = operator.config(*draft, "--guard", "cost_ratio=9", "--guard", "p95_ms_max=800")
    assert json.loads(drafted.last_line)["guard"]["cost_ratio"] == 9
    operator.config(*draft)
    assert "no limit" in operator.config("policy", "diff", "1", "2").output
    operator.becomes("bob")

    refused = operator.config("policy", "approve", "1", "--by", "bob")
    assert (refused.status, "2 times → 9 times" in refused.errors) == (2, True)
    assert operator.config("policy", "approve", "1", "--by", "bob", "--accept-wider").status == 0
    assert operator.config("policy", "approve", "2", "--by", "bob").status == 0
    said = json.loads(operator.config("policy", "guard", "1").last_line)
    assert (said["guard"]["p95_ms_max"], len(said["wider"])) == (800, 1)
    assert said["measured"]["workers"] == 0


def test_what_cannot_be_recorded_is_not_done(operator: Operator) -> None:
    operator.config("budgets", "set", "org:acme", "5")
    folder = operator.folder / "var" / "audit"
    folder.rename(folder.with_name("away"))
    folder.write_text("no folder")

    refused = operator.config("budgets", "set", "org:acme", "7")

    folder.unlink()
    folder.with_name("away").rename(folder)
    assert refused.status == 2
    (line,) = operator.config("budgets", "list").output.splitlines()
    assert json.loads(line)["limit"]["limit_microusd"] == 5


def test_a_canary_says_how_many_live_keys_it_decides_for(operator: Operator) -> None:
    file = operator.folder / "closed.toml"
    file.write_text('name = "closed"\nversion = 1\n')
    level = ("--level", "ws:acme/research")
    operator.config("policy", "draft", file, "--by", "ann", *level)
    operator.becomes("bob")
    canary = ("policy", "canary", "1", "--by", "bob", *level, "--percent")

    def keys() -> Any:
        return json.loads(operator.config("policy", "guard", "1", *level).last_line)["keys"]

    assert keys() is None, "a draft is no canary"
    operator.config("policy", "approve", "1", "--by", "bob", *level)
    assert "no live key" in operator.config(*canary, "5").errors
    for workspace in ("research", "other"):
        place = ("--organisation", "acme", "--workspace", workspace, "--project", "bot")
        assert operator.config("keys", "issue", *place, "--name", "a key").status == 0
    first = keys()["first_percent"]
    assert (keys()["keys"], keys()["all_percent"]) == (1, first), "of this level alone"
    operator.config("policy", "stop", "1", "--by", "bob", *level)
    assert "1 of 1 live keys" in operator.config(*canary, "100").errors
    assert keys()["taken"] == 1
    few = operator.config(*canary, "0.0001").errors
    assert f"none of 1 live keys: nothing, until its share is {first:g}%" in few


def test_all_sessions_of_somebody_end_and_it_is_on_record(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin() -> str:
        async with opened_people(operator.config_file) as store:
            return await store.begin("ann")

    async def is_signed_in(session: str) -> bool:
        async with opened_people(operator.config_file) as store:
            return await store.session(session) is not None

    monkeypatch.setattr("sys.stdin", io.StringIO(secrets.token_hex(20)))
    operator.config("users", "add", "ann")
    sessions = [asyncio.run(begin()) for _ in range(2)]
    assert [asyncio.run(is_signed_in(each)) for each in sessions] == [True, True]
    ended = operator.config("users", "signout", "ann")
    assert (ended.status, ended.output) == (0, "ann: sessions ended: 2\n")
    assert [asyncio.run(is_signed_in(each)) for each in sessions] == [False, False]
    assert operator.config("users", "signout", "ann").output == "ann: sessions ended: 0\n"
    done = [each["action"] for each in deeds(operator)]
    assert done == ["person.added", "person.signed_out", "person.signed_out"]
    assert operator.config("users", "signout", "nobody").status != 0
