"""Hostile policy documents, and harmful canaries: the live version stays, or comes back.

Fault rows 38 and 39. The suite mutates a few hundred documents; `make faults` ten thousand.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from importlib import resources
from pathlib import Path

import aiohttp
import pytest

from gateway.clock import SystemClock
from gateway.rollout.versions import INSTALLATION
from gateway.store.engine import open_database
from gateway.store.policies.documents import PolicyStore
from policies.checking.check import check
from policies.decide import decide
from policies.examples import EXAMPLE_FACTS, EXAMPLE_TARGETS
from policies.ordering import share
from policies.program import PolicyDocument
from tests.faults.envelopes import Caller, Reply, ask
from tests.policies.worlds import document
from tests.running_gateway import CLAUDE_TARGET, ENGINE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


PERCENT = 5.0
HARMED_MAX = 0.05
CASES = int(os.environ.get("GATEWRIGHT_FAULT_CASES", "300"))
WORDS = ("[[constraints]]", "[", "]", "=", '"', "'", "when", "name", "\n", "{", "}", "true", "-1")
HOSTILE = (
    "when = '" + "(" * 5_000 + "'",
    "when = '" + "not " * 3_000 + "stream'",
    "when = 'matches(model_requested, \"(a+)+$\")'",
    "when = 'matches(model_requested, \"" + "a{1000}" * 100 + "\")'",
    "forbid = { targets = [" + '"x",' * 10_000 + "] }",
    "cap_output_tokens = " + "9" * 400,
)


def mutated(draw: random.Random, text: str) -> str:
    """A few cuts, copies and words in the wrong place."""
    for _ in range(draw.randint(1, 4)):
        at, end = sorted(draw.sample(range(len(text)), 2))
        end = min(end, at + draw.choice([1, 5, 200]))
        match draw.choice(["cut", "copy", "word", "letter", "hostile"]):
            case "cut":
                text = text[:at] + text[end:]
            case "copy":
                text = text[:at] + text[at:end] * draw.choice([2, 50]) + text[end:]
            case "word":
                text = text[:at] + draw.choice(WORDS) + text[at:]
            case "letter":
                text = text[:at] + chr(draw.choice([0, 9, 34, 92, 0x202E, 0x1F600])) + text[at:]
            case _:
                line = text.rfind("\n", 0, at) + 1
                text = text[:line] + draw.choice(HOSTILE) + "\n" + text[line:]
    return text


def test_a_mutated_document_is_refused_as_a_whole_or_decides_like_any_other() -> None:
    draw = random.Random(38)
    text = resources.files("policies").joinpath("default.toml").read_text("utf-8")
    loaded = 0
    for case in range(CASES):
        report = check(mutated(draw, text), "draft.toml", EXAMPLE_TARGETS)
        if report.document is None:
            assert report.errors, case
            assert all(str(error) for error in report.errors), case
            continue
        loaded += 1
        decision = decide(report.document, EXAMPLE_FACTS)
        assert decision.effect == "deny" or decision.candidates, case
    assert 0 < loaded < CASES


def test_a_hundred_thousand_rules_are_refused_before_they_are_compiled() -> None:
    text = 'name = "x"\nversion = 1\n' + '[[constraints]]\nname = "r"\ndeny = "n"\n' * 100_000
    report = check(text, "draft.toml")
    assert report.document is None
    assert any("longer than" in error.message for error in report.errors)


@pytest.mark.anyio
async def test_a_canary_that_does_harm_is_gone_within_seconds_and_hurt_few(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    live = document(preferences=({"name": "home", "targets": [ENGINE_TARGET]},))
    bad = document({"name": "away", "allow_only": {"targets": [CLAUDE_TARGET]}})
    upstreams.anthropic.answer(Answer(status=500))
    database = open_database(gateway.settings.database_url)
    store = PolicyStore(database, SystemClock())
    try:
        first = await released(store, live)
        await store.act(INSTALLATION, first, "publish", "Bob")
        number = await released(store, bad)
        await store.act(INSTALLATION, number, "canary", "Bob", percent=PERCENT)
        callers = [Caller(gateway, http, key) for key in await keys_on_both_sides(gateway, bad)]
        statuses: list[int] = []
        async with asyncio.timeout(30):
            # In rounds: whoever is answered sooner asks no more often, however busy the machine.
            while (await store.version(INSTALLATION, number)).state == "canary":
                statuses += [reply.status for reply in await asyncio.gather(*map(once, callers))]
        assert (await store.version(INSTALLATION, number)).state == "withdrawn"
        async with asyncio.timeout(30):
            while gateway.plane.snapshots.policies.watched():
                await asyncio.sleep(0.05)
        replies = [await once(each) for each in callers]
    finally:
        await database.close()
    assert {reply.status for reply in replies} == {200}
    # Row 39: back within thirty seconds, and at most a twentieth of the traffic was harmed.
    assert 0 < statuses.count(500) <= HARMED_MAX * len(statuses)


async def once(caller: Caller) -> Reply:
    return await caller.post("openai", ask("openai", model="auto"))


TRYING = {
    "name": "trying",
    "targets": [ENGINE_TARGET],
    "canary": {"target": CLAUDE_TARGET, "percent": 50, "checks": ["answered", "format"]},
}


@pytest.fixture
async def own_gateway(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    """One whose breakers have seen nothing yet."""
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams) as running:
        yield running


@pytest.mark.anyio
async def test_a_target_on_trial_is_measured_by_its_answers_too(
    own_gateway: RunningGateway, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    gateway = own_gateway
    own_upstreams.anthropic.answer(Answer(text=" "))
    database = open_database(gateway.settings.database_url)
    store = PolicyStore(database, SystemClock())
    try:
        number = await released(store, document(preferences=(TRYING,)))
        await store.act(INSTALLATION, number, "publish", "Bob")
    finally:
        await database.close()
    async with asyncio.timeout(20):
        while not gateway.plane.snapshots.policies.tries_targets:
            await asyncio.sleep(0.02)
    callers = [Caller(gateway, http, key) for key in await keys_of_both_arms(gateway)]
    for turn in range(10):
        for each in callers:
            asked = ask("openai", model="auto", stream=bool(turn % 2))
            assert (await each.post("openai", asked)).status == 200
    async with http.get(f"{gateway.url}/metrics") as reply:
        lines = (await reply.text()).splitlines()
    told = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in lines}
    name = 'gatewright_canary_answers_total{arm="%s",result="%s",rule="trying"}'
    found = [float(told[name % arm]) for arm in (("canary", "answered"), ("others", "ok"))]
    assert found == [10.0, 10.0]


async def keys_of_both_arms(gateway: RunningGateway) -> list[str]:
    """A key that gets the target on trial, and one that does not."""
    keys: dict[bool, str] = {}
    while len(keys) < 2:
        key = await gateway.issue_key()
        keys[share("trying", CLAUDE_TARGET, key.split("_")[2]) * 100 < 50] = key
    return list(keys.values())


async def keys_on_both_sides(gateway: RunningGateway, canary: PolicyDocument) -> list[str]:
    """Keys of whom one in 25 gets the canary, whatever their random names."""
    inside: list[str] = []
    outside: list[str] = []
    while len(inside) < 1 or len(outside) < 24:
        key = await gateway.issue_key()
        takes = share(canary.digest, key.split("_")[2]) * 100 < PERCENT
        (inside if takes else outside).append(key)
    return inside[:1] + outside[:24]


async def released(store: PolicyStore, policy: PolicyDocument) -> int:
    """A version with four eyes on it."""
    version = await store.draft(INSTALLATION, policy, "Ann")
    await store.act(INSTALLATION, version.number, "approve", "Bob")
    return version.number
