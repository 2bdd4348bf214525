"""A worker is killed at each step of a batch of sixty lines, and completes it after a restart.

Each line has one answer, each request one outcome, and the vendor has each line once, except if the
worker is killed while an answer that it cannot request again is on its way.
"""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from gateway.configuration.reading import load_settings
from gateway.types import AuditRecord
from tests.conformance.test_batches import ended, make
from tests.faults.served import KILLED
from tests.faults.test_killed_while_parked import HASTY, Books
from tests.faults.test_kills import configured, issued, serving
from tests.faults.test_native_batches import (
    MORE,
    NATIVE,
    all_results,
    asking,
    live_calls,
    outcomes,
    records_in,
    speaking,
)
from tests.free_ports import free_port
from tests.running_gateway import Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(300)]

LINES = 60
STORE = "gateway.store.batching"
NTH = "only=lambda *_, left=iter(range(999)), **__: next(left) == {}"
STEPS = {
    "before its lines are taken in": f"killed('{STORE}.lines:LineStore.add')",
    "its lines are taken in": f"killed('{STORE}.lines:LineStore.add', after=True)",
    "it has begun": f"killed('{STORE}.batches:BatchStore.begin', after=True)",
    "claimed": f"killed('{STORE}.lines:LineStore.claim', after=True)",
    "parking": f"killed('{STORE}.parked_lines:ParkedLineStore.park', {NTH.format(30)})",
    "parked": (
        f"killed('{STORE}.parked_lines:ParkedLineStore.park', after=True, {NTH.format(30)})"
    ),
    "in a parcel": f"killed('{STORE}.parcels:ParcelStore.make', after=True)",
    "about to be sent": f"killed('{STORE}.parcels:ParcelStore.begin_sending', after=True)",
    "uploaded": ("killed('gateway.providers.parcels.post:ParcelPost.hand_over', after=True)"),
    "sent": "killed('gateway.providers.parcels.openai:OpenAIParcels.submit', after=True)",
    "ending": (
        f"killed('{STORE}.parked_lines:ParkedLineStore.begin_ending', after=True, {NTH.format(1)})"
    ),
    "outcomes written": f"killed('{STORE}.parked_lines:ParkedLineStore.end', {NTH.format(1)})",
    "some have ended": (
        f"killed('{STORE}.parked_lines:ParkedLineStore.end', after=True, {NTH.format(1)})"
    ),
    "all have ended": f"killed('{STORE}.batches:BatchStore.wind_up')",
    "named": f"killed('{STORE}.batches:BatchStore.name_files', after=True)",
    "written": f"killed('{STORE}.files:FileWriter.finish', after=True, {NTH.format(1)})",
    "over": f"killed('{STORE}.batches:BatchStore.end', after=True)",
}
EVERY_STEP = "GATEWRIGHT_FAULT_EVERY_STEP" in os.environ
TRIED = list(STEPS) if EVERY_STEP else ["parking", "uploaded", "outcomes written", "written"]


@pytest.mark.parametrize("step", TRIED)
async def test_its_next_life_ends_each_line_once_and_all_of_it(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams, step: str
) -> None:
    port = free_port()
    more = MORE.partition("30.0")[2]
    config = await configured(
        tmp_path, database_url, own_upstreams, port, more=more, managed=NATIVE
    )
    settings = load_settings(config)
    key, url, books = await issued(settings), f"http://127.0.0.1:{port}", Books(settings)
    await books.limit()
    async with (
        serving(config, url, f"{HASTY}{KILLED}{STEPS[step]}") as process,
        speaking(url, key) as client,
    ):
        batch = await make(client, asking(LINES))
        assert await asyncio.wait_for(process.wait(), 120) == -signal.SIGKILL
    async with serving(config, url, HASTY), speaking(url, key) as client:
        async with asyncio.timeout(120):
            batch = await ended(client, await client.batches.retrieve(batch.id))
        found = await all_results(client, batch)
        records = await until_all_ended(settings.path(settings.audit.directory))
        total = await until_settled(books)
    await books.database.close()

    assert batch.status == "completed"
    assert list(found) == [f"q-{at}" for at in range(1, LINES + 1)]
    assert {wire["response"]["status_code"] for wire in found.values()} == {200}
    vendor = own_upstreams.openai.batches
    assert live_calls(own_upstreams) == []
    times = Counter(line["body"]["messages"][0]["content"] for line in vendor.lines)
    assert len(times) == LINES
    assert set(times.values()) == {1}
    ends = {each.request_id: each for each in outcomes(records)}
    answered = [ends[wire["response"]["request_id"]] for wire in found.values()]
    assert len({each.request_id for each in answered}) == LINES
    assert {each.status for each in answered} == {"ok"}
    # What was held at the moment of the kill may count as spent; nothing is spent unseen.
    assert total >= sum(each.cost_microusd for each in ends.values()) > 0


async def until_all_ended(folder: Path) -> list[AuditRecord]:
    """Also intents of lines that were cut off before they were parked: by what is on record."""
    async with asyncio.timeout(60):
        while True:
            records = await records_in(folder)
            begun = {each.request_id for each in records if each.stage == "intent"}
            if begun <= {each.request_id for each in records if each.stage == "outcome"}:
                return records
            await asyncio.sleep(0.2)


async def until_settled(books: Books) -> int:
    """What one account has spent once nothing is set aside any more."""
    async with asyncio.timeout(60):
        while True:
            found = await books.budgets()
            if {each.leased_microusd for each in found.values()} == {0}:
                spent = {each.spent_microusd for each in found.values()}
                if await books.parked() == (0, 0) and len(spent) == 1:
                    return spent.pop()
            await asyncio.sleep(0.1)
