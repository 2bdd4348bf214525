"""Cost of a cached answer: from a worker's memory, and from a Redis or Valkey behind it.

    python -m benchmarks.shared_answers [--url redis://HOST:PORT/0]

Without `--url` a `valkey-server` or `redis-server` from the path is started on loopback. Processor
time is that of this process alone, without the server's; a busy machine makes waits longer.
"""

import argparse
import asyncio
import secrets
import shutil
import socket
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop

from gateway.caching.response_cache import KeptReply, ResponseCache
from gateway.caching.sealed_replies import ReplySeal
from gateway.clock import SystemClock
from gateway.configuration.sections import ResponseCacheSettings
from gateway.price import Price
from gateway.secrets.envelope import KEY_BYTES, MasterKey
from gateway.secrets.secret import Secret
from gateway.store.shared_answers import SharedAnswers
from gateway.types import Completion, Target, Usage


KEY = bytes(range(32))
ROUNDS = 2_000
LENGTHS = (1_000, 16_000, 200_000)


@asynccontextmanager
async def place(url: str) -> AsyncIterator[str]:
    """The address of a server; of a new one if none is named."""
    if url:
        yield url
        return
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        raise SystemExit("no valkey-server or redis-server on the path; name one with --url")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = await asyncio.create_subprocess_exec(
        *(program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.kill()
        await server.wait()


def reply_of(length_bytes: int) -> KeptReply:
    """An answer with that many bytes on the wire, half of them its text."""
    text = secrets.token_hex(length_bytes // 4)
    raw = b'{"content":"%b"}' % secrets.token_hex(length_bytes // 2).encode()
    price = Price(1, 1, 1, 1, 1, 50, "bench", "2026-11-22")
    target = Target(
        *("target", "provider", "model", "eu", False, "mid", price, 200_000, 8_192, frozenset())
    )
    completion = Completion(raw, "msg_1", "model", text, (), "end", None, Usage(500, 300))
    return KeptReply(target, "openai_chat", (), "req_1", time.monotonic(), completion)


def told(what: str, waits_s: list[float], busy_s: float) -> None:
    waits_s.sort()
    p50, p99 = statistics.median(waits_s), waits_s[len(waits_s) * 99 // 100]
    each_us = 1e6 * busy_s / len(waits_s)
    print(f"{what:44s} {each_us:7.1f} us busy, waits {1e6 * p50:7.0f} p50 {1e6 * p99:7.0f} p99 us")


async def measure(shared: SharedAnswers, what: str, key: bytes, *, is_there: bool) -> None:
    """Ask one after the other, as a request does."""
    waits_s, missed = [], 0
    busy_s = time.process_time()
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        found = await shared.find("acme", key)
        waits_s.append(time.perf_counter() - began_s)
        missed += (found is not None) != is_there
    told(what, waits_s, time.process_time() - busy_s)
    if missed:
        print(f"  {missed} of {ROUNDS} were not there in time")


async def run(url: str) -> None:
    clock = SystemClock()
    seal = ReplySeal(MasterKey(Secret(secrets.token_bytes(KEY_BYTES))), clock)
    async with place(url) as address:
        # Longer than the default of 5 ms: what is measured is the cost, not the neighbours.
        settings = ResponseCacheSettings(url=address, deadline_s=0.25)
        shared = SharedAnswers(settings, seal, clock, print)
        for _ in range(100):  # Until a server of our own is up.
            if await shared.find("acme", KEY) is None and shared.is_there:
                break
            await asyncio.sleep(0.05)
        memory = ResponseCache(settings)
        for length in LENGTHS:
            reply = reply_of(length)
            memory.keep("acme", KEY, reply)
            waits_s: list[float] = []
            busy_s = time.process_time()
            for _ in range(ROUNDS):
                began_s = time.perf_counter()
                memory.find("acme", KEY, 0.0)
                waits_s.append(time.perf_counter() - began_s)
            told(f"memory, {length:,} bytes", waits_s, time.process_time() - busy_s)
            shared.keep("acme", KEY, reply, 600)
            await asyncio.sleep(0.2)
            await measure(shared, f"shared, {length:,} bytes", KEY, is_there=True)
        await measure(shared, "shared, nothing there", KEY[::-1], is_there=False)
        await shared.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="")
    url = parser.parse_args().url
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(url))


if __name__ == "__main__":
    main()
