"""`gatewright pool …`: members that there are, drained and given back, on record."""

import json

import pytest

from tests.cli.operator import Operator
from tests.cli.test_deeds import deeds


POOL = """
[providers.second]
kind = "engine"
base_url = "http://127.0.0.1:8099"
jurisdiction = "in-house"

[providers.pool]
kind = "pool"
jurisdiction = "in-house"
members = ["engine", "second"]
"""


@pytest.fixture
def pooled(operator: Operator) -> Operator:
    operator.config_file.write_text(operator.config_file.read_text() + POOL)
    return operator


def test_a_member_is_drained_listed_and_given_back_once(pooled: Operator) -> None:
    assert pooled.config("pool", "drain", "second", "--reason", "a new model").status == 0
    (line,) = map(json.loads, pooled.config("pool", "list").output.splitlines())
    assert (line["member"], line["reason"]) == ("second", "a new model")
    assert pooled.config("pool", "resume", "second").output == "second: in service\n"
    assert pooled.config("pool", "list").output == ""
    again = pooled.config("pool", "resume", "second")
    assert (again.status, again.errors) == (2, "gatewright: second is not drained\n")

    found = deeds(pooled)
    assert [(each["action"], each["status"]) for each in found] == [
        *(("pool.drained", "ok"), ("pool.resumed", "ok")),
        *(("pool.resumed", "ok"), ("pool.resumed", "failed")),
    ]
    assert json.loads(found[1]["before"])["reason"] == "a new model"


def test_a_member_that_no_pool_has_is_refused_with_those_that_there_are(pooled: Operator) -> None:
    refused = pooled.config("pool", "drain", "openai")
    said = "gatewright: no pool has a member openai; there are: engine, second\n"
    assert (refused.status, refused.errors) == (2, said)
    assert pooled.config("pool", "list").output == ""
