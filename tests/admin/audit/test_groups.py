"""Records gathered by who, by what, by sitting and side by side: every record is counted once."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.audit.groups import (
    GROUPS_MAX,
    LANES_MAX,
    MOMENTS_MAX,
    PAUSE_US,
    Doer,
    doer_of,
    grouped,
    lanes_of,
    named_in,
    narrowed,
)
from gateway.oversight.searching import Filter, parse, render
from gateway.store.traffic.lists import Row
from tests.admin.listener import Browser
from tests.admin.traffic.world import World


pytestmark = pytest.mark.anyio
LIST = "/o/acme/audit"


def _row(utc_us: int, actor: str = "", key_id: str = "", status: str = "ok") -> Row:
    fields: dict[str, object] = dict.fromkeys(Row.__struct_fields__, "")
    numbers = ("http_status", "cost_microusd", "input_tokens", "output_tokens", "duration_us")
    fields |= dict.fromkeys((*numbers, "first_byte_us"), 0)
    fields |= {"utc_us": utc_us, "sequence": utc_us, "findings": (), "status": status}
    fields |= {"organisation": "-operators" if actor else "acme", "actor": actor}
    fields |= {"key_id": key_id, "stage": "admin" if actor else "outcome"}
    return Row(**fields | {"action": "budget.set" if actor else "", "target": "house"})  # type: ignore[arg-type]


ROWS = st.lists(
    st.builds(
        _row,
        st.integers(0, 40 * PAUSE_US),
        st.sampled_from(["", "", "ann", "bob"]),
        st.sampled_from(["", "k1", "k2", "k3", "k4", "k5", "k6", "k7"]),
        st.sampled_from(["ok", "failed", ""]),
    ),
    max_size=80,
).map(lambda rows: sorted(rows, key=lambda row: -row.utc_us))


@given(ROWS, st.sampled_from(["who", "what", "sitting"]))
def test_groups_count_every_record_once_and_no_other(rows: list[Row], grouping: str) -> None:
    groups = grouped(grouping, rows, {})

    assert len(groups) <= GROUPS_MAX
    assert sum(group.count for group in groups) == len(rows)
    assert sum(group.deeds for group in groups) == sum(row.stage == "admin" for row in rows)
    for group in groups:
        assert group.first_us <= group.last_us


@given(ROWS)
def test_in_a_sitting_nobody_pauses_for_half_an_hour_and_between_two_of_one_doer_they_do(
    rows: list[Row],
) -> None:
    sittings = grouped("sitting", rows, {})
    for doer in {doer_of(row) for row in rows}:
        own = sorted((each for each in sittings if each.of == doer), key=lambda each: each.first_us)
        times = sorted(row.utc_us for row in rows if doer_of(row) == doer)
        gaps = [late - early for early, late in pairwise(times)]
        assert len(own) == 1 + sum(gap > PAUSE_US for gap in gaps)


@given(ROWS)
def test_lanes_hold_every_record_or_say_how_many_they_do_not(rows: list[Row]) -> None:
    lanes = lanes_of(rows)

    assert len(lanes.doers) <= LANES_MAX
    assert len(lanes.moments) <= MOMENTS_MAX
    held = sum(cell.count for moment in lanes.moments for cell in moment.cells)
    assert held + lanes.left_out == len(rows)
    for moment in lanes.moments:
        for cell in moment.cells:
            assert sum(cell.counts) <= cell.count
            assert len(cell.counts) == len(cell.rows)
        for cell, (doer, _) in zip(moment.cells, lanes.doers, strict=True):
            for row in cell.rows:
                assert doer_of(row) == doer
                assert moment.utc_us <= row.utc_us < moment.utc_us + lanes.width_us


@given(ROWS)
def test_what_narrows_to_a_group_is_a_filter_that_can_be_read_again(rows: list[Row]) -> None:
    for group in grouped("sitting", rows, {}):
        if group.terms:
            found = narrowed(Filter(parse("kind:admin").terms), group)
            assert render(parse(render(found))) == render(found)


def test_what_a_deed_was_done_to_is_found_among_its_words() -> None:
    assert named_in({"team": "people", "title": "x"}) == "people"
    assert named_in({"key_id": "k", "name": "n"}) == "k"
    assert named_in("cut …") == named_in({}) == named_in(None) == ""
    rows = [_row(2, "ann"), _row(1, "ann")]
    things = {("-operators", 2): "org:a", ("-operators", 1): "org:b"}
    groups = grouped("what", rows, things)
    assert [each.of for each in groups] == [
        Doer("thing", "budget org:a"),
        Doer("thing", "budget org:b"),
    ]


async def test_the_explorer_shows_groups_of_what_the_filter_finds_and_keeps_the_filter(
    world: World, browser: Browser
) -> None:
    _, page = await browser.send("GET", f"{LIST}?q=kind:admin&view=who")
    assert "Of all 2 records that match." in page
    assert "kind%3Aadmin+actor%3Aadmin-token" in page
    assert "kind%3Aadmin&amp;view=lanes" in page
    assert '<input type="hidden" name="view" value="who">' in page
    _, page = await browser.send("GET", f"{LIST}?view=what")
    assert "budget org:acme" in page
    assert "org:umbrella" not in page
    _, page = await browser.send("GET", f"{LIST}?view=nonsense")
    assert 'aria-label="Records"' in page


async def test_side_by_side_each_has_a_lane(world: World, browser: Browser) -> None:
    _, page = await browser.send("GET", f"{LIST}?view=lanes")
    heads = page.split("<thead>")[1].split("</thead>")[0]

    assert "admin-token" in heads
    assert heads.count("<th>") == 3
    assert "budget.set" in page


async def test_groups_over_the_api_are_of_the_organisation_of_the_path(
    world: World, browser: Browser
) -> None:
    path = "/api/organisations/acme/audit/gathered?view=who&q=kind:admin"
    answer, text = await browser.send("GET", path)
    gathered = msgspec.json.decode(text)

    assert answer.status == 200
    assert gathered["is_all"] is True
    assert [(each["of"]["name"], each["count"]) for each in gathered["groups"]] == [
        ("admin-token", 2)
    ]
    answer, _ = await browser.send("GET", path.replace("kind:admin", "kind:nothing"))
    assert answer.status == 400
