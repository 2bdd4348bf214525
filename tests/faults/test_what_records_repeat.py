"""Records and those who receive them repeat no value of a request, wherever it was.

Identifiers are put where texts are, and where names are: of members, tools, calls, headers and
models. The policy lets everything go everywhere, so that each body is also read for another vendor.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.admission.withholding import WITHHELD
from tests.collectors import Collectors
from tests.faults.envelopes import Caller, ask
from tests.identifiers import card
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstream_messages import anthropic_message
from tests.upstream_responses import openai_response
from tests.upstreams import Answer, reply_of


pytestmark = pytest.mark.anyio

CARD = card(11)
POLICY = """
name = "open"
version = 1
[defaults]
order = ["cheapest"]
[[constraints]]
name = "teams-by-name"
when = 'headers.x_team == "closed"'
deny = "This team is closed."
"""
SETTINGS = """
[policy]
file = "{policy}"
headers = ["x-team"]
"""
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": CLAUDE_TARGET,
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "n"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "auto",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
        "stop": ["x"],
        "user": "u",
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "new_field": {"inner": "v"},
    },
    "/v1/messages": {
        "model": GPT_TARGET,
        "max_tokens": 30,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": [CALL | {"type": "tool_use", "name": "f", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}],
            },
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto"},
        "metadata": {"user_id": "u"},
        "new_field": "v",
    },
    "/v1/responses": {
        "model": CLAUDE_TARGET,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "c1",
                "name": "f",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": "c1", "output": "ok"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "t"}]},
        ],
        "instructions": "i",
        "tools": [{"type": "function", **FUNCTION}],
        "text": {"format": {"type": "text"}},
        "metadata": {"a": "b"},
        "user": "u",
        "new_field": "v",
    },
}


def places(tree: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every text and number, and of every member."""
    pairs: list[tuple[str | int, object]] = []
    if isinstance(tree, dict):
        pairs = list(tree.items())
    elif isinstance(tree, list):
        pairs = list(enumerate(tree))
    for key, value in pairs:
        yield (*path, key)
        yield from places(value, (*path, key))


def holder(tree: Any, path: tuple[str | int, ...]) -> Any:
    for step in path[:-1]:
        tree = tree[step]
    return tree


def hidden(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The body with the card in the place of one text, or of one member's name."""
    for path in places(body):
        last = path[-1]
        changed = copy.deepcopy(body)
        held = holder(changed, path)
        if not isinstance(held[last], dict | list):
            held[last] = CARD
            yield f"{path}", changed
        if isinstance(last, str):
            changed = copy.deepcopy(body)
            held = holder(changed, path)
            renamed = {CARD if name == last else name: value for name, value in held.items()}
            held.clear()
            held.update(renamed)
            yield f"{path} itself", changed


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, collectors: Collectors
) -> AsyncIterator[RunningGateway]:
    file = tmp_path / "policy.toml"
    file.write_text(POLICY)
    more = SETTINGS.format(policy=file) + collectors.settings
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running:
        yield running


async def on_record(gateway: RunningGateway) -> dict[str, str]:
    """Everything that was written down, by request."""
    found: dict[str, str] = {}
    for record in await gateway.records():
        text = msgspec.json.encode(record).decode()
        found[record.request_id] = found.get(record.request_id, "") + text
    return found


@pytest.mark.parametrize("path", BODIES)
async def test_no_place_of_a_body_is_repeated(
    path: str, gateway: RunningGateway, http: aiohttp.ClientSession, collectors: Collectors
) -> None:
    headers = {"authorization": f"Bearer {await gateway.issue_key()}"}
    sent: dict[str, str] = {}
    served = 0
    for place, body in hidden(BODIES[path]):
        async with http.post(gateway.url + path, json=body, headers=headers) as reply:
            await reply.read()
            assert reply.status < 500, place
            served += reply.status == 200
            assert CARD not in str(dict(reply.headers)), place
            sent[reply.headers["x-request-id"]] = place

    repeated = {sent[name] for name, text in (await on_record(gateway)).items() if CARD in text}
    async with http.get(f"{gateway.url}/metrics") as reply:
        metrics = await reply.text()

    assert not repeated
    assert CARD not in metrics
    assert served > len(sent) / 4, "most of these bodies ought to be read to their end"
    # What sinks get are the records; one of them is looked at, so that none adds anything.
    while len(collectors.syslog) < len(sent):
        await asyncio.sleep(0.01)
    assert CARD.encode() not in bytes(collectors.syslog)


