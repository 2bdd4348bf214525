"""An erased person's words are gone from disk, database, its write-ahead log and old backups.

Every proof about the records still holds: proofs cover ciphertext.
"""

import json
import shutil
from pathlib import Path

import aiohttp
import pytest

from gateway.audit.disk import Disk
from tests.faults.envelopes import Caller, ask
from tests.faults.machines import GONE, WORDS, said
from tests.faults.restoring import Store, erased_by_two, types
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


class BrokenDisk(Disk):
    def sync(self, descriptor: int) -> None:
        raise OSError("broken on purpose")


async def talk(gateway: RunningGateway, http: aiohttp.ClientSession, store: Store) -> list[str]:
    """What both say, first onto the disk and then, while that fails, into the database."""
    caller = Caller(gateway, http, await gateway.issue_key())
    receipts = []
    for disk in (Disk(), BrokenDisk()) if gateway.plane._evidence._second else (Disk(),):
        gateway.plane._audit._device._disk = disk
        for user, words in WORDS.items():
            messages = [{"role": "user", "content": words}]
            body = ask("openai", model=CLAUDE_TARGET, messages=messages, user=user)
            reply = await caller.post("openai", body)
            assert reply.status == 200
            receipts.append(reply.headers["x-gatewright-receipt"])
    return receipts


async def shown(gateway: RunningGateway) -> str:
    return "\n".join(await said(gateway))


async def test_an_erased_persons_words_are_gone_for_good_and_every_proof_holds(
    store: Store, tmp_path: Path, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    gateway = RunningGateway(tmp_path, store.url, own_upstreams)
    async with gateway:
        receipts = await talk(gateway, http, store)
    rounds = len(receipts) // len(WORDS)
    before = await shown(gateway)
    assert before.count(WORDS["ann"]) == before.count(WORDS["bob"]) == rounds
    prove = ("audit", "prove", "--receipt")
    proofs = {each: await types(gateway, *prove, each) for each in (receipts[0], receipts[-1])}
    store.back_up()
    shutil.copytree(gateway.audit_folder, tmp_path / "old-audit")

    ann = ("--organisation", "acme", "--user", "ann", "--ticket", "T-7")
    assert await erased_by_two(gateway, *ann) > 0
    after = await shown(gateway)
    assert (after.count(GONE), after.count(WORDS["ann"])) == (rounds, 0)
    assert after.count(WORDS["bob"]) == rounds
    await types(gateway, "audit", "verify")
    await types(gateway, "audit", "fsck")
    for receipt, proof in proofs.items():
        again = json.loads(await types(gateway, *prove, receipt))
        assert again["record"] == json.loads(proof)["record"]
    held = [path for path in store.files() if WORDS["ann"].encode() in path.read_bytes()]
    assert held == []

    # The list of erased keys lies elsewhere, where no backup brings back an older state.
    store.restore()
    shutil.rmtree(gateway.audit_folder)
    (tmp_path / "old-audit").rename(gateway.audit_folder)
    assert WORDS["ann"] in await shown(gateway)
    restored = RunningGateway(tmp_path, store.url, own_upstreams)
    async with restored:
        pass
    after = await shown(restored)
    assert (after.count(GONE), after.count(WORDS["ann"])) == (rounds, 0)
    await types(restored, "audit", "fsck")
