"""An erased person's lines are gone from batches, their files and results, also from old backups.

Other people's lines in the same batches and files stay, and can be read as before.
"""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import select

from gateway.clock import SystemClock
from gateway.secrets.credentials import master_key
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.files import FileStore
from gateway.store.batching.lines import LineStore
from gateway.store.engine import open_database
from gateway.store.schema.batches import batch_lines, batches
from tests.faults.restoring import Store, erased_by_two, types
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
WORDS = {
    "ann": "the heron nests behind the mill",
    "bob": "the otter sleeps under the bridge",
    "": "nobody says who this was",
}
WORKED = "/v1/chat/completions"
ANN = ("--organisation", "acme", "--user", "ann", "--ticket", "T-7")
ERASE = ("audit", "erase", *ANN)


def body(user: str) -> dict[str, Any]:
    asked = {"model": CLAUDE_TARGET, "messages": [{"role": "user", "content": WORDS[user]}]}
    return asked | ({"user": user} if user else {})


def lines(*users: str) -> bytes:
    """A file of lines, each named after a place and not after a person."""
    return b"\n".join(
        json.dumps(
            {"custom_id": f"n{n}", "method": "POST", "url": WORKED, "body": body(user)}
        ).encode()
        for n, user in enumerate(users)
    )


class Team:
    """Sends files and batches with one key."""

    def __init__(self, gateway: RunningGateway, http: aiohttp.ClientSession, key: str) -> None:
        self._at, self._http = gateway.url, http
        self._headers = {"authorization": f"Bearer {key}"}

    async def ask(self, method: str, path: str, **more: Any) -> bytes:
        headers = self._headers
        if path.startswith("/v1/messages"):
            headers = headers | {"anthropic-version": "2023-06-01"}
        async with self._http.request(
            method, f"{self._at}{path}", headers=headers, **more
        ) as answer:
            content = await answer.read()
            assert answer.status == 200, content
            return content

    async def upload(self, content: bytes) -> str:
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", content, filename="night.jsonl")
        return str(json.loads(await self.ask("POST", "/v1/files", data=form))["id"])

    async def work_off(self, file_id: str) -> dict[str, str]:
        order = {"input_file_id": file_id, "endpoint": WORKED, "completion_window": "24h"}
        batch = json.loads(await self.ask("POST", "/v1/batches", json=order))
        while batch["status"] != "completed":
            await asyncio.sleep(0.05)
            batch = json.loads(await self.ask("GET", f"/v1/batches/{batch['id']}"))
        return dict(batch)

    async def send_messages(self, *users: str) -> str:
        requests = [{"custom_id": f"m{n}", "params": _params(user)} for n, user in enumerate(users)]
        made = await self.ask("POST", "/v1/messages/batches", json={"requests": requests})
        batch = json.loads(made)
        at = f"/v1/messages/batches/{batch['id']}"
        while batch["processing_status"] != "ended":
            await asyncio.sleep(0.05)
            batch = json.loads(await self.ask("GET", at))
        return at


def _params(user: str) -> dict[str, Any]:
    asked = {"role": "user", "content": WORDS[user]}
    return {
        "model": CLAUDE_TARGET,
        "max_tokens": 16,
        "messages": [asked],
        "metadata": {"user_id": user},
    }


async def readable(gateway: RunningGateway) -> str:
    """Whatever files and batches hold, as far as the master key opens it."""
    settings, clock = gateway.settings, SystemClock()
    database, master = open_database(settings.database_url, pooled=False), master_key(settings)
    found = b""
    try:
        files, known = FileStore(database, master, clock), BatchStore(database, master, clock)
        for file in await files.of_organisation("acme"):
            found += b"".join([piece async for piece in files.content(file)]) + b"\n"
        async with database.reading() as connection:
            rows = (await connection.execute(select(batch_lines))).all()
            ids = (await connection.execute(select(batches.c.id))).scalars().all()
        for batch_id in ids:
            batch = await known.led(batch_id)
            key = await known.content_key(batch) if batch is not None else None
            assert batch is not None
            assert key is not None
            for row in (row for row in rows if row.batch_id == batch_id):
                found += key.open(row.sealed_body, "body", row.number) + b"\n"
            async for group in LineStore(database, clock).ended(batch, key):
                found += b"".join(each.end.body + b"\n" for each in group if each.end)
    finally:
        await database.close()
    return found.decode()


def count(text: str) -> tuple[int, ...]:
    return tuple(text.count(words) for words in WORDS.values())


async def erased(gateway: RunningGateway, store: Store) -> None:
    """What the command says it would do, does, and leaves."""
    told = await types(gateway, *ERASE)
    assert "1 lines in 1 batches, 5 lines in 3 files" in told
    assert "2 lines and answers name no end user" in told
    assert count(await readable(gateway)) == (4, 2, 1)
    assert await erased_by_two(gateway, *ANN) > 0
    assert "0 lines in 0 batches, 0 lines in 0 files" in await types(gateway, *ERASE)
    assert count(await readable(gateway)) == (0, 2, 1)
    held = [path for path in store.files() if WORDS["ann"].encode() in path.read_bytes()]
    assert held == []
    await types(gateway, "audit", "verify")
    await types(gateway, "audit", "fsck")


async def test_an_erased_persons_lines_are_gone_for_good_and_others_stay(
    store: Store, tmp_path: Path, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    more = "[inspection]\ndeadline_s = 30.0\n"
    gateway = RunningGateway(tmp_path, store.url, own_upstreams, more=more)
    async with gateway:
        key = await gateway.issue_key()
        team = Team(gateway, http, key)
        mixed = await team.upload(lines("ann", "bob", "", "ann"))
        alone = await team.upload(lines("ann"))
        batch = await team.work_off(mixed)
        messages = await team.send_messages("ann", "bob")
    assert count(await readable(gateway)) == (4, 2, 1)
    store.back_up()
    shutil.copytree(gateway.audit_folder, tmp_path / "old-audit")

    await erased(gateway, store)
    store.restore()
    shutil.rmtree(gateway.audit_folder)
    (tmp_path / "old-audit").rename(gateway.audit_folder)
    assert count(await readable(gateway)) == (4, 2, 1)

    restored = RunningGateway(tmp_path, store.url, own_upstreams, more=more)
    async with restored:
        # The project reads what is left, under the names that it knows.
        team = Team(restored, http, key)
        rest = b"\n" + b"".join(each + b"\n" for each in lines("ann", "bob", "").splitlines()[1:])
        assert await team.ask("GET", f"/v1/files/{mixed}/content") == rest
        listed = json.loads(await team.ask("GET", "/v1/files"))["data"]
        assert alone not in {each["id"] for each in listed}
        results = await team.ask("GET", f"/v1/files/{batch['output_file_id']}/content")
        assert [json.loads(line)["custom_id"] for line in results.splitlines()] == ["n1", "n2"]
        answered = await team.ask("GET", f"{messages}/results")
        assert [json.loads(line)["custom_id"] for line in answered.splitlines()] == ["m1"]
    assert count(await readable(restored)) == (0, 2, 1)
