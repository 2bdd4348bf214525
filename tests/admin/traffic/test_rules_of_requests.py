"""Why did this go there: from a request to the very rule as it stands now, and back to one."""

import csv
import html
import io
import re
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from gateway.assembly.configured_policy import load_policy
from gateway.store.policies.documents import PolicyStore
from gateway.store.schema.audit import audit_records
from policies.hierarchy import compose
from policies.text.loading import load_document
from tests.admin.listener import Browser, Listener
from tests.admin.traffic.test_list import LIST
from tests.admin.traffic.world import NOW_US, POLICY, Asked, World, request_id


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


async def test_a_rule_that_only_a_canary_has_leads_to_its_version(
    listener: Listener, browser: Browser
) -> None:
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    await browser.sign_in()
    world = World(listener)
    world.document = compose([load_policy(listener.settings), load_document(POLICY)])
    await world.open()
    ids = await world.write(Asked(1, data_class="S3"))
    later = POLICY.replace("hour_utc >= 22", "hour_utc >= 23").replace('"the-rest"', '"others"')
    await publish(listener, "org:acme", later)
    async with listener.database() as database:
        store = PolicyStore(database, listener.clock)
        trial = await store.draft("org:acme", load_document(POLICY), "ann")
        await store.act("org:acme", trial.number, "approve", "ben")
        await store.act("org:acme", trial.number, "canary", "ben", percent=10)

    told = rules_of((await browser.send("GET", f"{LIST}/{ids[0]}"))[1])

    version, said = f"{AT}/organisation/versions/{trial.number}", "of Organisation acme"
    canary = f"{said}, version {trial.number}, a canary"
    assert told["the-rest"] == (version, f"preference {canary}")
    assert told["no-frontier-at-night"] == (version, f"constraint {canary}")
    live = (f"{AT}/organisation#constraints-0", f"constraint {said}")
    assert told["cards-stay-home"] == live, "what both have stands where it is live"
    assert (await browser.send("GET", version))[0].status == 200
    async with listener.database() as database:
        await PolicyStore(database, listener.clock).act(
            "org:acme", trial.number, "withdraw", "ben", reason="too dear"
        )
    told = rules_of((await browser.send("GET", f"{LIST}/{ids[0]}"))[1])
    assert told["the-rest"] == ("", "preference, not live now")


async def test_a_rule_of_one_level_leads_to_none_of_another_of_the_same_names(
    listener: Listener, browser: Browser
) -> None:
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    await browser.sign_in()
    world, organisation = World(listener), load_document(POLICY)
    lab = LAB.replace('"lab"', f'"{organisation.name}"')
    world.document = compose([organisation, load_document(lab)])
    await world.open()
    ids = await world.write(Asked(1, data_class="S3"))
    await publish(listener, "org:acme", POLICY)
    await publish(listener, "ws:acme/research", lab)

    told = rules_of((await browser.send("GET", f"{LIST}/{ids[0]}"))[1])

    place = f"{AT}/ws:research#preferences-0"
    assert told[f"{organisation.name}/simple"] == (place, "preference of Team research")
    place = f"{AT}/organisation#preferences-0"
    assert told["simple"] == (place, "preference of Organisation acme")


def way_to_requests(page: str, rule: str) -> str:
    """Where "requests for which the rule held" leads."""
    hidden = f" for which {rule} matched</span>"
    words = rf'<a class="small[^"]*" href="([^"]+)">[A-Za-z ]+<span[^>]*>{hidden}'
    found = re.search(words, page)
    return html.unescape(found[1]) if found else ""


def ids_in(page: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r'href="/o/acme/traffic/(req_[0-9a-f]+)"', page)))


