"""What takes two people at the command line: each says what they saw, and of what there is."""

import asyncio

import pytest

from gateway.cli.deeds import opened_log
from gateway.configuration.reading import load_settings
from gateway.types import AuditRecord
from tests.cli.operator import Operator


def _as(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("gateway.cli.audit.custody.actor", lambda: f"os:{name}")


def _held(operator: Operator) -> str:
    place = ("--organisation", "acme", "--workspace", "w", "--project", "p")
    assert operator.config("keys", "issue", *place, "--name", "n").status == 0
    held = operator.config("audit", "hold", "set", "--organisation", "acme", "--reason", "r")
    return held.last_line


def test_of_two_who_only_ask_the_second_does_not_release_a_hold(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = ("audit", "hold", "release", _held(operator))
    _as(monkeypatch, "ann")
    assert operator.config(*release).last_line == "a second person must release it too"
    again = operator.config(*release)
    assert (again.status, "by a second person" in again.errors) == (2, True)
    _as(monkeypatch, "bob")
    refused = operator.config(*release)
    assert (refused.status, refused.output) == (2, "")
    assert "os:ann asked for its release meanwhile" in refused.errors
    assert "--asked-by" in refused.errors
    assert release[-1] in operator.config("audit", "hold", "list").output
    wrong = operator.config(*release, "--asked-by", "os:carl")
    assert (wrong.status, wrong.output) == (2, "")
    assert operator.config(*release, "--asked-by", "os:ann").last_line == "released"
    assert operator.config("audit", "hold", "list").output == ""


def test_who_agrees_with_a_request_that_is_there_no_more_asks_for_nothing(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = ("audit", "hold", "release", _held(operator))
    _as(monkeypatch, "bob")
    refused = operator.config(*release, "--asked-by", "os:ann")
    assert (refused.status, "nobody asks for its release any more" in refused.errors) == (2, True)
    assert 'release_by":""' in operator.config("audit", "hold", "list").output


def test_nobody_asks_to_read_a_request_that_there_is_not(operator: Operator) -> None:
    _held(operator)
    ask = ("audit", "reveal", "ask", "--organisation", "acme", "--reason", "r", "--ticket", "T-1")
    refused = operator.config(*ask, "--request-id", "req_nobodys")
    said = "gatewright: there is no request req_nobodys of acme\n"
    assert (refused.status, refused.output, refused.errors) == (2, "", said)
    assert operator.config("audit", "reveal", "report").output == ""

    async def record() -> None:
        async with opened_log(load_settings(operator.config_file)) as log:
            intent = AuditRecord(stage="intent", request_id="req_1", organisation="acme", utc_us=1)
            await log.append(intent)

    asyncio.run(record())
    elsewhere = (*ask[:4], "globex", *ask[5:])
    assert operator.config(*elsewhere, "--request-id", "req_1").status == 2
    asked = operator.config(*ask, "--request-id", " req_1 ")
    assert (asked.status, asked.errors) == (0, "")


def test_a_role_in_an_organisation_that_there_is_not_is_said_to_reach_nobody(
    operator: Operator,
) -> None:
    _held(operator)
    operator.config("users", "add", "ann", "--subject", "https://id.example|ann")
    nobodys = "there is no such organisation: this role reaches nobody until there is"
    for name, said in (("acme", ""), ("acmee", f"gatewright: org:acmee: {nobodys}\n")):
        granted = operator.config("users", "grant", "ann", "viewer", "--organisation", name)
        assert (granted.status, granted.errors) == (0, said)
