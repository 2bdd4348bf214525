"""Weights, canaries, speed and hedging order what is left; they give nothing back."""

from collections import Counter
from collections.abc import Mapping
from itertools import product

import msgspec
import pytest

from policies.decide import decide
from policies.decision import Decision
from policies.examples import EXAMPLE_TARGETS
from policies.facts import BARE_TEXT, CONTINUES_TEXT, Facts
from policies.program import PolicyDocument
from policies.sifting import BOARDS_KEPT, MATCHES_KEPT
from tests.policies.worlds import document, request, target


KEYS = 4_000


def firsts(preference: Mapping[str, object], **fields: object) -> Counter[str]:
    policy = document(preferences=(preference,))
    return Counter(
        decide(policy, request(key_id=f"key-{n}", **fields)).candidates[0] for n in range(KEYS)
    )


def test_weights_share_the_keys_and_a_key_stays_where_it_is() -> None:
    shares = {"weights": {"managed-mid": 3, "managed-cheap": 1}}
    counts = firsts(shares)
    assert set(counts) == {"managed-mid", "managed-cheap"}
    assert abs(counts["managed-mid"] / KEYS - 0.75) < 0.03
    assert firsts(shares) == counts


def test_a_lost_target_moves_only_its_own_share() -> None:
    weights = {"managed-mid": 1, "managed-cheap": 1, "in-house": 1}
    before = document(preferences=({"weights": weights},))
    after = document(
        {"forbid": {"targets": ["managed-cheap"]}}, preferences=({"weights": weights},)
    )
    for number in range(300):
        facts = request(key_id=f"key-{number}")
        chosen = decide(before, facts).candidates[0]
        if chosen != "managed-cheap":
            assert decide(after, facts).candidates[0] == chosen


def test_a_canary_gets_its_share_first_and_the_others_get_it_last() -> None:
    canary = {"order": ["cheapest"], "canary": {"target": "managed-mid", "percent": 5}}
    counts = firsts(canary)
    assert set(counts) == {"managed-mid", "in-house"}
    assert 0.03 < counts["managed-mid"] / KEYS < 0.07
    policy = document(preferences=(canary,))
    lasts = Counter(decide(policy, request(key_id=f"key-{n}")).candidates[-1] for n in range(200))
    assert lasts["managed-mid"] > 180


def test_a_canary_is_asked_once_whether_it_is_first_or_last() -> None:
    for percent, place in ((100, 0), (1, -1)):
        canary = {"target": "managed-mid", "percent": percent}
        policy = document(preferences=({"order": ["cheapest"], "canary": canary},))
        candidates = decide(policy, request()).candidates
        assert candidates[place] == "managed-mid"
        assert sorted(candidates) == sorted(each.name for each in EXAMPLE_TARGETS)


def test_a_closed_canary_is_not_opened() -> None:
    policy = document(
        {"allow_only": {"in_house": True}},
        preferences=({"canary": {"target": "managed-mid", "percent": 100}},),
    )
    assert decide(policy, request()).candidates == ("in-house",)


@pytest.mark.parametrize("sticky", ["key", "project", "workspace"])
def test_who_counts_as_the_same_asker_is_the_policys_choice(sticky: str) -> None:
    weights = {"managed-mid": 1, "managed-cheap": 1}
    policy = document(preferences=({"weights": weights, "sticky": sticky},))

    def chosen(**fields: object) -> set[str]:
        return {
            decide(
                policy, request(**{name: f"{value}{n}" for name, value in fields.items()})
            ).candidates[0]
            for n in range(60)
        }

    assert len(chosen(key_id="k")) == (2 if sticky == "key" else 1)
    assert len(chosen(project="p")) == (2 if sticky == "project" else 1)
    assert len(chosen(workspace="w")) == (1 if sticky == "key" else 2)


def test_the_fastest_measured_target_is_first_and_the_unmeasured_last() -> None:
    targets = (
        target("managed-cheap"),
        target("managed-mid", first_token_ms=200),
        target("managed-frontier", first_token_ms=400),
    )
    facts = request()
    policy = document(preferences=({"order": ["fastest", "cheapest", "frontier"]},))

    decided = decide(policy, msgspec.structs.replace(facts, targets=targets))
    assert decided.candidates == ("managed-mid", "managed-frontier", "managed-cheap")