async def test_a_rule_leads_to_all_requests_that_it_held_for(
    listener: Listener, browser: Browser
) -> None:
    """However many and however old, of this organisation alone."""
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    await browser.sign_in()
    world, theirs = World(listener), World(listener, "umbrella")
    world.document = compose([load_document(POLICY), load_document(LAB)])
    await world.open()
    await theirs.open()
    month_s = 40 * 86_400
    cards = [Asked(n, ago_s=month_s + 60 - n, data_class="S3") for n in range(60)]
    plain = Asked(90, data_class="S1", complexity_tier="frontier")
    ids = await world.write(*cards, plain)
    await theirs.write(Asked(99, data_class="S3"))
    await publish(listener, "org:acme", POLICY)
    await publish(listener, "ws:acme/research", LAB)

    _, page = await browser.send("GET", f"{LIST}/{ids[0]}")
    path = way_to_requests(page, "cards-stay-home")
    assert path == f"{LIST}?q=rule%3Acards-stay-home"
    assert not way_to_requests(page, "the-rest"), "it did not hold"
    _, page = await browser.send("GET", path)
    assert "Counted over all 60 that match" in page
    assert ids_in(page) == ids[59:9:-1]
    older = re.search(r'href="([^"]+)" rel="next"', page)
    assert older is not None
    _, page = await browser.send("GET", html.unescape(older[1]))
    assert ids_in(page) == ids[9::-1]
    assert request_id(99) not in page

    _, page = await browser.send("GET", f"{AT}/organisation")
    assert way_to_requests(page, "cards-stay-home") == path
    _, page = await browser.send("GET", f"{AT}/ws:research")
    assert way_to_requests(page, "simple") == f"{LIST}?q=rule%3Alab%2Fsimple+workspace%3Aresearch"
    _, page = await browser.send("GET", way_to_requests(page, "simple"))
    assert "Counted over all 60 that match" in page
    _, page = await browser.send("GET", f"{LIST}?q=-rule:cards-stay-home")
    assert ids_in(page) == [plain.id]


async def test_a_list_says_up_to_when_nobody_looked_which_rules_held(
    listener: Listener, browser: Browser
) -> None:
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    await browser.sign_in()
    world = World(listener)
    await world.open()
    ids = await world.write(Asked(1, ago_s=60, data_class="S3"), Asked(2, data_class="S3"))
    async with listener.database() as database, database.writing() as connection:
        old = audit_records.c.request_id == ids[0]
        await connection.execute(update(audit_records).where(old).values(rules=None))
    _, page = await browser.send("GET", f"{LIST}?q=rule:cards-stay-home")
    assert ids_in(page) == [ids[1]]
    assert "it is not known yet which rules matched" in page
    _, page = await browser.send("GET", LIST)
    assert "which rules matched" not in page
    path = "/api/organisations/acme/traffic"
    _, told = await browser.send("GET", f"{path}?q=rule:cards-stay-home")
    assert NOW_US - 60_000_000 <= msgspec.json.decode(told)["unruled_us"] < NOW_US
    _, told = await browser.send("GET", path)
    assert msgspec.json.decode(told)["unruled_us"] is None


async def test_files_and_programs_are_told_under_which_rules_each_request_went(
    listener: Listener, browser: Browser
) -> None:
    """An auditor's file said where each went, and each had to be opened to see under which rule."""
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    await browser.sign_in()
    world, theirs = World(listener), World(listener, "umbrella")
    await world.open()
    await theirs.open()
    cheap: dict[str, Any] = {"complexity_tier": "cheap"}
    ids = await world.write(Asked(1, data_class="S3", **cheap), Asked(2, **cheap), Asked(3))
    await theirs.write(Asked(9, data_class="S3"))
    async with listener.database() as database, database.writing() as connection:
        old = audit_records.c.request_id == ids[2]
        await connection.execute(update(audit_records).where(old).values(rules=None))

    _, text = await browser.send("GET", f"{LIST}/export?form=csv&q=")
    rows = list(csv.DictReader(io.StringIO(text)))
    told = {row["request_id"]: row["rules"] for row in rows}
    assert told == dict(zip(ids, ["cards-stay-home; simple", "simple", "?"], strict=True))
    assert list(rows[0])[-3:] == ["time", "key_name", "rules"], "what was there keeps its place"
    expected = dict(zip(ids, [["cards-stay-home", "simple"], ["simple"], None], strict=True))
    _, text = await browser.send("GET", f"{LIST}/export?form=jsonl&q=")
    values = [msgspec.json.decode(line) for line in text.splitlines()]
    assert {each["request_id"]: each["rules"] for each in values} == expected
    _, text = await browser.send("GET", "/api/organisations/acme/traffic")
    values = msgspec.json.decode(text)["rows"]
    assert {each["request_id"]: each["rules"] for each in values} == expected
