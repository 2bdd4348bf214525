"""An application team asks the same many times at once: one request is sent, the others wait.

Each of them is a journey of its own: a decision, an intent, an outcome and a receipt.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import msgspec
import openai
import pytest
from msgspec import structs

from gateway.store.identity.keys import Place
from tests.faults.envelopes import TERMINALS, Caller, Reply, Style, ask
from tests.faults.restoring import erased_by_two
from tests.faults.test_callers_who_leave import Raw, large_answer
from tests.journeys.test_application_team_asks_the_same_again import (
    BOTH_SHAPES,
    MODELS,
    POLICY,
    calls,
    without_comments,
)
from tests.running_gateway import CLAUDE_TARGET, DEMO, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer, Fault


pytestmark = pytest.mark.anyio

MANY = 100
ORGANISATION = ("org:acme",)


@asynccontextmanager
async def running(
    folder: Path, url: str, upstreams: Upstreams, more: str = ""
) -> AsyncIterator[RunningGateway]:
    (folder / "policy.toml").write_text(POLICY)
    more = f'[policy]\nfile = "{folder / "policy.toml"}"\n{more}'
    async with RunningGateway(folder, url, upstreams, more=more) as gateway:
        yield gateway


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    async with running(tmp_path, sqlite_url, upstreams) as gateway:
        yield gateway


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


@pytest.fixture
async def caller(gateway: RunningGateway, http: aiohttp.ClientSession) -> Caller:
    return Caller(gateway, http, await gateway.issue_key())


async def waiting(gateway: RunningGateway, count: int) -> None:
    """Wait until so many requests wait for another one's answer."""
    leads = gateway.plane._cache.leads
    while leads.waiting != count:
        await asyncio.sleep(0.01)


async def at_once(caller: Caller, style: Style, body: dict[str, Any], count: int) -> list[Reply]:
    return await asyncio.gather(*(caller.post(style, body) for _ in range(count)))


