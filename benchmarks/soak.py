"""A long run in which everything is new: what a worker keeps of requests that are over.

    python -m benchmarks.soak                     five minutes
    python -m benchmarks.soak --minutes 60
    python -m benchmarks.soak --rows 40           more of what grew

Texts, end users, conversations, unknown models and wrong keys never come twice, so that an hour
here makes a worker remember what takes weeks elsewhere. Some callers leave in the middle and some
answers break off. The table shows memory, descriptors, threads and objects by period. Below it are
the types and the collections that grew from the middle of the run to its end, in items per thousand
requests. Whatever is bounded stops growing: it reaches its bound before the middle, or its entries
expire after some seconds.
"""

import argparse
import asyncio
import gc
import json
import os
import signal
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any, Final

import aiohttp
import msgspec
from msgspec import Struct

from benchmarks.bodies import request_body, words
from benchmarks.processes import MIB, Contestant
from benchmarks.run import HERE, running_upstream


CALLERS = 12
PERIODS = 12
PATIENCE_S: Final = aiohttp.ClientTimeout(total=30)
COLLECTIONS = (dict, list, set, deque)
FAULTS = ("http500", "http429", "reset", "badjson")
BROKEN = ("midreset", "truncated", "cut", "errorevent")
WALK_S = 60.0
"""Longer than a look at every object takes."""
_SLOTS: dict[type, tuple[tuple[str, MemberDescriptorType], ...]] = {}


class Seen(Struct, frozen=True):
    """A worker at one moment."""

    requests: int
    memory_mib: float
    descriptors: int
    threads: int
    objects: dict[str, int]
    """Number of objects of each type that the cycle collector knows."""
    held: dict[str, int]
    """Number of items in the collections that are an attribute, by class and attribute."""


def serve(config: str, folder: Path) -> None:
    """The data plane in this process; on `SIGUSR1` it writes down what it holds."""
    from gateway.cli.serve import serve as command  # noqa: PLC0415 - only in the served process

    signal.signal(signal.SIGUSR1, lambda *_: _write_down(folder / "seen.json"))
    command(["--config", config])


def _write_down(out: Path) -> None:
    gc.unfreeze()  # what was frozen at the start would not be walked over
    gc.collect()
    objects: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for each in gc.get_objects():
        kind = type(each)
        if kind in {FunctionType, ModuleType}:
            continue  # their globals are counted once for each
        name = f"{kind.__module__}.{kind.__qualname__}"
        objects[name] += 1
        for attribute, value in _attributes(each):
            if isinstance(value, COLLECTIONS):
                held[f"{name}.{attribute}"] += len(value)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    seen = Seen(
        requests=0,
        memory_mib=pages * os.sysconf("SC_PAGE_SIZE") / MIB,
        descriptors=len([*Path("/proc/self/fd").iterdir()]),
        threads=threading.active_count(),
        objects=objects,
        held=held,
    )
    part = out.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(seen))
    part.rename(out)


def _attributes(each: object) -> Iterator[tuple[str, Any]]:
    own = getattr(each, "__dict__", None) if not isinstance(each, type) else None
    if isinstance(own, dict):
        yield from list(own.items())
    for name, slot in _slots(type(each)):
        try:
            yield name, slot.__get__(each)
        except AttributeError:
            continue


def _slots(kind: type) -> tuple[tuple[str, MemberDescriptorType], ...]:
    """The slots of an instance; reading these calls no code of the class."""
    known = _SLOTS.get(kind)
    if known is None:
        found = [item for each in kind.__mro__ for item in each.__dict__.items()]
        known = _SLOTS[kind] = tuple(
            (name, slot) for name, slot in found if isinstance(slot, MemberDescriptorType)
        )
    return known


