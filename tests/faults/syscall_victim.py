"""A process whose audit log meets one failing system call after the other; see `failing_calls.c`.

For each call, error and place: a writer starts, records, closes; everything it acknowledged must be
there afterwards, the chain complete, a restart possible, and the database's view of it correct.
"""

import asyncio
import ctypes
import errno
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gateway.audit.proving.fsck import check_log
from gateway.audit.proving.verify import verify_directory
from gateway.errors import AuditUnavailable, StartupRefused
from gateway.store.evidence.sink import AuditQuery
from gateway.store.migrate import migrate
from gateway.types import Receipt
from tests.gateway.audit.samples import LIMITS, make_log, record, running
from tests.gateway.store.ledgered import ledgered


CALLS = (
    *("open", "write", "pwrite", "ftruncate", "fdatasync", "fsync", "stat", "fstatvfs", "flock"),
    *("mkdir", "close"),
)
CODES = {"HALF": -1, "EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EINTR": errno.EINTR}
ROTATING = msgspec.structs.replace(LIMITS, segment_max_bytes=1500)
RECORDS = 5


async def _record(folder: Path, shim: ctypes.CDLL) -> tuple[list[Receipt], int]:
    """Receipts of what was acknowledged, and how many callers were refused."""
    log = make_log(folder, limits=ROTATING)
    refused = 0
    try:
        await log.start()
    except StartupRefused:
        refused += 1
        await log.close()
        log = make_log(folder, limits=ROTATING)
        await log.start()
    acknowledged = []
    for number in range(RECORDS):
        try:
            acknowledged.append(await log.append(record(number), b"content"))
        except AuditUnavailable:
            refused += 1
    await log.close()
    return acknowledged, refused


async def _case(folder: Path, template: Path, shim: ctypes.CDLL) -> dict[str, object]:
    acknowledged, refused = await _record(folder / "audit", shim)
    hit = shim.failed_calls()
    shim.fail_call(b"", b"", 0, 0)
    found = verify_directory(folder / "audit", expected=acknowledged).bad
    # The end of what was never acknowledged may be cut off until the next start.
    wrong = [str(bad) for bad in found if "; a restart " not in bad.reason]
    async with running(folder / "audit") as again:
        acknowledged.append(await again.append(record(RECORDS)))
    report = verify_directory(folder / "audit", expected=acknowledged)
    wrong += [] if report.ok else ["after a restart the chain is broken"]
    shutil.copyfile(template, folder / "gateway.db")
    async with ledgered(folder, f"sqlite+aiosqlite:///{folder / 'gateway.db'}") as ledger:
        await ledger.project()
        await ledger.sign()
        for organisation in ("acme", "globex"):
            rows = ledger.sink.records(AuditQuery(organisation=organisation))
            signed = await ledger.trees.between(organisation, 0, 2**62)
            keys = [ledger.signer.verifier_key]
            _, bad = await check_log(organisation, rows, signed, ledger.trees, keys)
            wrong += [str(bad)] if bad else []
    return {"hit": hit, "acknowledged": len(acknowledged), "refused": refused, "wrong": wrong}


async def _run(root: Path, shim: ctypes.CDLL, codes: Sequence[str]) -> None:
    template = root / "template.db"
    await migrate(f"sqlite+aiosqlite:///{template}")
    for call in CALLS:
        for name in (*codes, "HALF") if call in {"write", "pwrite"} else codes:
            place, hit = 0, True
            while hit:
                place += 1
                folder = root / f"{call}-{name}-{place}"
                folder.mkdir()
                shim.fail_call(call.encode(), str(folder / "audit").encode(), place, CODES[name])
                found = await _case(folder, template, shim)
                hit = bool(found["hit"])
                line = {"call": call, "error": name, "place": place} | found
                sys.stdout.write(json.dumps(line) + "\n")
                shutil.rmtree(folder)


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), ctypes.CDLL(sys.argv[2]), sys.argv[3:]))
