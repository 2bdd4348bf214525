"""Conversations stay where their beginning is cached: while it is cheaper, and permitted."""

from typing import Any

import msgspec
import pytest

from policies.decide import decide
from policies.facts import TargetFacts
from tests.policies.worlds import document, request, target


CHEAP = target("managed-cheap", cache_read_price_microusd_per_mtok=100_000)
DEAR = target("managed-mid", cache_read_price_microusd_per_mtok=300_000)
STAYS = {"order": ["cheapest"], "stay_warm": True}


def chosen(
    preference: dict[str, object],
    warm_tokens: int,
    dear: TargetFacts = DEAR,
    closed: dict[str, object] | None = None,
) -> str:
    """Who is first when the dear target read most of a long conversation lately."""
    facts = msgspec.structs.replace(
        request(max_output_tokens=100, input_tokens_estimate=20_000),
        targets=(CHEAP, dear),
        warm_target="managed-mid",
        warm_tokens=warm_tokens,
    )
    constraints = () if closed is None else (closed,)
    return decide(document(*constraints, preferences=(preference,)), facts).candidates[0]


def test_it_stays_while_the_cached_prompt_is_cheaper_than_a_new_one() -> None:
    assert chosen(STAYS, 19_000) == "managed-mid"
    assert chosen(STAYS, 5_000) == "managed-cheap", "too little of it is cached"
    assert chosen({"order": ["cheapest"]}, 19_000) == "managed-cheap", "nobody asked for it"


def test_the_others_follow_in_their_order_each_once() -> None:
    others = (target("in-house"), CHEAP, DEAR, target("managed-frontier"))
    facts = msgspec.structs.replace(
        request(max_output_tokens=100, input_tokens_estimate=20_000),
        targets=others,
        warm_target="managed-mid",
        warm_tokens=20_000,
    )
    preference = {"targets": ["managed-cheap"], **STAYS}
    decision = decide(document(preferences=(preference,)), facts)
    assert decision.candidates == ("managed-mid", "managed-cheap", "in-house", "managed-frontier")


@pytest.mark.parametrize(
    "change",
    [
        {"available": False},
        {"permitted_to_key": False},
        {"cache_read_price_microusd_per_mtok": None},
    ],
)
def test_it_stays_only_where_it_may_and_the_price_is_known(change: dict[str, Any]) -> None:
    dear = msgspec.structs.replace(DEAR, **change)
    assert chosen(STAYS, 19_000, dear) == "managed-cheap"


def test_it_stays_nowhere_when_the_preference_that_asks_for_it_does_not_match() -> None:
    assert chosen({**STAYS, "when": "stream"}, 19_000) == "managed-cheap"


def test_no_cache_opens_what_a_constraint_closed() -> None:
    closed: dict[str, object] = {"forbid": {"targets": ["managed-mid"]}}
    assert chosen(STAYS, 19_000, closed=closed) == "managed-cheap"


def test_the_sentence_says_that_the_conversation_was_read_there() -> None:
    facts = msgspec.structs.replace(
        request(input_tokens_estimate=20_000),
        targets=(CHEAP, DEAR),
        warm_target="managed-mid",
        warm_tokens=19_990,
    )
    decision = decide(document(preferences=({"name": "long", **STAYS},)), facts)
    assert decision.reason == (
        "Sent to managed-mid, which has read 19990 tokens of it lately, "
        "because *long* applies to every request."
    )
