"""Whoever has data of class S3 asked about twice, tried elsewhere or kept gets it out of no door.

Races, canaries, cascades, kept answers and kept conversations ask more places than the first, or
ask later: what a request holds is decided on for all of them at once.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.store.identity.keys import Place
from tests.faults.envelopes import STYLES, Caller, Reply, Style, ask
from tests.identifiers import aadhaar, card
from tests.running_gateway import (
    CHEAP_CLAUDE_TARGET,
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

CARD, AADHAAR, MAIL = card(12), aadhaar(12), "planted.person@corp-mail.no"
FOURS = "\n".join(CARD[at : at + 4] for at in range(0, 16, 4))
DOUBTED = "I'm sorry, but I cannot help with that."
ROUTES = {
    "hedge": f'targets = ["{ENGINE_TARGET}", "{CLAUDE_TARGET}", "{GPT_TARGET}"]\n'
    "hedge_after_ms = 5",
    "canary": f'canary = {{ target = "{GPT_TARGET}", percent = 100 }}',
    "cascade": f'targets = ["{ENGINE_TARGET}", "{CHEAP_CLAUDE_TARGET}", "{CLAUDE_TARGET}"]\n'
    "cascade_above_percent = 1",
    "shares": f"weights = {{ {CLAUDE_TARGET} = 99, {ENGINE_TARGET} = 1 }}",
    "warm": f'targets = ["{CLAUDE_TARGET}", "{ENGINE_TARGET}"]\nstay_warm = true',
}
POLICY = """
name = "many-ways"
version = 1
[defaults]
order = ["cheapest"]
cache_s = 3600
[[constraints]]
name = "cards-stay"
when = 'data_class >= "S3"'
allow_only = { in_house = true }
[[constraints]]
name = "mail-leaves-under-another-name"
when = 'data_class == "S2"'
pseudonymise = true
""" + "".join(
    f'[[preferences]]\nname = "{name}"\nroute = "{name}"\n{how}\n' for name, how in ROUTES.items()
)
LIMITS = "[limits]\nfirst_byte_s = 0.2\nstream_idle_s = 0.2\n"


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    (tmp_path / "policy.toml").write_text(POLICY)
    more = f'{LIMITS}[policy]\nfile = "{tmp_path / "policy.toml"}"'
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as running:
        yield running


@pytest.fixture
async def caller(gateway: RunningGateway, http: aiohttp.ClientSession) -> Caller:
    return Caller(gateway, http, await gateway.issue_key())


def left(upstreams: Upstreams) -> list[bytes]:
    """The bodies that went to managed targets."""
    return [call.body for each in upstreams.managed for call in each.calls]


def saying(*texts: str) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]


HOME_DOES = {
    "answers late": Answer(hold=asyncio.Event()),
    "fails": Answer(status=500),
    "is full": Answer(status=429),
    "hangs": Answer(fault="hang"),
    "breaks off": Answer(fault="mid_reset"),
    "answers badly": Answer(text=DOUBTED),
}


@pytest.mark.parametrize("home", HOME_DOES)
@pytest.mark.parametrize("style", STYLES)
async def test_no_second_place_is_asked_that_the_first_would_not_have_been(
    style: Style, home: str, gateway: RunningGateway, upstreams: Upstreams, caller: Caller
) -> None:
    upstreams.engine.answer(HOME_DOES[home])
    texts = itertools.cycle((CARD, FOURS, f"Aadhaar {AADHAAR}"))
    for route, stream in itertools.product(ROUTES, (False, True)):
        body = ask(style, stream=stream, model=f"auto:{route}", messages=saying(next(texts)))
        await gateway.reaches_all()
        reply = await caller.post(style, body)
        assert reply.headers.get("x-gatewright-target", ENGINE_TARGET) == ENGINE_TARGET

    assert upstreams.engine.calls
    assert not left(upstreams)


@pytest.mark.parametrize("route", ROUTES)
async def test_each_of_these_ways_leads_outside_where_nothing_forbids_it(
    route: str, upstreams: Upstreams, caller: Caller
) -> None:
    """Else the test above would prove nothing."""
    upstreams.engine.answer(Answer(text=DOUBTED, hold=asyncio.Event()))
    if route == "cascade":
        upstreams.engine.answer(Answer(text=DOUBTED))
    await caller.post("openai", ask("openai", model=f"auto:{route}"))

    assert left(upstreams)


@pytest.mark.parametrize("route", ROUTES)
async def test_every_place_that_is_asked_gets_the_pseudonym(
    route: str, upstreams: Upstreams, caller: Caller
) -> None:
    upstreams.engine.answer(Answer(text=DOUBTED))
    if route == "hedge":
        upstreams.engine.answer(Answer(hold=asyncio.Event()))
    messages = saying(f"Write to {MAIL} please.")
    for stream in (False, True):
        body = ask("openai", stream=stream, model=f"auto:{route}", messages=messages)
        assert (await caller.post("openai", body)).status == 200

    everywhere = [*left(upstreams), *(call.body for call in upstreams.engine.calls)]
    assert left(upstreams)
    assert not any(MAIL.encode() in body for body in everywhere)


async def test_a_conversation_comes_home_with_the_turn_that_brings_a_card(
    upstreams: Upstreams, caller: Caller
) -> None:
    turns = ["Hello"]
    first = await caller.post("openai", ask("openai", model="auto:warm", messages=saying(*turns)))
    assert first.headers["x-gatewright-target"] == CLAUDE_TARGET
    turns += ["Hi", f"My card is {CARD}."]
    second = await caller.post("openai", ask("openai", model="auto:warm", messages=saying(*turns)))
    assert second.headers["x-gatewright-target"] == ENGINE_TARGET
    turns += ["Noted.", "And what else?"]
    third = await caller.post("openai", ask("openai", model="auto:warm", messages=saying(*turns)))

    assert third.headers["x-gatewright-target"] == ENGINE_TARGET
    assert not any(CARD.encode() in body for body in left(upstreams))


async def test_an_answer_that_was_kept_is_nobody_elses_and_of_no_other_class(
    gateway: RunningGateway, upstreams: Upstreams, caller: Caller
) -> None:
    upstreams.engine.answer(Answer(text=f"It is {CARD}."))
    body = ask("openai", messages=saying(f"Repeat {CARD}"))
    first = await caller.post("openai", body)
    again = await caller.post("openai", body)
    assert [each.headers["x-gatewright-cache"] for each in (first, again)] == ["miss", "hit"]

    for place in (Place("other", "research", "assistant"), Place("acme", "other", "assistant")):
        stranger = caller.with_key(await gateway.issue_key(place))
        reply = await stranger.post("openai", body)
        assert reply.headers["x-gatewright-cache"] == "miss"
    bound = caller.with_key(await gateway.issue_key(models=[GPT_TARGET]))
    refused = await bound.post("openai", body)

    assert refused.status == 403
    assert CARD.encode() not in refused.body
    assert not left(upstreams)


def tool_call_answer(target: str) -> bytes:
    """A whole response of an upstream that calls a tool with what nobody had asked about."""
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "pay",
        "arguments": msgspec.json.encode({"to": CARD}).decode(),
        "status": "completed",
    }
    wire = {"id": "resp_upstream", "object": "response", "created_at": 1, "status": "completed"}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return msgspec.json.encode({**wire, "model": target, "output": [call], "usage": usage})


async def respond(caller: Caller, http: aiohttp.ClientSession, **fields: Any) -> Reply:
    headers = caller.headers("openai")
    url = f"{caller.gateway.url}/v1/responses"
    async with http.post(url, json={"model": GPT_TARGET, **fields}, headers=headers) as reply:
        known = {name.lower(): value for name, value in reply.headers.items()}
        return Reply(reply.status, known, await reply.read())


TOOLS = [{"type": "function", "name": "pay", "parameters": {"type": "object"}}]


async def test_what_an_upstream_put_into_an_answer_does_not_go_out_with_the_next_turn(
    gateway: RunningGateway, upstreams: Upstreams, caller: Caller, http: aiohttp.ClientSession
) -> None:
    upstreams.openai.answer_once(Answer(body=tool_call_answer(GPT_TARGET)))
    first = await respond(caller, http, input="Pay the bill.", tools=TOOLS)
    assert first.headers["x-gatewright-target"] == GPT_TARGET
    kept = first.tree["id"]
    before = len(left(upstreams))
    done = {"type": "function_call_output", "call_id": "call_1", "output": "paid"}
    named = [{"type": "item_reference", "id": first.tree["output"][0]["id"]}, done]
    goes_on: list[dict[str, Any]] = [
        {"previous_response_id": kept, "input": [done]},
        {"previous_response_id": kept, "input": [done, *saying("Thanks")]},
        {"input": [*saying("Pay the bill."), *named]},
    ]

    for fields in goes_on:
        reply = await respond(caller, http, **fields)
        assert reply.headers.get("x-gatewright-target", ENGINE_TARGET) == ENGINE_TARGET, fields
    strangers = caller.with_key(await gateway.issue_key(Place("other", "research", "assistant")))
    for fields in goes_on:
        reply = await respond(strangers, http, **fields)
        assert reply.status == 400
        assert CARD.encode() not in reply.body

    assert len(left(upstreams)) == before


async def test_what_a_conversation_once_held_it_holds_for_every_key_that_goes_on_with_it(
    gateway: RunningGateway, upstreams: Upstreams, caller: Caller, http: aiohttp.ClientSession
) -> None:
    first = await respond(caller, http, input=f"My card is {CARD}.")
    colleague = caller.with_key(await gateway.issue_key())
    second = await respond(colleague, http, previous_response_id=first.tree["id"], input="Thanks")
    third = await respond(colleague, http, previous_response_id=second.tree["id"], input="Bye")

    assert {each.headers["x-gatewright-target"] for each in (first, second, third)} == {
        ENGINE_TARGET
    }
    bound = caller.with_key(await gateway.issue_key(models=[GPT_TARGET]))
    refused = await respond(bound, http, previous_response_id=third.tree["id"], input="Hello")
    assert refused.status == 403
    assert not left(upstreams)
