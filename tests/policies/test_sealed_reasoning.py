"""A conversation stays with the vendor that alone can read its reasoning, while permitted."""

from collections.abc import Mapping

from msgspec.structs import replace

from policies.decide import decide
from policies.decision import Decision
from policies.examples import EXAMPLE_TARGETS
from policies.facts import Facts
from tests.policies.worlds import document, request


SEALS = {"managed-mid": "anthropic_messages", "managed-frontier": "anthropic_messages"}
TARGETS = tuple(replace(each, seals=SEALS.get(each.name, "")) for each in EXAMPLE_TARGETS)
CHEAPEST = {"order": ["cheapest"]}


def facts(sealed: str = "anthropic_messages", **fields: object) -> Facts:
    return replace(request(**fields), targets=TARGETS, sealed=sealed)


def decided(asked: Facts, *constraints: Mapping[str, object]) -> Decision:
    return decide(document(*constraints, preferences=(CHEAPEST,)), asked)


def test_those_who_can_read_it_come_first_in_the_policys_own_order() -> None:
    decision = decided(facts())
    assert decision.candidates == (
        "managed-mid",
        "managed-frontier",
        "in-house",
        "managed-cheap",
    )
    assert decision.reason == (
        "Sent to managed-mid, which alone can read the reasoning of earlier turns, "
        "because *p0* applies to every request."
    )


def test_without_sealed_reasoning_or_its_vendor_nothing_changes() -> None:
    plain = decided(facts(""))
    assert plain.candidates[0] == "in-house"
    assert decided(facts("openai_responses")) == plain
    dearest = {"order": ["frontier", "mid"]}
    decision = decide(document(preferences=(dearest,)), facts(""))
    assert decision.candidates[0] == "managed-frontier", "nobody is better for sealing nothing"


def test_what_policy_closes_stays_closed() -> None:
    home = {"when": 'data_class >= "S3"', "allow_only": {"in_house": True}}
    decision = decided(facts(data_class="S3"), home)
    assert decision.candidates == ("in-house",)
    assert "reasoning" not in decision.reason
    assert decided(facts(data_class="S0"), home).candidates[0] == "managed-mid"


def test_where_all_can_read_it_the_order_is_the_policys_and_nothing_is_said() -> None:
    everywhere = tuple(replace(each, seals="anthropic_messages") for each in TARGETS)
    decision = decided(replace(facts(), targets=everywhere))
    assert decision.candidates[0] == "in-house"
    assert "reasoning" not in decision.reason


def test_a_model_asked_for_by_name_is_what_is_asked_for() -> None:
    assert decided(facts(model_requested="managed-cheap")).candidates == ("managed-cheap",)
