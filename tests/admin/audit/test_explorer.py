"""The audit explorer: all kinds of records, what deeds changed, whose they are, a file, proofs."""

import json

import msgspec
import pytest

from gateway.audit.proving import offline
from gateway.oversight.access import Grant
from gateway.oversight.deeds import OPERATORS
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore
from tests.admin.listener import Browser
from tests.admin.traffic.world import World


pytestmark = pytest.mark.anyio
LIST = "/o/acme/audit"
PASSWORD = "a password for tests only"


async def _person(world: World, name: str, grant: Grant) -> None:
    async with world.listener.database() as database:
        people = PeopleStore(database, world.listener.clock)
        await people.add(name, password=Secret(PASSWORD))
        await people.grant(name, grant)


async def test_all_kinds_of_records_stand_in_one_list_with_what_deeds_changed(
    world: World, browser: Browser
) -> None:
    _, page = await browser.send("GET", LIST)
    assert page.count(">intent<") + page.count("intent</span>") >= 6
    assert page.count("<strong>budget.set</strong>") == 2
    assert "<del>5</del> <ins>9</ins>" in page
    assert "org:umbrella" not in page
    _, deeds = await browser.send("GET", f"{LIST}?q=actor:admin-token")
    assert "everything admin-token did" in deeds
    assert "outcome</span>" not in deeds.split("<tbody")[1]
    answer, wrong = await browser.send("GET", f"{LIST}?q=kind:nothing")
    assert answer.status == 400
    assert "<mark>nothing</mark>" in wrong


async def test_rows_facets_and_filters_call_a_deed_by_one_name(
    world: World, browser: Browser
) -> None:
    _, page = await browser.send("GET", LIST)
    facets = page.split('aria-label="Facets"')[1].split("</nav>")[0]
    assert '<span class="cut">deed</span><span class="soft">2</span>' in facets
    assert "admin</span>" not in facets.replace("admin-token</span>", "")
    assert "kind%3Adeed" in facets
    for word in ("deed", "admin"):
        _, deeds = await browser.send("GET", f"{LIST}?q=kind:{word}")
        assert deeds.count("<strong>budget.set</strong>") == 2, word
        assert "outcome</span>" not in deeds.split("<tbody")[1], word
        assert "intent, outcome, deed" in deeds, word


async def test_the_installations_own_list_is_for_who_may_read_everywhere(
    world: World, browser: Browser
) -> None:
    _, page = await browser.send("GET", "/audit?q=action:budget.set")
    assert page.count("<strong>budget.set</strong>") == 3
    assert "about umbrella" in page
    await _person(world, "cara", Grant("compliance", "acme"))
    await browser.sign_in_as("cara", PASSWORD)
    for path in ("/audit", "/audit/1", "/api/audit/1/proof"):
        assert (await browser.send("GET", path))[0].status == 403, path
    answer, _ = await browser.send("GET", LIST)
    assert answer.status == 200


async def test_a_deed_about_another_organisation_is_not_there(
    world: World, browser: Browser
) -> None:
    numbers = {}
    for number in range(1, 10):
        answer, page = await browser.send("GET", f"{LIST}/{OPERATORS}/{number}")
        numbers[number] = answer.status
        if answer.status == 200:
            assert "umbrella" not in page.partition("<main")[2]
    assert sorted(set(numbers.values())) == [200, 404]
    for path in (f"{LIST}/umbrella/1", f"{LIST}/acme/0", f"{LIST}/acme/9999"):
        assert (await browser.send("GET", path))[0].status == 404, path


async def test_a_record_is_proved_wherever_it_is_shown(world: World, browser: Browser) -> None:
    path = "/api/organisations/acme/audit/acme/3/proof"
    assert (await browser.send("GET", path))[0].status == 404
    await world.sign()
    for each in (path, "/api/audit/1/proof"):
        answer, text = await browser.send("GET", each)
        assert answer.status == 200, each
        assert offline.check_proof(json.loads(text), [])["sequence"] in (1, 3)
    _, page = await browser.send("GET", f"{LIST}/acme/3")
    assert f'data-proof="{path}"' in page
    _, listed = await browser.send("GET", LIST)
    assert "not yet" not in listed


async def test_a_file_holds_whole_records_for_who_may_take_them(
    world: World, browser: Browser
) -> None:
    assert (await browser.send("GET", f"{LIST}/export"))[0].status == 403
    await _person(world, "cara", Grant("compliance", "acme"))
    await browser.sign_in_as("cara", PASSWORD)
    answer, text = await browser.send("GET", f"{LIST}/export?q=")
    assert answer.headers["content-type"].startswith("application/jsonl")
    lines = [msgspec.json.decode(line) for line in text.splitlines()]
    assert len([line for line in lines if line["stage"] != "admin"]) == 12
    assert {line["detail"]["organisation"] for line in lines if line["stage"] == "admin"} == {
        "acme"
    }
    assert all(len(line["leaf_hash"]) == 64 for line in lines)
    _, deeds = await browser.send("GET", f"{LIST}/export?q=kind:admin")
    assert len(deeds.splitlines()) < len(lines)
    assert (await browser.send("GET", f"{LIST}/export?q=x:y"))[0].status == 400


async def test_views_of_the_explorer_are_not_those_of_traffic(
    world: World, browser: Browser
) -> None:
    form = {"name": "deeds of a week", "q": "kind:admin since:7d", "to": LIST}
    answer, _ = await browser.send("POST", f"{LIST}/views", form)
    assert answer.headers["location"] == LIST
    _, page = await browser.send("GET", LIST)
    assert ">deeds of a week</a>" in page
    _, traffic = await browser.send("GET", "/o/acme/traffic")
    assert "deeds of a week" not in traffic
    await browser.send("POST", f"{LIST}/views/drop", form)
    _, page = await browser.send("GET", LIST)
    assert "The view deeds of a week was deleted." in page
    assert ">deeds of a week</a>" not in page
