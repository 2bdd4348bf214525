"""Every way to lack a valid key gets the same words, and an ended key is dead everywhere."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import anthropic
import openai
import pytest

from gateway.clock import SystemClock
from gateway.identity import Peppers, issue_key
from gateway.secrets.credentials import pepper
from gateway.store.engine import open_database
from gateway.store.identity.keys import KeyStore, NewKey, Place
from tests.faults.envelopes import STYLES, Caller, Style, ask, check_error, only_outcome, untouched
from tests.running_gateway import (
    CLAUDE_TARGET,
    DEMO,
    ENGINE_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("style", STYLES)
DEAD_WITHIN_S = 1.0

PRESENTED: dict[str, Callable[[str, str], list[tuple[str, str]]]] = {
    "nothing": lambda key, other: [],
    "an empty bearer": lambda key, other: [("authorization", "Bearer ")],
    "an empty key header": lambda key, other: [("x-api-key", "")],
    "basic authentication": lambda key, other: [("authorization", "Basic a2V5Og==")],
    "the bare key": lambda key, other: [("authorization", key)],
    "a vendor's key": lambda key, other: [("authorization", "Bearer sk-proj-0123456789")],
    "a shortened key": lambda key, other: [("authorization", f"Bearer {key[:-1]}")],
    "a lengthened key": lambda key, other: [("authorization", f"Bearer {key}0")],
    "a wrong check sum": lambda key, other: [
        ("x-api-key", key[:-1] + ("0" if key[-1] != "0" else "1"))
    ],
    "letters in another case": lambda key, other: [("x-api-key", key.swapcase())],
    "an unknown key": lambda key, other: [("x-api-key", other)],
    "another secret for a known id": lambda key, other: [
        ("x-api-key", issue_key(secrets.token_bytes, key.split("_")[2]).reveal())
    ],
    "two keys that differ": lambda key, other: [
        ("authorization", f"Bearer {key}"),
        ("x-api-key", other),
    ],
    "two keys in one header": lambda key, other: [("x-api-key", f"{key}, {key}")],
    "a key twice in unlike headers": lambda key, other: [("x-api-key", key), ("api-key", other)],
    "SQL": lambda key, other: [("authorization", "Bearer ' OR '1'='1' --")],
    "a kilobyte": lambda key, other: [("authorization", "Bearer " + "g" * 1000)],
    "a key of digits in another script": lambda key, other: [("x-api-key", key[:-1] + "\u0663")],
    "a key in another header": lambda key, other: [("x-goog-api-key", key)],
}


@both
@pytest.mark.parametrize("name", PRESENTED)
async def test_whatever_is_not_a_good_key_is_refused_in_the_same_words(
    gateway: RunningGateway,
    upstreams: Upstreams,
    caller: Caller,
    shared_key: str,
    style: Style,
    name: str,
) -> None:
    unknown = issue_key(secrets.token_bytes).reveal()
    headers = dict(PRESENTED[name](shared_key, unknown))

    reply = await caller.post(style, ask(style), headers)

    check_error(reply, style, "invalid_api_key")
    assert reply.tree["error"]["message"].startswith("Incorrect API key provided, or none. A key ")
    assert shared_key not in reply.body.decode()
    outcome = await only_outcome(gateway, reply.request_id, "refused", "invalid_api_key")
    assert (outcome.organisation, outcome.key_id) == ("-", "")
    assert untouched(upstreams)


@both
async def test_a_stranger_is_refused_before_the_body_is_read(
    gateway: RunningGateway, upstreams: Upstreams, caller: Caller, style: Style
) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 2_000:
            sent += 1
            yield b" " * 1_000
            await asyncio.sleep(0)

    async with aiohttp.ClientSession() as session:
        stranger = Caller(gateway, session, "gw_live_nobody")
        reply = await stranger.post(style, endless())

    check_error(reply, style, "invalid_api_key")
    assert untouched(upstreams)


@pytest.mark.parametrize(
    "make",
    [
        lambda key: {"authorization": f"Bearer {key}"},
        lambda key: {"authorization": f"bearer {key}"},
        lambda key: {"x-api-key": key},
        lambda key: {"api-key": key},
        lambda key: {"authorization": f"Bearer {key}", "x-api-key": key},
    ],
)
@both
async def test_every_form_of_the_header_means_the_same_on_both_paths(
    gateway: RunningGateway,
    upstreams: Upstreams,
    caller: Caller,
    style: Style,
    make: Callable[[str], dict[str, str]],
) -> None:
    reply = await caller.post(style, ask(style), make(caller.key))

    assert reply.status == 200


async def keys_of(gateway: RunningGateway) -> AsyncIterator[KeyStore]:
    database = open_database(gateway.settings.database_url)
    try:
        yield KeyStore(database, Peppers({1: pepper(gateway.settings)}), SystemClock())
    finally:
        await database.close()


@pytest.fixture
async def keys(gateway: RunningGateway) -> AsyncIterator[KeyStore]:
    async for store in keys_of(gateway):
        yield store


async def until_status(caller: Caller, status: int) -> float:
    """Seconds until the key is answered with this status, on every request from then on."""
    started = time.monotonic()
    while (await caller.post("openai", ask("openai"))).status != status:
        await asyncio.sleep(0.01)
    return time.monotonic() - started


LIVES_S = (1.5, 6.0, 24.0)
"""So long a key lives that ends within a test; longer where a busy machine looked too late."""
TOO_LATE = "every look at it came after its end"


async def seen_alive(
    gateway: RunningGateway, http: aiohttp.ClientSession, keys: KeyStore
) -> tuple[Caller, int]:
    """Whoever has a key that was good a moment ago, and when it ends."""
    for life_s in LIVES_S:
        ends_us = SystemClock().utc_us() + round(life_s * 1e6)
        key = await keys.issue(NewKey(DEMO, "short", "a test", expires_us=ends_us))
        caller = Caller(gateway, http, key.reveal())
        while SystemClock().utc_us() < ends_us:
            if (await caller.post("openai", ask("openai"))).status == 200:
                return caller, ends_us
            await asyncio.sleep(0.01)
    raise AssertionError(TOO_LATE)


async def test_an_expired_key_is_refused(
    gateway: RunningGateway, http: aiohttp.ClientSession, keys: KeyStore
) -> None:
    caller, ends_us = await seen_alive(gateway, http, keys)

    await until_status(caller, 401)

    assert SystemClock().utc_us() >= ends_us


async def rotated(
    gateway: RunningGateway, http: aiohttp.ClientSession, keys: KeyStore
) -> tuple[Caller, Caller]:
    """Whoever has an old key, good within its overlap, and whoever has the new one."""
    for overlap_s in LIVES_S:
        key = await keys.issue(NewKey(DEMO, "rotating", "a test"))
        old = Caller(gateway, http, key.reveal())
        await until_status(old, 200)
        ends_us = SystemClock().utc_us() + round(overlap_s * 1e6)
        again = await keys.rotate(key.key_id, overlap_s=overlap_s)
        new = Caller(gateway, http, again.reveal())
        await until_status(new, 200)
        reply = await old.post("openai", ask("openai"))
        if SystemClock().utc_us() < ends_us:
            assert reply.status == 200
            return old, new
    raise AssertionError(TOO_LATE)


async def test_a_rotated_key_is_good_for_its_overlap_only(
    gateway: RunningGateway, http: aiohttp.ClientSession, keys: KeyStore
) -> None:
    old, new = await rotated(gateway, http, keys)

    await until_status(old, 401)

    assert (await new.post("openai", ask("openai"))).status == 200


async def test_a_key_cannot_be_ended_by_another_organisation(
    gateway: RunningGateway, http: aiohttp.ClientSession, keys: KeyStore
) -> None:
    key = await keys.issue(NewKey(Place("globex", "lab", "x"), "foreign", "a test"))
    caller = Caller(gateway, http, key.reveal())
    await until_status(caller, 200)

    with pytest.raises(Exception, match="no such key"):
        await keys.revoke(key.key_id, organisation="acme")
    reply = await caller.post("openai", ask("openai"))

    assert reply.status == 200
    records = await gateway.records(reply.request_id)
    assert {record.organisation for record in records} == {"globex"}


async def test_a_revoked_key_is_dead_on_every_worker_within_a_second(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    workers = ["w0"] if database_url.startswith("sqlite") else ["w0", "w1"]
    gateways = [
        RunningGateway(tmp_path, database_url, own_upstreams, worker=worker) for worker in workers
    ]
    for gateway in gateways:
        await gateway.__aenter__()
    try:
        key = await gateways[0].issue_key()
        callers = [Caller(gateway, http, key) for gateway in gateways]
        for caller in callers:
            await until_status(caller, 200)

        await gateways[0].revoke_key(key)
        seconds = await asyncio.gather(*(until_status(caller, 401) for caller in callers))
        again = [await caller.post("anthropic", ask("anthropic")) for caller in callers]
    finally:
        for gateway in gateways:
            await gateway.__aexit__()

    assert max(seconds) < DEAD_WITHIN_S
    assert [reply.status for reply in again] == [401] * len(workers)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_is_under_way_when_its_key_is_revoked_ends_as_it_was_admitted(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession, stream: bool
) -> None:
    """It was sent already and will be charged for: its caller has the answer, and pays for it."""
    key = await gateway.issue_key()
    account, limit, hold = f"key:{key.split('_')[2]}", 10**9, asyncio.Event()
    await gateway.limit(account, limit)
    caller = Caller(gateway, http, key)
    called = len(upstreams.anthropic.calls)
    upstreams.anthropic.answer_once(Answer(hold=hold))
    asking = asyncio.create_task(
        caller.post("openai", ask("openai", model=CLAUDE_TARGET, stream=stream))
    )
    while len(upstreams.anthropic.calls) == called:
        await asyncio.sleep(0.01)

    await gateway.revoke_key(key)
    await until_status(caller, 401)
    hold.set()
    reply = await asking

    assert (reply.status, reply.is_cut) == (200, False)
    intent, outcome = await gateway.records(reply.request_id)
    assert (outcome.status, outcome.intent != "") == ("ok", True)
    assert intent.key_id == outcome.key_id == key.split("_")[2]
    assert outcome.cost_microusd > 0
    while gateway.budget_left((account,)) != limit - outcome.cost_microusd:
        await asyncio.sleep(0.01)


async def test_both_sdks_raise_their_authentication_error(gateway: RunningGateway) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="sk-nope") as client:
        with pytest.raises(openai.AuthenticationError) as first:
            await client.chat.completions.create(
                model=ENGINE_TARGET, messages=[{"role": "user", "content": "x"}]
            )
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key="sk-nope") as claude:
        with pytest.raises(anthropic.AuthenticationError):
            await claude.messages.create(
                model=ENGINE_TARGET, max_tokens=9, messages=[{"role": "user", "content": "x"}]
            )

    assert first.value.code == "invalid_api_key"
