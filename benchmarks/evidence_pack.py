"""`python -m benchmarks.evidence_pack`: time and memory of a pack with many records.

Records are written by a real log, numbered and signed in SQLite; then the pack is written, and
checked by the offline verifier in a process of its own.
"""

import argparse
import asyncio
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.audit import intent
from gateway.audit.device import AuditLimits
from gateway.audit.disk import Disk
from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.checkpoints import open_signer, origin_of
from gateway.audit.proving.exported import CheckpointFiles
from gateway.audit.proving.integrator import Integrator
from gateway.audit.proving.pack import PackRequest, write_pack
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import SystemClock
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.engine import open_database
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.migrate import migrate


CALLERS = 64
PERIODS = 20
MIB = 1024


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB


async def write(log: SegmentedAuditLog, numbers: range) -> None:
    for number in numbers:
        await log.append(intent(number))


async def measure(folder: Path, count: int) -> None:
    url = f"sqlite+aiosqlite:///{folder / 'audit.db'}"
    await migrate(url)
    database, clock = open_database(url), SystemClock()
    directory, keys = folder / "audit", MasterKey(Secret(secrets.token_bytes(32)))
    sink, trees = DatabaseAuditSink(database, directory), DatabaseAuditTrees(database)
    signer = open_signer(directory / "w0", "bench/w0", keys, clock, Disk())
    files = CheckpointFiles(folder / "checkpoints", Disk())
    integrator = Integrator(trees, signer, files, clock, log_name="bench", period_s=1e-6)
    limits = AuditLimits(free_floor_bytes=1, deadline_s=60.0)
    log = SegmentedAuditLog(directory, "w0", keys=keys, clock=clock, limits=limits)
    await log.start()
    projector = Projector(directory, sink, recent=log.recent, batch_records=2000)
    for period in range(PERIODS):
        numbers = range(period * count // PERIODS, (period + 1) * count // PERIODS)
        await asyncio.gather(*(write(log, numbers[at::CALLERS]) for at in range(CALLERS)))
        await projector.catch_up()
        await integrator.sign_due()
    await log.close()

    request = PackRequest(
        origin=origin_of("bench", "bench"),
        organisation="bench",
        first_sequence=1,
        last_sequence=count,
        keys=(signer.verifier_key,),
        policies={},
        created_us=clock.utc_us(),
    )
    before_mib, begun_s = peak_mib(), time.perf_counter()
    rows = sink.records(AuditQuery(organisation="bench"))
    pack = folder / "pack.zip"
    await write_pack(pack, request, rows, await trees.between("bench", 0, 2**62), trees)
    print(f"pack of {count} records: {time.perf_counter() - begun_s:.1f} s")
    print(f"memory: {before_mib:.0f} MiB before, {peak_mib():.0f} MiB at its peak")
    print(f"size: {pack.stat().st_size / 2**20:.1f} MiB")
    await database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gatewright-pack-") as folder:
        uvloop.run(measure(Path(folder), options.records))
        verifier = Path(__file__).parent.parent / "gateway" / "audit" / "offline.py"
        begun_s = time.perf_counter()
        command = [sys.executable, "-I", "-S", str(verifier), str(Path(folder, "pack.zip"))]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(f"offline verifier: {time.perf_counter() - begun_s:.1f} s")
        print(done.stdout, end="")


if __name__ == "__main__":
    main()
