"""On a phone the page itself begins on the first screen, below what leads to other pages."""

from typing import Any

import pytest

from gateway.oversight.access import ROLES, Grant
from gateway.secrets.credentials import master_key
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore
from gateway.store.policies.documents import PolicyStore
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from policies.text.loading import load_document
from tests.admin.batches import seeding as batches
from tests.admin.chromium import window
from tests.admin.listener import Listener
from tests.admin.seeding import PASSWORD, issue, person, report, requests, worker


pytestmark = pytest.mark.anyio

LINES = (
    """(links) => new Set(links.map((each) => Math.round(each.getBoundingClientRect().top))).size"""
)

WORDS = """() => {
  const walk = document.createTreeWalker(document.querySelector('tbody'), NodeFilter.SHOW_TEXT);
  const found = [];
  while (walk.nextNode()) {
    for (const word of walk.currentNode.textContent.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(walk.currentNode, word.index);
      range.setEnd(walk.currentNode, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map((each) => Math.round(each.top)));
      if (lines.size) found.push([word[0], lines.size]);
    }
  }
  return found;
}"""
"""Each word that is seen in a list, and on how many lines it stands."""
MARKS = """[...document.querySelectorAll('.field > label')].map(
  (each) => [each.htmlFor, getComputedStyle(each, '::after').content])"""


@pytest.mark.parametrize("scripts", [True, False])
async def test_the_rail_of_a_phone_shows_every_screen_and_where_one_is_in_five_lines(
    listener: Listener, *, scripts: bool
) -> None:
    await issue(listener, "an assistant")
    await person(listener, "cora", "compliance")
    async with window(listener, width=390, scripts=scripts) as seen:
        await seen.sign_in("cora", PASSWORD)
        await seen.open("/o/acme/compliance/packs")
        page = seen.page
        assert await page.locator(".rail a.room").evaluate_all(LINES) == 2
        assert await page.locator(".rail ul ul a").evaluate_all(LINES) <= 3
        for screen in await page.locator(".rail ul ul a").all():
            box = await screen.bounding_box()
            assert box is not None
            assert 0 <= box["x"] < box["x"] + box["width"] <= 390, "none is found by pushing only"
        current = await page.locator(".rail [aria-current=page]").bounding_box()
        heading = await page.locator("h1").bounding_box()
        assert current is not None
        assert heading is not None
        assert await page.inner_text(".rail [aria-current=page]") == "Evidence packs"
        assert 0 <= current["x"] <= current["x"] + current["width"] <= 390
        assert heading["y"] < 300
        assert await seen.faults() == []


@pytest.mark.parametrize("width", [600, 390, 320])
async def test_what_the_bar_opens_is_in_sight_on_a_phone(listener: Listener, width: int) -> None:
    """Where one signs out began beyond the left edge, once the name stood in a second line."""
    await issue(listener, "an assistant")
    await person(listener, "cora", "compliance")
    async with window(listener, width=width) as seen:
        await seen.sign_in("cora", PASSWORD)
        for menu in await seen.page.locator(".bar .menu > summary").all():
            await menu.click()
            box = await seen.page.locator(".bar .menu[open] > div").bounding_box()
            assert box is not None
            assert 0 <= box["x"] < box["x"] + box["width"] <= width
            await menu.click()


async def test_a_rule_is_written_on_a_phone_with_every_field_in_sight(listener: Listener) -> None:
    """The value of a comparison was beyond the edge, and nothing said what had to be filled in."""
    await issue(listener, "an assistant")
    await person(listener, "wanda", "policy_editor")
    async with window(listener, width=390) as seen:
        await seen.sign_in("wanda", PASSWORD)
        await seen.open("/o/acme/policies/organisation/edit/rule?section=constraints")
        for name in ("row0.fact", "row0.key", "row0.operator", "row0.value"):
            box = await seen.page.locator(f"[name='{name}']").bounding_box()
            assert box is not None
            assert 0 <= box["x"] < box["x"] + box["width"] <= 390, name
            assert box["width"] > 120, name
        said = dict(await seen.page.evaluate(MARKS))
        assert "required" in said["field-name"]
        assert "required" not in said["field-allow_only.targets"]
        assert await seen.faults() == []
        assert await seen.violations() == []


