"""`gatewright budgets …`: limits are set, listed and taken away; misspelt accounts are refused."""

import json

import pytest

from tests.cli.operator import Operator


@pytest.mark.parametrize(
    "account", ["org:acme", "ws:acme/research", "proj:acme/research/assistant", "key:0123456789Ab"]
)
def test_a_limit_on_every_level_is_set_listed_and_removed(operator: Operator, account: str) -> None:
    was_set = operator.config("budgets", "set", account, "5000000", "--window", "day")
    (line,) = operator.config("budgets", "list").output.splitlines()
    removed = operator.config("budgets", "remove", account)

    assert was_set.output == f"{account}: 5000000 micro-dollars a day\n"
    limit = {"account": account, "limit_microusd": 5_000_000, "window": "day", "time_zone": "UTC"}
    assert json.loads(line)["limit"] == limit
    assert json.loads(line)["spent_microusd"] == 0
    assert removed.output == f"{account}: unlimited\n"
    assert operator.config("budgets", "list").output == ""


def test_a_limit_is_monthly_unless_said_otherwise_and_can_be_changed(operator: Operator) -> None:
    operator.config("budgets", "set", "org:acme", "1")
    operator.config("budgets", "set", "org:acme", "2")
    (line,) = operator.config("budgets", "list").output.splitlines()

    limit = {"account": "org:acme", "limit_microusd": 2, "window": "month", "time_zone": "UTC"}
    assert json.loads(line)["limit"] == limit


def test_a_day_a_month_and_a_total_stand_beside_each_other(operator: Operator) -> None:
    for window, limit in (("day", "10"), ("month", "200"), ("total", "1000")):
        operator.config("budgets", "set", "org:acme", limit, "--window", window)
    operator.config("budgets", "set", "org:acme", "20", "--window", "day")
    limits = [
        json.loads(line)["limit"] for line in operator.config("budgets", "list").output.splitlines()
    ]
    removed = operator.config("budgets", "remove", "org:acme", "--window", "month")
    left = [
        json.loads(line)["limit"] for line in operator.config("budgets", "list").output.splitlines()
    ]

    assert [(each["window"], each["limit_microusd"]) for each in limits] == [
        *(("day", 20), ("month", 200), ("total", 1000))
    ]
    assert removed.output == "org:acme: unlimited a month\n"
    assert [each["window"] for each in left] == ["day", "total"]


@pytest.mark.parametrize(
    "account", ["acme", "org:", "org:a/b", "ws:acme", "proj:acme/x", "key:short", "team:acme"]
)
def test_a_misspelt_account_is_refused_because_it_would_limit_nobody(
    operator: Operator, account: str
) -> None:
    ended = operator.config("budgets", "set", account, "5")

    assert ended.status == 2
    assert "is no account; use org:NAME, ws:ORG/NAME" in ended.errors


def test_money_is_a_whole_number_of_microdollars_and_never_negative(operator: Operator) -> None:
    for amount in ("1.5", "-1", "much", "9" * 30):
        ended = operator.config("budgets", "set", "org:acme", "--", amount)
        assert ended.status == 2
    assert operator.config("budgets", "list").output == ""
