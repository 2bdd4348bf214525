"""An erased person's words are gone from disk, database, its write-ahead log and old backups.

And every proof of what was recorded holds as before: it covers ciphertext.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from gateway.audit.disk import Disk
from gateway.audit.projecting.export import export_records
from gateway.secrets.credentials import master_key
from gateway.store.engine import open_database
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from tests.faults.envelopes import Caller, ask
from tests.faults.restoring import KINDS, Store, erased_by_two, opened_store, types
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
WORDS = {"ann": "the heron nests behind the mill", "bob": "the otter sleeps under the bridge"}
GONE = "the content's key was destroyed"


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, sqlite_url: str, tmp_path: Path) -> Iterator[Store]:
    with opened_store(request.param, sqlite_url, tmp_path) as store:
        yield store


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


async def said(gateway: RunningGateway) -> str:
    """All content of intents that can be read, and why the rest cannot."""
    database = open_database(gateway.settings.database_url, pooled=False)
    try:
        lines = export_records(
            DatabaseAuditSink(database, gateway.audit_folder).records(
                AuditQuery(organisation="acme", stage="intent")
            ),
            directory=gateway.audit_folder,
            keys=master_key(gateway.settings),
            second=SecondContents(database),
        )
        return "\n".join(
            [str(line.get("content", line.get("content_error"))) async for line in lines]
        )
    finally:
        await database.close()


async def test_an_erased_persons_words_are_gone_for_good_and_every_proof_holds(
    store: Store, tmp_path: Path, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    gateway = RunningGateway(tmp_path, store.url, own_upstreams)
    async with gateway:
        receipts = await talk(gateway, http, store)
    rounds = len(receipts) // len(WORDS)
    before = await said(gateway)
    assert before.count(WORDS["ann"]) == before.count(WORDS["bob"]) == rounds
    prove = ("audit", "prove", "--receipt")
    proofs = {each: await types(gateway, *prove, each) for each in (receipts[0], receipts[-1])}
    store.back_up()
    shutil.copytree(gateway.audit_folder, tmp_path / "old-audit")

    ann = ("--organisation", "acme", "--user", "ann", "--ticket", "T-7")
    assert await erased_by_two(gateway, *ann) > 0
    after = await said(gateway)
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
    assert WORDS["ann"] in await said(gateway)
    restored = RunningGateway(tmp_path, store.url, own_upstreams)
    async with restored:
        pass
    after = await said(restored)
    assert (after.count(GONE), after.count(WORDS["ann"])) == (rounds, 0)
    await types(restored, "audit", "fsck")