@pytest.mark.parametrize(("style", "stream"), [("openai", True), ("anthropic", False)])
async def test_of_many_equal_requests_at_once_one_is_sent(
    style: Style, stream: bool, gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    for upstream in upstreams.managed:
        upstream.answer(Answer(hold=hold))
    body = ask(style, stream=stream, model=MODELS[style])
    asked = asyncio.ensure_future(at_once(caller, style, body, MANY))
    await waiting(gateway, MANY - 1)
    hold.set()

    replies = await asked

    assert calls(upstreams) == 1
    assert {reply.status for reply in replies} == {200}
    assert len({without_comments(reply) for reply in replies}) == 1
    told = sorted(reply.headers["x-gatewright-cache"] for reply in replies)
    assert told == ["hit"] * (MANY - 1) + ["miss"]
    assert len({reply.request_id for reply in replies}) == MANY
    records = await gateway.records()
    (first,) = (reply for reply in replies if reply.headers["x-gatewright-cache"] == "miss")
    for reply in replies:
        intent, outcome = (each for each in records if each.request_id == reply.request_id)
        assert (intent.stage, outcome.stage, outcome.status) == ("intent", "outcome", "ok")
        assert outcome.intent
        assert (outcome.cost_microusd > 0) == (reply is first)
        assert len(outcome.attempts) == (reply is first)
        assert outcome.detail.get("cache_of") == (None if reply is first else first.request_id)
        assert ("cache_waited_ms" in outcome.detail) == (reply is not first)
    assert gateway.plane._cache.leads.waiting == len(gateway.plane._cache.leads) == 0


async def test_the_official_clients_read_what_they_waited_for(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    hold, several = asyncio.Event(), 5
    for upstream in upstreams.managed:
        upstream.answer(Answer(text="one two three", hold=hold))
    key = await gateway.issue_key()
    question: Any = [{"role": "user", "content": "Count."}]

    async def of_gpt(client: openai.AsyncOpenAI) -> str:
        chunks = await client.chat.completions.create(
            model=GPT_TARGET, messages=question, stream=True
        )
        said = [chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices]
        return "".join(said)

    async def of_response(client: openai.AsyncOpenAI) -> str:
        # Not kept here, so that all of them may be answered alike.
        made = await client.responses.create(model=GPT_TARGET, input="Count.", store=False)
        return made.output_text

    async def of_claude(client: anthropic.AsyncAnthropic) -> str:
        async with client.messages.stream(
            model=CLAUDE_TARGET, max_tokens=50, messages=question
        ) as events:
            return await events.get_final_text()

    async with (
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as gpt,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key) as claude,
    ):
        asked = asyncio.gather(
            *(of_gpt(gpt) for _ in range(several)),
            *(of_response(gpt) for _ in range(several)),
            *(of_claude(claude) for _ in range(several)),
        )
        await waiting(gateway, 3 * (several - 1))
        hold.set()
        assert set(await asked) == {"one two three"}

    assert calls(upstreams) == 3


REFUSED = Answer(body=b'{"choices":[]}', status=400)
WITHHELD = b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,'
WITHHELD += b'"message":{"role":"assistant","content":""},"finish_reason":"content_filter"}]}'


async def test_what_is_not_kept_of_the_first_is_asked_for_by_all_who_waited(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    """What was withheld, and what is too long; each of them is waited for once."""
    more = "[response_cache]\nreply_bytes_max = 5000"
    async with running(tmp_path, sqlite_url, upstreams, more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        for number, first in enumerate((Answer(body=WITHHELD), Answer(text="x" * 5_000))):
            hold = asyncio.Event()
            upstreams.openai.forget()
            upstreams.openai.answer_once(structs.replace(first, hold=hold))
            body = ask("openai", model=GPT_TARGET, seed=number)
            asked = asyncio.ensure_future(at_once(caller, "openai", body, 4))
            await waiting(gateway, 3)
            hold.set()
            replies = await asked
            assert {each.status for each in replies} == {200}
            assert calls(upstreams) == 4
        outcomes = [each for each in await gateway.records() if each.stage == "outcome"]
        assert [len(each.attempts) for each in outcomes] == [1] * 8
        assert "cache_of" not in {name for each in outcomes for name in each.detail}
        counted = await (await http.get(f"{gateway.url}/metrics")).text()
    assert 'gatewright_response_cache_total{result="in_vain"} 6.0' in counted


async def test_where_the_first_fails_another_one_asks_and_the_rest_wait_for_that(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    first, second = asyncio.Event(), asyncio.Event()
    upstreams.openai.answer_once(structs.replace(REFUSED, hold=first), Answer(hold=second))
    body = ask("openai", model=GPT_TARGET)
    asked = asyncio.ensure_future(at_once(caller, "openai", body, MANY))
    await waiting(gateway, MANY - 1)
    first.set()
    await upstreams.openai.called(2)
    await waiting(gateway, MANY - 2)
    second.set()

    replies = await asked

    assert sorted(each.status for each in replies) == [*[200] * (MANY - 1), 400]
    assert calls(upstreams) == 2
    told = sorted(each.headers.get("x-gatewright-cache", "") for each in replies)
    assert told.count("hit") == MANY - 2
    outcomes = [each for each in await gateway.records() if each.stage == "outcome"]
    waited = [each for each in outcomes if "cache_waited_ms" in each.detail]
    assert len(waited) == MANY - 2
    assert {each.cost_microusd for each in waited} == {0}


async def test_where_everybody_fails_few_are_waited_for(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    holds = [asyncio.Event() for _ in range(3)]
    upstreams.openai.answer_once(*(structs.replace(REFUSED, hold=each) for each in holds))
    upstreams.openai.answer(REFUSED)
    body = ask("openai", model=GPT_TARGET)
    asked = asyncio.ensure_future(at_once(caller, "openai", body, 9))
    for number, hold in enumerate(holds, start=1):
        await upstreams.openai.called(number)
        await waiting(gateway, 9 - number)
        hold.set()

    assert {each.status for each in await asked} == {400}
    assert calls(upstreams) == 9


async def test_a_reader_who_is_slow_holds_up_nobody_elses_answer(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    """Nor do they ask all at once: of those who waited one asks, and the others get that."""
    more = "[response_cache]\n" + "".join(
        f"{name}_bytes_max = {1 << 28}\n" for name in ("memory", "organisation", "reply")
    )
    upstreams.openai.answer_once(large_answer())
    async with running(tmp_path, sqlite_url, upstreams, more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        body = ask("openai", stream=True, model=GPT_TARGET)
        raw = await Raw.connect(gateway, receive_bytes=65_536)
        raw.send(caller, "openai", msgspec.json.encode(body))
        await raw.reader.read(1)

        replies = await at_once(caller, "openai", body, 4)

        told = sorted(each.headers["x-gatewright-cache"] for each in replies)
        assert told == ["hit", "hit", "hit", "miss"]
        await raw.hang_up()
    assert calls(upstreams) == 2


async def test_a_stream_that_breaks_lets_those_go_who_waited_for_it(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    breaks: list[tuple[Style, Fault]] = [
        ("openai", "mid_reset"),
        ("anthropic", "truncated"),
        ("openai", "error_event"),
    ]
    for number, (style, fault) in enumerate(breaks):
        hold = asyncio.Event()
        upstream = upstreams.openai if style == "openai" else upstreams.anthropic
        upstream.forget()
        upstream.answer_once(Answer(fault=fault, hold=hold))
        body = ask(style, stream=True, model=MODELS[style], max_tokens=50 + number)
        first = asyncio.ensure_future(caller.post(style, body))
        await upstream.called()
        others = asyncio.ensure_future(at_once(caller, style, body, 2))
        await waiting(gateway, 2)
        hold.set()

        replies = [await first, *await others]

        assert [TERMINALS[style] in reply.body for reply in replies] == [False, True, True]
        assert len(upstream.calls) == 2, "one of them asked, the other got its answer"


@BOTH_SHAPES
async def test_who_leaves_ends_nobody_elses_request(
    stream: bool, gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    """A follower leaves: the first goes on. The first leaves: the other asks for itself."""
    hold = asyncio.Event()
    upstreams.openai.answer(Answer(hold=hold))
    body = ask("openai", stream=stream, model=GPT_TARGET)
    await gateway.limit("org:acme", 10**9)
    first = asyncio.ensure_future(caller.post("openai", body))
    await upstreams.openai.called()
    leaving, other = (asyncio.ensure_future(caller.post("openai", body)) for _ in range(2))
    await waiting(gateway, 2)

    leaving.cancel()
    await waiting(gateway, 1)
    assert upstreams.openai.client_aborts == 0
    first.cancel()
    await upstreams.openai.called(2)
    await waiting(gateway, 0)
    hold.set()
    reply = await other

    assert (reply.status, reply.headers["x-gatewright-cache"]) == (200, "miss")
    assert calls(upstreams) == 2
    await upstreams.openai.aborted()
    outcomes = [each for each in await gateway.records() if each.stage == "outcome"]
    ended = sorted((each.status, len(each.attempts)) for each in outcomes)
    assert ended == [("cancelled", 0), ("cancelled", 1), ("ok", 1)]
    spent = sum(each.cost_microusd for each in outcomes)
    assert gateway.budget_left(ORGANISATION) == 10**9 - spent


async def test_nobody_waits_longer_than_the_settings_say(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    """Nor for one that has lasted so long already, of which the newest is asked instead."""
    hold = asyncio.Event()
    upstreams.openai.answer_once(Answer(hold=hold))
    more = "[response_cache]\nwait_s = 0.2"
    async with running(tmp_path, sqlite_url, upstreams, more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        body = ask("openai", model=GPT_TARGET)
        first = asyncio.ensure_future(caller.post("openai", body))
        await upstreams.openai.called()

        second = await caller.post("openai", body)
        third = await caller.post("openai", body)

        hold.set()
        told = [each.headers["x-gatewright-cache"] for each in (await first, second, third)]
    assert told == ["miss", "miss", "hit"]
    assert calls(upstreams) == 2


async def test_only_who_may_have_the_answer_waits_for_it(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    upstreams.openai.answer_once(Answer(hold=hold), *[Answer()] * 6)
    upstreams.openai.answer(Answer(hold=hold))
    body = ask("openai", model=GPT_TARGET)
    first = asyncio.ensure_future(caller.post("openai", body))
    await upstreams.openai.called()
    strangers = [
        caller.with_key(await gateway.issue_key(place))
        for place in (Place("other", "research", "assistant"), Place("acme", "research", "other"))
    ]
    bound = caller.with_key(await gateway.issue_key(models=[GPT_TARGET]))
    colleague = caller.with_key(await gateway.issue_key(DEMO))
    unwilling = [
        caller.headers("openai") | {"cache-control": said}
        for said in ("no-cache", "no-store", "max-age=0")
    ]

    replies = [await each.post("openai", body) for each in (*strangers, bound)]
    replies += [await caller.post("openai", body, headers) for headers in unwilling]
    assert {reply.headers["x-gatewright-cache"] for reply in replies} == {"miss"}
    assert gateway.plane._cache.leads.waiting == 0
    named = [
        asyncio.ensure_future(caller.post("openai", body | {"user": "customer-7"}))
        for _ in range(2)
    ]
    await upstreams.openai.called(9)
    assert gateway.plane._cache.leads.waiting == 0
    last = asyncio.ensure_future(colleague.post("openai", body))
    hold.set()

    assert (await last).headers["x-gatewright-cache"] == "hit"
    assert (await first).headers["x-gatewright-cache"] == "miss"
    assert not [each for each in named if "x-gatewright-cache" in (await each).headers]
    assert calls(upstreams) == 9


async def test_who_waits_has_its_own_money_set_aside_and_gets_it_back(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    """For each might have to ask for itself; what a budget cannot hold is refused at once."""
    hold = asyncio.Event()
    body = ask("openai", model=GPT_TARGET)
    alone = caller.headers("openai") | {"cache-control": "no-store"}
    reserved = (await caller.post("openai", body, alone)).request_id
    worst = (await gateway.records(reserved))[0].reserved_microusd
    await gateway.limit("org:acme", 3 * worst)
    upstreams.openai.answer(Answer(hold=hold))

    asked = [asyncio.ensure_future(caller.post("openai", body)) for _ in range(5)]
    await waiting(gateway, 2)
    refused, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    while len(refused) < 2:
        refused, _ = await asyncio.wait(asked, timeout=0.01)
    assert gateway.budget_left(ORGANISATION) == 0
    hold.set()
    replies = await asyncio.gather(*asked)

    assert sorted(reply.status for reply in replies) == [200, 200, 200, 429, 429]
    paid = sum(
        each.cost_microusd
        for each in await gateway.records()
        if each.stage == "outcome" and each.request_id != reserved
    )
    assert gateway.budget_left(ORGANISATION) == 3 * worst - paid


async def test_an_answer_that_was_asked_before_an_erasure_is_given_to_nobody_who_waited(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    upstreams.openai.answer_once(Answer(text="Before.", hold=hold))
    upstreams.openai.answer(Answer(text="After."))
    body = ask("openai", stream=True, model=GPT_TARGET)
    first = asyncio.ensure_future(caller.post("openai", body))
    await upstreams.openai.called()
    early = asyncio.ensure_future(caller.post("openai", body))
    await waiting(gateway, 1)
    await erased_by_two(gateway, "--organisation", "acme", "--ticket", "DPO-12")
    while not gateway.plane._cache._erased_us:
        await asyncio.sleep(0.02)
    late = asyncio.ensure_future(caller.post("openai", body))
    await waiting(gateway, 2)
    hold.set()

    replies = [await each for each in (first, early, late)]
    again = await caller.post("openai", body)

    said = [b"After" in reply.body for reply in (*replies, again)]
    assert said == [False, True, True, True]
    told = [reply.headers["x-gatewright-cache"] for reply in (*replies, again)]
    assert told == ["miss", "miss", "miss", "hit"], "of what was asked since"
    assert calls(upstreams) == 3


async def test_others_are_answered_while_many_wait(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    upstreams.openai.answer(Answer(hold=hold))
    asked = asyncio.ensure_future(at_once(caller, "openai", ask("openai", model=GPT_TARGET), MANY))
    await waiting(gateway, MANY - 1)

    other = await caller.post("openai", ask("openai", model=CLAUDE_TARGET))
    card = [{"role": "user", "content": "My card is 4242 4242 4242 4242."}]
    kept_out = await caller.post("openai", ask("openai", messages=card))

    assert (other.status, kept_out.status) == (200, 200)
    assert not asked.done()
    hold.set()
    assert {reply.status for reply in await asked} == {200}


@pytest.mark.parametrize("style", TERMINALS)
async def test_who_was_told_by_pings_to_wait_hears_at_the_end_that_the_answer_was_given_before(
    style: Style,
    tmp_path: Path,
    sqlite_url: str,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
) -> None:
    """Its head was sent with the first ping, before anybody could know."""
    hold = asyncio.Event()
    for upstream in upstreams.managed:
        upstream.answer_once(Answer(hold=hold))
    more = "[limits]\nping_every_s = 0.05\n"
    async with running(tmp_path, sqlite_url, upstreams, more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        body = ask(style, stream=True, model=MODELS[style])
        heard = asyncio.Semaphore(0)
        posting = [caller.post(style, body, on_first=heard.release) for _ in range(2)]
        asking = [asyncio.ensure_future(each) for each in posting]
        for _ in asking:
            await heard.acquire()
        hold.set()
        replies = await asyncio.gather(*asking)

    ping = b": ping\n\n" if style == "openai" else b"event: ping\n"
    assert all(reply.body.startswith(ping) for reply in replies)
    assert all(TERMINALS[style] in reply.body for reply in replies)
    assert not any("x-gatewright-cache" in reply.headers for reply in replies)
    told = [b" x-gatewright-cache=hit age=0" in reply.body for reply in replies]
    assert sorted(told) == [False, True]
    told = [b" x-gatewright-cache=miss" in reply.body for reply in replies]
    assert sorted(told) == [False, True]
    assert calls(upstreams) == 1
