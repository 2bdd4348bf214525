"""Profiles: counts of what records hold already, bounded, and never a word of anybody."""

import msgspec
import pytest

from gateway.drift.profiles import (
    BINS_MAX,
    FEATURES,
    OTHER,
    Profile,
    added,
    bins_of,
    profiled,
    words_of,
)
from gateway.recorded_facts import RecordedFacts
from gateway.types import Attempt, AuditRecord, Usage


def intent(**changes: object) -> AuditRecord:
    fields: dict[str, object] = {
        "stage": "intent",
        "request_id": "req_1",
        "organisation": "acme",
        "utc_us": 1,
        "endpoint": "/v1/chat/completions",
        "dialect": "openai_chat",
        "model_requested": "auto",
        "data_class": "S2",
        "findings": {"EMAIL": 3, "PHONE": 1},
        "complexity_ppm": 410_000,
        "complexity_parts_ppm": {"words": 9, "domain:code": -70, "domain:law": 20, "shape": 99},
        "calibration": "unfamiliar",
        "facts": RecordedFacts("board", 8_001, 0.41, "mid", has_tools=True, injection=0.6),
    }
    return AuditRecord(**(fields | changes))  # type: ignore[arg-type]


def outcome(**changes: object) -> AuditRecord:
    fields: dict[str, object] = {
        "stage": "outcome",
        "request_id": "req_1",
        "organisation": "acme",
        "utc_us": 1,
        "target": "house",
        "status": "ok",
        "usage": Usage(5, 120),
    }
    return AuditRecord(**(fields | changes))  # type: ignore[arg-type]


def test_a_prompt_counts_once_in_each_feature_by_what_its_intent_says() -> None:
    found = profiled([intent(), intent(inspection_complete=False, facts=None, findings={})])
    profile = found["prompts", "auto"]

    assert profile.count == 2
    assert profile.bins == {
        "class": {"S2": 1, "unread": 1},
        "dialect": {"openai_chat": 2},
        "findings": {"EMAIL": 1, "PHONE": 1, "nothing": 1},
        "complexity": {"4": 2},
        "familiar": {"unfamiliar": 2},
        "domain": {"code": 2},
        "tokens": {"6": 1},
        "shape": {"tools": 1},
        "injection": {"2": 1},
    }
    (tokens,) = [each for each in FEATURES["prompts"] if each.name == "tokens"]
    assert words_of(tokens, "6") == "8,000 to 16,000 tokens"


def test_a_format_counts_by_whichever_name_its_caller_has_for_it() -> None:
    kept = ("response_format", "text.format.strict", "output_config.format", "output_format")
    found = profiled([outcome(dropped=(name, "seed")) for name in kept])

    assert found["answers", "house"].bins["format"] == {"kept": 4}


def test_an_answer_counts_for_its_target_and_a_failure_for_who_was_asked_last() -> None:
    failed = outcome(
        target="", status="failed", error="upstream_failed", usage=None,
        attempts=(Attempt("claude", 500, "upstream_failed", 1, 0),),
    )  # fmt: skip
    unmet = outcome(dropped=("response_format", "response_format.unmet"))
    iban = outcome(output_findings={"IBAN": 1}, detail={"stop_reason": "refusal"})
    found = profiled([outcome(), failed, unmet, iban])

    assert found["answers", "house"].bins == {
        "ending": {"well": 3},
        "tokens": {"3": 3},
        "stop": {"themselves": 2, "refusal": 1},
        "format": {"missed": 1},
        "findings": {"nothing": 2, "IBAN": 1},
    }
    assert found["answers", "claude"].bins == {"ending": {"upstream_failed": 1}}


@pytest.mark.parametrize(
    "record",
    [
        intent(endpoint="/v1/messages/count_tokens"),
        intent(endpoint="/v1/responses/input_tokens"),
        outcome(status="cancelled"),
        outcome(detail={"counted": "estimate"}),
        outcome(detail={"cache_saved_microusd": "7"}),
        outcome(target="", status="refused"),
        AuditRecord("admin", "adm_1", "acme", 1),
    ],
)
def test_what_is_no_prompt_and_no_answer_of_a_target_is_left_out(record: AuditRecord) -> None:
    assert profiled([record]) == {}


def test_an_answer_without_usage_has_no_length_and_one_without_injection_no_score() -> None:
    facts = RecordedFacts("board", 8_001, 0.41, "mid", injection=0.0)
    found = profiled([outcome(usage=None), intent(facts=facts)])
    assert "tokens" not in found["answers", "house"].bins
    assert found["answers", "house"].bins["ending"] == {"well": 1}
    assert "injection" not in found["prompts", "auto"].bins


def test_words_have_so_many_bins_and_the_rest_is_counted_together() -> None:
    profile = Profile()
    for number in range(BINS_MAX + 10):
        profile.mark("findings", f"label {number} " + "x" * 500)

    bins = profile.bins["findings"]
    assert len(bins) == BINS_MAX + 1
    assert bins[OTHER] == 10
    assert max(map(len, bins)) <= 60


def test_every_bin_has_words_and_profiles_add_up() -> None:
    both = added([Profile(1, {"tokens": {"0": 1}}), Profile(2, {"tokens": {"0": 1, "8": 1}})])
    assert (both.count, both.bins) == (3, {"tokens": {"0": 2, "8": 1}})
    for features in FEATURES.values():
        for feature in features:
            names = bins_of(feature, both)
            assert len({words_of(feature, name) for name in names}) == len(names)
    assert words_of(FEATURES["prompts"][0], "8") == "over 64,000 tokens"
    assert msgspec.json.decode(msgspec.json.encode(both), type=Profile) == both
