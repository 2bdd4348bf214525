"""Limits are lowered, removed, set anew and moved while answers stream through two workers.

Both are separate processes, and callers use their vendors' SDKs. Afterwards every budget equals the
sum of its outcomes, to the micro-dollar, and nothing is leased any more. `make faults` runs many
rounds.
"""

import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from anthropic import APIError as AnthropicError
from anthropic import APIStatusError as AnthropicStatusError
from anthropic import AsyncAnthropic
from openai import APIError as OpenAIError
from openai import APIStatusError as OpenAIStatusError
from openai import AsyncOpenAI
from sqlalchemy import select

from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.identity import KeyText, Peppers
from gateway.money.budgets import WINDOWS, Limit
from gateway.secrets.credentials import pepper
from gateway.store.engine import Database, open_database
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.money.leases import LeaseTable
from gateway.store.schema.audit import audit_records
from gateway.store.schema.tables import budget_leases, budgets
from tests.faults.test_kills import MAIN, configured, until_ready
from tests.free_ports import free_port
from tests.running_gateway import BRISK_PROCESS, CLAUDE_TARGET, GPT_TARGET, Upstreams
from tests.upstreams import Answer, RecordedRequest


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(1800)]
ROUNDS = int(os.environ.get("GATEWRIGHT_FAULT_LIMITS", "6"))
CALLERS = 8
PLENTY = 10**9
LONG_US = 3600 * 1_000_000
PLACES = (
    Place("acme", "research", "bot"),
    Place("acme", "research", "mail"),
    Place("acme", "sales", "bot"),
)
Change = Literal["lower", "anew", "period", "zone", "revoke", "restart"]
CHANGES: tuple[Change, ...] = ("lower", "anew", "period", "zone", "revoke", "restart")
ZONES = ("Asia/Kathmandu", "Pacific/Auckland", "UTC")
REFUSALS = ("has not enough left for this request", "Incorrect API key provided")


