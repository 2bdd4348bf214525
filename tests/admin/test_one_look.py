"""The same part looks the same on every page: edges, gaps, tabs, dots, and lists on paper."""

import pytest
from msgspec import structs

from gateway.oversight.access import ROLES, Grant
from gateway.store.identity.people import PeopleStore
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Listener
from tests.admin.policies.people import APPROVER, PASSWORD, WRITER, signed_in, staff
from tests.admin.policies.test_rolling_out import STRICT, stepped, submitted
from tests.admin.profiling import profiles
from tests.admin.test_every_list_by_key import fill_compliance
from tests.admin.test_paper import A4_PX


pytestmark = pytest.mark.anyio

EDGES = """() => [...document.querySelectorAll('main .scroll > table.rows')].map((each) => {
  const inside = (cell) => { const range = document.createRange(); range.selectNodeContents(cell);
    return range.getBoundingClientRect(); };
  const stands = each.closest('.panel') ?? each.closest('.scroll');
  const box = stands.getBoundingClientRect();
  const heads = [...each.querySelectorAll('thead th')];
  return Math.min(inside(heads[0]).left - box.left, box.right - inside(heads.at(-1)).right);
})"""
"""How near a list's words come to the edge of what it stands on, in pixels."""
GAPS = """() => [...document.querySelectorAll('main .panel')].slice(1).map((each) => Math.round(
  each.getBoundingClientRect().top
    - Math.max(...[...document.querySelectorAll('main .panel')]
        .map((other) => other.getBoundingClientRect().bottom)
        .filter((bottom) => bottom <= each.getBoundingClientRect().top))))
  .filter(Number.isFinite)"""
TABS = """() => [...document.querySelectorAll('.tabs a')].map((each) => {
  const { paddingLeft, paddingTop, fontWeight } = getComputedStyle(each);
  return each.ariaCurrent ? `${paddingLeft} ${paddingTop}`
    : `${paddingLeft} ${paddingTop} ${fontWeight}`;
})"""
DOTS = """() => [...document.querySelectorAll('.timeline > li')].map((each) => {
  const dot = getComputedStyle(each, '::before'), px = (side) => parseFloat(dot[side]);
  return px('width') + (dot.boxSizing === 'border-box' ? 0
    : px('borderLeftWidth') + px('borderRightWidth'));
})"""
LINES = """
  const pen = document.createElement('canvas').getContext('2d');
  const lineOf = (text) => {
    const range = document.createRange();
    range.selectNodeContents(text);
    pen.font = getComputedStyle(text.parentElement).font;
    return range.getClientRects()[0].bottom - pen.measureText('x').fontBoundingBoxDescent;
  };
  const wordsOf = (within) => {
    const walk = document.createTreeWalker(within, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) if (walk.currentNode.textContent.trim()) return walk.currentNode;
    return null;
  };
"""
"""Where the line of a text stands, and the first words within something."""
BASELINES = (
    f"""() => {{{LINES}"""
    """
  return [...document.querySelectorAll('table.rows tbody tr')].flatMap((row) => {
    const chip = row.querySelector(':scope > td > .chip:first-child');
    const plain = [...row.cells].find((cell) => cell.offsetHeight && wordsOf(cell)
      && !cell.querySelector('.chip, .row'));
    if (!chip?.offsetHeight || !plain) return [];
    return [Math.abs(lineOf(wordsOf(plain)) - lineOf(wordsOf(chip)))];
  });
}"""
)
"""How far a state's words stand from the line of the other words of its row, in pixels."""
HEIGHT_OF_A_TIME = """() => Math.max(...[...document.querySelectorAll('table.rows td:has(time)')]
  .map((each) => each.getBoundingClientRect().height))"""
LINES_MAX_PX = 65
"""Two lines of a time and what is around them; three are 80."""


