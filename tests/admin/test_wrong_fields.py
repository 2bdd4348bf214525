"""What a JSON body has wrong: every refusal names the field, by a name that its route takes."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from admin.sign_in.protection import SAFE_METHODS
from gateway.oversight.access import ROLES, Grant
from tests.admin.listener import Browser, Listener
from tests.admin.test_access import PASSWORD
from tests.admin.test_access_of_pages import handlers
from tests.admin.test_foreign_ids import Asking, fields_of, path_with, reading, subject
from tests.admin.two_organisations import OWN, Known, employ, furnished


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
API = f"/api/organisations/{OWN}"
NO_FIELD = "no_such_field"
VALUE = "no such thing?"
NAMED = {"models", "guard", "text"}
"""Of these a refusal names what is not there; a wrong text of prices is told by its file's name."""
WRONG: tuple[Any, ...] = (
    "",
    VALUE,
    [VALUE],
    {VALUE: VALUE},
    "a\tb",
    -1,
    2**62,
    1.5,
    True,
    None,
    [],
    {},
    ["?"],
)
"""Of each field of each body, one after the other; what some field takes is wrong in another."""


OTHERS_FIRST = {"/api/people/verdict": {"permission"}}
"""What is missed before anything else is looked at."""


class Refused:
    """What one route answers to bodies with something wrong in them."""

    def __init__(self, browser: Browser, target: str, names: set[str]) -> None:
        self._browser = browser
        self._target = target
        self._names = names
        self.asked = 0
        self.wrong: list[str] = []

    async def send(self, body: str) -> None:
        answer, text = await self._browser.send("POST", self._target, body=body)
        said = msgspec.json.decode(text) if text and answer.status >= 400 else {}
        error = said.get("error", {})
        if answer.status in (400, 422):
            self.asked += 1
            param = error.get("param", "")
            if re.split(r"[.\[]", param)[0] not in self._names:
                self.wrong.append(f"{self._target} {body[:300]}: {error}")
            is_named = VALUE in param or param in NAMED
            if VALUE in error["message"] and not is_named:
                self.wrong.append(f"{self._target} repeats {body[:300]}: {error}")
        elif answer.status == 500:
            self.wrong.append(f"{self._target} {body[:300]}: {error}")


def bodies(right: dict[str, Any], wrong: tuple[Any, ...]) -> Iterator[str]:
    yield from ("{", "[]", json.dumps(right | {NO_FIELD: 1}))
    for name in right:
        yield json.dumps({each: value for each, value in right.items() if each != name})
        yield from (json.dumps(right | {name: value}) for value in wrong)


async def walked(
    listener: Listener, browser: Browser, own: Known, wrong: tuple[Any, ...]
) -> list[Refused]:
    """Every change of the API, asked for with each of its fields wrong in turn."""
    _, text = await browser.send("GET", "/api/openapi.json")
    document = msgspec.json.decode(text)
    asking = Asking(document, reading(listener.application), own.ids)
    await browser.send("GET", "/api/openapi.json")  # A new connection, where that took long.
    done = []
    for method, path, *_ in subject(handlers(listener.application)):
        if method in SAFE_METHODS or not path.startswith("/api/"):
            continue
        named = {"body", NO_FIELD, *re.findall(r"{([a-z_]+):", path)} - {"organisation"}
        names = named | set(fields_of(document, path))
        one = Refused(browser, path_with(path, own.ids), names)
        right = msgspec.json.decode(asking.by_path(method, path, own.ids).body or "{}")
        for body in bodies(right, wrong):
            await one.send(body)
        done.append(one)
    return done


async def test_every_refusal_of_a_body_names_a_field_that_its_route_takes(
    listener: Listener, browser: Browser
) -> None:
    await employ(listener, "ann", PASSWORD, [Grant(role, OWN) for role in ROLES])
    await employ(listener, "ben", PASSWORD, [Grant(role, "*") for role in ROLES])
    own, _ = await furnished(listener)
    asked, wrong = 0, list[str]()
    # Whose roles end at one organisation is refused for that before many a field is read.
    for name, values in (("ann", WRONG[:3]), ("ben", WRONG)):
        await browser.sign_in_as(name, PASSWORD)
        for found in await walked(listener, browser, own, values):
            asked += found.asked
            wrong += found.wrong

    assert not wrong, "\n".join(dict.fromkeys(wrong))
    assert asked > 1_000


async def test_a_refusal_says_what_is_wrong_and_never_the_value(
    listener: Listener, browser: Browser
) -> None:
    await employ(listener, "ann", PASSWORD, [Grant(role, "*") for role in ROLES])
    await listener.issue_key("assistant")
    await browser.sign_in_as("ann", PASSWORD)

    async def said(path: str, body: str) -> tuple[int, str, str]:
        answer, text = await browser.send("POST", path, body=body)
        error = msgspec.json.decode(text)["error"]
        return answer.status, error["param"], error["message"]

    keys, role = f"{API}/keys", '{"person": "ann", "role": "s3cr3t"}'
    missing = '{"workspace": "w", "project": "p"}'
    assert await said(keys, missing) == (400, "name", "name: this field is required")
    more = '{"workspace": "w", "project": "p", "name": "n", "modles": []}'
    assert await said(keys, more) == (400, "modles", "modles: there is no such field")
    many = '{"workspace": "w", "project": "p", "name": "n", "models": ["a", 7]}'
    assert await said(keys, many) == (400, "models[1]", "models[1]: expected str, got int")
    reason = "role: this value is not one of those allowed"
    assert await said("/api/grants", role) == (400, "role", reason)
    assert await said(keys, "{") == (400, "body", "the body is no JSON")
    assert await said(keys, "[]") == (400, "body", "the body: expected object, got array")
    below = '{"model": {"layers": 2, "kv_heads": 1, "head_dim": 1, "parameters": 1, "head": 3}}'
    reason = "model.head: there is no such field"
    assert await said("/api/planner", below) == (400, "model.head", reason)
    reason = "The log is one of requests, deeds."
    pack = '{"log": "s3cr3t", "since_us": 0, "until_us": 1, "recipient": "court"}'
    assert await said(f"{API}/compliance/packs", pack) == (400, "log", reason)


async def test_every_refusal_of_an_address_names_the_parameter(
    listener: Listener, browser: Browser
) -> None:
    await employ(listener, "ann", PASSWORD, [Grant(role, "*") for role in ROLES])
    own, _ = await furnished(listener)
    await browser.sign_in_as("ann", PASSWORD)
    _, text = await browser.send("GET", "/api/openapi.json")
    document, named, wrong = msgspec.json.decode(text), set[str](), list[str]()
    for method, path, *_ in subject(handlers(listener.application)):
        if method not in SAFE_METHODS or not path.startswith("/api/"):
            continue
        described = document["paths"][re.sub(r"{([a-z_]+):[a-z]+}", r"{\1}", path)]["get"]
        for each in described.get("parameters", ()):
            for value in ("?", "a:b", "-1", "9" * 30, "x" * 5_000) if each["in"] == "query" else ():
                target = f"{path_with(path, own.ids)}?{urlencode({each['name']: value})}"
                answer, text = await browser.send("GET", target)
                error = msgspec.json.decode(text)["error"] if answer.status == 400 else {}
                named |= {error["param"]} if "param" in error else set()
                its_own = {each["name"]} | OTHERS_FIRST.get(path, set())
                if answer.status >= 500 or (error and error.get("param") not in its_own):
                    wrong.append(f"{target[:200]}: {error}")

    assert not wrong, "\n".join(wrong)
    assert {"q", "since", "by", "at", "before", "currency"} <= named
