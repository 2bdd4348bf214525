"""The longest names there can be, on a desk and in a hand: nothing runs over or cannot be read."""

import pytest
from msgspec.structs import replace

from gateway.oversight.access import Grant, Role
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore
from tests.admin import seeding
from tests.admin.chromium import Window, window
from tests.admin.listener import Listener


pytestmark = pytest.mark.anyio
ORGANISATION, WORKSPACE, PROJECT = "o" * 63, "w" * 63, "p" * 63
KEY, PERSON, TITLE, USER = "K" * 200, "n" * 60, "T" * 200, "u" * 200
ROLES: tuple[Role, ...] = (
    *("platform_admin", "security_admin", "compliance", "approver", "policy_editor"),
)
AT = f"/o/{ORGANISATION}"
_UNREAD = """() => {
  const found = [];
  const moves = (each) => {
    for (let up = each.parentElement; up; up = up.parentElement)
      if (getComputedStyle(up).overflowX !== 'visible') return true;
    return false;
  };
  for (const each of document.querySelectorAll('main *, .bar *')) {
    const style = getComputedStyle(each), at = each.getBoundingClientRect();
    if (!at.width || !at.height || !each.checkVisibility()) continue;
    if (each.closest('.visually-hidden')) continue;
    const is_over = each.scrollWidth > each.clientWidth + 1 && each.clientWidth;
    const said = `${each.tagName}.${each.className} ${each.textContent.trim().slice(0, 40)}`;
    if (is_over && style.overflowX === 'visible' && style.display !== 'inline')
      found.push(`runs over: ${said}`);
    if (at.right > innerWidth + 1 && !moves(each)) found.push(`beyond the edge: ${said}`);
    const is_told = each.closest('[title]') || each.closest('a, tr, summary')
      || each.querySelector('a');
    const is_field = ['INPUT', 'SELECT'].includes(each.tagName);
    if (is_over && style.textOverflow === 'ellipsis' && !is_told && !is_field)
      found.push(`cut: ${said}`);
  }
  return [...new Set(found)].slice(0, 8);
}"""
"""A name that is cut says all of itself when pointed at, or leads to where it stands whole."""

_BESIDE = """(() => { const each = document.querySelector('table.rows').parentElement;
  return each.scrollWidth - each.clientWidth; })()"""


async def named(listener: Listener) -> str:
    """A key of the longest names, its requests and limits, and a person; the id of the key."""
    place = {"organisation": ORGANISATION, "workspace": WORKSPACE, "project": PROJECT}
    key = await seeding.issue(listener, KEY, **place)
    rows = seeding.requests(listener, key, 6)
    await listener.record(*(replace(row, organisation=ORGANISATION) for row in rows))
    await listener.limit(f"key:{key}", 10**6)
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        await people.add(PERSON, title=TITLE, password=Secret(seeding.PASSWORD))
        for role in ROLES:
            await people.grant(PERSON, Grant(role, "*"))
    return key


async def unread(seen: Window, path: str) -> list[str]:
    await seen.open(path)
    return [*await seen.faults(), *await seen.page.evaluate(_UNREAD)]


@pytest.mark.timeout(300)
async def test_the_longest_names_run_over_nothing_and_can_be_read(listener: Listener) -> None:
    key = await named(listener)
    paths = (
        *("/", f"{AT}/keys", f"{AT}/keys/{key}", f"{AT}/keys/{key}/change", f"{AT}/traffic"),
        *(f"{AT}/traffic/req_{key}_0", f"{AT}/costs", f"{AT}/costs/limits", "/people"),
        *(f"/person/{PERSON}", f"{AT}/teams", f"{AT}/teams/{WORKSPACE}", f"{AT}/audit"),
        *(f"{AT}/policies", f"{AT}/compliance", f"{AT}/compliance/erasures"),
        *(f"{AT}/compliance/reveals/new?request={USER}", f"{AT}/traffic?q=user:{USER}"),
    )
    async with window(listener) as seen:
        await seen.sign_in(PERSON, seeding.PASSWORD)
        for width in (1280, 390):
            await seen.page.set_viewport_size({"width": width, "height": 900})
            for path in paths:
                assert await unread(seen, path) == [], (width, path)
            for number, name in enumerate((ORGANISATION, TITLE)):
                menu = seen.page.locator(".bar details.menu").nth(number)
                await menu.locator("summary").click()
                assert name in await menu.locator("> div").inner_text()
                assert await seen.faults() == [], (width, name)
                await menu.locator("summary").click()
            if width > 1000:
                await seen.open(f"{AT}/keys")
                assert await seen.page.evaluate(_BESIDE) <= 1, "its columns are in sight on a desk"
            heading = await seen.open(f"{AT}/keys/{key}") and await seen.page.inner_text("h1")
            assert heading == KEY
        assert seen.problems == []