class Caller:
    """One program that uses the gateway in every way, one request after the other."""

    def __init__(
        self, session: aiohttp.ClientSession, base: str, headers: Mapping[str, str], number: int
    ) -> None:
        self._session = session
        self._base = base
        self._headers = {"content-type": "application/json", **headers}
        self._number = number
        self._turn = 0
        self._response = ""
        self.done = 0
        self.statuses: Counter[str] = Counter()

    async def run(self, until_s: float) -> None:
        """Ask in all ways in turn, until that moment of the monotonic clock."""
        kinds: tuple[Callable[[], Awaitable[None]], ...] = (
            self._plain,
            self._streamed,
            self._left,
            self._messages,
            self._response_kept,
            self._personal,
            self._at_home_only,
            self._again,
            self._fault,
            self._broken,
            self._long,
            self._rubbish,
            self._unknown_model,
            self._wrong_key,
            self._listed,
        )
        while time.monotonic() < until_s:
            self._turn += 1
            await kinds[self._turn % len(kinds)]()
            self.done += 1

    @property
    def _name(self) -> str:
        return f"{self._number}x{self._turn}"

    def _chat(self, marker: str = "", length: int = 700, **more: object) -> dict[str, Any]:
        body = json.loads(request_body(length, marker=marker))
        body["messages"][1]["content"] += f" {self._name}"
        return {**body, "user": f"reader-{self._name}", **more}

    async def _post(
        self, path: str, body: object, headers: Mapping[str, str] | None = None, chunks: int = 0
    ) -> bytes:
        """The answer's body; with `chunks`, leave after that many reads."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            async with self._session.post(
                self._base + path, data=data, headers={**self._headers, **(headers or {})}
            ) as answer:
                self.statuses[f"{path} {answer.status}"] += 1
                if not chunks:
                    return await answer.read()
                for _ in range(chunks):
                    await answer.content.readany()
                answer.close()
        except (aiohttp.ClientError, TimeoutError) as error:
            self.statuses[f"{path} {type(error).__name__}"] += 1
        return b""

    async def _plain(self) -> None:
        await self._post("/v1/chat/completions", self._chat())

    async def _streamed(self) -> None:
        await self._post("/v1/chat/completions", self._chat("chunks=30", stream=True))

    async def _left(self) -> None:
        body = self._chat("chunks=200,gap_ms=5", stream=True)
        await self._post("/v1/chat/completions", body, chunks=3)

    async def _messages(self) -> None:
        body = {
            "model": "scripted/claude",
            "max_tokens": 64,
            "messages": [{"role": "user", "content": f"{words(500)} {self._name}"}],
            "metadata": {"user_id": f"reader-{self._name}"},
            "stream": self._turn % 2 == 0,
        }
        await self._post("/v1/messages", body)

    async def _response_kept(self) -> None:
        body: dict[str, Any] = {"model": "fake-model", "input": f"{words(300)} {self._name}"}
        if self._response and self._turn % 4:
            body["previous_response_id"] = self._response
        told = await self._post("/v1/responses", body)
        try:
            self._response = str(json.loads(told).get("id", ""))
        except ValueError:
            self._response = ""

    async def _personal(self) -> None:
        text = f"Please write to reader.{self._name}@example.org about {words(200)}"
        body = {"model": "fake-model", "messages": [{"role": "user", "content": text}]}
        await self._post("/v1/chat/completions", {**body, "stream": self._turn % 2 == 0})

    async def _at_home_only(self) -> None:
        text = f"The card is 4111 1111 1111 1111, {self._name}."
        body = {"model": "fake-model", "messages": [{"role": "user", "content": text}]}
        await self._post("/v1/chat/completions", body)

    async def _again(self) -> None:
        await self._post("/v1/chat/completions", request_body(600))

    async def _fault(self) -> None:
        fault = FAULTS[self._turn % len(FAULTS)]
        await self._post("/v1/chat/completions", self._chat(f"fault={fault}"))

    async def _broken(self) -> None:
        fault = BROKEN[self._turn % len(BROKEN)]
        body = self._chat(f"chunks=20,fault={fault}", stream=True)
        await self._post("/v1/chat/completions", body)

    async def _long(self) -> None:
        await self._post("/v1/chat/completions", self._chat(length=48_000))

    async def _rubbish(self) -> None:
        await self._post("/v1/messages", b'{"model": "%b", "messages": [' % self._name.encode())

    async def _unknown_model(self) -> None:
        await self._post("/v1/chat/completions", self._chat(model=f"nobody-{self._name}"))

    async def _wrong_key(self) -> None:
        wrong = {"Authorization": f"Bearer gw_live_{self._name}_{self._name * 8}"}
        await self._post("/v1/chat/completions", self._chat(), wrong)

    async def _listed(self) -> None:
        for path in ("/v1/models", "/health/ready", "/metrics"):
            async with self._session.get(self._base + path, headers=self._headers) as answer:
                await answer.read()


async def run(contestant: Contestant, work: Path, minutes: float) -> list[Seen]:
    """Run all callers for that long; returns what the worker held at the end of each period."""
    base = f"http://127.0.0.1:{contestant.port}"
    connector = aiohttp.TCPConnector(limit=CALLERS)
    rows = []
    async with aiohttp.ClientSession(connector=connector, timeout=PATIENCE_S) as session:
        callers = [Caller(session, base, contestant.headers, number) for number in range(CALLERS)]
        for _ in range(PERIODS):
            until_s = time.monotonic() + minutes * 60 / PERIODS
            await asyncio.gather(*(caller.run(until_s) for caller in callers))
            await asyncio.sleep(1)  # what was begun is ended by then
            seen = await asyncio.to_thread(asked, contestant, work / "seen.json")
            requests = sum(caller.done for caller in callers)
            rows.append(msgspec.structs.replace(seen, requests=requests))
            print(line(rows[-1]), flush=True)
    statuses: Counter[str] = Counter()
    for caller in callers:
        statuses.update(caller.statuses)
    print("answers: " + ", ".join(f"{name}: {count}" for name, count in sorted(statuses.items())))
    return rows


def asked(contestant: Contestant, file: Path) -> Seen:
    """What the worker holds now."""
    file.unlink(missing_ok=True)
    contestant.signal(signal.SIGUSR1)
    contestant.wait_for(file, WALK_S)
    return msgspec.json.decode(file.read_bytes(), type=Seen)


def line(seen: Seen) -> str:
    return (
        f"{seen.requests:10} requests {seen.memory_mib:8.1f} MiB {seen.descriptors:5} descriptors "
        f"{seen.threads:3} threads {sum(seen.objects.values()):9} objects"
    )


def grown(first: Mapping[str, int], last: Mapping[str, int], requests: int, rows: int) -> str:
    """The names that grew the most, in items per thousand requests."""
    more = Counter({name: count - first.get(name, 0) for name, count in last.items()})
    return "\n".join(
        f"{1000 * count / requests:10.2f}  {last[name]:9}  {name}"
        for name, count in more.most_common(rows)
        if count > 0
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--rows", type=int, default=15)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.out)
        return
    with tempfile.TemporaryDirectory(prefix="gatewright-soak-") as folder, running_upstream() as up:
        work = Path(folder) / "gateway"
        contestant = Contestant(HERE / "soak.toml", work, up)
        contestant.start(request_body(64))
        try:
            rows = asyncio.run(run(contestant, work, options.minutes))
        finally:
            contestant.stop()
        size_mib = sum(file.stat().st_size for file in work.rglob("*") if file.is_file()) / MIB
    middle, last = rows[len(rows) // 2 - 1], rows[-1]
    requests = last.requests - middle.requests
    more_kib = 1024 * (last.memory_mib - middle.memory_mib)
    print(f"on disk: {size_mib:.0f} MiB, {1024 * size_mib / last.requests:.1f} KiB a request")
    print(f"memory, second half: {1000 * more_kib / requests:.0f} KiB for each thousand requests")
    print("types: more for each thousand, at the end")
    print(grown(middle.objects, last.objects, requests, options.rows))
    print("collections: more items for each thousand, at the end")
    print(grown(middle.held, last.held, requests, options.rows))


if __name__ == "__main__":
    main()
