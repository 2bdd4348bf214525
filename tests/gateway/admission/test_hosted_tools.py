"""Tools that vendors run: none is used whose price is unknown, and searches are reserved."""

from typing import Any

import pytest
from msgspec import structs

from gateway.admission.hosted_tools import (
    SEARCHES_ASSUMED,
    Offered,
    check_tools_priced,
    is_unpriced,
    kind_of,
    searches_at_most,
)
from gateway.errors import FeatureUnsupported
from gateway.types import DialectName, Target
from tests.gateway.admission.test_bounds import request
from tests.gateway.dialects.samples import target


OF_MESSAGES = {"type": "web_search_20260209", "name": "web_search"}
OF_RESPONSES = {"type": "web_search"}
PAID = [
    *("code_execution_20260120", "code_interpreter", "file_search", "image_generation"),
    "advisor_20260301",
]
FREE = [
    *("bash_20250124", "text_editor_20250728", "computer_20251124", "memory_20250818"),
    *("web_fetch_20260209", "tool_search_tool_regex_20251119", "custom", "local_shell"),
]


def at_a_price(microusd: int, **fields: Any) -> Target:
    known = target()
    price = structs.replace(known.price, web_search_microusd=microusd, **fields)
    return structs.replace(known, price=price)


def offering(
    *tools: dict[str, Any], dialect: DialectName = "anthropic_messages", **more: Any
) -> Any:
    named = [{"name": "t", **tool} for tool in tools]
    return request(dialect, tools=named, **more)


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview", "web_search_20260209"])
def test_a_search_whose_price_is_unknown_is_refused_and_one_that_has_a_price_is_not(
    kind: str,
) -> None:
    asked = offering({"type": kind})
    with pytest.raises(FeatureUnsupported, match="not known") as caught:
        check_tools_priced(asked, at_a_price(0))
    assert caught.value.parameter == "tools[0]"
    check_tools_priced(asked, at_a_price(10_000))


@pytest.mark.parametrize("kind", PAID)
def test_what_is_paid_for_by_something_that_no_answer_tells_is_refused(kind: str) -> None:
    asked = offering({"type": "bash_20250124"}, {"type": kind})
    with pytest.raises(FeatureUnsupported) as caught:
        check_tools_priced(asked, at_a_price(10_000))
    assert caught.value.parameter == "tools[1]"
    check_tools_priced(asked, at_a_price(0, unbilled_tools=True))
    check_tools_priced(asked, structs.replace(at_a_price(0), in_house=True))


@pytest.mark.parametrize("kind", FREE)
def test_a_tool_that_costs_its_tokens_only_is_nobodys_to_refuse(kind: str) -> None:
    check_tools_priced(offering({"type": kind, "input_schema": {}}), at_a_price(0))


def test_a_search_in_a_chat_is_refused_for_its_answer_does_not_say_how_often() -> None:
    asked = request(web_search_options={})
    with pytest.raises(FeatureUnsupported) as caught:
        check_tools_priced(asked, at_a_price(10_000))
    assert caught.value.parameter == "web_search_options"


def test_a_search_in_a_chat_is_seen_among_tools_of_the_callers_own() -> None:
    own = {"type": "function", "function": {"name": "f", "parameters": {}}}
    asked = request(web_search_options={}, tools=[own])
    assert searches_at_most(asked) == SEARCHES_ASSUMED
    with pytest.raises(FeatureUnsupported) as caught:
        check_tools_priced(asked, at_a_price(10_000))
    assert caught.value.parameter == "web_search_options"


@pytest.mark.parametrize(
    ("kind", "place", "told"),
    [
        ("web_search_20260209", "tools[0]", "tools.web_search"),
        ("shell_in_container", "tools[2]", "tools.shell"),
        ("code_interpreter", "tools", "tools.code_interpreter"),
        ("web_search", "web_search_options", "web_search_options"),
    ],
)
def test_a_tool_that_is_left_out_is_told_by_its_name_without_its_version(
    kind: str, place: str, told: str
) -> None:
    assert Offered(place, kind, {}).told_as == told


@pytest.mark.parametrize("room", ["local", ["local"], 7, {}, {"type": ["local"]}])
def test_a_shell_in_a_place_that_nobody_knows_is_not_the_callers_own(room: object) -> None:
    assert kind_of({"type": "shell", "environment": room}) == "shell_in_container"


def test_as_many_searches_are_reserved_as_the_request_allows() -> None:
    assert searches_at_most(request()) == 0
    assert searches_at_most(offering({"type": "bash_20250124"})) == 0
    assert searches_at_most(offering(OF_MESSAGES)) == SEARCHES_ASSUMED
    assert searches_at_most(offering(OF_MESSAGES | {"max_uses": 3})) == 3
    assert searches_at_most(offering(OF_MESSAGES | {"max_uses": -3})) == 0
    both = offering(OF_MESSAGES | {"max_uses": 3}, OF_MESSAGES)
    assert searches_at_most(both) == 3 + SEARCHES_ASSUMED
    bounded = offering(OF_RESPONSES, dialect="openai_responses", max_tool_calls=2)
    assert searches_at_most(bounded) == 2
    another = {"type": "code_interpreter", "container": {"type": "auto"}}
    searchless = offering(another, dialect="openai_responses", max_tool_calls=2)
    assert searches_at_most(searchless) == 0


def test_a_search_that_an_item_brings_is_reserved_and_refused_like_any_other() -> None:
    brought = {"type": "additional_tools", "role": "developer", "tools": [OF_RESPONSES]}
    asked = request("openai_responses", input=[brought, {"role": "user", "content": "Hi"}])
    assert searches_at_most(asked) == SEARCHES_ASSUMED
    with pytest.raises(FeatureUnsupported):
        check_tools_priced(asked, at_a_price(0))


@pytest.mark.parametrize("kind", [None, 7, [], {"a": 1}, True])
def test_a_brought_tool_whose_type_is_none_is_no_paid_one(kind: object) -> None:
    brought = {"type": "additional_tools", "role": "developer", "tools": [{"type": kind}, kind]}
    plain = request("openai_responses", input=[{"role": "user", "content": "Hi"}])
    asked = structs.replace(plain, has_tools=True, tree={**plain.tree, "input": [brought]})
    assert searches_at_most(asked) == 0
    check_tools_priced(asked, at_a_price(0))
    assert not is_unpriced(kind, at_a_price(0).price)


ROOMS: list[tuple[dict[str, Any] | None, bool]] = [
    (None, False),
    ({"type": "local"}, False),
    ({"type": "container_auto", "memory_limit": "4g"}, True),
    ({"type": "of_tomorrow"}, True),
]


@pytest.mark.parametrize(("environment", "is_paid"), ROOMS)
def test_a_shell_in_the_vendors_rooms_is_paid_for_and_one_of_the_callers_is_not(
    environment: dict[str, Any] | None, *, is_paid: bool
) -> None:
    asked = offering({"type": "shell", "environment": environment}, dialect="openai_responses")
    if not is_paid:
        check_tools_priced(asked, at_a_price(0))
        return
    with pytest.raises(FeatureUnsupported, match="not known"):
        check_tools_priced(asked, at_a_price(10_000))
    check_tools_priced(asked, at_a_price(0, unbilled_tools=True))
