"""Keys that tokens prove, in the pages and over JSON: made, shown, and never with a secret."""

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.identity import KeyRecord
from gateway.store.identity.keys import KeyReader
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.seeding import PASSWORD, issue, person
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
LIST = "/o/acme/keys"
API = "/api/organisations/acme/keys"
SUBJECT = "system:serviceaccount:payments:assistant"
ISSUERS = """
[callers.issuers.cluster]
issuer = "https://issuer.example.com"
audience = "our-gateway"
jwks_file = "keys.json"
[callers.issuers.elsewhere]
issuer = "https://elsewhere.example.com"
audience = "our-gateway"
jwks_file = "keys.json"
organisations = ["umbrella"]
"""
FORM = {
    "name": "payroll pods",
    "workspace": "people",
    "project": "payroll",
    "expires_days": "90",
    "translation": "warn",
    "budget_window": "month",
    "issuer": "cluster",
    "subject": SUBJECT,
    "claims": "azp=robot tid=north",
}


@pytest.fixture
async def trusting(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Listener]:
    async with Listener(tmp_path, sqlite_url, ISSUERS) as running:
        yield running


def encoded(order: object) -> str:
    return msgspec.json.encode(order).decode()


async def kept(listener: Listener) -> list[KeyRecord]:
    async with listener.database() as database:
        found = await KeyReader(database).keys("acme")
    return [each for each in found if each.workload is not None]


@pytest.fixture
async def owner(trusting: Listener) -> AsyncIterator[Browser]:
    await issue(trusting, "an assistant")
    await person(trusting, "ann", "app_owner")
    async with browsing(trusting) as browser:
        await browser.sign_in_as("ann", PASSWORD)
        yield browser


async def test_a_key_is_bound_shown_with_what_proves_it_and_has_nothing_to_rotate(
    trusting: Listener, owner: Browser
) -> None:
    _, form = await owner.send("GET", f"{LIST}/new")
    assert "tokens of cluster" in form
    assert "elsewhere" not in form
    answer, page = await owner.send("POST", f"{LIST}/new", FORM)
    assert answer.status == 201
    assert "our-gateway" in page
    assert "gw_live_" not in page
    (record,) = await kept(trusting)
    assert record.digests == ()
    assert record.workload is not None
    assert record.workload.claims == (("azp", "robot"), ("tid", "north"))

    _, shown = await owner.send("GET", f"{LIST}/{record.key_id}")
    for said in (SUBJECT, "robot", "north", "Revoke"):
        assert said in html.unescape(shown)
    assert "/rotate" not in shown
    _, listed = await owner.send("GET", LIST)
    assert "tokens of cluster" in listed
    answer, refused = await owner.send(
        "POST", f"{LIST}/{record.key_id}/rotate", {"overlap_s": "0", "seen": "one"}
    )
    assert answer.status == 400
    assert "has no secret of ours" in refused
    assert "gw_live_" not in refused
    after = [each.detail["after"] for each in await deeds(trusting) if "after" in each.detail]
    assert any(SUBJECT in each and record.key_id in each for each in after)


@pytest.mark.parametrize(
    ("changes", "said", "field"),
    [
        ({"issuer": "elsewhere"}, "there is no such issuer", "issuer"),
        ({"issuer": ""}, "this needs an issuer", "subject"),
        ({"subject": ""}, "visible ASCII characters", "subject"),
        ({"claims": "azp"}, "use NAME=VALUE", "claims"),
        ({"claims": "aud=x"}, "name other claims than", "claims"),
    ],
)
async def test_what_cannot_be_bound_is_said_at_its_field(
    trusting: Listener, owner: Browser, changes: dict[str, str], said: str, field: str
) -> None:
    answer, page = await owner.send("POST", f"{LIST}/new", FORM | changes)
    assert answer.status == 400
    (of_field,) = re.findall(rf'<span id="about-{field}" class="wrong">([^<]*)</span>', page)
    assert said in of_field
    (asked,) = re.findall(rf'<(?:input|select) id="field-{field}"[^>]*>', page)
    assert f'aria-describedby="about-{field}"' in asked
    assert 'aria-invalid="true" autofocus' in asked
    assert await kept(trusting) == []


async def test_over_json_a_bound_key_has_no_secret_and_a_second_one_is_refused(
    owner: Browser,
) -> None:
    order: dict[str, object] = {
        "workspace": "people",
        "project": "payroll",
        "name": "pods",
        "issuer": "cluster",
    }
    order |= {"subject": SUBJECT}
    answer, text = await owner.send("POST", API, body=encoded(order))
    assert answer.status == 201
    issued = msgspec.json.decode(text)
    assert issued["key"] == ""
    _, text = await owner.send("GET", f"{API}/{issued['key_id']}")
    told = msgspec.json.decode(text)["key"]["workload"]
    assert told == {"issuer": "cluster", "subject": SUBJECT, "claims": {}}
    answer, text = await owner.send("POST", API, body=encoded(order | {"claims": {"azp": "robot"}}))
    assert answer.status == 409
    assert "bound to such tokens already" in text


async def test_without_an_issuer_the_form_says_nothing_of_tokens(
    listener: Listener, browser: Browser
) -> None:
    await issue(listener, "an assistant")
    await person(listener, "ann", "app_owner")
    await browser.sign_in_as("ann", PASSWORD)
    _, form = await browser.send("GET", f"{LIST}/new")
    assert "tokens" not in form.split("<main", 1)[1].split("How much it may use")[0]
