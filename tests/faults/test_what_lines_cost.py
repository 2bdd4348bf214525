"""The cost of a line that a vendor's own batch API answered, or did not, whatever it reports."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.money.bills import Bill
from gateway.passage import NATIVE
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.types import AuditRecord, Usage
from tests.conformance.test_batches import ended, make
from tests.faults.test_native_batches import asking, outcomes, running, speaking
from tests.running_gateway import GPT_TARGET, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
LIMIT = 10**9
NOTHING = (2, 3, 4, 5)
"""Refused, refused because the vendor was overloaded, never sent, and in no result."""
UNCOUNTED, UNREADABLE = 6, 7


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        yield upstreams


def odd(upstreams: Upstreams) -> None:
    """Two lines' answers are not as they should be."""
    vendor = upstreams.openai.batches
    answer = vendor._answer

    def odd_answer(path: str, body: dict[str, object]) -> dict[str, object]:
        tree = answer(path, body)
        if f"mark {UNCOUNTED}'" in str(body):
            del tree["usage"]
        if f"mark {UNREADABLE}'" in str(body):
            del tree["choices"]
        return tree

    vendor._answer = odd_answer
    refused, overloaded, unsent, lost = (frozenset({number}) for number in NOTHING)
    vendor.faults = ParcelFaults(refused=refused, overloaded=overloaded, unsent=unsent, lost=lost)


async def test_each_line_costs_what_its_vendor_counted_and_the_budget_says_so(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> None:
    odd(upstreams)
    async with running(tmp_path, sqlite_url, upstreams) as (gateway, key):
        await gateway.limit("org:acme", LIMIT)
        async with speaking(gateway.url, key) as client:
            await ended(client, await make(client, asking(7)))
        found = outcomes(await gateway.records())
        total = sum(each.cost_microusd for each in found)
        async with asyncio.timeout(20):
            while gateway.budget_left(("org:acme",)) != LIMIT - total:
                await asyncio.sleep(0.01)
        target = gateway.plane.snapshots.current().board.targets[GPT_TARGET]
    exact = Bill(target, Usage(11, 7, service_tier="batch")).cost_microusd
    for each in found:
        assert each.cost_microusd == sum(attempt.cost_microusd for attempt in each.attempts)
    native = {int(each.detail["line"]): each for each in found if each.detail.get("path") == NATIVE}
    assert sorted(native) == list(range(1, 8))
    assert native[1].cost_microusd == exact
    assert {number: native[number].cost_microusd for number in NOTHING} == dict.fromkeys(NOTHING, 0)
    for number in (UNCOUNTED, UNREADABLE):
        check_estimated(native[number])
    assert (native[UNCOUNTED].status, native[UNREADABLE].status) == ("ok", "failed")


def check_estimated(outcome: AuditRecord) -> None:
    (attempt,) = outcome.attempts
    assert attempt.estimated
    assert attempt.cost_microusd == outcome.cost_microusd > 0
