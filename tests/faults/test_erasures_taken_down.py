"""The schema goes down to a version in which erasures reached one folder, and up again."""

import json

import aiohttp
import pytest

from gateway.cli.audit.erasing import opened_erasures
from gateway.store.erasure.certificates import certified
from tests.faults.machines import Machines, agreed, completed, keys_of, stands, talk
from tests.faults.restoring import types
from tests.running_gateway import RunningGateway


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(300)]
BEFORE = "0072"


async def asked(gateway: RunningGateway) -> str:
    """A case that waits for a second person; its id."""
    more = ("--organisation", "acme", "--user", "cid", "--ticket", "T-8", "--yes")
    return (await types(gateway, "audit", "erase", *more)).split()[-1]


async def withdrawn(gateway: RunningGateway) -> str:
    case_id = await asked(gateway)
    async with opened_erasures(gateway.settings) as erasures:
        await erasures.cases.withdraw("os:anton", await erasures.cases.found(case_id))
    return case_id


@pytest.mark.long
async def test_cases_go_on_and_count_nothing_twice_after_a_schema_went_down_and_up(
    machine: Machines, http: aiohttp.ClientSession
) -> None:
    async with machine("one") as one:
        async with machine("two") as two:
            await talk(one, http)
            await talk(two, http)
            reached = await agreed(one, "--user", "ann")
            await completed(one, reached)
        left = await agreed(one, "--user", "bob")
        others = {"open": await asked(one), "withdrawn": await withdrawn(one)}
    case, reach = await stands(one, left)
    before = json.loads(certified(case, reach))
    assert (case.keys, before["complete"], keys_of(two)) == (1, False, 1)

    await types(one, "database", "migrate", "--revision", BEFORE)
    await types(one, "database", "migrate")
    case, reach = await stands(one, left)
    assert [each.why for each in reach.outstanding] == ["unknown"]
    async with machine("one") as one, machine("two"):
        told = await completed(one, left)
        await completed(one, reached)
    assert keys_of(two) == 0
    assert told["records"] == 2 * before["records"] > 0
    assert len(told["keys_destroyed"]) == 2
    assert [(await stands(one, each))[0].keys for each in (left, reached)] == [2, 2]
    async with opened_erasures(one.settings) as erasures:
        states = {state: await erasures.cases.found(each) for state, each in others.items()}
    assert {state: each.state for state, each in states.items()} == {each: each for each in others}
    assert [each.is_asked for each in states.values()] == [True, False]
