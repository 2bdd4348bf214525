"""Files, batches and kept answers of one project, as tests of erasures lay them out."""

from typing import Any

import msgspec
from sqlalchemy import Table, delete, insert, select, update

from gateway.batches import Batch, Line
from gateway.clock import StoppedClock
from gateway.configuration.settings import Settings
from gateway.continuing.kept_answers import KeptAnswer
from gateway.identity import Peppers
from gateway.money.budgets import end_user_subject
from gateway.projects import Project
from gateway.secrets.credentials import master_key, pepper
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.files import FileStore, kept_file_parts, kept_files
from gateway.store.batching.lines import LineStore
from gateway.store.engine import Database
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.kept_answers import DatabaseAnswers
from gateway.store.schema.batches import batch_lines, batches


PROJECT = Project("acme", "research", "assistant")
CONFIG = """
[database]
url = "{url}"
[secrets]
pepper = {{ env = "GATEWRIGHT_TEST_PEPPER" }}
master_key = {{ file = "master.key" }}
[providers.engine]
kind = "engine"
base_url = "http://127.0.0.1:1"
jurisdiction = "in-house"
[targets.house]
provider = "engine"
model = "house"
catalogue = "in-house"
"""


class Archive:
    """Files, batches and answers of one project, and the part that destroys them."""

    def __init__(self, settings: Settings, database: Database) -> None:
        master, self.clock = master_key(settings), StoppedClock()
        self.database, self.settings = database, settings
        self.files = FileStore(database, master, self.clock)
        self.batches = BatchStore(database, master, self.clock)
        self.lines = LineStore(database, self.clock)
        self.answers = DatabaseAnswers(database, master)
        self.kept = KeptContent(settings, database, master, self.clock)

    def subject(self, reference: str) -> str:
        peppers = Peppers({1: pepper(self.settings)})
        return end_user_subject("acme", reference, peppers.keyed)

    async def file(self, content: bytes, purpose: Any = "batch") -> str:
        writer = await self.files.begin(PROJECT, "key1", purpose)
        await writer.write(content)
        until_us = self.clock.utc_us() + 86_400_000_000
        return (await writer.finish("a.jsonl", until_us)).file_id

    async def batch(self, *users: str, kind: Any = "messages", **changes: object) -> Batch:
        now_us = self.clock.utc_us()
        batch = Batch(
            *("batch_", kind, PROJECT, "key1", "/v1/chat/completions", "validating"),
            created_us=now_us,
            expires_us=now_us + 10**9,
            keep_until_us=now_us + 10**12,
        )
        batch = await self.batches.make(msgspec.structs.replace(batch, **changes))
        key = await self.batches.content_key(batch)
        assert key is not None
        lines = [Line(n, f"n{n}", body(user)) for n, user in enumerate(users, 1)]
        await self.lines.add(batch.batch_id, key, lines)
        await self.batches.begin(batch.batch_id, 1)
        return batch

    async def move(self, batch: Batch, **values: object) -> None:
        async with self.database.writing() as connection:
            where = batches.c.id == batch.batch_id
            await connection.execute(update(batches).where(where).values(**values))

    async def damage(self, table: Table, name: str) -> None:
        async with self.database.writing() as connection:
            changed = update(table).where(table.c.id == name).values(wrapped_key=b"damaged")
            assert (await connection.execute(changed)).rowcount == 1

    async def answer(self, name: str, user: str, previous: str = "") -> None:
        said = msgspec.json.encode({"id": name, "user": user, "output": []})
        now_us = self.clock.utc_us()
        kept = KeptAnswer(
            name, PROJECT, "key1", previous, "S0", now_us, now_us + 10**9, b"[]", said
        )
        await self.answers.keep(kept)

    async def backup(self, file_id: str) -> dict[Table, Any]:
        tables = {kept_files: kept_files.c.id, kept_file_parts: kept_file_parts.c.file_id}
        async with self.database.reading() as connection:
            return {
                table: (await connection.execute(select(table).where(its == file_id)))
                .mappings()
                .one()
                for table, its in tables.items()
            }

    async def restore(self, file_id: str, backup: dict[Table, Any]) -> None:
        async with self.database.writing() as connection:
            await connection.execute(delete(kept_files).where(kept_files.c.id == file_id))
            for table, row in backup.items():
                await connection.execute(insert(table), dict(row))

    async def numbers(self) -> list[tuple[str, int]]:
        async with self.database.reading() as connection:
            query = select(batch_lines.c.batch_id, batch_lines.c.number)
            return sorted(map(tuple, (await connection.execute(query)).all()))

    async def content(self) -> list[bytes]:
        files = await self.files.of_organisation("acme")
        return [b"".join([each async for each in self.files.content(file)]) for file in files]


def body(user: str) -> bytes:
    return msgspec.json.encode({"messages": []} | ({"user": user} if user else {}))


def line(user: str, name: str = "n", pad: int = 0) -> bytes:
    wire = {"custom_id": name, "method": "POST", "url": "/v1/x", "body": msgspec.Raw(body(user))}
    return msgspec.json.encode(wire | ({"pad": "x" * pad} if pad else {})) + b"\n"


def result(batch: Batch, number: int) -> bytes:
    name = f"batch_req_{batch.batch_id.removeprefix('batch_')}_{number}"
    end = {"status_code": 200, "request_id": f"r{number}", "body": {"text": f"said {number}"}}
    return msgspec.json.encode({"id": name, "custom_id": f"n{number}", "response": end}) + b"\n"