async def _at_work(listener: Listener) -> None:
    await staff(listener)
    await seeding.person(listener, "mira", "platform_admin")
    async with listener.database() as database:
        for role in ROLES:
            await PeopleStore(database, listener.clock).grant("mira", Grant(role, "*"))
        await fill_compliance(database, listener.clock.utc_us())
    key = await seeding.issue(listener, "an assistant of the field service")
    asked = seeding.requests(listener, key, 3, findings={"EMAIL": 1})
    await listener.record(*(structs.replace(each, target="managed-frontier") for each in asked))
    await profiles(listener)
    await seeding.report(listener, seeding.worker(listener))
    async with signed_in(listener, WRITER) as writer, signed_in(listener, APPROVER) as approver:
        place = await submitted(writer, STRICT)
        await stepped(approver, place, "approve")
        await submitted(writer, STRICT.replace("strict", "stricter"))


async def test_the_same_part_looks_the_same_on_every_page(listener: Listener) -> None:
    await _at_work(listener)
    async with window(listener) as seen:
        await seen.sign_in("mira", seeding.PASSWORD)
        rooms = ("erasures", "packs", "reveals", "holds", "incidents", "reviews")
        lists = 0
        for path in ("traffic", "audit", "keys", *(f"compliance/{each}" for each in rooms)):
            await seen.open(f"/o/acme/{path}")
            edges = await seen.page.evaluate(EDGES)
            lists += len(edges)
            assert [each for each in edges if each < 8] == [], path
        assert lists >= 5
        tabs = set()
        for path in ("approvals", "keys", "batches", "policies/organisation/edit"):
            await seen.open(f"/o/acme/{path}")
            found = await seen.page.evaluate(TABS)
            tabs |= {each for each in found if len(each.split()) == 3}
        assert len(tabs) == 1, tabs
        for path in ("/models/engine", "/o/acme/costs", "/o/acme/keys/new", "/system"):
            await seen.open(path)
            gaps = await seen.page.evaluate(GAPS)
            assert gaps, path
            assert {*gaps} == {16}, path


async def test_a_state_stands_on_the_line_of_its_rows_words(listener: Listener) -> None:
    await _at_work(listener)
    async with window(listener) as seen:
        await seen.sign_in("mira", seeding.PASSWORD)
        for path in ("/", "/o/acme/traffic", "/o/acme/audit", "/o/acme/keys", "/people"):
            await seen.open(path)
            apart = await seen.page.evaluate(BASELINES)
            assert apart, path
            assert max(apart) < 1, (path, apart)


async def test_what_can_be_done_with_a_hold_is_in_sight(listener: Listener) -> None:
    await _at_work(listener)
    async with window(listener) as seen:
        await seen.sign_in("mira", seeding.PASSWORD)
        await seen.page.set_viewport_size({"width": 1280, "height": 800})
        await seen.open("/o/acme/compliance/holds")
        await seen.page.fill("[name=user]", "ann")
        await seen.page.fill("[name=reason]", "Landgericht Musterstadt, order 4711 of May, " * 3)
        await seen.page.click("text=Set the hold")
        await seen.page.wait_for_selector("text=Request release")
        hidden = await seen.page.evaluate(
            "[...document.querySelectorAll('.scroll:has(table.rows button)')]"
            ".map((each) => each.scrollWidth - each.clientWidth)"
        )
        assert hidden == [0]


async def test_boxes_to_tick_stand_in_columns(listener: Listener) -> None:
    await _at_work(listener)
    async with window(listener) as seen:
        await seen.sign_in("mira", seeding.PASSWORD)
        await seen.open("/o/acme/keys/new")
        lefts = await seen.page.evaluate(
            "[...document.querySelectorAll('input[name=models]')]"
            ".map((each) => Math.round(each.getBoundingClientRect().left))"
        )
        # However short a name is, the next box stands where those above and below it do.
        assert lefts[1] - lefts[0] >= 190


