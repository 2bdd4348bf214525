"""The tables of what vendors bill, in the manual, are true of the dialects and of the SDKs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from anthropic.types.beta import BetaUsage
from msgspec import structs
from openai.types import CompletionUsage
from openai.types.responses import ResponseUsage
from pydantic import BaseModel

from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported
from gateway.money.catalogue import PARAMETERS, cost
from gateway.price import Price
from gateway.types import DialectName, Target, Usage
from tests.conformance.probes import ABLE, BASES
from tests.gateway.dialects.samples import target


Json = dict[str, Any]
PAGE = Path(__file__).parents[2].joinpath("docs", "operations", "prices.md")
NAMES: dict[str, DialectName] = {
    "messages": "anthropic_messages",
    "chat": "openai_chat",
    "responses": "openai_responses",
}
UNPRICED = Price(1_000_000, 5_000_000, 300_000, 1_700_000, 2_300_000, 50, "", "")
PRICED = structs.replace(
    *(UNPRICED,),
    priority_percent=200,
    flex_percent=50,
    us_percent=110,
    web_search_microusd=10_000,
)
SDKS: dict[str, type[BaseModel]] = {
    "messages": BetaUsage,
    "chat": CompletionUsage,
    "responses": ResponseUsage,
}
REASONING_OF = {
    "chat": "completion_tokens_details.reasoning_tokens",
    "responses": "output_tokens_details.reasoning_tokens",
}
REASONING = frozenset(REASONING_OF.values())
COUNT = 1_000
BASE: dict[str, Json] = {
    "messages": {"input_tokens": 50_000, "output_tokens": 40_000},
    "chat": {"prompt_tokens": 50_000, "completion_tokens": 40_000, "total_tokens": 0},
    "responses": {"input_tokens": 50_000, "output_tokens": 40_000, "total_tokens": 0},
}
SAYS: Json = {"role": "assistant", "content": "Yes."}
ANSWERS: dict[str, Json] = {
    "messages": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    | {"content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn"},
    "chat": {"id": "c_1", "created": 1, "model": "m"}
    | {"choices": [{"index": 0, "finish_reason": "stop", "message": SAYS}]},
    "responses": {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
    | {"tools": [], "status": "completed", "output": []},
}
SAID: dict[str, Any] = {
    "service_tier": "batch",
    "speed": "fast",
    "inference_geo": "us",
    "iterations": [{"type": "compaction", "input_tokens": COUNT, "output_tokens": COUNT}],
    "fallback_credit.status.type": "redeemed",
}
"""Where a figure is no number."""


def table(heading: str) -> list[list[str]]:
    """The cells of the rows below a heading."""
    lines = PAGE.read_text(encoding="utf-8").split(heading, 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines.splitlines()[2:]]


ASKED = table("| dialect | what is asked for | becomes | why, and what it costs |")
FIGURES = table("| dialect | figure | is | because |")


def chosen(price: Price) -> Target:
    able = target(*ABLE, parameters=dict.fromkeys(PARAMETERS, "yes"))
    return structs.replace(able, price=price, jurisdiction="us")


def becomes(dialect: str, fields: Json, price: Price) -> str:
    name = NAMES[dialect]
    try:
        request = DIALECTS[name].decode_request(json.dumps(BASES[name] | fields).encode(), "r")
        sent = DIALECTS[name].encode_request(request, chosen(price), 100)
    except FeatureUnsupported:
        return "refused"
    body = json.loads(sent.body)
    if all(body.get(field) == value for field, value in fields.items()):
        assert not sent.dropped
        return "tokens"
    assert set(sent.dropped) == fields.keys()
    assert not body.keys() & fields.keys()
    return "left out"


@pytest.mark.parametrize("row", ASKED, ids=lambda row: f"{row[0]} {row[1]}")
def test_what_is_asked_for_becomes_what_the_manual_says(row: list[str]) -> None:
    dialect, asked, said, _ = row
    fields = json.loads(asked.strip("`"))
    found = becomes(dialect, fields, UNPRICED), becomes(dialect, fields, PRICED)
    expected = ("refused", "tokens") if said == "priced" else (said, said)
    assert found == expected


def test_the_manual_has_every_kind_of_end() -> None:
    assert {row[2] for row in ASKED} == {"priced", "refused", "left out", "tokens"}
    assert {row[0] for row in ASKED} == set(NAMES)


def leaves(model: type[BaseModel], at: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        inner = [each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)]
        if inner:
            yield from leaves(inner[0], f"{at}{name}.")
        else:
            yield at + name


def figures(dialect: str) -> dict[str, str]:
    rows = [row for row in FIGURES if row[0] == dialect]
    return {name: row[2] for row in rows for name in re.findall(r"`([^`]+)`", row[1])}


@pytest.mark.parametrize("dialect", SDKS)
def test_every_figure_that_an_sdk_knows_is_in_the_manual(dialect: str) -> None:
    """A newer SDK with another figure fails here, until somebody has said what it costs."""
    assert sorted(figures(dialect)) == sorted(leaves(SDKS[dialect]))


FIGURE_CASES = [(dialect, name) for dialect in SDKS for name in figures(dialect)]


@pytest.mark.parametrize(("dialect", "name"), FIGURE_CASES)
def test_a_figure_counts_for_the_cost_if_the_manual_says_so(dialect: str, name: str) -> None:
    plain = json.loads(json.dumps(BASE[dialect]))
    told = json.loads(json.dumps(plain))
    _put(told, name, SAID.get(name, COUNT))
    if name in {"total_tokens", *REASONING}:
        # What was thought counts apart where the total says that it does.
        read, written = (value for key, value in plain.items() if key != "total_tokens")
        _put(plain, REASONING_OF[dialect], COUNT)
        _put(told, REASONING_OF[dialect], COUNT)
        told["total_tokens"] = read + written + COUNT
    is_read = cost(PRICED, _usage(dialect, told)) != cost(PRICED, _usage(dialect, plain))
    assert is_read == (figures(dialect)[name] == "read")


def _put(tree: Json, path: str, value: object) -> None:
    *above, name = path.split(".")
    for each in above:
        tree = tree.setdefault(each, {})
    tree[name] = value


def _usage(dialect: str, usage: Json) -> Usage:
    raw = json.dumps(ANSWERS[dialect] | {"usage": usage}).encode()
    return DIALECTS[NAMES[dialect]].decode_reply(raw).usage
