"""Two machines on one database, each with an audit folder: an erasure reaches both by itself."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.app import DataPlane
from gateway.audit.content_keys.erasure import destroy_ids
from gateway.audit.folder_mark import MARK_NAME
from gateway.cli.audit.custody import opened_custody
from gateway.clock import SystemClock
from gateway.errors import StartupRefused
from gateway.store.engine import open_database
from gateway.store.erasure import folder_erasures
from gateway.store.erasure.folder_reports import FolderReports
from gateway.store.evidence import retiring
from gateway.store.evidence.sink import DatabaseAuditSink
from tests.faults.machines import (
    GONE,
    WORDS,
    Machines,
    agreed,
    completed,
    counted,
    keys_of,
    machine_tends,
    said,
    stands,
    talk,
)
from tests.faults.restoring import types
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(300)]


async def test_agreed_to_beside_one_machine_it_is_gone_from_both_and_certified_of_both(
    machine: Machines, http: aiohttp.ClientSession
) -> None:
    async with machine("one") as one:
        async with machine("two") as two:
            await talk(one, http)
            await talk(two, http)
            case_id = await agreed(one, "--user", "ann")
            told = await completed(one, case_id)
            assert (keys_of(one), keys_of(two)) == (1, 1), "bob's"
            deeds = [each for each in await two.records() if each.action == "content.erased"]
            shown = await types(one, "audit", "erasure", "show", case_id)
        assert counted(await said(one), GONE) == counted(await said(two), GONE) == 1
        for each in (one, two):
            lines = await said(each)
            assert (counted(lines, WORDS["ann"]), counted(lines, WORDS["bob"])) == (0, 1)
    assert [(each.actor, each.detail["case"]) for each in deeds] == [("gateway", case_id)]
    assert json.loads(shown) == told
    assert (told["complete"], told["folders_outstanding"], told["workers_elsewhere"]) == (
        True,
        [],
        [],
    )
    assert sorted(name for each in told["folders"] for name in each["workers"]) == [
        *("one", "one-operators", "two")
    ]
    assert len(told["keys_destroyed"]) == 2
    assert told["records"] == told["contents_unreadable"] == told["proofs_hold"]


async def test_a_folder_that_was_away_does_it_before_anything_is_read_there(
    machine: Machines, http: aiohttp.ClientSession
) -> None:
    async with machine("one") as one:
        async with machine("two") as two:
            await talk(two, http)
        case_id = await agreed(one, "--user", "ann")
        _, reach = await stands(one, case_id)
        assert [(each.workers, each.why) for each in reach.outstanding] == [(("two",), "unheard")]
        assert counted(await said(two), WORDS["ann"]) == 1, "its disk was away"
        # What a command there shows it shows only after its folder's part was done.
        reveal = ("--organisation", "acme", "--reason", "w", "--ticket", "t")
        asked = (await types(two, "audit", "reveal", "ask", *reveal)).split()[-1]
        async with opened_custody(two.settings) as (custody, _):
            await custody.approve_reveal("os:anton", asked)
        read = await types(two, "audit", "reveal", "show", asked)
        assert (WORDS["ann"] in read, WORDS["bob"] in read) == (False, True)
        told = await completed(one, case_id)
        again = machine("two")
        async with again:
            assert keys_of(again) == 1
    assert told["complete"]


async def test_a_worker_that_starts_has_done_it_before_it_serves(
    machine: Machines, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine("one") as one:
        async with machine("two") as two:
            await talk(two, http)
        case_id = await agreed(one)
        with monkeypatch.context() as patched:

            def fails(*_: object) -> None:
                raise OSError("broken on purpose")

            patched.setattr(folder_erasures, "destroy_ids", fails)
            plane = DataPlane(two.settings)
            with pytest.raises(StartupRefused, match="an erasure cannot be carried out"):
                await plane.start()
            await plane.close()
        assert keys_of(two) == 2
        async with machine("two") as third:
            assert keys_of(third) == 0
        told = await completed(one, case_id)
    assert len(told["keys_destroyed"]) == 2


@pytest.mark.long
@pytest.mark.parametrize("is_destroyed", [False, True])
async def test_a_crash_between_destroying_and_saying_so_is_made_good(
    machine: Machines,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    is_destroyed: bool,
) -> None:
    class Killed(BaseException):
        pass

    async with machine("one") as one:
        async with machine("two") as two:
            await talk(two, http)
        case_id = await agreed(one, "--user", "ann")
        destroy = destroy_ids

        def killed(*given: Any) -> None:
            if is_destroyed:
                destroy(*given)
            raise Killed

        async def nothing(*_: object) -> None:
            """A killed process releases nothing."""

        with monkeypatch.context() as patched:
            patched.setattr(folder_erasures, "destroy_ids", killed)
            patched.setattr(FolderReports, "release", nothing)
            with pytest.raises(Killed):
                await machine_tends(two)
        _, reach = await stands(one, case_id)
        assert [each.why for each in reach.outstanding] == ["begun"]
        await machine_tends(two)
        told = await completed(one, case_id)
    assert keys_of(two) == 1
    assert len(told["keys_destroyed"]) == 1, "also where the second try found none"


async def test_a_hold_that_is_set_meanwhile_binds_in_the_folder_that_was_away(
    machine: Machines, http: aiohttp.ClientSession
) -> None:
    async with machine("one") as one:
        async with machine("two") as two:
            await talk(one, http)
            await talk(two, http)
        case_id = await agreed(one, "--user", "ann")
        async with opened_custody(one.settings) as (custody, _):
            hold = await custody.set_hold("os:ann", "acme", "", "a court order")
        async with machine("two") as again:
            assert keys_of(again) == 2
            _, reach = await stands(one, case_id)
            assert [(each.why, each.hold) for each in reach.outstanding] == [("held", hold.id)]
            assert "Hold" in reach.outstanding[0].said
            async with opened_custody(one.settings) as (custody, _):
                await custody.release_hold("os:ann", hold.id)
                await custody.release_hold("os:bob", hold.id)
            told = await completed(one, case_id)
            assert keys_of(again) == 1
    assert told["complete"]


async def test_workers_that_share_a_folder_report_once(
    machine: Machines, http: aiohttp.ClientSession, tmp_path: Path, own_upstreams: Upstreams
) -> None:
    one = machine("one")
    async with one, machine("two") as two:
        url = two.settings.database_url
        beside = RunningGateway(two.folder, url, own_upstreams, worker="three")
        async with beside:
            await talk(two, http)
            await talk(beside, http)
            case_id = await agreed(one, "--user", "ann")
            told = await completed(one, case_id)
            assert keys_of(two) == 2, "bob's of each"
            deeds = [each for each in await two.records() if each.action == "content.erased"]
    (theirs,) = [each for each in told["folders"] if "two" in each["workers"]]
    assert set(theirs["workers"]) >= {"two", "three"}
    assert len(theirs["keys_destroyed"]) == 2
    assert len(deeds) == 1


async def test_content_whose_key_lies_elsewhere_is_not_called_destroyed(
    machine: Machines, http: aiohttp.ClientSession
) -> None:
    async with machine("one") as one, machine("two") as two:
        await talk(two, http)
        await two.does(two.plane._integration.project())
        lines = await said(one)
    if "postgresql" in one.settings.database_url:
        where = "read it where worker two has its folder"
        assert set(lines) == {f"the content's key lies in another audit folder: {where}"}
    assert counted(lines, GONE) == 0


async def test_a_lost_disk_of_a_worker_that_lives_on_is_given_up_with_its_former_name(
    machine: Machines,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    own_upstreams: Upstreams,
) -> None:
    async with machine("one") as one:
        async with machine("two") as two:
            await talk(two, http)
            await two.does(two.plane._integration.project())
        # As after a disk whose segments were copied, or put back, without it.
        (two.audit_folder / MARK_NAME).unlink()
        database = open_database(one.settings.database_url, pooled=False)
        async with machine("two"):
            case_id = await agreed(one, "--user", "ann")
            while [each.why for each in (await stands(one, case_id))[1].outstanding] != ["unheard"]:
                await asyncio.sleep(0.05)
        other = RunningGateway(two.folder, one.settings.database_url, own_upstreams, worker="other")
        async with other:
            monkeypatch.setattr(retiring, "GONE_AFTER_S", 0)
            clock = SystemClock()
            retires = retiring.Retiring(database, DatabaseAuditSink(database), clock)
            standing = await retires.standing("two")
            await retires.retire("two", standing, "os:ann", "its disk burnt")
            await machine_tends(one)
            told = await completed(one, case_id)
        await database.close()
    (given_up,) = told["folders_outstanding"]
    assert (given_up["workers"], given_up["why"]) == (["two"], "retired")
    assert (told["workers_elsewhere"], told["all_looked_at"]) == (["two"], False)