async def test_the_fields_of_a_row_stand_on_one_line_under_labels_of_any_length(
    listener: Listener,
) -> None:
    await staff(listener)
    apart = """() => { const at = (each) => Math.round(each.getBoundingClientRect().top);
      const rows = Map.groupBy(document.querySelectorAll('.asked > .field'), at);
      return [...rows.values()].filter((row) =>
        new Set(row.map((each) => at(each.querySelector('input, select')))).size > 1).length; }"""
    async with window(listener) as seen:
        await seen.sign_in(WRITER, PASSWORD)
        await seen.open("/o/acme/policies/simulator")
        assert await seen.page.evaluate(apart) == 0
        # As words of another language would be, or larger letters.
        long = "each => { each.textContent = 'how many tokens its input may have'; }"
        await seen.page.eval_on_selector(".asked label", long)
        assert await seen.page.evaluate(apart) == 0


async def test_parts_of_an_installation_begin_at_one_line(listener: Listener) -> None:
    await _at_work(listener)
    async with window(listener) as seen:
        await seen.sign_in("mira", seeding.PASSWORD)
        await seen.open("/")
        # One has more to say than fits a line.
        await seen.page.evaluate(
            "document.querySelector('.health .soft').textContent = 'p95 '.repeat(60)"
        )
        uneven = await seen.page.evaluate(
            "[...document.querySelectorAll('.health > li strong')]"
            ".map((each) => Math.round(each.getBoundingClientRect().top))"
        )
        assert len(uneven) == 4
        assert len({*uneven}) == 1


async def test_what_waits_for_somebody_begins_at_one_line(listener: Listener) -> None:
    await _at_work(listener)
    async with window(listener) as seen:
        await seen.sign_in("mira", seeding.PASSWORD)
        await seen.open("/")
        wide = (
            "new Set([...document.querySelectorAll('.needs .chip')].map(e => e.offsetWidth)).size"
        )
        assert await seen.page.evaluate(wide) > 1
        left = (
            "[...document.querySelectorAll('.needs > li')].map(each => [each,"
            " each.querySelector('a')].map(e => Math.round(e.getClientRects()[0].left)))"
        )
        lines = {tuple(pair) for pair in await seen.page.evaluate(left)}
        assert len(lines) == len({column for column, _ in lines}) == 2


async def test_where_colours_are_forced_dots_are_dots_and_the_line_of_tabs_is_whole(
    listener: Listener,
) -> None:
    await _at_work(listener)
    async with window(listener) as seen:
        await seen.page.emulate_media(forced_colors="active")
        await seen.sign_in("mira", seeding.PASSWORD)
        await seen.open("/o/acme/policies/organisation/versions/1")
        dots = await seen.page.evaluate(DOTS)
        assert dots
        assert max(dots) <= 8
        await seen.open("/o/acme/keys")
        cut = (
            "getComputedStyle(document.querySelector('.tabs a:not([aria-current])'))"
            ".borderBottomWidth"
        )
        assert await seen.page.evaluate(cut) == "0px"


async def test_lists_of_rules_and_times_fit_the_paper(listener: Listener) -> None:
    await _at_work(listener)
    async with window(listener, width=A4_PX) as seen:
        await seen.sign_in("mira", seeding.PASSWORD)
        await seen.page.emulate_media(media="print")
        for path in ("policies", "traffic", "audit"):
            await seen.open(f"/o/acme/{path}")
            assert await seen.faults() == [], path
        await seen.open("/")
        assert 0 < await seen.page.evaluate(HEIGHT_OF_A_TIME) <= LINES_MAX_PX


async def test_a_list_that_is_whole_says_how_many_it_has(listener: Listener) -> None:
    await _at_work(listener)
    async with window(listener) as seen:
        await seen.sign_in("mira", seeding.PASSWORD)
        await seen.open("/o/acme/keys")
        assert await seen.page.inner_text(".pager") == "2 in all"
