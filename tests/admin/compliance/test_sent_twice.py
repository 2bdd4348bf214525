"""A form that makes something, sent twice by who presses twice without scripts, makes it once."""

import asyncio

import msgspec
import pytest

from tests.admin.listener import Browser, Listener
from tests.admin.policies.people import add_person, signed_in
from tests.admin.test_shown_once import form_on


pytestmark = pytest.mark.anyio
AT, API = "/o/acme/compliance", "/api/organisations/acme/compliance"
FORMS = {
    "incidents": (f"{AT}/incidents/new", {"title": "A key in a paste", "kind": "other"}),
    "holds": (f"{AT}/holds", {"scope": "organisation", "reason": "a court's order"}),
    "reviews": (f"{AT}/reviews/new", {"name": "Admin deeds", "every_days": "7"}),
    "erasures": (f"{AT}/erasures", {"scope": "organisation", "ticket": "T-1", "deed": "open"}),
    "reveals": (f"{AT}/reveals", {"reason": "a complaint", "ticket": "T-2", "minutes": "5"}),
}
PAGES = {"reveals": f"{AT}/reveals/new"}


async def made(browser: Browser, kind: str) -> int:
    _, text = await browser.send("GET", f"{API}/{kind}")
    return len(msgspec.json.decode(text))


async def test_what_is_sent_twice_is_made_once_and_both_are_led_to_it(listener: Listener) -> None:
    await listener.issue_key("assistant")
    await add_person(listener, "carla", "compliance", "security_admin")
    async with signed_in(listener, "carla") as carla:
        for kind, (path, typed) in FORMS.items():
            form = await form_on(carla, PAGES.get(kind, path), path) | typed
            if kind == "reviews":
                form |= {"room": "audit", "responsible": "carla", "q": ""}
            both = await asyncio.gather(*(carla.send("POST", path, form) for _ in range(2)))
            assert [answer.status for answer, _ in both] == [303, 303], (kind, both[0][1])
            (there,) = {answer.headers["location"] for answer, _ in both}
            assert (await carla.send("GET", there))[0].status == 200
            assert await made(carla, kind) == 1, kind
            another = await form_on(carla, PAGES.get(kind, path), path) | typed
            another |= {name: form[name] for name in form if name not in another}
            assert (await carla.send("POST", path, another))[0].status == 303
            assert await made(carla, kind) == 2, f"{kind}, wanted again"
