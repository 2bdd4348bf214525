"""The checklist: what rules ask for, how it stands here and now, and who chose the rules."""

import re
from typing import Any

import msgspec
import pytest

from admin.compliance.duties import PLACES
from gateway.oversight.access import Role
from gateway.store.money.price_files import PriceFiles, PriceOrder, put_in_force
from gateway.store.money.price_proposals import PriceProposals
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.compliance.archive import PASSWORD, deeds, person
from tests.admin.listener import Browser, Listener, browsing


pytestmark = pytest.mark.anyio
AT = "/o/acme/compliance/obligations"
API = "/api/organisations/acme/compliance/obligations"


@pytest.fixture
async def acme(listener: Listener) -> Listener:
    """An organisation that nobody chose rules for."""
    await listener.issue_key("first")
    return listener


async def chosen(browser: Browser, *regimes: str, seen: int = 0, status: int = 201) -> str:
    order = {"regimes": regimes, "reason": "as the board decided, minutes of May", "seen": seen}
    answer, text = await browser.send("POST", API, body=msgspec.json.encode(order).decode())
    assert answer.status == status, text
    return text


async def checklist(browser: Browser) -> dict[str, Any]:
    answer, text = await browser.send("GET", API)
    assert answer.status == 200, text
    found: dict[str, Any] = msgspec.json.decode(text)
    return found


async def states(browser: Browser, check: str) -> set[str]:
    found = await checklist(browser)
    return {
        line["standing"]["state"]
        for part in found["parts"]
        for line in part["lines"]
        if line["duty"]["check"] == check
    }


async def test_when_a_case_is_due_is_said_alike_wherever_it_stands(acme: Listener) -> None:
    async with person(acme, "cora") as cora:
        await chosen(cora, "gdpr")
        cases = AT.replace("obligations", "erasures")
        api = API.replace("obligations", "erasures")
        answer, text = await cora.send("POST", api, body='{"ticket": "T-8", "law": "gdpr"}')
        assert answer.status == 201, text
        one = f"{cases}/{msgspec.json.decode(text)['id']}"
        said = re.search(r"due (in [0-9]+ days)\.", (await cora.send("GET", one))[1])
        assert said, "no weeks or months: days are what the law leaves"
        for where in (AT, cases, cases.removesuffix("/erasures")):
            assert said[1] in (await cora.send("GET", where))[1], where


async def test_rules_are_chosen_by_compliance_with_a_reason_and_on_record(
    acme: Listener,
) -> None:
    async with person(acme, "cora") as cora, person(acme, "dan") as dan:
        assert (await checklist(cora))["parts"] == []
        _, home = await cora.send("GET", "/o/acme/compliance")
        assert "No rules are chosen for acme" in home
        form = {"regimes": "gdpr", "reason": " the  board ", "seen": "0"}
        answer, page = await cora.send("POST", AT, form)
        assert answer.status == 303, page
        assert [part["regime"] for part in (await checklist(cora))["parts"]] == ["gdpr"]
        for wrong in ({"regimes": "moon"}, {"reason": " "}):
            answer, page = await cora.send("POST", AT, form | {"seen": "1"} | wrong)
            assert (answer.status, 'role="alert"' in page) == (400, True)
        answer, page = await dan.send("POST", AT, form | {"regimes": "soc2"})
        assert (answer.status, "Somebody else chose meanwhile" in page) == (409, True)
        said = page[page.index('role="alert"') :]
        said = said[: said.index("</p>")]
        for each in ("GDPR", "chosen by cora", "because: the board"):
            assert each in said, said
        assert re.search(r'value="soc2" checked', page), "what was ticked is kept"
        assert re.search(r'value="soc2" checked', page)
        await chosen(dan, "soc2", "cert-in", seen=1)
        await chosen(cora, seen=1, status=409)
        await chosen(dan, "cert-in", "soc2", seen=2, status=400)
        _, home = await cora.send("GET", "/o/acme/compliance")
        assert "CERT-In directions</a>" in home
        history = (await checklist(cora))["choices"]
    assert [(each["actor"], each["regimes"]) for each in history] == [
        ("dan", "cert-in soc2"),
        ("cora", "gdpr"),
    ]
    done = [actor for actor, action in await deeds(acme) if action == "obligations.chosen"]
    assert sorted(set(done)) == ["cora", "dan"]


