"""How parts do, from recorded attempts: pure, and never unkinder than what was recorded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.overview.health import Part, percentile, provider_parts
from gateway.types import Attempt, AuditRecord


PROVIDERS = {"engine": ("engine", ""), "managed": ("provider", ""), "idle": ("provider", "no key")}
TARGETS = {"house": "engine", "claude": "managed"}


def outcome(number: int, *attempts: Attempt) -> AuditRecord:
    return AuditRecord("outcome", f"r{number}", "acme", 1_000 + number, attempts=attempts)


def good(target: str, first_byte_us: int = 10) -> Attempt:
    return Attempt(target, 200, "", 50, first_byte_us)


def bad(target: str, status: int = 503) -> Attempt:
    return Attempt(target, status, "upstream_failed", 50, 0)


def parts(*records: AuditRecord) -> dict[str, Part]:
    return {part.name: part for part in provider_parts(records, PROVIDERS, TARGETS)}


def test_a_provider_that_fell_out_shows_though_another_one_answered() -> None:
    found = parts(*(outcome(n, bad("claude"), good("house", n)) for n in range(1, 41)))

    assert (found["managed"].word, found["managed"].state) == ("failing", "bad")
    assert (found["engine"].word, found["engine"].p95_us) == ("answers", 38)
    assert (found["idle"].word, found["idle"].note) == ("unavailable", "no key")


@pytest.mark.parametrize(("failed", "word"), [(0, "answers"), (2, "strained"), (10, "failing")])
def test_the_word_follows_the_share_that_failed(failed: int, word: str) -> None:
    records = [outcome(n, bad("claude") if n < failed else good("claude")) for n in range(20)]

    assert parts(*records)["managed"].word == word
    assert parts()["managed"].word == "quiet"


def test_what_a_caller_did_wrong_is_not_held_against_an_upstream() -> None:
    assert parts(outcome(1, bad("claude", 400)))["managed"].failed == 0
    assert parts(outcome(1, bad("claude", 429)))["managed"].failed == 1
    assert parts(outcome(1, bad("claude", 0)))["managed"].failed == 1
    assert parts(outcome(1, bad("gone", 503)))["managed"].attempts == 0


@given(st.lists(st.integers(0, 10**9), max_size=60))
def test_a_percentile_is_one_of_the_values_and_few_are_above_it(values: list[int]) -> None:
    found = percentile(values)

    assert found in (values or [0])
    assert sum(value > found for value in values) <= len(values) * 0.05
