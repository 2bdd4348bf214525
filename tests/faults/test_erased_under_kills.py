"""SIGKILL at each step of an erasure that reaches a second machine: the next start completes it.

Two of the steps, each on one of two databases; `make faults` tries all of them on both.
"""

import asyncio
import os
import signal
import sys

import aiohttp
import pytest

from gateway.audit.content_keys.keys import KEYS_NAME
from gateway.audit.content_keys.overwriting import left_over
from gateway.cli.audit.erasing import opened_erasures
from gateway.store.erasure import cases
from tests.faults.machines import Machines, agreed, completed, keys_of, stands, talk
from tests.faults.restoring import types
from tests.faults.served import KILLED, Served


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(300)]
ERASURE, PUTTING = "gateway.audit.content_keys.erasure", "gateway.audit.content_keys.overwriting"
REPORTS = "gateway.store.erasure.folder_reports:FolderReports"
OF_KEYS = "only=lambda disk, path, *_: str(path).endswith('keys.{}')"
STEPS = {
    "claimed": f"killed('{REPORTS}.may_go')",
    "recorded": "killed('gateway.store.erasure.folder_erasures:destroy_ids')",
    "listed": f"killed('{ERASURE}:_remove', only=lambda folder, ids, *_: bool(ids))",
    "drafted": f"killed('{PUTTING}:_give_second_name')",
    "named": f"killed('gateway.audit.disk:Disk.replace', {OF_KEYS.format('draft')})",
    "replaced": f"killed('{PUTTING}:_overwrite')",
    "overwritten": f"killed('gateway.audit.disk:Disk.remove', {OF_KEYS.format('spent')})",
    "destroyed": "killed('gateway.store.erasure.folder_erasures:destroy_ids', after=True)",
    "checked": f"killed('{REPORTS}.done')",
    "reported": f"killed('{REPORTS}.done', after=True)",
}


EVERY_STEP = "GATEWRIGHT_FAULT_EVERY_STEP" in os.environ
TRIED = list(STEPS) if EVERY_STEP else ["replaced", "destroyed"]


@pytest.mark.parametrize("step", TRIED)
async def test_a_worker_that_is_killed_at_a_step_completes_it_after_its_next_start(
    machine: Machines, http: aiohttp.ClientSession, step: str
) -> None:
    async with machine("one") as one, machine("two") as two:
        await talk(one, http)
        await talk(two, http)
    served = Served(two)
    async with served.running(KILLED + STEPS[step]):
        case_id = await agreed(one, "--user", "ann")
        await served.dies()
    _, reach = await stands(one, case_id)
    is_there = keys_of(two) == 2 or bool(left_over(two.audit_folder / "two" / KEYS_NAME))
    assert not (reach.is_complete and is_there)
    async with served.running():
        told = await completed(one, case_id)
        assert keys_of(two) == 1
        assert not left_over(two.audit_folder / "two" / KEYS_NAME)
    assert len(told["keys_destroyed"]) == 2


APPROVES = """
import asyncio, pathlib, sys
from gateway.cli.audit.erasing import opened_erasures
from gateway.configuration.reading import load_settings
async def approves():
    async with opened_erasures(load_settings(pathlib.Path(sys.argv[1]))) as erasures:
        case = await erasures.cases.found(sys.argv[2])
        await erasures.approve("os:anton", case, "as the ticket says")
asyncio.run(approves())
"""
ERASURE = "gateway.store.erasure"
APPROVALS = {
    "noted": f"killed('{ERASURE}.attempts:ErasureAttempts.note', after=True)",
    "gone": f"killed('{ERASURE}.erasing:destroy', after=True)",
    "closed": f"killed('{ERASURE}.cases:ErasureCases.close', after=True)",
}
APPROVED = list(APPROVALS) if EVERY_STEP else ["gone", "closed"]


@pytest.mark.long
@pytest.mark.parametrize("step", APPROVED)
async def test_an_agreement_that_is_killed_is_carried_on_and_certifies_both_halves(
    machine: Machines, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with machine("one") as one, machine("two") as two:
        await talk(one, http)
        await talk(two, http)
        more = ("--organisation", "acme", "--user", "ann", "--ticket", "T-7", "--yes")
        case_id = (await types(one, "audit", "erase", *more)).split()[-1]
        approving = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", f"{KILLED}{APPROVALS[step]}\n{APPROVES}"),
            *(str(one.config_file), case_id),
        )
        assert await approving.wait() == -signal.SIGKILL
        if step != "closed":
            monkeypatch.setattr(cases, "CLAIM_US", 0)
            async with opened_erasures(one.settings) as erasures:
                case = await erasures.cases.found(case_id)
                assert (case.state, len(await erasures.cases.attempts.of(case_id))) == ("open", 1)
                assert keys_of(two) == 2, "nobody has agreed to its end"
                await erasures.approve("os:anton", case, "once more")
        told = await completed(one, case_id)
        assert (keys_of(one), keys_of(two)) == (1, 1)
    assert len(told["keys_destroyed"]) == 2
