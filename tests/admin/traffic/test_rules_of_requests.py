"""Why did this go there: from a request to the very rule as it stands now, and back to one."""

import re

import pytest

from gateway.assembly.configured_policy import load_policy
from gateway.store.policies.documents import PolicyStore
from policies.hierarchy import compose
from policies.text.loading import load_document
from tests.admin.listener import Browser, Listener
from tests.admin.traffic.test_list import LIST
from tests.admin.traffic.world import NOW_US, POLICY, Asked, World


pytestmark = pytest.mark.anyio
LAB = """
name = "lab"
version = 1
[[preferences]]
name = "simple"
when = 'complexity_tier == "cheap"'
order = ["frontier"]
"""
AT = "/o/acme/policies"


async def publish(listener: Listener, level: str, text: str) -> None:
    async with listener.database() as database:
        store = PolicyStore(database, listener.clock)
        version = await store.draft(level, load_document(text), "ann")
        await store.act(level, version.number, "approve", "ben")
        await store.act(level, version.number, "publish", "ben")


def rules_of(page: str) -> dict[str, tuple[str, str]]:
    """Where each rule leads, and what is said beneath it."""
    rows = re.findall(
        r"<strong>(.*?)</strong><br><span class=\"small soft\">(.*?)</span></span>", page
    )
    found = {}
    for name, said in rows:
        path = re.search(r'href="([^"]+)"', name)
        found[re.sub(r"<[^>]+>", "", name)] = (path[1] if path else "", said)
    return found


async def test_each_rule_leads_to_where_it_stands_now(listener: Listener, browser: Browser) -> None:
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    await browser.sign_in()
    world = World(listener)
    levels = [load_policy(listener.settings), load_document(POLICY), load_document(LAB)]
    world.document = compose(levels)
    await world.open()
    ids = await world.write(Asked(1, data_class="S3"))
    _, page = await browser.send("GET", f"{LIST}/{ids[0]}")
    told = rules_of(page)
    assert told["cards-stay-home"] == ("", "constraint, not live now")
    base = told["restricted-data-stays-home"]
    assert base == (f"{AT}/installation#constraints-0", "constraint of Installation")

    later = POLICY.replace("hour_utc >= 22", "hour_utc >= 23").replace('"the-rest"', '"others"')
    await publish(listener, "org:acme", later)
    await publish(listener, "ws:acme/research", LAB)
    _, page = await browser.send("GET", f"{LIST}/{ids[0]}")
    told = rules_of(page)
    organisation = "of Organisation acme"
    assert told["cards-stay-home"] == (
        f"{AT}/organisation#constraints-0", f"constraint {organisation}",
    )  # fmt: skip
    assert told["no-frontier-at-night"] == (
        f"{AT}/organisation#constraints-1", f"constraint {organisation}, changed since",
    )  # fmt: skip
    assert told["simple"] == (f"{AT}/organisation#preferences-0", f"preference {organisation}")
    assert told["lab/simple"] == (f"{AT}/ws:research#preferences-0", "preference of Team research")
    assert told["the-rest"] == ("", "preference, not live now")

    _, page = await browser.send("GET", f"{AT}/organisation")
    row = page.split('id="constraints-0"')[1].split("</tr>")[0]
    assert "cards-stay-home" in row
    assert f'href="/o/acme/traffic/{ids[0]}"' in row, "back to what it held for last"
    for path, _ in filter(None, told.values()):
        if path:
            at, _, anchor = path.partition("#")
            assert f'id="{anchor}"' in (await browser.send("GET", at))[1]
