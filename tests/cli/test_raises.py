"""`gatewright budgets ask` and what follows: one user asks, another agrees, both are on record."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.operator import Ended, Operator
from tests.cli.test_deeds import deeds


TEAM = "ws:acme/research"
HAD, WANTED = "100000000", "250000000"
OF_ACME = ("--organisation", "acme")
WHY = ("--reason", "the quarter's reports")
AGREED = ("--comment", "as planned")


@pytest.fixture
def acme(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """A team with a limit; petra types."""
    issue = ("keys", "issue", *OF_ACME, "--workspace", "research", "--project", "assistant")
    assert operator.config(*issue, "--name", "first").status == 0
    assert operator.config("budgets", "set", TEAM, HAD).status == 0
    becomes(monkeypatch, "petra")
    return operator


def becomes(monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    monkeypatch.setattr("gateway.cli.raises.actor", lambda: f"os:{user}")


def ask(operator: Operator, *more: str, wanted: str = WANTED, account: str = TEAM) -> Ended:
    return operator.config("budgets", "ask", account, wanted, *OF_ACME, *WHY, *more)


def limit_of(operator: Operator) -> int:
    lines = map(json.loads, operator.config("budgets", "list").output.splitlines())
    (found,) = [each["limit"]["limit_microusd"] for each in lines]
    return int(found)


def asked(operator: Operator) -> list[dict[str, Any]]:
    ended = operator.config("budgets", "asked", *OF_ACME)
    assert (ended.status, ended.errors) == (0, "")
    return [json.loads(line) for line in ended.output.splitlines()]


def test_what_one_asks_for_holds_once_another_agrees(
    acme: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = (datetime.now(UTC) + timedelta(days=30)).date()
    told = ask(acme, "--until", str(last), "--was", HAD)
    assert (told.status, "a second person must agree" in told.output) == (0, True)
    approve = ("budgets", "approve", told.last_line, *OF_ACME, *AGREED)
    for user in ("petra", "Petra"):
        becomes(monkeypatch, user)
        refused = acme.config(*approve)
        assert (refused.status, "somebody else than who asked" in refused.errors) == (2, True)
    assert limit_of(acme) == int(HAD)

    becomes(monkeypatch, "paul")
    done = acme.config(*approve)
    assert (done.status, done.output) == (0, f"{TEAM}: {WANTED} micro-dollars\n")
    assert limit_of(acme) == int(WANTED)
    late = acme.config(*approve)
    assert (late.status, late.errors) == (2, "gatewright: this is approved\n")
    (line,) = asked(acme)
    assert (line["state"], line["asked_by"], line["decided_by"]) == (
        *("approved", "os:petra", "os:paul"),
    )
    midnight = datetime.combine(last + timedelta(days=1), datetime.min.time(), UTC)
    assert line["until_us"] == int(midnight.timestamp()) * 1_000_000

    first, second = deeds(acme)[-2:]
    assert (first["action"], first["actor"]) == ("budget.raise_asked", "os:petra")
    assert (second["action"], second["actor"]) == ("budget.raised", "os:paul")
    after = json.loads(second["after"])
    assert (after["limit_microusd"], after["comment"]) == (int(WANTED), "as planned")
    assert (after["raise"], after["asked_by"]) == (line["id"], "os:petra")


def test_it_is_declined_by_another_and_taken_back_by_who_asked(
    acme: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ask(acme).last_line
    assert acme.config("budgets", "decline", first, *OF_ACME, *AGREED).status == 2
    becomes(monkeypatch, "paul")
    not_theirs = acme.config("budgets", "withdraw", first, *OF_ACME)
    assert "only who asked" in not_theirs.errors
    declined = acme.config("budgets", "decline", first, *OF_ACME, "--comment", "not now")
    assert declined.output == "declined; the limit stays as it is\n"
    second = ask(acme).last_line
    assert acme.config("budgets", "withdraw", second, *OF_ACME).status == 0
    assert [each["state"] for each in asked(acme)] == ["withdrawn", "declined"]
    assert limit_of(acme) == int(HAD)
    assert [each["action"] for each in deeds(acme)[-2:]] == [
        *("budget.raise_asked", "budget.raise_withdrawn")
    ]


@pytest.mark.parametrize(
    ("account", "wanted", "more", "said"),
    [
        (TEAM, HAD, (), "this is no more than now"),
        (TEAM, WANTED, ("--until", "2020-01-01"), "this day is over"),
        (TEAM, WANTED, ("--until", "2027-02-30"), "a day is written as 2026-11-30"),
        (TEAM, WANTED, ("--until", "9999-12-31"), "within 366 days"),
        (TEAM, WANTED, ("--was", "5"), f"--was: the limit is {HAD} by now"),
        (TEAM, WANTED, ("--window", "day"), "has no limit of --window day"),
        (TEAM, WANTED, ("--reason", "x" * 1001), "--reason: at most 1,000 characters"),
        ("org:globex", WANTED, (), "org:globex is no account of acme"),
        ("key:0123456789Ab", WANTED, (), "key:0123456789Ab is no account of acme"),
        ("user:acme/*", WANTED, (), "nobody asks for more for end users"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_in_one_line(
    acme: Operator, account: str, wanted: str, more: tuple[str, ...], said: str
) -> None:
    refused = ask(acme, *more, wanted=wanted, account=account)
    assert (refused.status, refused.output) == (2, "")
    assert said in refused.errors
    assert refused.errors.count("\n") == 1
    assert asked(acme) == []


@pytest.mark.parametrize("command", ["approve", "decline", "withdraw"])
def test_what_nobody_asked_for_there_is_not_decided(acme: Operator, command: str) -> None:
    made = ask(acme).last_line
    more = () if command == "withdraw" else AGREED
    assert (
        acme.config(
            "keys",
            "issue",
            "--organisation",
            "globex",
            "--workspace",
            "w",
            "--project",
            "p",
            "--name",
            "n",
        ).status
        == 0
    )
    for where, ident in (("acme", "nothing"), ("globex", made), ("umbrella", made)):
        refused = acme.config("budgets", command, ident, "--organisation", where, *more)
        assert refused.status == 2
        assert refused.errors.count("\n") == 1
    assert [each["state"] for each in asked(acme)] == ["waiting"]
