"""Records gathered by who, by what, by sitting and side by side: every record is counted once."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

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
    _, page = await browser.send("GET", f"{LIST}?q=kind:deed&view=who")
    assert "Of all 2 records that match." in page
    assert "kind%3Adeed+actor%3Aadmin-token" in page
    assert "kind%3Adeed&amp;view=lanes" in page
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


MINUTE_US = 60 * 1_000_000
SOME = (
    replace(_row(100 * MINUTE_US, "ann"), action="key.issued"),
    _row(99 * MINUTE_US, key_id="k1", status="failed"),
    _row(98 * MINUTE_US, key_id="k1"),
    replace(
        _row(97 * MINUTE_US + 5, key_id="k1", status=""),
        stage="intent",
        target="",
        model_requested="gpt",
    ),
    _row(70 * MINUTE_US, "ann", status="failed"),
    _row(70 * MINUTE_US - 1),
    replace(_row(40 * MINUTE_US - 1, "ann"), action="key.issued"),
)
"""The newest first; the last deed of ann's is half an hour and a microsecond before the one before
it, and that one half an hour before the first."""
THINGS = {("-operators", 100 * MINUTE_US): "k9", ("-operators", 40 * MINUTE_US - 1): "k9"}


def _said(grouping: str) -> list[tuple[object, ...]]:
    return [
        (each.of.name, each.count, each.deeds, each.failed, each.others, each.actions)
        for each in grouped(grouping, SOME, THINGS)
    ]


def test_a_group_says_who_did_what_how_often_and_to_how_many() -> None:
    assert _said("who") == [
        ("k1", 3, 0, 1, 2, (("outcome", 2), ("intent", 1))),
        ("ann", 3, 3, 1, 2, (("key.issued", 2), ("budget.set", 1))),
        ("", 1, 0, 0, 1, (("outcome", 1),)),
    ]
    assert _said("what") == [
        ("house", 3, 0, 1, 2, (("outcome", 3),)),
        ("key k9", 2, 2, 0, 1, (("key.issued", 2),)),
        ("gpt", 1, 0, 0, 1, (("intent", 1),)),
        ("budget", 1, 1, 1, 1, (("budget.set", 1),)),
    ]
    assert [(name, count) for name, count, *_ in _said("sitting")] == [
        *(("ann", 2), ("k1", 3), ("", 1), ("ann", 1))
    ]
    (_, key, *_) = grouped("sitting", SOME, THINGS)
    assert (key.first_us, key.last_us) == (97 * MINUTE_US + 5, 99 * MINUTE_US)


def test_a_group_is_found_again_by_what_it_is_of_and_a_sitting_by_its_time() -> None:
    found = {
        grouping: [
            " ".join(f"{term.field}:{term.values[0]}" for term in each.terms)
            for each in grouped(grouping, SOME, THINGS)
        ]
        for grouping in ("who", "what", "sitting")
    }
    assert found["who"] == ["key:k1", "actor:ann", ""]
    assert found["what"] == ["target:house", "action:key.*", "model:gpt", "action:budget.*"]
    assert found["sitting"][1:3] == [
        "key:k1 since:1970-01-01T01:37:00Z until:1970-01-01T01:39:01Z",
        "",
    ]


def test_lanes_stand_side_by_side_in_the_narrowest_spans_that_fit() -> None:
    lanes = lanes_of(SOME)
    assert [(doer.name, count) for doer, count in lanes.doers] == [("ann", 3), ("k1", 3), ("", 1)]
    assert (lanes.width_us, lanes.left_out) == (MINUTE_US, 0)
    told = {
        moment.utc_us // MINUTE_US: [
            [(row.action or row.stage, times) for row, times in zip(c.rows, c.counts, strict=True)]
            for c in moment.cells
        ]
        for moment in lanes.moments
    }
    assert told == {
        100: [[("key.issued", 1)], [], []],
        99: [[], [("outcome", 1)], []],
        98: [[], [("outcome", 1)], []],
        97: [[], [("intent", 1)], []],
        70: [[("budget.set", 1)], [], []],
        69: [[], [], [("outcome", 1)]],
        39: [[("key.issued", 1)], [], []],
    }
    assert lanes_of(()).moments == ()


@pytest.mark.parametrize(
    ("gap_s", "count", "width_s", "left_out"),
    [
        *((60, MOMENTS_MAX, 60, 0), (60, MOMENTS_MAX + 1, 300, 0)),
        *((300, MOMENTS_MAX + 1, 900, 0), (900, MOMENTS_MAX + 1, 3600, 0)),
        *((3600, MOMENTS_MAX + 1, 10_800, 0), (10_800, MOMENTS_MAX + 1, 43_200, 0)),
        *((43_200, MOMENTS_MAX + 1, 86_400, 0), (86_400, MOMENTS_MAX + 3, 86_400, 3)),
    ],
)
def test_spans_grow_until_all_records_fit_or_the_oldest_are_left_out(
    gap_s: int, count: int, width_s: int, left_out: int
) -> None:
    rows = [_row(number * gap_s * 1_000_000, "ann") for number in reversed(range(count))]
    lanes = lanes_of(rows)
    assert (lanes.width_us // 1_000_000, lanes.left_out) == (width_s, left_out)
    assert lanes.moments[0].utc_us == rows[0].utc_us // lanes.width_us * lanes.width_us


def test_a_cell_shows_what_was_done_most_often_and_counts_all() -> None:
    failed = [_row(MINUTE_US - number, key_id="k1", status="failed") for number in range(2)]
    more = [
        replace(_row(MINUTE_US - 10 - number, key_id="k1"), target=name)
        for number, name in enumerate(("a", "a", "a", "b", "c"))
    ]
    other = [_row(MINUTE_US - 20, key_id=f"k{number}") for number in range(2, 9)]
    lanes = lanes_of([*failed, *more, *other])
    ours = lanes.moments[0].cells[0], lanes.moments[1].cells[0]
    assert [each.count for each in ours] == [1, 6]
    assert [(row.target, row.status) for row in ours[1].rows] == [
        *(("a", "ok"), ("house", "failed"), ("b", "ok"))
    ]
    assert ours[1].counts == (3, 1, 1)
    assert (len(lanes.doers), lanes.left_out) == (LANES_MAX, 2)


def test_what_differs_in_deed_person_or_model_is_told_apart() -> None:
    deeds = [
        replace(_row(9, "ann"), action="key.issued", target=""),
        replace(_row(8, "ann"), action="key.revoked", target=""),
        replace(_row(7, "bob"), action="key.issued", target=""),
    ]
    asked = [
        replace(_row(number, key_id="k1"), target="", model_requested=name)
        for number, name in ((6, "gpt"), (5, "claude"), (4, ""))
    ]
    lanes = lanes_of([*deeds, *asked])
    assert [[row.action for row in cell.rows] for cell in lanes.moments[0].cells] == [
        *(["", "", ""], ["key.issued", "key.revoked"], ["key.issued"])
    ]
    (keys, *_) = grouped("what", [*deeds, *asked], {})
    assert (keys.of, keys.others) == (Doer("thing", "key"), 2)
    assert [each.terms for each in grouped("what", asked[2:], {})] == [()]
    assert doer_of(_row(1)) == Doer("nobody", "")


def test_the_oldest_span_that_is_shown_is_shown_whole() -> None:
    days = [_row(number * 86_400_000_000, "ann") for number in reversed(range(MOMENTS_MAX + 1))]
    oldest = replace(days[-2], utc_us=days[-2].utc_us - 1)
    again = replace(days[-3], utc_us=days[-3].utc_us - 86_400_000_000)
    lanes = lanes_of([*days[:-1], again, oldest, days[-1]])
    assert (lanes.moments[-1].cells[0].count, lanes.left_out) == (2, 2)
