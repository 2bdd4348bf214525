"""Figures before and since a version went live: equal spans, and no more said than there is."""

from typing import Any

import msgspec
import pytest

from admin.policy_room.limits import compared
from admin.policy_room.outcomes import figures_of
from gateway.configuration.guarding import GuardRules
from gateway.rollout.trials import Arm
from gateway.store.policies.documents import PolicyStore
from gateway.store.traffic.spans import SpanSums
from policies.document import ANSWER_CHECKS
from policies.text.loading import load_document
from tests.admin import seeding
from tests.admin.listener import Listener
from tests.admin.policies.people import WRITER, signed_in, staff
from tests.admin.policies.test_rolling_out import STRICT
from tests.admin.policies.test_writing import HOME, plain


pytestmark = pytest.mark.anyio


def span(**sums: Any) -> SpanSums:
    return SpanSums(0, 1, **sums)


@pytest.mark.parametrize(
    ("before", "since", "says"),
    [
        ({"requests": 1000, "refused": 20}, {"requests": 1000, "refused": 24}, "same"),
        ({"requests": 1000, "refused": 20}, {"requests": 1000, "refused": 60}, "more"),
        ({"requests": 1000, "refused": 60}, {"requests": 1000, "refused": 20}, "less"),
        ({"requests": 1000, "refused": 0}, {"requests": 29, "refused": 29}, "few"),
        ({"requests": 0}, {"requests": 1000, "refused": 9}, "few"),
        ({"requests": 50}, {"requests": 50}, "same"),
        ({"requests": 1000, "refused": 20}, {"requests": 1000, "refused": 34}, "same"),
        ({"requests": 1000, "refused": 20}, {"requests": 1000, "refused": 35}, "more"),
        ({"requests": 1000, "refused": 20}, {"requests": 100, "refused": 5}, "same"),
        ({"requests": 1000, "refused": 20}, {"requests": 100, "refused": 6}, "more"),
        ({"requests": 100, "refused": 6}, {"requests": 1000, "refused": 20}, "less"),
    ],
)
def test_shares_differ_only_where_chance_does_not_explain_it(
    before: dict[str, int], since: dict[str, int], says: str
) -> None:
    refused = figures_of(span(**before), span(**since))[1]
    assert (refused.title, refused.says) == ("Refused", says)


def test_each_check_that_a_canary_fails_is_said_in_words_of_its_own() -> None:
    words = {
        "Empty answers",
        "Truncated answers",
        "Refusals by the model",
        "Answers not in the requested format",
        "Answers that fail a check",
    }

    def titles(canary: Arm) -> set[str]:
        rows = compared(None, GuardRules(), canary, Arm())
        return {row.title for row in rows if row.title in words}

    said = [titles(Arm(answered=1, unsound={check: 1})) for check in ANSWER_CHECKS]
    assert said[ANSWER_CHECKS.index("complete")] == {"Truncated answers"}
    assert all(len(each) == 1 for each in said)
    assert len(set.union(*said, titles(Arm()))) == len(ANSWER_CHECKS) + 1


def test_means_are_compared_from_a_tenth_on_and_nothing_is_divided_by_none() -> None:
    usual = {"requests": 100, "reached": 100, "answered": 100, "p95_ms": 1_000}
    before = span(**usual, cost_microusd=50_000)
    near = figures_of(before, span(**(usual | {"p95_ms": 1_100}), cost_microusd=45_100))
    assert [figure.says for figure in near[-2:]] == ["same", "same"]
    far = figures_of(before, span(**(usual | {"p95_ms": 1_200}), cost_microusd=20_000))
    assert [figure.says for figure in far[-2:]] == ["more", "less"]
    assert (far[-1].before, far[-1].since) == (500, 200)
    empty = figures_of(span(), span())
    assert {figure.says for figure in empty} == {"few"}
    assert all(figure.since is None for figure in empty[1:])


def test_thirty_requests_are_enough_on_both_sides_and_fewer_on_one_are_not() -> None:
    enough = span(requests=30, refused=3, reached=30, in_house=3, answered=30, p95_ms=9)
    fewer = span(requests=29, refused=3, reached=29, in_house=3, answered=29, p95_ms=9)
    assert [each.says for each in figures_of(enough, enough)] == ["", *["same"] * 5]
    for before, since in ((enough, fewer), (fewer, enough)):
        assert [each.says for each in figures_of(before, since)] == ["few"] * 6
    mixed = figures_of(*[span(requests=30, reached=30)] * 2)
    assert {each.says for each in mixed} > {"few"}, "some are"


