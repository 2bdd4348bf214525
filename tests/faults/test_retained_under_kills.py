"""SIGKILL while a process carries out retention: its next start completes it.

Content under a hold, and content within its retention period, stays readable all the while.
"""

import asyncio
import os

import aiohttp
import pytest

from gateway.audit.content_keys.erasure import matching_keys
from gateway.audit.content_keys.keys import KEYS_NAME
from gateway.audit.content_keys.overwriting import left_over
from gateway.identity import Peppers
from gateway.money.budgets import end_user_subject
from gateway.secrets.credentials import pepper
from gateway.store.retention.words import WORDS_NAME
from tests.faults.machines import GONE, said
from tests.faults.restoring import types
from tests.faults.served import KILLED, Served
from tests.faults.test_retained_in_two_folders import (
    DAILY,
    Machines,
    machines,
    retired,
    said_long_ago,
    signed,
    signed_lately,
    talk,
)
from tests.running_gateway import RunningGateway


__all__ = ["machines"]
pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(300)]
STEPS = {
    "recorded": "killed('gateway.store.retention.retaining:destroy')",
    "listed": "killed('gateway.audit.content_keys.erasure:_rewrite')",
    "replaced": "killed('gateway.audit.content_keys.overwriting:_overwrite')",
    "destroyed": "killed('gateway.store.retention.retaining:destroy', after=True)",
}
EVERY_STEP = "GATEWRIGHT_FAULT_EVERY_STEP" in os.environ
TRIED = list(STEPS) if EVERY_STEP else ["replaced"]


def subject_of(gateway: RunningGateway, user: str) -> str:
    peppers = Peppers({gateway.settings.secrets.pepper_version: pepper(gateway.settings)})
    return end_user_subject("acme", user, peppers.keyed)


def left(gateway: RunningGateway) -> int:
    return len(matching_keys(gateway.audit_folder, "acme", None))


@pytest.mark.parametrize("what", ["serve", "admin serve"])
@pytest.mark.parametrize("step", TRIED)
async def test_who_is_killed_while_keys_go_is_followed_by_who_completes_it(
    machines: Machines, http: aiohttp.ClientSession, step: str, what: str
) -> None:
    async with machines.made("one", "") as one:
        await talk(one, http)
        await said_long_ago(one)
        await said_long_ago(one, "bob", subject_of(one, "bob"))
        await types(
            *(one, "audit", "hold", "set", "--organisation", "acme"),
            *("--user", "bob", "--reason", "a lawsuit"),
        )
        await signed(one)
        await signed_lately(one)
        assert left(one) == 3
    one.config_file.write_text(one.config_file.read_text() + DAILY)
    # Its worker kept all for ever; an admin listener alone would go by that for two days (0078).
    (one.audit_folder / WORDS_NAME).unlink(missing_ok=True)
    served = Served(one, what=what)
    await served.start(KILLED + STEPS[step])
    async with asyncio.timeout(60):
        await served.dies()
    async with served.running(), asyncio.timeout(60):
        files = [each / KEYS_NAME for each in one.audit_folder.iterdir() if each.is_dir()]
        while left(one) > 2 or any(map(left_over, files)):
            await asyncio.sleep(0.1)
        told = await said(one)
    assert sorted(told).count(GONE) == 1
    assert sum("the heron nests" in each for each in told) == 1
    assert told.count("what bob said long ago") == 1
    assert {actor for actor, *_ in await retired(one)} == {"gateway"}
    assert await types(one, "audit", "verify")