async def test_what_people_may_do_is_in_sight_on_a_phone(listener: Listener) -> None:
    """Their roles began at the edge of the list, and the buttons beside them were beyond it."""
    await issue(listener, "an assistant")
    await person(listener, "petra", "platform_admin")
    await person(listener, "somebody", "security_admin", "acme")
    async with window(listener, width=390) as seen:
        await seen.sign_in("petra", PASSWORD)
        await seen.open("/people")
        people = await seen.page.locator(".scroll[aria-label=People]").bounding_box()
        assert people is not None
        for part in await seen.page.locator("td .chip, td button").all():
            box = await part.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= people["x"] + people["width"]
        assert await seen.faults() == []


async def test_what_somebody_is_called_breaks_between_words_on_a_phone(listener: Listener) -> None:
    """Beside name, state and roles it had eight letters' room, and broke anywhere."""
    await issue(listener, "an assistant")
    await person(listener, "mira", "platform_admin")
    called = "Maximiliane Featherstonehaugh"
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        await people.add("maxi", title=called, password=Secret(PASSWORD))
        await people.grant("maxi", Grant("compliance", "*"))
    async with window(listener, width=390) as seen:
        await seen.sign_in("mira", PASSWORD)
        await seen.open("/people")
        shown = [w for w in await seen.page.evaluate(WORDS) if w[0] in called.split()]
        assert shown == [[word, 1] for word in called.split()]
        assert await seen.faults() == []
        await seen.page.set_viewport_size({"width": 1280, "height": 800})
        assert [w[0] for w in await seen.page.evaluate(WORDS)].count("Maximiliane") == 1


async def test_a_team_that_costs_something_is_named_on_one_line_on_a_phone(
    listener: Listener,
) -> None:
    key = await issue(listener, "reviews", workspace="engineering")
    dear: dict[str, Any] = {"workspace": "engineering", "cost_microusd": 857}
    await listener.record(*requests(listener, key, 9, **dear))
    await person(listener, "vera", "viewer")
    async with window(listener, width=390) as seen:
        await seen.sign_in("vera", PASSWORD)
        await seen.open("/o/acme/costs")
        bill = seen.page.locator(".scroll[aria-label='Cost by team']")
        assert await bill.locator("tbody td:first-child").inner_text() == "engineering"
        lines = await bill.locator("tbody td:first-child").evaluate(LINES_OF)
        assert (lines, "Cost by team" in await seen.page.evaluate(PUSHED)) == (1, False)
        assert await seen.faults() == []


LINES_OF = """(cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return new Set([...range.getClientRects()].map((each) => Math.round(each.top))).size;
}"""
PUSHED = """[...document.querySelectorAll('.scroll')].filter(
  (each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.ariaLabel)"""
"""The tables that are wider than their place: what they say last is pushed out of sight."""
PUSHED_CARDS = """[...document.querySelectorAll('.scroll:has(> table.cards)')].filter(
  (each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.ariaLabel)"""
HEIGHTS = """(label) => {
  const box = document.querySelector(`.scroll[aria-label="${label}"]`);
  const edge = box.getBoundingClientRect().right;
  return [...box.querySelectorAll('tbody tr')].map((row) => {
    const high = (is_seen) => Math.max(0, ...[...row.cells]
      .filter((cell) => (cell.getBoundingClientRect().left < edge) === is_seen)
      .map((cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return range.getBoundingClientRect().height;
      }));
    return [high(true), high(false)];
  });
}"""
"""How high the words of each row are: those in sight, and those that begin beyond the edge."""


@pytest.mark.parametrize("width", [630, 640])
async def test_what_begins_beyond_the_edge_of_a_small_screen_makes_no_row_higher(
    listener: Listener, width: int
) -> None:
    """What a model can stood below a hand's breadth of nothing, in seven lines beyond the edge."""
    await person(listener, "petra", "platform_admin")
    async with window(listener, width=width) as seen:
        await seen.sign_in("petra", PASSWORD)
        await seen.open("/models")
        heights = await seen.page.evaluate(HEIGHTS, "Targets")
        assert any(beyond for _, beyond in heights), "nothing is beyond the edge"
        assert [beyond <= in_sight + 1 for in_sight, beyond in heights] == [True] * len(heights)
        assert await seen.faults() == []


