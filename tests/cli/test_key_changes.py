"""`gatewright keys change` and what comes of it: every option does what it says, and no other."""

import json
from typing import Any

import pytest

from tests.cli.operator import Operator


ACME = ("--organisation", "acme")


@pytest.fixture
def key_id(operator: Operator) -> str:
    """A key with something of everything."""
    place = (*ACME, "--workspace", "w", "--project", "p", "--name", "k")
    what = ("--label", "batch", "--expires-days", "5", "--translation", "warn")
    ended = operator.config("keys", "issue", *place, *what, "--model", "gatewright-demo")
    return ended.last_line.split("_")[2]


def _proposed(operator: Operator, key_id: str, *change: str) -> dict[str, Any]:
    """What the proposal that a change makes wants."""
    ended = operator.config("keys", "change", *ACME, key_id, *change, "--reason", "a pilot")
    assert ended.status == 0, ended.errors
    found = map(json.loads, operator.config("keys", "proposals", *ACME).output.splitlines())
    (wanted,) = (each["wanted"] for each in found if each["id"] == ended.last_line)
    assert operator.config("keys", "withdraw", *ACME, ended.last_line).status == 0
    return dict(wanted)


def test_every_option_changes_its_own_field_alone(operator: Operator, key_id: str) -> None:
    kept = _proposed(operator, key_id, "--label", "other")
    assert kept["labels"] == ["other"]
    for change, field, value in (
        (("--no-labels",), "labels", []),
        (("--never-expires",), "expires_us", None),
        (("--translation", "lenient"), "translation", "lenient"),
        (("--all-models",), "models", None),
    ):
        assert _proposed(operator, key_id, *change) == kept | {"labels": ["batch"], field: value}
    longer = _proposed(operator, key_id, "--expires-days", "9")
    assert longer["expires_us"] - kept["expires_us"] >= 4 * 86_400_000_000


@pytest.mark.parametrize(
    "both",
    [
        ("--no-labels", "--label", "a"),
        ("--never-expires", "--expires-days", "3"),
        ("--all-models", "--model", "gatewright-demo"),
    ],
)
def test_what_contradicts_itself_is_refused(
    operator: Operator, key_id: str, both: tuple[str, ...]
) -> None:
    refused = operator.config("keys", "change", *ACME, key_id, *both, "--reason", "r")
    assert refused.status == 2
    assert refused.errors == f"gatewright: {both[0]} leaves nothing to name beside it\n"


def test_a_change_that_changes_nothing_is_refused(operator: Operator, key_id: str) -> None:
    for nothing in ((), ("--label", "batch"), ("--model", "gatewright-demo")):
        refused = operator.config("keys", "change", *ACME, key_id, *nothing, "--reason", "r")
        assert (refused.status, refused.errors) == (2, "gatewright: it may do this already\n")


def test_what_became_of_a_proposal_is_told_and_decided_once(
    operator: Operator, key_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed_by(name: str) -> None:
        for module in ("key_scopes", "deeds"):
            monkeypatch.setattr(f"gateway.cli.{module}.actor", lambda: f"os:{name}")

    states = []
    for who, ending in (("ann", ("withdraw",)), ("bob", ("decline", "--comment", "no"))):
        typed_by("ann")
        change = ("keys", "change", *ACME, key_id, "--all-models", "--reason", "r")
        proposal = operator.config(*change).last_line
        typed_by(who)
        end, *comment = ending
        assert operator.config("keys", end, *ACME, proposal, *comment).status == 0
        typed_by("bob")
        late = operator.config("keys", "approve", *ACME, proposal, "--comment", "yes")
        assert late.status == 2
        told = map(json.loads, operator.config("keys", "proposals", *ACME).output.splitlines())
        states += [each["state"] for each in told if each["id"] == proposal]
    assert states == ["withdrawn", "declined"]
    (line,) = map(json.loads, operator.config("keys", "list").output.splitlines())
    assert line["models"] == ["gatewright-demo"]