async def test_no_header_that_policies_see_and_no_models_name_is_repeated(
    gateway: RunningGateway, http: aiohttp.ClientSession
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    grouped = "-".join(CARD[at : at + 4] for at in range(0, 16, 4))
    for team in (CARD, f"team {grouped}", "closed"):
        await caller.post("openai", ask("openai"), caller.headers("openai") | {"x-team": team})
    image = {"type": "image_url", "image_url": {"url": "https://elsewhere.example/a.png"}}
    message = {"role": "user", "content": [image]}
    for model in (CARD, f"auto:{grouped}"):
        await caller.post("openai", ask("openai", model=model))
        await caller.post("openai", ask("openai", model=model, messages=[message]))

    records = await gateway.records()
    text = msgspec.json.encode(records).decode()

    assert CARD not in text
    assert grouped not in text
    teams = [record.facts.headers for record in records if record.facts is not None]
    assert {"x_team": WITHHELD} in teams
    assert {"x_team": "closed"} in teams
    unknown = [each for each in records if each.status == "refused" and each.facts is None]
    assert [record.model_requested for record in unknown] == [WITHHELD] * 4


ASKED: dict[str, tuple[str, Callable[[Answer, object], dict[str, object]]]] = {
    "/v1/chat/completions": (GPT_TARGET, partial(reply_of, dialect="openai_chat")),
    "/v1/messages": (CLAUDE_TARGET, anthropic_message),
    "/v1/responses": (GPT_TARGET, openai_response),
}
REFUSALS = (
    {"error": {"message": CARD, "type": CARD, "code": CARD, "param": CARD}},
    {"type": "error", "error": {"type": CARD, "message": f"messages.0.{CARD}: is no field"}},
    {CARD: 1},
)
SAID_IN_HEADERS = (
    ("x-request-id", CARD),
    ("set-cookie", f"session={CARD}"),
    ("x-gatewright-receipt", CARD),
    ("x-ratelimit-remaining-tokens", CARD),
    ("retry-after", CARD),
    ("location", f"http://169.254.169.254/{CARD}"),
)


@pytest.mark.parametrize("path", ASKED)
async def test_nothing_that_an_upstream_says_is_repeated(
    path: str,
    gateway: RunningGateway,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    collectors: Collectors,
) -> None:
    model, make = ASKED[path]
    upstream = own_upstreams.anthropic if model == CLAUDE_TARGET else own_upstreams.openai
    good = make(Answer(), model) | {"service_tier": "default", "stop_sequence": None}
    answers = [
        Answer(body=msgspec.json.encode(body), headers=SAID_IN_HEADERS) for _, body in hidden(good)
    ]
    answers += [
        Answer(status=status, body=msgspec.json.encode(body), headers=SAID_IN_HEADERS)
        for body in REFUSALS
        for status in (400, 429, 500)
    ]
    question = [{"role": "user", "content": "Good morning"}]
    words = {"input": question} if path.endswith("responses") else {"messages": question}
    headers = {"authorization": f"Bearer {await gateway.issue_key()}"}
    for answer in answers:
        upstream.answer(answer)
        body = {"model": model, "max_tokens": 30, **words}
        async with http.post(gateway.url + path, json=body, headers=headers) as reply:
            await reply.read()
            assert reply.status != 500 or answer.status == 500, answer
            told = {name.lower(): value for name, value in reply.headers.items()}
        assert told.keys().isdisjoint({"set-cookie", "location"})
        told.pop("retry-after", None)
        # A refusal's limits are the caller's to know; nothing else of a head comes through.
        told.pop("x-ratelimit-remaining-tokens", None)
        assert CARD not in str(told)

    assert not [name for name, text in (await on_record(gateway)).items() if CARD in text]
    async with http.get(f"{gateway.url}/metrics") as reply:
        assert CARD not in await reply.text()
    while collectors.syslog.count(b" outcome ") < len(answers):
        await asyncio.sleep(0.01)
    assert CARD.encode() not in bytes(collectors.syslog)
