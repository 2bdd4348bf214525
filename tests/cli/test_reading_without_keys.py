"""What only reads asks for no secret: whoever looks at a copy of the database need not have any."""

import json

import pytest

from tests.cli.operator import Operator


LISTED = {
    ("keys", "list"): "assistant",
    ("keys", "proposals", "--organisation", "acme"): "",
    ("secrets", "list"): "",
    ("audit", "hold", "list"): "a court's order",
    ("audit", "reveal", "report"): "a complaint",
    ("audit", "erasure", "list", "--organisation", "acme"): "T-1",
    ("audit", "copies", "--organisation", "acme"): "",
    ("audit", "gone", "list"): "",
    ("teams", "list", "--organisation", "acme"): "research",
    ("budgets", "list"): "org:acme",
    ("limits", "list"): "org:acme",
    ("pool", "list"): "",
    ("users", "list"): "ann",
    ("policy", "versions"): "",
    ("policy", "history"): "",
    ("policy", "schedules"): "",
}


@pytest.fixture
def filled(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Something of all that is listed, and then no secret is there any more."""
    place = ("--organisation", "acme", "--workspace", "research", "--project", "chat")
    of_acme = ("--organisation", "acme")
    for order in (
        ("keys", "issue", *place, "--name", "assistant"),
        ("budgets", "set", "org:acme", "5"),
        ("limits", "set", "org:acme", "--rpm", "5"),
        ("users", "add", "ann", "--subject", "https://id.example|ann"),
        ("audit", "erase", *of_acme, "--ticket", "T-1", "--yes"),
        ("audit", "hold", "set", *of_acme, "--reason", "a court's order"),
        ("audit", "reveal", "ask", *of_acme, "--reason", "a complaint", "--ticket", "T-1"),
    ):
        done = operator.config(*order)
        assert done.status == 0, (order, done.errors)
    return operator


def test_what_only_reads_asks_for_no_secret(filled: Operator) -> None:
    for name in ("master.key", "pepper.key", "admin.token"):
        (filled.folder / "var" / name).unlink()
    for order, said in LISTED.items():
        ended = filled.config(*order)
        assert ended.status == 0, (order, ended.errors)
        assert said in ended.output, order
        assert all(json.loads(line) is not None for line in ended.output.splitlines()), order
    refused = filled.config("keys", "revoke", "0" * 12)
    assert (refused.status, "secrets.master_key" in refused.errors) == (2, True)
