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

    assert was_set.output == f"{account}: 5000000 micro-dollars (5 USD) a day\n"
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


def test_a_limit_in_total_is_said_in_words_that_make_sense(operator: Operator) -> None:
    was_set = operator.config("budgets", "set", "org:acme", "9", "--window", "total")
    removed = operator.config("budgets", "remove", "org:acme", "--window", "total")

    assert was_set.output == "org:acme: 9 micro-dollars (0.000009 USD) in total\n"
    assert removed.output == "org:acme: unlimited in total\n"


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


def test_a_limit_that_holds_no_more_as_it_was_seen_is_left_alone(operator: Operator) -> None:
    account = "org:acme"
    assert operator.config("budgets", "set", account, "10", "--was", "none").status == 0
    for was in ("none", "9"):
        late = operator.config("budgets", "set", account, "30", "--was", was)
        removed = operator.config("budgets", "remove", account, "--window", "month", "--was", was)
        assert (late.status, removed.status) == (2, 2)
        assert late.errors == "gatewright: somebody changed this limit meanwhile\n"
    assert limits_of(operator) == [10]
    assert operator.config("budgets", "set", account, "20", "--was", "10").status == 0
    blind = operator.config("budgets", "remove", account, "--was", "20")
    assert (blind.status, limits_of(operator)) == (2, [20])
    assert "name its --window" in blind.errors
    gone = operator.config("budgets", "remove", account, "--window", "month", "--was", "20")
    assert (gone.status, limits_of(operator)) == (0, [])
    for was in ("-1", "much", "1.5", "9" * 5000):
        assert operator.config("budgets", "set", account, "1", "--was", was).status == 2
    assert limits_of(operator) == []


def test_a_rate_that_holds_no_more_as_it_was_seen_is_left_alone(operator: Operator) -> None:
    account = "org:acme"
    assert operator.config("limits", "set", account, "--rpm", "10", "--was", "none").status == 0
    (seen,) = operator.config("limits", "list").output.splitlines()
    assert operator.config("limits", "set", account, "--tpm", "9", "--was", seen).status == 0
    for was in ("none", seen):
        late = operator.config("limits", "set", account, "--rpm", "30", "--was", was)
        removed = operator.config("limits", "remove", account, "--was", was)
        assert (late.status, removed.status) == (2, 2)
        assert late.errors == "gatewright: somebody changed this limit meanwhile\n"
    (now,) = operator.config("limits", "list").output.splitlines()
    assert json.loads(now)["tokens_per_minute"] == 9
    for was in ("10", "{", "[]", '{"account": 1}'):
        refused = operator.config("limits", "remove", account, "--was", was)
        assert (refused.status, "a line of `limits list` nor none" in refused.errors) == (2, True)
    assert operator.config("limits", "remove", account, "--was", now).status == 0
    assert operator.config("limits", "list").output == ""


@pytest.mark.parametrize(
    ("account", "what"),
    [
        *(("org:acme", "organisation"), ("user:acme/*", "organisation")),
        *(("ws:acme/lab", "workspace"), ("proj:acme/lab/bot", "project")),
        ("key:0123456789Ab", "key"),
    ],
)
def test_a_limit_on_what_is_not_there_is_set_and_said_to_limit_nobody(
    operator: Operator, account: str, what: str
) -> None:
    for command in (("budgets", "set", account, "5"), ("limits", "set", account, "--rpm", "5")):
        said = operator.config(*command)
        expected = f"there is no such {what}: this limits nobody until there is"
        assert (said.status, said.errors) == (0, f"gatewright: {account}: {expected}\n")


def test_nothing_is_said_of_a_limit_on_what_is_there(operator: Operator) -> None:
    place = ("--organisation", "acme", "--workspace", "lab", "--project", "bot")
    issued = operator.config("keys", "issue", *place, "--name", "one")
    key_id = issued.output.split("_")[2]
    accounts = ("org:acme", "user:acme/*", "ws:acme/lab", "proj:acme/lab/bot", f"key:{key_id}")
    for account in accounts:
        assert operator.config("budgets", "set", account, "5").errors == ""
        assert operator.config("limits", "set", account, "--rpm", "5").errors == ""
    assert "no such" in operator.config("budgets", "set", "ws:acme/bot", "5").errors
    assert "no such" in operator.config("budgets", "set", "proj:acme/lab/lab", "5").errors


def limits_of(operator: Operator) -> list[int]:
    lines = operator.config("budgets", "list").output.splitlines()
    return [json.loads(line)["limit"]["limit_microusd"] for line in lines]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rpm", "60", "--tpm", "9000"), "60 requests a minute, 9000 tokens a minute"),
        (("--concurrent", "0"), "0 at once"),
    ],
)
def test_a_rate_limit_is_said_as_it_holds_from_then_on(
    operator: Operator, options: tuple[str, ...], said: str
) -> None:
    """What is not named has no limit, whatever it had before: so all of it is said."""
    operator.config("limits", "set", "org:acme", "--tpm", "5", "--concurrent", "7")
    was_set = operator.config("limits", "set", "org:acme", *options)

    assert was_set.output == f"org:acme: {said}\n"
