"""`gatewright teams …`: made, changed and archived on the machine, and what new keys get there."""

import asyncio
import json
from typing import Any

import pytest

from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.store.engine import open_database
from gateway.store.identity.teams import KeyDefaults, TeamStore
from tests.cli.operator import Ended, Operator


PLACE = ("--organisation", "acme", "--workspace", "research", "--project", "bot", "--name", "a key")
ACME = ("--organisation", "acme")


def _lines(ended: Ended) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ended.output.splitlines()]


async def _set_defaults(operator: Operator, defaults: KeyDefaults) -> None:
    database = open_database(load_settings(operator.config_file).database_url)
    await TeamStore(database, SystemClock()).set_defaults("acme", "research", defaults)
    await database.close()


def test_a_team_is_made_changed_archived_and_restored(operator: Operator) -> None:
    operator.config("keys", "issue", *PLACE)
    assert operator.config("teams", "add", *ACME, "people", "--title", "People").status == 0
    assert operator.config("teams", "change", *ACME, "people", "--title", "HR").status == 0
    assert operator.config("teams", "archive", *ACME, "research").status == 0
    lines = _lines(operator.config("teams", "list", *ACME))

    assert [(each["name"], each["title"]) for each in lines] == [
        ("people", "HR"),
        ("research", "research"),
    ]
    assert lines[1]["archived_us"] is not None
    refused = operator.config("keys", "issue", *PLACE)
    assert (refused.status, refused.output) == (2, "")
    assert "the team research is archived" in refused.errors
    assert operator.config("teams", "restore", *ACME, "research").status == 0
    assert operator.config("keys", "issue", *PLACE).status == 0


@pytest.mark.parametrize("command", ["archive", "restore", "change"])
def test_a_team_that_is_not_there_is_refused(operator: Operator, command: str) -> None:
    ended = operator.config("teams", command, *ACME, "nothing")

    assert ended.status == 2
    assert "there is no team nothing in acme" in ended.errors


def test_a_new_key_gets_what_its_team_gives(operator: Operator) -> None:
    operator.config("keys", "issue", *PLACE)
    defaults = KeyDefaults(3, 2_500_000, "day", requests_per_minute=7)
    asyncio.run(_set_defaults(operator, defaults))
    assert operator.config("keys", "issue", *PLACE).status == 0
    keys = _lines(operator.config("keys", "list"))
    budget = _lines(operator.config("budgets", "list"))[0]["limit"]
    (rate,) = _lines(operator.config("limits", "list"))

    newest = f"key:{keys[0]['key_id']}"
    assert keys[0]["expires_us"] - keys[0]["created_us"] < 3 * 86_400_000_000 + 1
    assert (budget["account"], budget["limit_microusd"], budget["window"]) == (
        newest,
        2_500_000,
        "day",
    )
    assert (rate["account"], rate["requests_per_minute"]) == (newest, 7)


LISTS = [
    ("teams", "list"),
    ("keys", "list"),
    ("keys", "proposals"),
    *(("costs", each) for each in ("report", "export", "savings", "forecast")),
    ("audit", "export"),
    ("audit", "copies"),
    ("audit", "erasure", "list"),
]


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_an_organisation_that_nobody_has_is_refused_instead_of_shown_as_empty(
    operator: Operator, command: tuple[str, ...]
) -> None:
    operator.config("keys", "issue", *PLACE)
    known = operator.config(*command, *ACME)
    mistyped = operator.config(*command, "--organisation", "acmee")

    assert known.status == 0
    assert (mistyped.status, mistyped.output) == (2, "")
    assert mistyped.errors == "gatewright: there is no organisation acmee\n"
