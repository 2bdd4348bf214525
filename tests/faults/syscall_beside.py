"""A process whose signer and file sink meet one failing system call after the other.

See `failing_calls.c`. For each call, error and place: a worker opens its signing key, signs and
exports checkpoints, and delivers to a file; then it makes two more rounds without a failure. After
that, the content of the database has also been exported, and everything can still be verified.
"""

import asyncio
import ctypes
import json
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from gateway.audit.projecting.export import export_line
from gateway.audit.proving.checkpoints import verifier_keys
from gateway.audit.proving.fsck import check_log
from gateway.providers.outlets.sinks import FileSink
from gateway.store.evidence.shipping import Shipper
from gateway.store.evidence.sink import AuditQuery
from gateway.store.migrate import migrate
from tests.faults.syscall_victim import CODES
from tests.gateway.store.ledgered import Ledgered, ledgered


CALLS = ("open", "write", "fdatasync", "fsync", "stat", "mkdir", "close")
ORGANISATIONS = ("acme", "globex")
REQUESTS = 4
ROUNDS = 3
EVER = 2**62


class Worker:
    """What a worker does beside its segments, below a folder of its own."""

    def __init__(self, ledger: Ledgered, file: Path) -> None:
        self.ledger = ledger
        self.file = file
        sinks = {"archive": FileSink(file)}
        self._shipper = Shipper(ledger.database, ledger.sink, sinks, ledger.clock, "w0")
        self._integrator = ledger.integrator()
        self.failures = 0
        """Rounds of a duty that were not made; it comes back a second later."""

    async def round(self) -> None:
        self.ledger.clock.advance(60.0)
        await self._try(self._integrator.check)
        await self._try(self._integrator.sign_due)
        await self._try(self._shipper.perform)

    async def _try(self, duty: Callable[[], Awaitable[Any]]) -> None:
        try:
            await duty()
        except OSError:
            self.failures += 1

    async def wrong(self) -> list[str]:
        """What is not as it has to be, when all is well again."""
        found = [f"it stopped: {self._integrator.problem}"] if self._integrator.problem else []
        trees, exported = self.ledger.trees, self.ledger.files.newest_of_all()
        if exported != dict(await trees.newest_of_all()):
            found.append("the newest checkpoints are not outside")
        if set(exported) != {*ORGANISATIONS}:
            found.append("a log was not signed")
        keys = verifier_keys(self.ledger.directory)
        for organisation in ORGANISATIONS:
            signed = await trees.between(organisation, 0, EVER)
            rows = self.ledger.sink.records(AuditQuery(organisation=organisation))
            _, bad = await check_log(organisation, rows, signed, trees, keys)
            found += [f"{organisation}: {bad}"] if bad else []
            whole = {each.note for each in self.ledger.files.every(organisation) if each}
            if not whole <= {each.note for each in signed}:
                found.append("something is outside that was not kept")
        return found + await self._undelivered()

    async def _undelivered(self) -> list[str]:
        """Records and checkpoints that are not in the file, each whole on a line of its own."""
        lines, torn = [], 0
        for line in self.file.read_bytes().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                torn += bool(line)
        missing = [] if torn <= 1 else [f"{torn} torn lines"]
        notes = {line.get("note") for line in lines}
        for organisation in ORGANISATIONS:
            query = AuditQuery(organisation=organisation)
            rows = self.ledger.sink.records(query)
            wanted = [json.loads(json.dumps(export_line(row))) async for row in rows]
            missing += [f"{organisation}: {each}" for each in wanted if each not in lines]
            signed = await self.ledger.trees.between(organisation, 0, EVER)
            missing += ["a checkpoint was not delivered" for e in signed if e.note not in notes]
        return missing


async def _case(folder: Path, shim: ctypes.CDLL) -> dict[str, object]:
    beside, url = folder / "beside", f"sqlite+aiosqlite:///{folder / 'gateway.db'}"
    starts = 0
    while True:
        starts += 1
        try:
            # The signing key is opened, or made, here: without it a worker does not start.
            async with ledgered(beside, url) as ledger:
                worker = Worker(ledger, beside / "exports" / "audit.jsonl")
                await worker.round()
                hit = shim.failed_calls()
                shim.fail_call(b"", b"", 0, 0)
                for _ in range(ROUNDS - 1):
                    await worker.round()
                failed = worker.failures
                return {"hit": hit, "failed": failed + starts - 1, "wrong": await worker.wrong()}
        except OSError:
            if starts > 1:
                raise


async def _template(folder: Path) -> None:
    """Numbered records and no signer yet."""
    url = f"sqlite+aiosqlite:///{folder / 'gateway.db'}"
    await migrate(url)
    async with ledgered(folder / "beside", url) as ledger:
        await ledger.write(0, REQUESTS)
    for path in (folder / "beside").rglob("signers.jsonl"):
        path.unlink()


async def _run(root: Path, shim: ctypes.CDLL, codes: Sequence[str]) -> None:
    template = root / "template"
    template.mkdir()
    await _template(template)
    # With one error only, as in the short run, every second call fails.
    step = 2 if len(codes) == 1 else 1
    for call in CALLS:
        for name in (*codes, "HALF") if call == "write" else codes:
            place, hit = 1 - step, True
            while hit:
                place += step
                folder = root / f"{call}-{name}-{place}"
                shutil.copytree(template, folder)
                shim.fail_call(call.encode(), str(folder / "beside").encode(), place, CODES[name])
                found = await _case(folder, shim)
                hit = bool(found["hit"])
                line = {"call": call, "error": name, "place": place} | found
                sys.stdout.write(json.dumps(line) + "\n")
                shutil.rmtree(folder)


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), ctypes.CDLL(sys.argv[2]), sys.argv[3:]))
