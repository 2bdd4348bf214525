"""Sensitive data in every place of every request: none of it reaches a managed target.

In the short run each value is tried in a sixth of the places, and each place with a sixth of the
values; in `make faults` (GATEWRIGHT_FAULT_EVERY_PLACE) all of them everywhere.
"""

import asyncio
import base64
import json
import os
import random
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.classifiers import samples
from tests.faults.full_requests import (
    DOORS,
    TALKER,
    WRITER,
    Body,
    Place,
    added,
    changed,
    data_url,
    places,
    put,
    renamed,
)
from tests.identifiers import aadhaar, card
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

VECTORS = DOORS["/v1/embeddings"]["model"]
SETTINGS = f"""
[targets."{VECTORS}"]
provider = "openai"
model = "{VECTORS}"
[providers.outside]
kind = "openai_compatible"
base_url = "{{url}}/v1"
jurisdiction = "us"
[targets.{TALKER}]
provider = "outside"
model = "fake-model"
catalogue = "claude-haiku-5-5"
[targets.{WRITER}]
provider = "outside"
model = "fake-model"
catalogue = "in-house"
"""
AT_ONCE = 32
EVERY_PLACE = bool(os.environ.get("GATEWRIGHT_FAULT_EVERY_PLACE"))
RANDOM = random.Random(17)
CARD, AADHAAR = card(11), aadhaar(13)
FOURS = [CARD[at : at + 4] for at in range(0, 16, 4)]
KEY = samples.token(RANDOM, 16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
PEM = base64.b64encode(RANDOM.randbytes(600)).decode()


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode().rstrip("=")


TEXTS: dict[str, str] = {
    "card": CARD,
    "card in groups": f"Charge {'-'.join(FOURS)} today",
    "Aadhaar": f"{AADHAAR[:4]} {AADHAAR[4:8]} {AADHAAR[8:]}",
    "access key": f"AKIA{KEY}",
    "private key": f"-----BEGIN PRIVATE KEY-----\n{PEM}\n-----END PRIVATE KEY-----",
    "JSON in JSON in JSON": json.dumps({"a": json.dumps({"b": json.dumps([CARD])})}),
    "path of an address": f"https://shop.example/{CARD}/pay?no={CARD}#{CARD}",
    "plain data URL": f"data:text/plain,card%20{CARD}",
    "text": data_url("text/plain", f"card {CARD}"),
    "table": data_url("text/csv;charset=utf-8", f"name,card\r\ninge,{CARD}\r\n"),
    "drawing": data_url("image/svg+xml", f"<svg><text>{CARD}</text></svg>"),
    "page": data_url("text/html", f"<p>{CARD}</p>"),
    "tree": data_url("application/json", json.dumps({"card": CARD})),
    "UUID of a card": f"{CARD[:8]}-{CARD[8:12]}-{CARD[12:]}-8bad-c0ffeec0ffee",
    "name of a card": f"call_abcd{CARD}",
    "name of a line": f"call_{coded(f'card{chr(10)}{CARD}')}",
    "name of a foreign line": f"fc_{coded(f'Karte für Jörg: {CARD}')}",
}
OTHERS: dict[str, object] = {
    "card as a number": int(CARD),
    "Aadhaar as a number": int(AADHAAR),
    "card as a float": float(CARD),
    "digits": list(CARD),
    "digits as numbers": [int(digit) for digit in CARD],
    "groups as numbers": [int(four) for four in FOURS],
    "groups as floats": [float(four) for four in FOURS],
    "halves": [CARD[:8], CARD[8:]],
    "letters": list(CARD.encode()),
}


def _is_of_texts(there: object) -> bool:
    """Whether one could go on in the next."""
    parts = there if isinstance(there, list) else []
    return bool(parts) and all(isinstance(each, dict) and "text" in each for each in parts)


def is_asked(path: str, place: Place, name: str) -> bool:
    """Whether this run puts it there: drawn by what it is and where, so alike in every run."""
    return EVERY_PLACE or zlib.crc32(f"{path} {place} {name}".encode()) % 6 == 0


def filled(path: str, place: Place) -> Iterator[tuple[str, Body]]:
    """The body with each of the values at a place, and as the name of what stands there."""
    body = DOORS[path]
    there: Any = body
    for step in place:
        there = there[step]
    is_leaf = not isinstance(there, dict | list)
    change: Callable[[object], Callable[[Any, str | int], None]] = put if is_leaf else added
    changes = {name: change(said) for name, said in (TEXTS | OTHERS).items()}
    if _is_of_texts(there):
        torn = [there[0] | {"text": f"no {CARD[:9]}"}, there[0] | {"text": f"{CARD[9:]} ok"}]
        changes["torn over two parts"] = put([*there, *torn])
    if isinstance(place[-1], str):
        for name in ("card", "Aadhaar", "access key", "name of a card"):
            changes[f"{name} as a name"] = renamed(TEXTS[name])
    for name, done in changes.items():
        if is_asked(path, place, name):
            yield name, changed(body, place, done)


Named = list[tuple[str, Body]]


def bunches(bodies: Iterator[tuple[str, Body]]) -> Iterator[Named]:
    while bunch := list(islice(bodies, AT_ONCE)):
        yield bunch


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    more = SETTINGS.format(url=own_upstreams.openai.url)
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running:
        yield running


@pytest.mark.parametrize("path", DOORS)
async def test_no_place_of_a_request_takes_it_out(
    path: str, gateway: RunningGateway, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    headers = {"authorization": f"Bearer {await gateway.issue_key()}"}

    async def send(body: Body) -> int:
        async with http.post(gateway.url + path, json=body, headers=headers) as reply:
            await reply.read()
        return reply.status

    async def leave(*bodies: Body) -> bool:
        before = sum(len(each.calls) for each in own_upstreams.managed)
        statuses.update(await asyncio.gather(*map(send, bodies)))
        return sum(len(each.calls) for each in own_upstreams.managed) > before

    statuses: Counter[int] = Counter()
    assert await leave(DOORS[path]), "what is harmless ought to reach the target that it names"
    left: list[tuple[Place, str]] = []
    for place in places(DOORS[path]):
        for bunch in bunches(filled(path, place)):
            if await leave(*(body for _, body in bunch)):
                left += [(place, name) for name, body in bunch if await leave(body)]

    assert not left
    assert 500 not in statuses


TRAVELLING = (
    *("user-agent", "anthropic-beta", "anthropic-version", "openai-organization", "openai-project"),
    *("openai-beta", "x-request-id", "x-client-request-id", "idempotency-key", "x-stainless-lang"),
    *("cookie", "referer", "traceparent", "tracestate", "baggage", "x-team", "accept-language"),
    *("x-gatewright-tenant", "forwarded", "x-forwarded-for", "from", "via", "accept", CARD),
)


@pytest.mark.parametrize("path", DOORS)
async def test_no_header_and_no_query_takes_it_out(
    path: str, gateway: RunningGateway, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    key = {"authorization": f"Bearer {await gateway.issue_key()}"}
    for name in TRAVELLING:
        headers = key | {name: f"card {CARD}"}
        async with http.post(gateway.url + path, json=DOORS[path], headers=headers) as reply:
            assert CARD not in f"{await reply.text()} {reply.headers}", name
    query = {"api-version": "2024-10-21", "card": CARD, CARD: "1"}
    async with http.post(gateway.url + path, json=DOORS[path], headers=key, params=query) as reply:
        assert CARD not in f"{await reply.text()} {reply.headers}"

    calls = [(c.path, c.headers, c.body) for each in own_upstreams.managed for c in each.calls]
    assert calls
    assert CARD not in repr(calls)
    assert CARD not in repr(await gateway.records())
