"""What a list of workers adds up to, in sentences."""

import pytest
from msgspec import structs

from admin.system.verdict import in_words, judged, listed, most_served, positions
from gateway.oversight.workers import WorkerReport


NOW_US = 1_800_000_000_000_000
WELL = WorkerReport(
    "w0",
    NOW_US - 1_000_000,
    version="1.0",
    settings_digest="aa" * 16,
    policies_digest="bb" * 16,
    prices_digest="dd" * 16,
    revision=7,
    stale_s=0.5,
    breakers={"x": "closed"},
)


def worker(name: str, **changes: object) -> WorkerReport:
    return structs.replace(WELL, worker=name, **changes)


def test_workers_that_agree_are_said_to_in_one_sentence() -> None:
    found = judged([worker("w0"), worker("w1", stale_s=2.0)], 7, NOW_US)

    assert (found.kind, found.reasons) == ("good", ())
    assert found.sentence == (
        "All 2 workers serve by the same settings, keys, policies and prices (revision 7), "
        "confirmed 3.0 s ago or less."
    )


def test_one_worker_agrees_with_itself() -> None:
    assert "The one worker, w0, serves by the newest" in judged([WELL], 7, NOW_US).sentence


def test_nobody_is_not_everybody_agreeing() -> None:
    found = judged([], 7, NOW_US)

    assert (found.kind, "No worker" in found.sentence) == ("idle", True)


def test_a_lost_worker_makes_it_bad_and_does_not_take_part_in_comparisons() -> None:
    lost = worker("w1", seen_us=NOW_US - 400_000_000, settings_digest="cc" * 16, revision=1)
    found = judged([WELL, lost], 7, NOW_US)

    assert found.kind == "bad"
    assert found.sentence == "1 of 2 workers serves as they should."
    assert found.reasons == ("w1 counts as lost: it was last heard of 7 minutes ago.",)
    assert judged([lost], 7, NOW_US).sentence.startswith("0 of 1")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"revision": 6}, "w1 still serves by an older revision than the database's 7."),
        ({"settings_digest": "cc" * 16}, "Workers have different settings: w0 and w2 aaaaaaaa; w1"),
        ({"policies_digest": "cc" * 16}, "Workers have different policies: w0 and w2 bbbbbbbb; w1"),
        ({"prices_digest": "cc" * 16}, "Workers have different prices: w0 and w2 dddddddd; w1"),
        ({"version": "1.1"}, "Workers have different versions of the program: w0 and w2 1.0; w1"),
        ({"version": ""}, "w1 unknown."),
        (
            {"schema": "0069"},
            "Workers have different schemas that their programs know: w0 and w2 unknown; w1 0069.",
        ),
    ],
)
def test_what_differs_is_named_with_who_has_it(changes: dict[str, object], reason: str) -> None:
    found = judged([worker("w0"), worker("w1", **changes), worker("w2")], 7, NOW_US)

    assert found.kind == "warn"
    assert len(found.reasons) == 1
    assert reason in found.reasons[0]


def test_a_worker_of_a_version_that_says_no_prices_is_not_said_to_have_others() -> None:
    assert judged([worker("w0"), worker("w1", prices_digest="")], 7, NOW_US).kind == "good"


def test_a_problem_is_said_in_its_own_words() -> None:
    found = judged([WELL, worker("w1", problems=("The disk is full.",))], 7, NOW_US)

    assert (found.kind, found.reasons) == ("bad", ("w1 has a problem: The disk is full.",))


def test_only_breakers_that_are_not_closed_are_told() -> None:
    other = worker("w1", breakers={"x": "open", "y": "half_open"})

    assert positions([WELL, other]) == {"x": {"w1": "open"}, "y": {"w1": "half_open"}}


def test_names_and_spans_are_said_as_people_say_them() -> None:
    assert [listed(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        *("", "a", "a and b", "a, b and c")
    ]
    assert [in_words(seconds) for seconds in (0.04, 9.96, 42.4, 150.0, 9_000.0, 200_000.0)] == [
        *("0.0 s", "10.0 s", "42 s", "2 minutes", "2 hours", "2 days")
    ]
    assert [in_words(seconds) for seconds in (10.0, 119.0, 120.0, 7_199.0, 7_200.0)] == [
        *("10 s", "119 s", "2 minutes", "120 minutes", "2 hours")
    ]
    assert [in_words(seconds) for seconds in (172_799.0, 172_800.0)] == ["48 hours", "2 days"]


def test_what_most_workers_have_is_what_others_are_compared_with() -> None:
    every = [worker("w0", version="1.1"), worker("w1"), worker("w2", version="1.1")]
    assert most_served(every, lambda each: each.version) == "1.1"
    assert most_served(every[:2], lambda each: each.version) == "1.0", "the first in the alphabet"
    assert most_served([], lambda each: each.version) == ""


def test_several_that_are_behind_are_said_to_serve_and_none_is_said_to_be_broken() -> None:
    found = judged([worker("w0", revision=6), worker("w1", revision=6), worker("w2")], 7, NOW_US)
    assert found.reasons == ("w0 and w1 still serve by an older revision than the database's 7.",)
    assert found.sentence == "3 of 3 workers serve, not all by the same configuration."
