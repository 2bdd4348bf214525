"""The description of the JSON API: whole, sound by itself, and true to what the routes answer."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from admin.access import CSRF_HEADER
from admin.queries import Query, reached_from
from gateway.oversight.access import Grant
from tests.admin.listener import Browser, Listener
from tests.admin.test_access import OWN, PASSWORD, call, declared, person, world


pytestmark = pytest.mark.anyio
READS_A_BODY = frozenset({"body_of", "_order"})
"""What handlers call that read their body themselves."""
"""Rooms whose addresses are still read by hand: what they read is not described."""


async def document(browser: Browser) -> dict[str, Any]:
    answer, text = await browser.send("GET", "/api/openapi.json")
    assert (answer.status, answer.content_type) == (200, "application/json"), text[:300]
    found: dict[str, Any] = msgspec.json.decode(text)
    return found


def plain(path: str) -> str:
    """A declared path as the document writes it: without the kinds of its parameters."""
    return re.sub(r"\{([a-z_]+):[a-z]+\}", r"{\1}", path)


def operations(found: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in found["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


async def test_every_route_of_the_api_is_described_with_its_answer_and_nothing_else_is(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    found = await document(browser)
    routes = {(method.lower(), plain(path)) for method, path, _ in declared(listener.application)}

    assert {(method, path) for method, path, _ in operations(found)} == routes
    assert len(routes) > 50
    assert all(path.startswith("/api/") for _, path, _ in operations(found))
    for method, path, operation in operations(found):
        (status,) = (each for each in operation["responses"] if each.startswith("2"))
        content = operation["responses"][status].get("content", {})
        assert (status == "204") is not any("schema" in each for each in content.values()), (
            method,
            path,
        )


async def test_every_operation_says_what_it_needs_and_every_change_what_it_takes(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    found = await document(browser)
    needed = {
        (method.lower(), plain(path)): opt["access"]
        for method, path, opt in declared(listener.application)
    }
    taking = {
        (method.lower(), plain(route.path))
        for route in listener.application.routes
        for handler in getattr(route, "route_handlers", ())
        for method in handler.http_methods
        if route.path.startswith("/api/") and READS_A_BODY & set(handler.fn.__code__.co_names)
    }
    with_body = set()
    for method, path, operation in operations(found):
        access = needed[method, path]
        assert operation["x-permission"] == access
        assert operation["summary"]
        assert {"401", "403", "503"} <= operation["responses"].keys()
        schemes = {name for each in operation["security"] for name in each}
        assert schemes == ({"session"} if method == "get" else {"session", "mark"})
        if "requestBody" in operation:
            with_body.add((method, path))

    assert len(taking) > 15
    assert taking <= with_body
    assert ("post", "/api/organisations/{organisation}/compliance/holds") in with_body
    schemes = found["components"]["securitySchemes"]
    assert schemes["mark"]["name"] == CSRF_HEADER


async def test_the_document_is_sound_by_itself(browser: Browser) -> None:
    await browser.sign_in()
    found = await document(browser)
    ids = [operation["operationId"] for _, _, operation in operations(found)]
    schemas = found["components"]["schemas"]

    assert re.fullmatch(r"3\.1\.\d+", found["openapi"])
    assert found["info"]["title"]
    assert found["info"]["version"]
    assert len(ids) == len(set(ids))
    assert {each.removeprefix("#/components/schemas/") for each in references(found)} <= set(
        schemas
    )
    assert all(re.fullmatch(r"[a-zA-Z0-9._-]+", name) for name in schemas)
    for _, path, operation in operations(found):
        stated = (
            {each["name"] for each in operation["parameters"] if each["in"] == "path"}
            if ("parameters" in operation)
            else set()
        )
        assert stated == set(re.findall(r"\{([^}]+)\}", path)), path


async def test_what_is_described_is_what_is_answered(listener: Listener, browser: Browser) -> None:
    await world(listener)
    await person(listener, "ann", Grant("platform_admin", "*"), Grant("compliance", "*"))
    await browser.sign_in_as("ann", PASSWORD)
    found = await document(browser)
    schemas = found["components"]["schemas"]
    checked = 0
    for method, path, _ in declared(listener.application):
        if method != "GET" or path.endswith(("/openapi.json", "/file")):
            continue
        status, answered = await call(browser, method, path, OWN)
        body: Any = answered
        if status != 200:
            continue
        answer = found["paths"][plain(path)]["get"]["responses"]["200"]
        schema = answer["content"]["application/json"]["schema"]
        named = schemas.get(schema.get("$ref", "").removeprefix("#/components/schemas/"), schema)
        assert named.get("type", "object") == ("array" if isinstance(body, list) else "object")
        if isinstance(body, dict) and "properties" in named:
            assert body.keys() <= named["properties"].keys(), path
            assert set(named.get("required", ())) <= body.keys(), path
            checked += 1

    assert checked > 10


async def test_who_is_not_signed_in_is_told_nothing(listener: Listener, browser: Browser) -> None:
    answer, text = await browser.send("GET", "/api/openapi.json")

    assert answer.status == 401
    assert "paths" not in text
    assert listener.token not in text


async def test_what_handlers_read_from_an_address_is_what_the_document_says(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    found = await document(browser)
    described = {
        (method, path): {
            each["name"]: each for each in operation.get("parameters", ()) if each["in"] == "query"
        }
        for method, path, operation in operations(found)
    }
    for route in listener.application.routes:
        for handler in getattr(route, "route_handlers", ()):
            if not route.path.startswith("/api/"):
                continue
            read = [
                function
                for function in reached_from(handler.fn)
                if "query_params" in function.__code__.co_names
            ]
            # Whoever reads an address without a `Query` is not described.
            assert read == [], route.path

    traffic = described["get", "/api/organisations/{organisation}/traffic"]
    assert set(traffic) == {"q", "since", "until", "before", "live"}
    assert traffic["q"]["schema"] == {"type": "string", "maxLength": 1000}
    gathered = described["get", "/api/organisations/{organisation}/audit/gathered"]
    assert set(gathered) == set(traffic) | {"view"}
    assert "lanes" in gathered["view"]["schema"]["enum"]
    assert set(described["get", "/api/people/verdict"]) == {"person", "permission", "organisation"}
    costs = described["get", "/api/organisations/{organisation}/costs"]
    assert set(costs) == {"by", "currency", "only", "since", "until"}
    assert "data_class" in costs["by"]["schema"]["items"]["enum"]
    of_pages = described["get", "/api/organisations/{organisation}/costs/summary"]
    assert set(of_pages) == {"by", "from", "since", "sort", "until"}
    limits = described["get", "/api/organisations/{organisation}/limits"]
    assert set(limits) == {"after", "from", "only", "open", "q"}
    again = described["get", "/api/system/sinks/{sink}/replay"]
    assert again["since_us"]["schema"] == {"type": "integer", "default": 0, "minimum": 0}
    assert all(each["description"] for found in described.values() for each in found.values())
    assert described["get", "/api/engine"] == {}


@pytest.mark.parametrize(("length", "status"), [(1_000, 200), (1_001, 400)])
async def test_a_bound_that_is_described_is_kept(
    listener: Listener, browser: Browser, length: int, status: int
) -> None:
    await world(listener)
    await browser.sign_in()
    for part in ("traffic", "keys"):
        path = f"/api/organisations/{OWN}/{part}?q={'w' * 150}"
        path += ("+" + "w" * 149) * ((length - 150) // 150) + "+" + "w" * ((length - 150) % 150 - 1)
        assert (await browser.send("GET", path))[0].status == status, part


def test_a_parameter_reads_as_it_is_described() -> None:
    query = Query("days", "Of so many days.", kind="integer", choices=("1", "7"), default="7")
    assert query.described() == {
        "name": "days",
        "in": "query",
        "required": False,
        "description": "Of so many days.",
        "schema": {"type": "integer", "enum": [1, 7], "default": 7, "minimum": 0},
    }
