"""`python -m benchmarks.audit`: what two audit records cost, in processor time by thread.

Callers in a closed loop write an intent with 1.1 KB of content, pretend to wait for an upstream,
and write an outcome with 0.6 KB; a projector brings all of it into SQLite once a second. The
callers' own cost, measured with a log that does nothing, is subtracted from the main thread. The
result is the best of several rounds, because neighbours on the machine only ever add to it.
"""

import argparse
import asyncio
import gc
import os
import secrets
import tempfile
import threading
import time
from pathlib import Path

import uvloop

from gateway.audit.device import AuditLimits
from gateway.audit.projecting.projector import Projector
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import SystemClock
from gateway.ports import AuditLog
from gateway.routing.planning import decision_digest
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.engine import open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.migrate import migrate
from gateway.types import Attempt, AuditRecord, Receipt, Usage
from policies.decision import Decision, Obligations


PROMPT, ANSWER = os.urandom(1100), os.urandom(600)
DIGEST = "0123456789abcdef" * 4
DECIDED = decision_digest(
    Decision(
        effect="allow",
        refusal=None,
        reason="nothing was closed; the cheapest comes first",
        candidates=("fake-model", "claude-fake"),
        obligations=Obligations(jurisdictions=("us",)),
        matched_constraints=("cards-stay-home", "no-images"),
        matched_preference="cheapest-first",
        excluded=(),
        document_name="bench",
        document_version=1,
        document_digest=DIGEST,
    )
)
UPSTREAM_S = 0.001
ALL = "all threads"


def intent(number: int) -> AuditRecord:
    return AuditRecord(
        stage="intent",
        request_id=f"req_{number:015x}{secrets.token_hex(8)}",
        organisation="bench",
        utc_us=time.time_ns() // 1000,
        workspace="load",
        project="comparison",
        key_id="abcdefghijkl",
        endpoint="/v1/chat/completions",
        dialect="openai_chat",
        model_requested="fake-model",
        target="fake-model",
        provider="up",
        jurisdiction="us",
        decision=DECIDED,
        decision_reason="nothing was closed; the cheapest comes first",
        policy_digest=DIGEST,
        snapshot=DIGEST[:32],
        data_class="S1",
        complexity_ppm=123_456,
        candidates=("fake-model", "claude-fake"),
        clearance=("us",),
        reserved_microusd=1234,
    )


def outcome(begun: AuditRecord, leaf_hash: str) -> AuditRecord:
    return AuditRecord(
        stage="outcome",
        request_id=begun.request_id,
        organisation=begun.organisation,
        utc_us=time.time_ns() // 1000,
        workspace=begun.workspace,
        project=begun.project,
        key_id=begun.key_id,
        endpoint=begun.endpoint,
        dialect=begun.dialect,
        model_requested=begun.model_requested,
        target=begun.target,
        provider=begun.provider,
        jurisdiction=begun.jurisdiction,
        decision=begun.decision,
        policy_digest=begun.policy_digest,
        data_class=begun.data_class,
        intent=leaf_hash,
        status="ok",
        http_status=200,
        attempts=(Attempt("fake-model", 200, "", 1234, 1000),),
        usage=Usage(input_tokens=300, output_tokens=50),
        cost_microusd=1234,
        price_as_of="2026-01-01",
        duration_us=2345,
    )


class NoLog:
    """Yields to other tasks as often as a log does, but writes nothing."""

    async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
        await asyncio.sleep(0)
        return Receipt("none", 1, len(content or b""), record.request_id)


async def requests(log: AuditLog, numbers: range) -> None:
    for number in numbers:
        begun = intent(number)
        receipt = await log.append(begun, PROMPT)
        await asyncio.sleep(UPSTREAM_S)
        await log.append(outcome(begun, receipt.leaf_hash), ANSWER)


def thread_times_us() -> dict[str, float]:
    """Processor time of each thread of this process so far, by the thread's name."""
    times: dict[str, float] = {}
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    for task in Path("/proc/self/task").iterdir():
        name = names.get(int(task.name), "other")
        spent_us = int((task / "schedstat").read_text().split()[0]) / 1000
        times[name] = times.get(name, 0.0) + spent_us
    return times


async def run_callers(log: AuditLog, callers: int, each: int) -> None:
    total = callers * each
    await asyncio.gather(
        *(requests(log, range(caller, total, callers)) for caller in range(callers))
    )


async def callers_alone_us(callers: int, each: int) -> float:
    """What the callers themselves cost the main thread per request."""
    before = thread_times_us()["MainThread"]
    await run_callers(NoLog(), callers, each)
    return (thread_times_us()["MainThread"] - before) / (callers * each)


async def one_round(
    log: SegmentedAuditLog, projector: Projector, callers: int, each: int
) -> dict[str, float]:
    """Microseconds per request by thread, and the state of the log."""
    alone_us = await callers_alone_us(callers, each)
    stop, total = asyncio.Event(), callers * each
    before, begun_s, groups = thread_times_us(), time.perf_counter(), log.stats().groups_total
    task = asyncio.create_task(projector.run(stop))
    await run_callers(log, callers, each)
    stop.set()
    await task
    spent_s = time.perf_counter() - begun_s
    times = {
        name: (value - before.get(name, 0.0)) / total for name, value in thread_times_us().items()
    }
    times["MainThread"] -= alone_us
    return times | {
        ALL: sum(times.values()),
        "records a second": 2 * total / spent_s,
        "records in a group": 2 * total / (log.stats().groups_total - groups),
        "the callers alone": alone_us,
    }


async def measure(folder: Path, callers: int, each: int, rounds: int) -> dict[str, float]:
    """The figures of the round with the lowest total; the first round only warms up."""
    url = f"sqlite+aiosqlite:///{folder / 'audit.db'}"
    await migrate(url)
    database = open_database(url)
    directory = folder / "audit"
    keys = MasterKey(Secret(secrets.token_bytes(32)))
    limits = AuditLimits(free_floor_bytes=1)
    log = SegmentedAuditLog(directory, "w0", keys=keys, clock=SystemClock(), limits=limits)
    await log.start()
    projector = Projector(
        directory,
        DatabaseAuditSink(database, directory),
        durable=lambda: {"w0": log.position},
        recent=log.recent,
        poll_s=1.0,
        batch_records=2000,
    )
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # as `gatewright serve` does
    seen = [await one_round(log, projector, callers, each) for _ in range(rounds + 1)]
    await log.close()
    await database.close()
    return min(seen[1:], key=lambda figures: figures[ALL])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--each", type=int, default=100, help="requests of each caller in a round")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gatewright-audit-") as folder:
        figures = uvloop.run(measure(Path(folder), options.callers, options.each, options.rounds))
    for name, value in sorted(figures.items(), key=lambda item: -item[1]):
        if value >= 0.5:
            print(f"{name:24s} {value:8.1f}")


if __name__ == "__main__":
    main()
