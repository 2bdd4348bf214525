"""Money is set aside for a summary where one may be written, and only there."""

import json
from typing import Any

import pytest
from msgspec import structs

from gateway.admission.compactions import TRIGGER_TOKENS, compactions_at_most
from gateway.price import Price
from gateway.routing.planning import _candidate
from gateway.types import ChatRequest
from policies.decision import Decision, Obligations
from tests.gateway.dialects.samples import messages, target


EDIT = {"type": "compact_20260112"}
ALLOWED = Decision("allow", None, "", (), Obligations(), (), None, (), "", 0, "")


def asked(reach_tokens: int, *edits: Any, **fields: Any) -> ChatRequest:
    request = messages(context_management={"edits": list(edits)}, **fields)
    return structs.replace(request, input_tokens_most=reach_tokens)


@pytest.mark.parametrize(
    ("reach_tokens", "trigger", "count"),
    [
        (TRIGGER_TOKENS, None, 1),
        (TRIGGER_TOKENS - 1, None, 0),
        (50_000, {"type": "input_tokens", "value": 50_000}, 1),
        (49_999, {"type": "input_tokens", "value": 50_000}, 0),
        (TRIGGER_TOKENS, {"type": "input_tokens", "value": "many"}, 1),
        (TRIGGER_TOKENS, "soon", 1),
    ],
)
def test_a_summary_is_reserved_for_from_the_trigger_on(
    reach_tokens: int, trigger: object, count: int
) -> None:
    edit = EDIT | ({} if trigger is None else {"trigger": trigger})
    assert compactions_at_most(asked(reach_tokens, edit)) == count
    assert compactions_at_most(asked(reach_tokens, {"type": "clear_tool_uses_20250919"}, edit)) == (
        count
    )


def test_tools_at_a_vendor_may_bring_any_input_to_the_trigger() -> None:
    searching = [{"type": "web_search_20260209", "name": "web_search"}]
    assert compactions_at_most(asked(10, EDIT, tools=searching)) == 1


@pytest.mark.parametrize(
    "managed", [None, [], {}, {"edits": None}, {"edits": [None, {"type": 1}, "compact_20260112"]}]
)
def test_nothing_is_reserved_for_what_asks_for_no_summary(managed: object) -> None:
    body = json.dumps(managed)
    request = structs.replace(
        messages(context_management=json.loads(body)), input_tokens_most=TRIGGER_TOKENS
    )
    assert compactions_at_most(request) == 0


def test_a_summary_is_read_and_written_for_once_more() -> None:
    plain = structs.replace(messages(), input_tokens_most=TRIGGER_TOKENS)
    with_one = asked(TRIGGER_TOKENS, EDIT)
    price = Price(4_000_000, 20_000_000, 200_000, 5_000_000, 8_000_000, 50, "", "")
    chosen = structs.replace(target(), price=price)
    once, twice = (
        _candidate(chosen, ALLOWED, each, 4096).worst_cost_microusd for each in (plain, with_one)
    )
    assert twice == 2 * once > 0
