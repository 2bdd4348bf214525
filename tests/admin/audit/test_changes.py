"""What a deed changed is said in words, whatever shape the deed gave it."""

import re

import msgspec
import pytest

from admin.audit.changes import AS_IT_WAS, Change, changes_of, told_of
from gateway.oversight.deeds import OPERATORS
from gateway.types import AuditRecord
from tests.admin.listener import Browser
from tests.admin.traffic.world import World


BUDGET = {"account": "org:acme", "limit_microusd": 5, "window": "day"}
RAW = re.compile(r'[\[\]{}"]|\b(?:true|false|null)\b')


def changes(before: object, after: object) -> tuple[Change, ...]:
    given = {"before": before, "after": after}
    detail = {
        name: msgspec.json.encode(value).decode()
        for name, value in given.items()
        if value is not None
    }
    return changes_of(detail)


def test_a_change_is_what_differs() -> None:
    assert changes({"a": 1, "b": 2}, {"a": 1, "b": 3}) == (Change("b", "2", "3"),)
    assert changes(None, {"a": [1]}) == (Change("a", "", "1"),)
    assert changes({"a": 1}, None) == (Change("a", "1", ""),)
    assert changes(None, None) == ()
    assert changes([1, 2], [1, 2]) == ()
    assert changes_of({"after": '{"a": "cut off…[cut]'}) == (
        Change("", "", '{"a": "cut off…[cut]'),
    )
    assert changes({"a": 160 * "a" + "b"}, {"a": 160 * "a" + "c"}) != ()


def test_a_deed_that_changes_no_field_is_told_by_what_it_is_about() -> None:
    """Who asked to read which request, and why, is what an auditor looks for in the list."""
    detail = {"organisation": "acme", "reveal": "r1", "ticket": "T-1", "request_id": "req_1"}
    assert told_of(detail | {"reason": 161 * "w"}) == (
        Change("request_id", "", "req_1"),
        Change("reason", "", 160 * "w" + "…"),
        Change("ticket", "", "T-1"),
        Change("reveal", "", "r1"),
    )
    assert told_of({"organisation": "acme"}) == ()
    changed = {"after": '{"a":1}', "reason": "w"}
    assert told_of(changed) == changes_of(changed) == (Change("a", "", "1"),)
    unchanged = {"before": '{"a":1}', "after": '{"a":1}', "ticket": "T"}
    assert told_of(unchanged) == (Change("ticket", "", "T"),)
    version = "0123456789abcdef" * 4
    rolled_out = {"approval": "a1", "percent": "50", "version": version, "level": "org:acme"}
    assert told_of(rolled_out) == (
        Change("level", "", "org:acme"),
        Change("version", "", "0123456789ab…"),
        Change("percent", "", "50"),
        Change("approval", "", "a1"),
    )
    ordered = {"after": msgspec.json.encode({"version": version}).decode()}
    assert told_of(ordered) == (Change("version", "", "0123456789ab…"),)
    assert changes_of(ordered) == (Change("version", "", version),)


def test_the_only_one_that_was_there_stands_beside_what_is_ordered() -> None:
    """As `gatewright budgets set` records it: the limits that were there, and its words."""
    ordered = {"account": "org:acme", "limit_microusd": "9", "window": "day"}
    assert changes([BUDGET], ordered) == (Change("limit_microusd", "5", "9"),)


def test_several_that_were_there_stand_apart_from_what_is_ordered() -> None:
    was = [BUDGET, BUDGET | {"window": "month"}]
    said = "account: org:acme, limit_microusd: 5, window: day; "
    said += "account: org:acme, limit_microusd: 5, window: month"
    assert changes(was, {"account": "org:acme"}) == (
        Change(AS_IT_WAS, said, ""),
        Change("account", "", "org:acme"),
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([["admin", "acme"], ["reader", "*"]], "admin acme, reader *"),
        ([[2, "live"], [1, "retired"]], "2 live, 1 retired"),
        (["gpt-a", "gpt-b"], "gpt-a, gpt-b"),
        ([], "none"),
        (True, "yes"),
        ({"models": ["a", "b"], "tags": [], "note": ""}, "models: (a, b), tags: none, note: none"),
        ({"at": {"number": 1, "place": 2}, "on": False}, "at: (number: 1, place: 2), on: no"),
        ([{"a": None}, {"a": [1]}], "a: none; a: 1"),
    ],
)  # fmt: skip
def test_values_are_said_in_words(value: object, said: str) -> None:
    assert changes(None, {"field": value}) == (Change("field", "", said),)
    assert changes({"field": value}, {"field": "x"}) == (Change("field", said, "x"),)


def test_what_was_there_has_any_shape_beside_any_order() -> None:
    roles = [["admin", "acme"], ["reader", "*"]]
    assert changes(roles, {"person": "ann", "role": "reader"}) == (
        Change(AS_IT_WAS, "admin acme, reader *", ""),
        Change("person", "", "ann"),
        Change("role", "", "reader"),
    )
    assert changes(roles, None) == (Change("", "admin acme, reader *", ""),)
    assert changes(roles, [["reader", "*"]]) == (Change("", "admin acme, reader *", "reader *"),)
    assert changes(None, [{"id": "r1"}, {"id": "r2"}]) == (
        Change("1", "", "id: r1"),
        Change("2", "", "id: r2"),
    )
    assert changes({"a": 1}, ["b", "c"]) == (Change("a", "1", ""), Change("", "", "b, c"))


@pytest.mark.anyio
async def test_times_that_a_deed_ordered_are_said_as_times(world: World, browser: Browser) -> None:
    after = {"signed_us": 1_795_952_709_547_260, "width_us": 500, "id": 1_795_952_709_547_260}
    now_us = world.listener.clock.utc_us()
    await world.listener.record(
        AuditRecord(
            stage="admin",
            request_id="adm_1",
            organisation=OPERATORS,
            utc_us=now_us,
            actor="ann",
            action="review.signed",
            status="ok",
            detail={"organisation": "acme", "after": msgspec.json.encode(after).decode()},
        )
    )
    _, rows = await browser.send("GET", "/o/acme/audit?q=action:review.signed")
    place = re.search(r'href="(/o/acme/audit/[^"/]+/\d+)"', rows)
    assert place is not None
    assert '<ins><time datetime="2026-11-29T11:45:09.547Z"' in rows
    _, page = await browser.send("GET", place[1])
    assert '<ins><time datetime="2026-11-29T11:45:09.547Z"' in page
    assert "<ins>500</ins>" in page
    assert "<ins>1795952709547260</ins>" in page


@pytest.mark.anyio
async def test_no_change_of_the_explorer_is_raw_json(world: World, browser: Browser) -> None:
    before = [BUDGET, BUDGET | {"window": "month"}]
    await world.listener.record(
        AuditRecord(
            stage="admin",
            request_id="adm_1",
            organisation=OPERATORS,
            utc_us=world.listener.clock.utc_us(),
            actor="os:ann",
            action="budget.removed",
            status="ok",
            detail={
                "organisation": "acme",
                "before": msgspec.json.encode(before).decode(),
                "after": '{"account":"org:acme"}',
            },
        )
    )
    _, page = await browser.send("GET", "/o/acme/audit?q=kind:deed")
    shown = re.findall(r"<(?:del|ins)>([^<]*)</(?:del|ins)>", page)
    assert any("window: month" in each for each in shown)
    assert [each for each in shown if RAW.search(each.replace("&#34;", '"'))] == []
