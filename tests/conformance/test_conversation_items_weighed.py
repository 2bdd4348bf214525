"""Items that are added to a conversation are requests of their key: counted, held, on record."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import openai
import pytest
from openai.types.responses import ResponseInputItem

from gateway.dialects.resources.openai_conversations import KINDS
from gateway.intake import Intake
from gateway.money.rates import RateLimit
from gateway.passage import Arrival
from gateway.store.identity.keys import Place
from gateway.types import Principal
from tests.conformance.test_conversations import FACT, texts
from tests.identifiers import aadhaar
from tests.journeys.test_operator_limits_how_fast_a_team_asks import limit
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

POLICY = """
name = "strict"
version = 1
[[constraints]]
name = "nobody-gets-numbers"
when = 'data_class >= "S2"'
allow_only = { jurisdictions = ["eu"] }
"""


def client_of(gateway: RunningGateway, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0)


async def test_items_are_inspected_as_often_as_their_key_may_ask(gateway: RunningGateway) -> None:
    key = await gateway.issue_key(Place("other", "lab", "thesis"))
    await limit(gateway, RateLimit("ws:other/lab", requests_per_minute=2, tokens_per_minute=1))
    async with client_of(gateway, key) as client:
        talk = await client.conversations.create(items=[FACT])
        await client.conversations.items.create(talk.id, items=[FACT])
        with pytest.raises(openai.RateLimitError) as caught:
            await client.conversations.items.create(talk.id, items=[FACT])
        assert caught.value.code == "rate_limited"
        with pytest.raises(openai.RateLimitError):
            await client.conversations.create(items=[FACT])
        assert await texts(client, talk.id) == [FACT["content"]] * 2
        assert (await client.conversations.create()).id, "nothing of it is inspected"


@pytest.fixture
async def strict(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    more = f'[inspection]\ndeadline_s = 5.0\n[policy]\nfile = "{policy}"\n'
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        yield gateway


async def test_who_tries_what_policy_lets_pass_is_on_record(strict: RunningGateway) -> None:
    secret: Any = {"role": "user", "content": f"She is {aadhaar(3)}."}
    async with client_of(strict, await strict.issue_key()) as client:
        talk = await client.conversations.create(items=[FACT])
        for trial in (
            client.conversations.items.create(talk.id, items=[secret]),
            client.conversations.create(items=[secret]),
        ):
            with pytest.raises(openai.PermissionDeniedError) as caught:
                await trial
            headers = caught.value.response.headers
            (record,) = await strict.records(headers["x-request-id"])
            assert (record.status, record.error) == ("refused", caught.value.code)
            assert (record.project, record.endpoint) == ("assistant", "/v1/conversations")
            assert record.data_class >= "S2"
            assert record.decision
            assert headers["x-gatewright-decision"] == record.decision
            assert headers["x-gatewright-receipt"]
        assert await texts(client, talk.id) == [FACT["content"]]


async def test_a_long_body_is_held_until_it_was_inspected(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, weighing, weigh = threading.Event(), threading.Event(), Intake.weigh

    async def slowly(self: Intake, arrival: Arrival, principal: Principal, raw: bytes) -> str:
        weighing.set()
        while not go.is_set():
            await asyncio.sleep(0.01)
        return await weigh(self, arrival, principal, raw)

    monkeypatch.setattr(Intake, "weigh", slowly)
    more = "[limits]\nheld_body_bytes_max = 200_000\n[inspection]\ndeadline_s = 5.0\n"
    long: Any = {"role": "user", "content": "word " * 24_000}
    async with (
        RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway,
        client_of(gateway, await gateway.issue_key()) as client,
    ):
        first = asyncio.create_task(client.conversations.create(items=[long]))
        while not weighing.is_set():
            assert not first.done(), first.result()
            await asyncio.sleep(0.01)
        second = asyncio.create_task(client.conversations.create(items=[long]))
        await asyncio.wait({second}, timeout=2.0)
        go.set()
        with pytest.raises(openai.InternalServerError) as caught:
            await second
        assert caught.value.code == "unavailable"
        assert (await first).id
        assert (await client.conversations.create(items=[long])).id, "it was given back"


async def test_items_have_what_the_vendors_client_reads_of_them(
    gateway: RunningGateway, shared_key: str
) -> None:
    call = {"call_id": "c1"}
    shell = {"action": {"commands": ["ls"]}, "status": None}
    items: list[Any] = [
        {"role": "user", "content": "Good morning", "type": None},
        {"type": "function_call", "name": "f", "arguments": "{}", **call},
        {"type": "function_call_output", "output": "7", "status": "incomplete", **call},
        {"type": "function_call_output", "output": "8", **call},
        {"type": "shell_call", **call, **shell},
        {"type": "shell_call_output", "output": [], **call},
    ]
    async with client_of(gateway, shared_key) as client:
        talk = await client.conversations.create(items=items)
        listed = await client.conversations.items.list(talk.id, order="asc")
    told = [item.to_dict() for item in listed.data]
    assert [each["type"] for each in told] == ["message", *(each["type"] for each in items[1:])]
    assert [each["status"] for each in told] == [
        *("completed",) * 2,
        "incomplete",
        *("completed",) * 3,
    ]
    assert told[0]["content"] == [{"type": "input_text", "text": "Good morning"}]
    assert str(told[0]["id"]).startswith("msg_")


async def test_an_item_of_a_kind_that_nobody_knows_is_refused_by_its_place(
    gateway: RunningGateway, shared_key: str
) -> None:
    odd: Any = {"type": "made_up", "content": "Good morning"}
    async with client_of(gateway, shared_key) as client:
        talk = await client.conversations.create(items=[FACT])
        for trial in (
            client.conversations.create(items=[FACT, odd]),
            client.conversations.items.create(talk.id, items=[FACT, odd]),
        ):
            with pytest.raises(openai.BadRequestError) as caught:
                await trial
            assert (caught.value.code, caught.value.param) == ("invalid_request", "items[1].type")
        assert await texts(client, talk.id) == [FACT["content"]]


def test_every_kind_of_the_vendors_types_can_be_put_into_a_conversation() -> None:
    union = get_args(ResponseInputItem)[0]
    fields = [each.model_fields.get("type") for each in get_args(union)]
    kinds = {kind for field in fields if field for kind in re.findall(r"'(\w+)'", str(field))}
    assert {"message", "reasoning", "shell_call"} <= kinds <= KINDS