async def test_why_a_request_goes_where_is_read_on_a_phone_without_pushing_a_table(
    listener: Listener,
) -> None:
    """The condition that held, and what speaks against a target, began beyond the edge."""
    await issue(listener, "an assistant")
    await person(listener, "wanda", "policy_editor")
    async with window(listener, width=390) as seen:
        await seen.sign_in("wanda", PASSWORD)
        await seen.open("/o/acme/policies/simulator?fact.data_class=S3")
        assert await seen.page.locator("[aria-label=Targets] tbody tr").count() > 0
        assert await seen.page.evaluate(PUSHED) == []
        assert await seen.faults() == []


CARDS = """[...document.querySelectorAll('table.cards tbody tr')].map((row) =>
  [...row.cells].filter((cell) => cell.getClientRects().length).every((cell) => {
    const { left, right } = cell.getBoundingClientRect();
    return 0 <= left && right <= document.documentElement.clientWidth;
  }))"""
"""Of each row of a list of cards, whether everything that it says is in sight."""
WORDLESS = """[...document.querySelectorAll('table.cards tbody tr')].flatMap((row) =>
  [...row.cells].slice(2).filter((cell) => cell.getClientRects().length && cell.colSpan === 1)
    .filter((cell) => getComputedStyle(cell, '::before').content === 'none')
    .map((cell) => cell.textContent.trim()))"""
"""What is said without the word of its column, behind a name and the state that may follow it."""


async def test_everything_that_a_list_says_is_in_sight_on_a_phone(listener: Listener) -> None:
    """What a request cost, a key may do or a model can was beyond the edge of each list."""
    key = await issue(listener, "an assistant of people who look after long contracts")
    await person(listener, "petra", "platform_admin")
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        for role in ROLES:
            await people.grant("petra", Grant(role, "*"))
        await batches.batch(listener, database, key)
        await batches.file(listener, database, key)
    await listener.record(*requests(listener, key, 3))
    await report(listener, worker(listener))
    async with window(listener, width=390) as seen:
        await seen.sign_in("petra", PASSWORD)
        for path in (
            *("/", "/models", "/models/credentials", "/models/engine", "/system", "/person/petra"),
            *("/models/providers/engine", "/system/configuration", "/o/acme/traffic"),
            *("/o/acme/batches", "/o/acme/files", "/o/acme/keys", f"/o/acme/keys/{key}"),
            *("/o/acme/teams", "/o/acme/teams/research", "/o/acme/audit", "/o/acme/integrity"),
            *("/o/acme/policies", "/o/acme/policies/installation", "/people", "/models/planner"),
            *("/o/acme/costs/limits", "/system/diagnostics", "/o/acme/compliance"),
        ):
            assert await seen.open(path) == 200, path
            rows = await seen.page.evaluate(CARDS)
            assert rows == [True] * len(rows), path
            pushed = await seen.page.evaluate(PUSHED_CARDS)
            assert pushed == [], path
            assert await seen.faults() == [], path
        await seen.open("/o/acme/traffic")
        assert await seen.page.evaluate(WORDLESS) == []
        assert len(await seen.page.evaluate(CARDS)) == 3


async def test_versions_and_a_workers_figures_are_in_sight_on_a_phone(listener: Listener) -> None:
    """When a version was written, and whether it could be compared, was beyond the edge."""
    await issue(listener, "an assistant")
    await person(listener, "petra", "platform_admin")
    await report(listener, worker(listener))
    async with listener.database() as database:
        document = load_document('name = "acme"\nversion = 1\n')
        store = PolicyStore(database, listener.clock)
        for note in ("agreed with the works council", "and once more"):
            await store.draft("org:acme", document, "wanda", note)
        sealed = SealedSecretTable(database, master_key(listener.settings), listener.clock)
        await sealed.seal("open-ai", Secret("sk-value"), "petra")
    async with window(listener, width=390) as seen:
        await seen.sign_in("petra", PASSWORD)
        for path in (
            *("/o/acme/policies/organisation/history", "/models/credentials/database/open-ai"),
            *("/system/workers/w0", "/models/planner"),
        ):
            assert await seen.open(path) == 200, path
            rows = await seen.page.evaluate(CARDS)
            assert rows == [True] * len(rows) != [], path
            assert await seen.page.evaluate(PUSHED) == [], path
            assert await seen.faults() == [], path
