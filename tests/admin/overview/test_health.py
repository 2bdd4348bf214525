"""How parts do, from recorded attempts: pure, and never unkinder than what was recorded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.overview.health import GIVEN_UP, Part, down_of, percentile, provider_parts
from gateway.oversight.workers import MemberReport, MemberState, WorkerReport
from gateway.types import Attempt, AuditRecord


PROVIDERS = {"engine": ("engine", ""), "managed": ("provider", ""), "idle": ("provider", "no key")}
TARGETS = {"house": "engine", "claude": "managed"}


def outcome(number: int, *attempts: Attempt) -> AuditRecord:
    return AuditRecord("outcome", f"r{number}", "acme", 1_000 + number, attempts=attempts)


def good(target: str, first_byte_us: int = 10) -> Attempt:
    return Attempt(target, 200, "", 50, first_byte_us)


def bad(target: str, status: int = 503) -> Attempt:
    return Attempt(target, status, "upstream_failed", 50, 0)


def parts(*records: AuditRecord, down: dict[str, str] | None = None) -> dict[str, Part]:
    found = provider_parts(records, PROVIDERS, TARGETS, down or {})
    return {part.name: part for part in found}


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


def test_an_engine_that_workers_find_down_is_neither_quiet_nor_answering() -> None:
    refused = {"engine": "it is not ready (HTTP 503)"}
    for records in ([], [outcome(1, good("house"))]):
        engine = parts(*records, down=refused)["engine"]
        assert (engine.word, engine.state, engine.note) == ("down", "bad", refused["engine"])
    assert parts(down={"idle": "refused"})["idle"].note == "no key", "what to mend comes first"


def test_a_pool_is_down_where_no_member_answers_whoever_looked_last() -> None:
    def seen(member: str, state: MemberState, provider: str = "herd") -> MemberReport:
        return MemberReport(provider=provider, member=member, state=state, reason=f"{member} fell")

    early = WorkerReport("w0", 1, members=(seen("left", "up"), seen("right", "down")))
    late = WorkerReport("w1", 2, members=(seen("left", "down"), seen("e", "warming", "e")))

    assert down_of([]) == {}
    assert down_of([early]) == {}, "one of two is left"
    assert down_of([late, early]) == {"herd": "left fell"}, "the order of reports is none of time"
    late_up = WorkerReport("w2", 3, members=(seen("left", "up"),))
    assert down_of([late_up, early, late]) == {}


def test_what_a_caller_did_wrong_is_not_held_against_an_upstream() -> None:
    assert parts(outcome(1, bad("claude", 400)))["managed"].failed == 0
    assert parts(outcome(1, bad("claude", 429)))["managed"].failed == 1


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_provider_that_refuses_our_credential_is_failing(status: int) -> None:
    found = parts(outcome(1, bad("claude", status)))["managed"]
    assert (found.failed, found.word, found.state) == (1, "failing", "bad")
    assert parts(outcome(1, bad("claude", 0)))["managed"].failed == 1
    assert parts(outcome(1, bad("gone", 503)))["managed"].attempts == 0


def test_times_are_of_what_answered_and_the_share_of_all() -> None:
    gave_up = [Attempt("claude", 200, code, 50, 0) for code in GIVEN_UP]
    found = parts(outcome(9, good("claude", 70)), *(outcome(1, each) for each in gave_up))
    managed = found["managed"]
    assert set(GIVEN_UP) == {
        *("hedged_away", "cascaded_away", "taken_over", "client_gone", "worker_stopped"),
    }
    assert (managed.attempts, managed.failed, managed.failed_share) == (6, 0, 0.0)
    assert (managed.p95_us, managed.last_us) == (70, 1_009)
    answers = [outcome(n, good("claude", n)) for n in range(1, 21)]
    some = parts(*answers, *(outcome(1, gave_up[0]) for _ in answers))
    assert some["managed"].p95_us == 19, "what began no answer took no time to its first byte"
    one_of_twenty = [outcome(n, bad("claude") if not n else good("claude")) for n in range(20)]
    assert parts(*one_of_twenty)["managed"].word == "strained", "from the twentieth part on"
    assert parts(*one_of_twenty)["managed"].failed_share == 0.05
    quiet = parts()["managed"]
    assert (quiet.last_us, quiet.p95_us, quiet.failed_share) == (0, 0, 0.0)
    assert parts(outcome(1, bad("claude", 499)))["managed"].failed == 0
    assert parts(outcome(1, bad("claude", 500)))["managed"].failed == 1


@given(st.lists(st.integers(0, 10**9), max_size=60))
def test_a_percentile_is_one_of_the_values_and_few_are_above_it(values: list[int]) -> None:
    found = percentile(values)

    assert found in (values or [0])
    assert sum(value > found for value in values) <= len(values) * 0.05
