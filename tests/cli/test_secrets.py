"""`gatewright secrets …`: what is typed is what is used, and what is removed is gone."""

import asyncio
import io
import json

import pytest

from gateway.cli.secrets.sealed import opened_secrets
from gateway.secrets.keeper import SecretUnavailableError
from tests.cli.operator import Operator


def _used(operator: Operator, name: str) -> str:
    async def opened() -> str:
        async with opened_secrets(operator.config_file) as table:
            return (await table.open(name)).reveal()

    return asyncio.run(opened())


@pytest.mark.parametrize(
    ("typed", "used"),
    [("a value", "a value"), ("a value\n", "a value"), ("two\nlines\n\n", "two\nlines\n")],
)
def test_a_closing_line_break_is_no_part_of_a_secret(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, typed: str, used: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert operator.config("secrets", "set", "upstream").output == "upstream: version 1\n"
    assert _used(operator, "upstream") == used


def test_a_secret_is_replaced_listed_without_its_value_and_removed_once(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("first value", "second value"):
        monkeypatch.setattr("sys.stdin", io.StringIO(value))
        operator.config("secrets", "set", "upstream")
    listed = operator.config("secrets", "list")
    (line,) = map(json.loads, listed.output.splitlines())
    assert (line["name"], line["version"], "value" in listed.output) == ("upstream", 2, False)
    assert _used(operator, "upstream") == "second value"

    assert operator.config("secrets", "remove", "upstream").output == "upstream: removed\n"
    with pytest.raises(SecretUnavailableError):
        _used(operator, "upstream")
    again = operator.config("secrets", "remove", "upstream")
    assert (again.status, again.errors) == (2, "gatewright: there is no such secret\n")