async def test_a_version_without_hours_to_compare_says_why_and_promises_none_that_never_come(
    listener: Listener,
) -> None:
    """That another full hour helps was said of versions of last year, and of former ones."""
    await staff(listener)
    listener.clock.advance(600.0)
    async with listener.database() as database:
        store = PolicyStore(database, listener.clock)
        for number in (1, 2):
            await store.draft("org:acme", load_document(STRICT), "ann")
            await store.act("org:acme", number, "approve", "bob")
            await store.act("org:acme", number, "publish", "bob")

    async def told(number: int) -> str:
        async with signed_in(listener, WRITER) as wanda:
            return plain((await wanda.send("GET", f"{HOME}/versions/{number}"))[1])

    too_short = "It was live for less than a full hour: there is nothing to compare."
    assert too_short in await told(1)
    assert "check again after the next full hour" in await told(2)
    listener.clock.advance(7 * 86_400.0)
    assert too_short in await told(1)
    listener.clock.advance(15 * 86_400.0)
    for number in (1, 2):
        assert "It went live more than 21 days ago" in await told(number)
        assert "next full hour" not in await told(number)


async def test_a_versions_page_compares_equal_hours_of_its_own_level(listener: Listener) -> None:
    await staff(listener)
    key = await seeding.issue(listener, "chat", project="chat")
    other = await seeding.issue(listener, "review", project="review")
    hours = {"over_us": 5 * seeding.HOUR_US}
    home: dict[str, Any] = {"jurisdiction": "in-house", "status": "ok", "cost_microusd": 100}
    away: dict[str, Any] = {"jurisdiction": "us", "status": "ok", "cost_microusd": 300}
    chat: dict[str, Any] = {"project": "chat", "error": ""} | hours
    await listener.record(*seeding.requests(listener, key, 60, **chat, **away))
    await listener.record(*seeding.requests(listener, other, 40, **hours, status="refused"))
    # Ten minutes past a full hour: that hour belongs to neither side.
    listener.clock.advance(600.0)
    async with listener.database() as database:
        store = PolicyStore(database, listener.clock)
        for level in ("proj:acme/research/chat", "org:acme"):
            await store.draft(level, load_document(STRICT), "ann")
            await store.act(level, 1, "approve", "bob")
            await store.act(level, 1, "publish", "bob")
    path = HOME.replace("organisation", "proj:research:chat")
    async with signed_in(listener, WRITER) as wanda:
        _, page = await wanda.send("GET", f"{path}/versions/1")
        assert "There is no full hour of traffic under it" in plain(page)
    listener.clock.advance(4 * 3_600.0)
    later = chat | {"over_us": 3 * seeding.HOUR_US - 1}
    await listener.record(
        *seeding.requests(listener, key, 45, **later, **home, request_id="req_later")
    )
    async with signed_in(listener, WRITER) as wanda:
        said = plain((await wanda.send("GET", f"{path}/versions/1"))[1])
        whole = plain((await wanda.send("GET", f"{HOME}/versions/1"))[1])
        history = plain((await wanda.send("GET", f"{path}/history"))[1])
        _, answered = await wanda.send(
            "GET", "/api/organisations/acme/policies/proj:research:chat/versions/1"
        )

    outcome = msgspec.json.decode(answered)["outcome"]
    assert outcome["hours"] == 3
    before, since = outcome["before"], outcome["since"]
    assert before["until_us"] - before["since_us"] == since["until_us"] - since["since_us"]
    assert (before["refused"], before["in_house"]) == (0, 0)
    assert since["in_house"] == since["requests"] >= 30
    assert before["requests"] >= 30
    assert "Sovereign, of what was sent 0% 100% more , by 100 points" in said
    assert "Cost of an answer $0.000300 $0.000100 less , 0.33 times" in said
    assert "Refused 0% 0% within chance" in said
    assert "too few to tell" not in said
    assert "Refused 0%" not in whole, "the other project's refusals count for the organisation"
    assert "0% → 100%" in history
