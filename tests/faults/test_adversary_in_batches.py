"""Data hidden in files of requests leaves neither line by line nor in a vendor's own batches."""

import asyncio
import base64
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import msgspec
import openai
import pytest

from gateway.store.identity.keys import Place
from tests.collectors import Collectors
from tests.conformance.test_batches import CHAT, ended, line, make, results
from tests.identifiers import aadhaar, card
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

NATIVE = "native_batches = true"
MORE = """
[inspection]
deadline_s = 30.0
[batches]
native_poll_s = 0.05
"""
CARD, AADHAAR = card(13), aadhaar(13)
FOURS = [CARD[at : at + 4] for at in range(0, 16, 4)]
CODED = base64.b64encode(f"card {CARD}".encode()).decode()
PACKED = base64.b64encode(gzip.compress(f"card {CARD}".encode())).decode()
DISGUISES = [
    CARD,
    "\n".join(FOURS),
    "\u200b".join(CARD),
    "".join(chr(ord("\uff10") + int(digit)) for digit in CARD),
    CODED,
    PACKED,
    CARD.encode().hex(),
    "".join(f"\\u00{ord(digit):02x}" for digit in CARD),
    f"Aadhaar {AADHAAR}",
]


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, collectors: Collectors
) -> AsyncIterator[RunningGateway]:
    more = MORE + collectors.settings
    async with RunningGateway(
        tmp_path, sqlite_url, own_upstreams, more=more, managed=NATIVE
    ) as running:
        yield running


def everything_outside(upstreams: Upstreams) -> bytes:
    """Every byte of every request that a managed upstream got, files and batches too."""
    sent = [
        (call.path, call.headers, call.body) for each in upstreams.managed for call in each.calls
    ]
    return repr(sent).encode()


def question(text: object, **fields: object) -> dict[str, Any]:
    return {"model": GPT_TARGET, "messages": [{"role": "user", "content": text}], **fields}


def harmless(upstreams: Upstreams) -> int:
    return everything_outside(upstreams).count(b"a harmless neighbour")


async def test_disguised_lines_stay_while_their_neighbours_leave(
    gateway: RunningGateway, own_upstreams: Upstreams, collectors: Collectors
) -> None:
    key = await gateway.issue_key()
    lines = [line(f"d-{at}", **question(text)) for at, text in enumerate(DISGUISES)]
    lines.append(line("name", **question("Hello", **{CARD: 1})))
    lines.append(line("user", **question("Hello", user=f"cc{CARD}")))
    lines.append(line(CARD, **question("a harmless neighbour")))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        batch = await ended(client, await make(client, lines, metadata={"card": CARD}))
        found = await results(client, batch.output_file_id)

    assert batch.status == "completed"
    assert len(found) == len(lines)
    targets = {name: wire["gatewright"]["target"] for name, wire in found.items()}
    assert targets.pop(CARD) == GPT_TARGET
    assert set(targets.values()) == {"house-model"}
    outside = everything_outside(own_upstreams)
    assert harmless(own_upstreams) == 1
    # Nor as the name of a line or of a batch: vendors get names of ours.
    assert not any(each.encode() in outside for each in (CARD, CODED, PACKED, AADHAAR))
    records = msgspec.json.encode(await gateway.records())
    assert CARD.encode() not in records
    while collectors.syslog.count(b"outcome") < len(lines):
        await asyncio.sleep(0.01)
    assert CARD.encode() not in bytes(collectors.syslog)


async def test_messages_in_disguise_stay_as_well(
    gateway: RunningGateway, own_upstreams: Upstreams
) -> None:
    key = await gateway.issue_key()
    texts = [*DISGUISES, "a harmless neighbour"]
    requests: list[Any] = [
        {
            "custom_id": f"m-{at}",
            "params": {
                "model": CLAUDE_TARGET,
                "max_tokens": 20,
                "messages": [{"role": "user", "content": text}],
            },
        }
        for at, text in enumerate(texts)
    ]
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key) as client:
        batch = await client.messages.batches.create(requests=requests)
        while batch.processing_status != "ended":
            await asyncio.sleep(0.05)
            batch = await client.messages.batches.retrieve(batch.id)

    assert batch.request_counts.succeeded == len(texts)
    outside = everything_outside(own_upstreams)
    assert harmless(own_upstreams) == 1
    assert not any(each.encode() in outside for each in (CARD, CODED, PACKED, AADHAAR))


TWICE = (
    line("a", **question("Hello"))[:-1] + b',"body":' + msgspec.json.encode(question(CARD)) + b"}"
)
GOOD = line("good", **question("a harmless neighbour"))
FILES = {
    "a mark before the second line": [GOOD, b"\xef\xbb\xbf" + GOOD],
    "UTF-16": [GOOD.decode().encode("utf-16")],
    "two bodies in one line": [GOOD, TWICE],
    "an address": [GOOD, line("u", url="https://elsewhere.example/v1/chat/completions")],
    "another address of ours": [GOOD, line("u", url="/v1/files")],
    "a path that climbs": [GOOD, line("u", url="/v1/chat/completions/../../files")],
    "another method": [GOOD, line("u", method="DELETE")],
    "one name twice": [GOOD, GOOD],
    "no text": [GOOD, b'{"custom_id": "\xff"}'],
    "a NUL": [GOOD, GOOD.replace(b"harmless", b"harm\x00less")],
    "half a pair": [GOOD, GOOD.replace(b"good", b"other").replace(b"harmless", b"\\ud800")],
    "a list": [GOOD, b"[" + GOOD + b"]"],
}


async def test_a_file_with_one_line_of_two_meanings_sends_nothing(
    gateway: RunningGateway, own_upstreams: Upstreams
) -> None:
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        made = {name: await make(client, lines) for name, lines in FILES.items()}
        for name, batch in made.items():
            over = await ended(client, batch)
            assert over.status == "failed", name
            assert over.errors is not None
            assert CARD not in over.errors.model_dump_json(), name

    assert not any(upstream.calls for upstream in (own_upstreams.engine, *own_upstreams.managed))


async def test_ids_of_others_open_nothing_under_any_verb(
    gateway: RunningGateway, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    key = await gateway.issue_key()
    stranger = await gateway.issue_key(Place("rival", "research", "assistant"))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        batch = await ended(client, await make(client, [GOOD]))
    ids = [batch.input_file_id, batch.output_file_id]
    headers = {"authorization": f"Bearer {stranger}"}
    order = {"endpoint": CHAT, "completion_window": "24h"}
    asked: list[tuple[str, str, dict[str, Any] | None]] = [
        *(("GET", f"/v1/files/{each}", None) for each in ids),
        *(("GET", f"/v1/files/{each}/content", None) for each in ids),
        *(("DELETE", f"/v1/files/{each}", None) for each in ids),
        *(("POST", "/v1/batches", {**order, "input_file_id": each}) for each in ids),
        ("GET", f"/v1/batches/{batch.id}", None),
        ("POST", f"/v1/batches/{batch.id}/cancel", None),
    ]
    for method, path, body in asked:
        async with http.request(method, gateway.url + path, json=body, headers=headers) as reply:
            assert reply.status == 404, (method, path)
            assert b"harmless" not in await reply.read()
    for path in ("/v1/files", "/v1/batches", f"/v1/files?after={ids[0]}"):
        async with http.get(gateway.url + path, headers=headers) as reply:
            assert b"batch_" not in await reply.read()