async def test_duties_stand_as_the_installation_does_and_change_with_it(
    acme: Listener,
) -> None:
    async with person(acme, "cora") as cora:
        await chosen(cora, "gdpr", "cert-in", "soc2")
        assert await states(cora, "limited") == {"open"}
        assert await states(cora, "clock") == {"open"}
        assert await states(cora, "reports") == {"met"}
        await cora.send(
            "POST",
            "/o/acme/compliance/incidents/new",
            {"title": "A key was in a repository", "kind": "access", "q": "", "noticed": "5h"},
        )
        assert await states(cora, "reports") == {"look"}
        acme.clock.advance(2 * 3600)
        await cora.sign_in_as("cora", PASSWORD)
        assert await states(cora, "reports") == {"look", "open"}
        _, page = await cora.send("GET", AT)
        assert "duties are not met" in page
        assert "1 report due now or overdue" in page
        assert page.count("not provable here: organisational") >= 3


async def test_prices_count_for_change_control_by_who_put_them_in_force(acme: Listener) -> None:
    async def said() -> set[tuple[str, str]]:
        found = await checklist(cora)
        lines = [line for part in found["parts"] for line in part["lines"]]
        return {
            (line["standing"]["state"], line["standing"]["said"].partition("here. ")[2])
            for line in lines
            if line["duty"]["check"] == "four_eyes"
        }

    async with person(acme, "cora") as cora, acme.database() as database:
        await chosen(cora, "soc2", "iso27001", "rbi")
        assert await said() == {
            ("look", "Prices come from the configuration: they were not changed here.")
        }
        number = await PriceFiles(database, acme.clock).add("a.toml", "a", "petra")
        proposals = PriceProposals(database, acme.clock)
        made = await proposals.propose(number, "petra", "agreed", seen=0, more_microusd=0)
        assert await said() == {
            ("look", "Prices come from the configuration: they were not changed here.")
        }
        await proposals.approve(made.number, "anton", "yes")
        approved = "The prices in force were proposed by one and approved by another."
        assert await said() == {("look", approved)}
        # As orders were written before there were proposals.
        async with database.writing() as connection:
            await put_in_force(connection, PriceOrder(2, 0, "petra", "back", 1))
        alone = "The prices in force were set without a second person."
        assert await said() == {("open", alone)}


async def test_every_piece_of_evidence_is_a_page_that_is_there(acme: Listener) -> None:
    async with person(acme, "cora") as cora:
        for path in sorted(set(PLACES.values())):
            answer, _ = await cora.send("GET", path.replace("{organisation}", "acme"))
            assert answer.status in (200, 403), path


async def test_who_only_reads_the_evidence_chooses_nothing(
    acme: Listener, browser: Browser
) -> None:
    async with person(acme, "root", role="platform_admin") as root:
        answer, page = await root.send("GET", AT)
        assert answer.status == 200
        assert "People responsible for compliance can choose" in page
        await chosen(root, "gdpr", status=403)
    answer, _ = await browser.send("GET", AT)
    assert answer.status in (302, 303, 401)


async def test_the_page_is_read_and_rules_are_chosen_without_scripts(acme: Listener) -> None:
    async with person(acme, "cora"), window(acme, scripts=False) as seen:
        await seen.sign_in("cora", PASSWORD)
        await seen.open(AT)
        await seen.page.get_by_label("GDPR").check()
        await seen.page.get_by_label("Why").fill("the board")
        await seen.page.get_by_role("button", name="Apply these rules").click()
        await seen.page.get_by_role("heading", name="GDPR").wait_for()
        assert seen.problems == []
    async with window(acme) as seen:
        await seen.sign_in("cora", PASSWORD)
        await seen.open(AT)
        assert await seen.violations() == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("role", "organisation"), [("compliance", "acme"), ("platform_admin", "*"), ("compliance", "*")]
)
async def test_no_page_of_compliance_leads_to_one_that_is_closed_to_its_reader(
    acme: Listener, role: Role, organisation: str
) -> None:
    """Evidence of two duties, and the button for a pack, ended at "None of your roles"."""
    async with person(acme, "cora") as cora:
        await chosen(cora, "cert-in", "dpdp", "gdpr", "hipaa", "iso27001", "rbi", "soc2")
    await seeding.person(acme, "petra", role, organisation)
    async with browsing(acme) as petra:
        await petra.sign_in_as("petra", seeding.PASSWORD)
        for page in ("/o/acme/compliance", AT):
            _, text = await petra.send("GET", page)
            main = text.partition("<main")[2]
            ways = {way for way in re.findall(r'href="(/[^"#?]*)', main) if "/static/" not in way}
            assert len(ways) > 5
            for way in sorted(ways):
                answer, _ = await petra.send("GET", way)
                assert answer.status != 403, (page, way)