class House:
    """Two workers, their callers, and who changes their limits meanwhile."""

    def __init__(self, config_files: Iterable[Path], ports: list[int], database: Database) -> None:
        self.config_files, self.ports = tuple(config_files), ports
        settings = load_settings(self.config_files[0])
        clock = SystemClock()
        self.table = LeaseTable(database, clock)
        self.store = KeyStore(database, Peppers({1: pepper(settings)}), clock)
        self.keys: list[KeyText] = []
        self.accounts: list[str] = []
        self.processes: list[asyncio.subprocess.Process] = []
        self.hold = asyncio.Event()
        self.draw = random.Random(7)
        self.ended: Counter[str] = Counter()
        self.strange: list[str] = []

    async def found(self) -> None:
        for number, place in enumerate(PLACES):
            self.keys.append(await self.store.issue(NewKey(place, f"key {number}", "ann")))
        teams = ("org:acme", "ws:acme/research", "ws:acme/sales", "proj:acme/research/bot")
        self.accounts = [*teams, "user:acme/*", *(f"key:{key.key_id}" for key in self.keys)]
        await self.be_generous()

    async def be_generous(self) -> None:
        for account in self.accounts:
            for window in WINDOWS:
                await self.table.set_limit(Limit(account, PLENTY, window))

    async def start(self) -> None:
        for config_file, port in zip(self.config_files, self.ports, strict=True):
            self.processes.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", f"{BRISK_PROCESS}\n{MAIN}"),
                    *("serve", "--config", str(config_file)),
                    stderr=asyncio.subprocess.DEVNULL,
                )
            )
            await until_ready(self.processes[-1], f"http://127.0.0.1:{port}")

    async def stop(self) -> None:
        """In good order."""
        for process in self.processes:
            if process.returncode is None:
                process.terminate()
            await process.wait()
        self.processes.clear()

    def answer(self, request: RecordedRequest) -> Answer:
        del request
        draw = self.draw
        hold = self.hold if draw.random() < 0.6 else None
        counts = {"input_tokens": draw.randrange(1, 500), "output_tokens": draw.randrange(1, 400)}
        return Answer(**counts, gap_s=draw.choice([0.0, 0.02]), hold=hold)  # type: ignore[arg-type]

    async def ask(self, number: int) -> None:
        """A stream to its end, or a part of it, or a refusal that says why."""
        draw = self.draw
        url, key = f"http://127.0.0.1:{self.ports[number % 2]}", draw.choice(self.keys).reveal()
        asks = _ask_openai if draw.random() < 0.5 else _ask_anthropic
        tokens, user = draw.choice([50, 4000]), draw.choice(["ann", "bob"])
        try:
            await asks(url, key, user, tokens, leaves=draw.random() < 0.2)
            self.ended["answered"] += 1
        except (OpenAIStatusError, AnthropicStatusError) as error:
            self.ended["refused"] += 1
            if not any(words in error.message for words in REFUSALS):
                self.strange.append(error.message)
        except (OpenAIError, AnthropicError) as error:
            self.strange.append(repr(error))

    async def change(self, change: Change, number: int) -> None:
        account, window = self.draw.choice(self.accounts), self.draw.choice(WINDOWS)
        if change == "lower":
            limit = self.draw.choice([0, 5_000, 50_000])
            await self.table.set_limit(Limit(account, limit, window))
        elif change == "anew":
            await self.table.remove_limit(account, window)
            await self.table.set_limit(Limit(account, PLENTY, window))
        elif change == "period":
            await self.table.remove_limit(account, "day")
            await self.table.set_limit(Limit(account, PLENTY // 2, "month"))
        elif change == "zone":
            await self.table.set_time_zone("acme", ZONES[number % len(ZONES)])
        elif change == "revoke":
            await self.store.revoke(self.keys[0].key_id)
            self.keys[0] = await self.store.issue(NewKey(PLACES[0], f"key {number} b", "ann"))
            self.accounts.append(f"key:{self.keys[0].key_id}")
        else:
            await self.be_generous()

    async def round(self, number: int) -> None:
        """Callers come, limits change while they are answered, and more callers come."""
        self.hold.clear()
        asking = [asyncio.create_task(self.ask(each)) for each in range(CALLERS)]
        await asyncio.sleep(self.draw.uniform(0.0, 0.4))
        await self.change(CHANGES[number % len(CHANGES)], number)
        await asyncio.sleep(self.draw.choice([0.0, 0.3]))
        asking += [asyncio.create_task(self.ask(each)) for each in range(CALLERS)]
        await asyncio.sleep(self.draw.choice([0.0, 0.5]))
        self.hold.set()
        await asyncio.gather(*asking)


async def _ask_openai(url: str, key: str, user: str, tokens: int, *, leaves: bool) -> None:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:
        stream = await sdk.chat.completions.create(
            model=GPT_TARGET,
            messages=[{"role": "user", "content": "hello " * 50}],
            max_completion_tokens=tokens,
            user=user,
            stream=True,
        )
        async for _ in stream:
            if leaves:
                break


async def _ask_anthropic(url: str, key: str, user: str, tokens: int, *, leaves: bool) -> None:
    async with AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as sdk:
        asked = sdk.messages.stream(
            model=CLAUDE_TARGET,
            messages=[{"role": "user", "content": "hello " * 50}],
            max_tokens=tokens,
            metadata={"user_id": user},
        )
        async with asked as stream:
            async for _ in stream:
                if leaves:
                    break


@asynccontextmanager
async def founded(
    folder: Path, database_url: str, upstreams: Upstreams, *, more: str = ""
) -> AsyncIterator[tuple[House, Database]]:
    ports = [free_port(), free_port()]
    first = await configured(folder, database_url, upstreams, ports[0], more=more)
    second, text = folder / "second.toml", first.read_text()
    text = text.replace(f"port = {ports[0]}", f"port = {ports[1]}").replace('"w0"', '"w1"')
    second.write_text(text)
    database = open_database(database_url, pooled=False)
    house = House((first, second), ports, database)
    await house.found()
    async with database.writing() as connection:
        # As if set long ago: of what is let through nothing is excused by a limit that is new.
        await connection.execute(budgets.update().values(begun_us=budgets.c.begun_us - LONG_US))
    for upstream in upstreams.managed:
        upstream.answer_to = house.answer  # type: ignore[method-assign]
    try:
        await house.start()
        yield house, database
    finally:
        for process in house.processes:
            process.kill()
            await process.wait()
        await database.close()


async def reconciled(config_file: Path) -> tuple[int, list[dict[str, Any]]]:
    """What the command says, and its exit status."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "costs", "reconcile"),
        *("--end-users", "--config", str(config_file)),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, [json.loads(line) for line in said.splitlines()]


@pytest.mark.long
async def test_whatever_is_done_to_limits_under_streams_budgets_say_what_outcomes_add_up_to(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    async with founded(tmp_path, database_url, own_upstreams) as (house, database):
        for number in range(ROUNDS):
            await house.round(number)
        await house.stop()
        status, told = await reconciled(house.config_files[0])
        async with database.reading() as connection:
            leases = (await connection.execute(select(budget_leases))).all()
            records = (await connection.execute(select(audit_records))).mappings().all()

    assert house.strange == []
    assert (status, leases) == (0, [])
    # Also of limits that were set under way: each worker says when it heard of them.
    names = ("leased_microusd", "difference_microusd", "unheard_microusd")
    assert [line for line in told if any(line[name] for name in names)] == []
    assert any(line["account"].startswith("user:acme/") for line in told)
    ends = Counter(row["request_id"] for row in records if row["stage"] == "outcome")
    begun = {row["request_id"] for row in records if row["stage"] == "intent"}
    assert (begun - ends.keys(), [each for each in ends.values() if each > 1]) == (set(), [])
    assert house.ended["answered"] > CALLERS
