"""A vendor with odd results of every kind: every line ends once, and so does its batch.

All of them are in one file of results, so that one odd line costs no other.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.conformance.test_batches import ended, make
from tests.faults.test_native_batches import (
    all_results,
    asking,
    outcomes,
    running,
    speaking,
)
from tests.running_gateway import Upstreams
from tests.vendor_batches import VendorBatches


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(240)]

HUGE = 10**30
ABYSS = b"[" * 5000 + b"]" * 5000
Wire = dict[str, Any]


def answered(**changed: Any) -> Callable[[Wire], bytes]:
    """The result with something else in its response."""

    def result(wire: Wire) -> bytes:
        return encoded(wire | {"response": wire["response"] | changed})

    return result


def counted(tokens: object) -> Callable[[Wire], bytes]:
    def result(wire: Wire) -> bytes:
        body = wire["response"]["body"] | {
            "usage": {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": tokens}
        }
        return answered(body=body)(wire)

    return result


def encoded(wire: Wire) -> bytes:
    """As JSON, whose numbers may be as long as they like."""
    huge = b'"HUGE"'
    return msgspec.json.encode(wire).replace(huge, str(HUGE).encode())


ODD: Mapping[str, Callable[[Wire], bytes]] = {
    "as it should be": encoded,
    "a status that no number holds": answered(status_code="HUGE"),
    "a negative status": answered(status_code=-1),
    "no status": answered(status_code=0),
    "a status of none": answered(status_code=799),
    "a status elsewhere": answered(status_code=302),
    "a status as text": answered(status_code="200"),
    "a vendor's own key refused": answered(status_code=401, body={"error": {"message": "m"}}),
    "nothing for an answer": answered(body=None),
    "a text for an answer": answered(body="Hello"),
    "an empty answer": answered(body={}),
    "more tokens than any number holds": counted("HUGE"),
    "more tokens than there are": counted(2**62),
    "fewer tokens than none": counted(-5),
    "tokens as text": counted("5"),
    "an abyss": lambda wire: encoded(wire | {"response": "DEEP"}).replace(b'"DEEP"', ABYSS),
    "a request id that is none": answered(request_id={"a": ["x" * 9000]}),
    "no JSON": lambda wire: b"{" + encoded(wire),
    "no UTF-8": lambda wire: encoded(wire).replace(b"Hello", b"\xff\xfe"),
    "nothing at all": lambda _: b"",
    "another name": lambda wire: encoded(wire | {"custom_id": "gwp-other-1"}),
    "a name that is none": lambda wire: encoded(wire | {"custom_id": "\u0661" * 40}),
    "twice": lambda wire: encoded(wire) + b"\n" + answered(status_code=400)(wire),
    "its name again with zeros": lambda wire: (
        encoded(wire | {"custom_id": wire["custom_id"].replace("-", "-00")}) + b"\n" + encoded(wire)
    ),
    "a refusal and an answer": answered(status_code=400, body={"choices": [], "error": None}),
}


@pytest.fixture
async def upstreams(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Upstreams]:
    download = VendorBatches._download

    def odd(self: VendorBatches, content: bytes) -> Any:
        """In the order of the lines, each by its number."""
        ways = list(ODD.values())
        told = []
        for raw in content.splitlines():
            wire = msgspec.json.decode(raw)
            number = int(wire["custom_id"].rpartition("-")[2])
            told.append(ways[number - 1](wire))
        return download(self, b"\n".join(told) + b"\n")

    monkeypatch.setattr(VendorBatches, "_download", odd)
    async with Upstreams() as upstreams:
        yield upstreams


async def test_every_line_ends_once_whatever_its_vendor_said_of_the_others(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    async with running(tmp_path, database_url, upstreams) as (gateway, key):
        async with speaking(gateway.url, key) as client, asyncio.timeout(120):
            batch = await ended(client, await make(client, asking(len(ODD))))
            found = await all_results(client, batch)
        records = await gateway.records()
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.total == len(ODD)
    assert found.keys() == {f"q-{at}" for at in range(1, len(ODD) + 1)}
    refused = {"a refusal and an answer"}
    told = {name: found[f"q-{at}"]["response"] for at, name in enumerate(ODD, 1)}
    assert {name for name, each in told.items() if each["status_code"] != 200} == refused
    ends = outcomes([each for each in records if each.stage != "admin"])
    assert {each["request_id"] for name, each in told.items() if name not in refused} == {
        each.request_id for each in ends if each.status == "ok"
    }
    # What cannot be is not paid for: no line costs more than what was set aside for it.
    begun = {each.request_id: each for each in records if each.stage == "intent"}
    assert all(each.cost_microusd <= begun[each.request_id].reserved_microusd for each in ends)
    said = {attempt.status for each in ends for attempt in each.attempts}
    assert said <= {0, 200, 400, 401}, "0 is for a vendor that did not come to a line"
