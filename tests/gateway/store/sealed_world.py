"""One or more of everything that a master key seals in a database, and whether it all opens."""

import secrets
from collections.abc import Callable

import msgspec
from sqlalchemy import insert, select

from gateway.audit.content_keys.keys import WrappedKey
from gateway.background.runs import Events, Run
from gateway.batches import Batch
from gateway.clock import StoppedClock
from gateway.continuing.kept_answers import KeptAnswer
from gateway.projects import Project
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.background_runs import DatabaseRuns
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.files import FileStore
from gateway.store.engine import Database
from gateway.store.evidence.second_rows import line_of
from gateway.store.identity.provided_sessions import ProvidedSessions, Vouching
from gateway.store.kept_answers import DatabaseAnswers
from gateway.store.schema.audit import audit_second_keys
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from gateway.store.sealing.spare_secrets import SpareSecretTable


PROJECT = Project("acme", "main", "web")
CLOCK = StoppedClock()
NOW_US = CLOCK.utc_us()


def new_key() -> Callable[..., MasterKey]:
    """A key of its own, with which others may stand."""
    raw = Secret(secrets.token_bytes(32))
    return lambda *others: MasterKey(raw, others)


class SealedWorld:
    """What was sealed, to be found again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._secrets: dict[str, str] = {}
        self._answers: list[str] = []
        self._made: list[Run] = []
        self._sessions: dict[str, str] = {}
        self._batches: list[str] = []
        self._files: list[str] = []
        self._keys: dict[str, bytes] = {}

    async def fill(self, master: MasterKey, count: int = 3) -> None:
        """So much more of each of the eight kinds, under a master key."""
        for _ in range(count):
            await self._seal_secrets(master)
            await self._keep(master)
            name = secrets.token_hex(8)
            token = secrets.token_hex(20)
            vouching = Vouching(f"id|{name}", f"id|{name}", NOW_US, Secret(token))
            session = await ProvidedSessions(self._database, master, CLOCK).begin("ann", vouching)
            assert session is not None
            self._sessions[session] = token
            await self._add_second_key(master)

    async def _seal_secrets(self, master: MasterKey) -> None:
        name, value, coming = (secrets.token_hex(10) for _ in range(3))
        await SealedSecretTable(self._database, master, CLOCK).seal(name, Secret(value), "ann")
        spares = SpareSecretTable(self._database, master, CLOCK)
        await spares.prepare(name, Secret(coming), "ann", expected=0)
        self._secrets[name] = f"{value} {coming}"

    async def _keep(self, master: MasterKey) -> None:
        files, batches = (
            FileStore(self._database, master, CLOCK),
            BatchStore(self._database, master, CLOCK),
        )
        writer = await files.begin(PROJECT, "key1", "batch")
        await writer.write(b"words of a file")
        file = await writer.finish("a name", NOW_US + 1)
        self._files.append(file.file_id)
        batch = await batches.make(
            Batch(
                *("batch_", "file", PROJECT, "key1", "/v1/chat/completions", "validating"),
                created_us=NOW_US,
                expires_us=NOW_US + 1,
                keep_until_us=NOW_US + 1,
            )
        )
        self._batches.append(batch.batch_id)
        answer_id = f"resp_{secrets.token_hex(8)}"
        answer = KeptAnswer(answer_id, PROJECT, "key1", "", "S1", 1, NOW_US + 1, b"[]", b"{}")
        runs, run = self._runs(master), Run(PROJECT, answer_id, "req_1", "w0", "w0.1")
        assert await runs.begin(answer, run, 1000)
        assert await runs.note(run, Events(0, 0, 0, b"words of an event"))
        self._made.append(run)
        self._answers.append(answer_id)

    def _runs(self, master: MasterKey) -> DatabaseRuns:
        return DatabaseRuns(self._database, master, CLOCK)

    async def _add_second_key(self, master: MasterKey) -> None:
        key = secrets.token_bytes(32)
        draft = WrappedKey(secrets.token_hex(8), "acme", 1, master.key_id, b"", 1)
        line = msgspec.structs.replace(draft, wrapped=master.wrap(key, draft.aad()))
        async with self._database.writing() as connection:
            await connection.execute(insert(audit_second_keys), [line_of(line)])
        self._keys[draft.key] = key

    async def require_open(self, master: MasterKey) -> None:
        """All of it opens as it was, by the ways that the product takes."""
        table = SealedSecretTable(self._database, master, CLOCK)
        spares = SpareSecretTable(self._database, master, CLOCK)
        for name, values in self._secrets.items():
            found = [(await table.open(name)).reveal(), (await spares.open_next(name)).reveal()]
            assert " ".join(found) == values
        await self._require_kept(master)
        sessions = ProvidedSessions(self._database, master, CLOCK)
        for session, token in self._sessions.items():
            told = await sessions.id_token(session)
            assert told is not None
            assert told.reveal() == token
        async with self._database.reading() as connection:
            lines = (await connection.execute(select(audit_second_keys.c.line))).scalars().all()
        found_keys = [msgspec.json.decode(line, type=WrappedKey) for line in lines]
        opened = {each.key: master.unwrap(each.wrapped, each.aad()) for each in found_keys}
        assert opened == self._keys

    async def _require_kept(self, master: MasterKey) -> None:
        files = FileStore(self._database, master, CLOCK)
        for file_id in self._files:
            file = await files.find(PROJECT, file_id)
            assert file is not None
            assert file.name == "a name"
            assert [part async for part in files.content(file)] == [b"words of a file"]
        batches = BatchStore(self._database, master, CLOCK)
        for batch_id in self._batches:
            batch = await batches.led(batch_id)
            assert batch is not None
            assert not batch.is_damaged
            assert await batches.content_key(batch) is not None
        for answer_id in self._answers:
            answers = DatabaseAnswers(self._database, master)
            answer = await answers.find(PROJECT, answer_id, NOW_US)
            assert answer is not None
            assert answer.response == b"{}"
        for run in self._made:
            (events,) = await self._runs(master).events(run.place, -1)
            assert events.content == b"words of an event"
