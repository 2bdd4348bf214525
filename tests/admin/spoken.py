"""What a screen reader makes of a page: Chromium's own accessibility tree, and what leads nowhere.

Names are those that Chromium computes, not those that the markup seems to give.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from playwright.async_api import Page


CONTROLS: Final = frozenset(
    {"button", "link", "textbox", "searchbox", "combobox", "listbox", "checkbox", "radio"}
    | {"spinbutton", "slider", "switch", "menuitem", "option", "tab", "DisclosureTriangle"}
    | {"Date", "DateTime", "InputTime", "ColorWell"}
)
NAMED: Final = frozenset({"image", "img", "dialog", "region", "columnheader", "figure"})
"""What is no control and yet says nothing without a name."""
LANDMARKS: Final = frozenset({"navigation", "complementary", "banner", "main", "search"})

_REFERENCES: Final = (
    *("aria-labelledby", "aria-describedby", "aria-controls", "aria-owns"),
    *("aria-activedescendant", "aria-errormessage", "list", "form"),
)
"""Attributes that name other elements by their ids."""
_LEADS_NOWHERE: Final = """(references) => {
  const found = [];
  const tell = (what, each) =>
    found.push(`${what}: ${each.outerHTML.replace(/\\s+/g, ' ').slice(0, 120)}`);
  const words = (text) => (text ?? '').split(/\\s+/).filter(Boolean);
  const shadows = [...document.querySelectorAll('*')].map((each) => each.shadowRoot);
  for (const root of [document, ...shadows.filter(Boolean)]) {
    const all = (selector) => root.querySelectorAll(selector);
    const at = (id) => root.querySelector(`[id="${CSS.escape(id)}"]`);
    const ids = [...all('[id]')].map((each) => each.id);
    const twice = ids.filter((id, place) => ids.indexOf(id) < place);
    for (const id of new Set(twice)) found.push(`id twice: ${id}`);
    for (const label of all('label')) {
      if (label.htmlFor ? !at(label.htmlFor) : !label.control) tell('labels nothing', label);
    }
    for (const name of references) {
      for (const each of all(`[${name}]`)) {
        if (!words(each.getAttribute(name)).every(at)) tell(`${name} leads nowhere`, each);
      }
    }
    for (const link of all('a[href^="#"]')) {
      const id = decodeURIComponent(link.getAttribute('href').slice(1));
      if (id && !at(id)) tell('link within the page leads nowhere', link);
    }
    for (const field of all('[aria-invalid="true"]')) {
      const about = words(field.getAttribute('aria-describedby')).map(at);
      if (!about.some((each) => each?.textContent.trim())) tell('wrong without a reason', field);
    }
    for (const said of all('.wrong')) {
      const field = `[aria-invalid="true"][aria-describedby~="${CSS.escape(said.id)}"]`;
      if (!said.id || !root.querySelector(field)) tell('a reason that belongs to no field', said);
    }
    for (const table of all('table')) {
      const about = '[aria-label], [aria-labelledby], details, section:has(> h2, > header h2)';
      if (!table.caption && !table.closest(about)) tell('a table of what', table);
      if (!table.querySelector('th')) tell('a table without heads', table);
      for (const cell of table.querySelectorAll('thead td, thead th')) {
        if (!cell.textContent.trim()) tell('a head that says nothing', cell);
      }
    }
    for (const each of all('[tabindex="0"]:not([role], a, button, input, select, textarea)')) {
      tell('focus without a role', each);
    }
    for (const each of all('img:not([alt])')) tell('no alt', each);
  }
  return found;
}"""


async def unspoken(page: Page) -> list[str]:
    """What the page keeps from whoever does not see it; empty where all is said."""
    found: list[str] = await page.evaluate(_LEADS_NOWHERE, _REFERENCES)
    session = await page.context.new_cdp_session(page)
    try:
        tree = await session.send("Accessibility.getFullAXTree")
    finally:
        await session.detach()
    nodes = [Node(each) for each in tree["nodes"] if not each.get("ignored")]
    return [*found, *_nameless(nodes), *_landmarks(nodes)]


class Node:
    """One node of the tree, as much of it as is looked at."""

    def __init__(self, node: dict[str, Any]) -> None:
        self.role = str(node.get("role", {}).get("value", ""))
        self.name = str(node.get("name", {}).get("value", "")).strip()
        self.properties = {
            each["name"]: each["value"].get("value") for each in node.get("properties", ())
        }

    @property
    def is_focusable(self) -> bool:
        return self.properties.get("focusable") is True


def _nameless(nodes: list[Node]) -> Iterator[str]:
    for role, count in Counter(
        each.role
        for each in nodes
        if not each.name and (each.role in CONTROLS or each.role in NAMED)
    ).items():
        yield f"without a name: {count} × {role}"
    for each in nodes:
        if each.is_focusable and not each.name and each.role in ("generic", "group", "none"):
            yield f"takes the focus and says nothing: {each.role}"


def _landmarks(nodes: list[Node]) -> Iterator[str]:
    there = Counter((each.role, each.name) for each in nodes if each.role in LANDMARKS)
    for (role, name), count in there.items():
        if count > 1:
            yield f"{count} landmarks of one name: {role} {name!r}"
    if sum(count for (role, _), count in there.items() if role == "main") != 1:
        yield "not one main landmark"
    if not any(each.role == "heading" and each.properties.get("level") == 1 for each in nodes):
        yield "no heading of the first level"