def test_hedging_is_asked_for_only_where_there_is_somebody_else_to_ask() -> None:
    preference = {"order": ["cheapest"], "hedge_after_ms": 300}
    policy = document(preferences=(preference,))
    assert decide(policy, request()).hedge_after_ms == 300
    one_other = {"allow_only": {"targets": ["managed-mid", "managed-cheap"]}}
    assert decide(document(one_other, preferences=(preference,)), request()).hedge_after_ms == 300
    home = document({"allow_only": {"in_house": True}}, preferences=(preference,))
    assert decide(home, request()).hedge_after_ms is None


def test_an_approval_is_a_label_of_the_key_for_one_rule() -> None:
    policy = document({"when": "has_tools", "require_approval": "Tools need a second look."})
    refused = decide(policy, request(has_tools=True))
    assert refused.refusal == "approval_required"
    assert "*c0* matched" in refused.reason
    assert "asks for an approval: Tools need a second look." in refused.reason
    assert decide(policy, request(has_tools=True, labels=["approved:other"])).effect == "deny"
    assert decide(policy, request(has_tools=True, labels=["approved:c0"])).effect == "allow"
    assert decide(policy, request()).effect == "allow"


def test_headers_are_texts_and_a_missing_one_is_empty() -> None:
    policy = document({"when": 'headers.x_team == "red"', "deny": "Not you."})
    refused = decide(policy, request(headers={"x_team": "red"}))
    assert "headers.x_team = red" in refused.reason
    assert decide(policy, request()).effect == "allow"
    absent = document({"when": 'headers["x_team"] == ""', "deny": "Say who you are."})
    assert "headers.x_team = absent" in decide(absent, request()).reason


def test_what_is_remembered_is_bounded_and_changes_no_decision() -> None:
    rules = [{"when": f"hour_utc >= {n}", "no_cache": True} for n in range(24)]
    rules += [{"when": f"weekday == {n}", "redact": True} for n in range(7)]
    rules += [{"when": "stream", "redact": True}, {"when": "has_tools", "redact": True}]
    policy = document(*rules)
    seen = [
        request(hour_utc=hour, weekday=weekday, stream=bool(stream), has_tools=bool(tools))
        for hour, weekday, stream, tools in product(range(24), range(7), (0, 1), (0, 1))
    ]
    decided = [decide(policy, facts) for facts in seen]
    assert 0 < len(policy.memory) <= MATCHES_KEPT < len(seen)
    boards = [
        msgspec.structs.replace(seen[0], targets=(target("in-house", first_token_ms=n + 1),))
        for n in range(BOARDS_KEPT + 2)
    ]
    assert {decide(policy, facts).candidates for facts in boards} == {("in-house",)}
    assert max(len(known.sieves) for known in policy.memory.values()) <= BOARDS_KEPT
    policy.memory.clear()
    assert [decide(policy, facts) for facts in seen] == decided


def test_no_request_decides_about_the_next_one() -> None:
    # What is remembered of a board is only for requests that need the same, and fit as well.
    needs = ("tools", "images", "documents", "streaming", CONTINUES_TEXT)
    able = target("managed-cheap", capabilities=frozenset(needs))
    board = (
        able,
        *(
            msgspec.structs.replace(
                able,
                name=f"without-{lacks}",
                capabilities=able.capabilities - {lacks},
                context_window_tokens=1_000 + place,
            )
            for place, lacks in enumerate(needs)
        ),
    )
    asked = [
        msgspec.structs.replace(
            request(model_requested=model, has_tools=tools, has_images=images, stream=stream),
            has_documents=documents,
            dialect=dialect,
            input_tokens_estimate=tokens,
            targets=board,
        )
        for model, tools, images, documents, stream, dialect, tokens in product(
            ("auto", f"without-{CONTINUES_TEXT}"),
            *[(False, True)] * 4,
            ("openai_chat", BARE_TEXT),
            range(999, 1_005),
        )
    ]
    policy = document({"forbid": {"in_house": True}})
    alone = [_decided_alone(policy, facts) for facts in asked]
    assert [decide(policy, facts) for facts in asked] == alone
    policy.memory.clear()
    assert [decide(policy, facts) for facts in reversed(asked)] == alone[::-1]


def _decided_alone(policy: PolicyDocument, facts: Facts) -> Decision:
    policy.memory.clear()
    return decide(policy, facts)
