"""Answers of the background: of killed workers, long ones, and while the database is away."""

import asyncio
from typing import Any

import openai
import pytest

from gateway.errors import Unavailable
from tests.conformance.test_background import SAID, client, over
from tests.conformance.test_background_elsewhere import Clients, clients, workers
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

__all__ = ["client", "clients", "workers"]


@pytest.mark.parametrize("ends", ["cancel", "delete"])
async def test_a_turn_of_a_killed_worker_is_over_when_its_answer_is_taken_away(
    workers: tuple[RunningGateway, RunningGateway],
    clients: Clients,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
) -> None:
    one, _ = workers
    here, there = clients
    talk = await here.conversations.create()
    upstreams.openai.answer_once(Answer(hold=asyncio.Event()))
    made = await here.responses.create(
        model=GPT_TARGET, input="x", conversation=talk.id, background=True
    )
    await upstreams.openai.called()

    async def silent(*_: Any) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as changed:
        # Its worker does nothing any more, as one that was killed.
        changed.setattr(one.plane._apart.runner._beats, "beat", silent)
        await (there.responses.cancel if ends == "cancel" else there.responses.delete)(made.id)
        await there.responses.create(model=ENGINE_TARGET, input="Next", conversation=talk.id)
    assert len((await there.conversations.items.list(talk.id)).data) == 2


async def test_one_that_repeats_long_instructions_is_followed_to_its_end(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    stream = await client.responses.create(
        model=CLAUDE_TARGET,
        input="x",
        instructions="Be brief. " * 150_000,
        background=True,
        stream=True,
    )
    heard: list[Any] = [event async for event in stream]
    assert heard[-1].type == "response.completed"
    assert heard[-1].response.output_text == SAID
    assert "".join(each.delta for each in heard if each.type.endswith("text.delta")) == SAID


async def test_who_follows_hears_the_rest_when_the_database_is_back(
    client: openai.AsyncOpenAI,
    gateway: RunningGateway,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold = asyncio.Event()
    upstreams.openai.answer_once(Answer(hold=hold))
    stream = await client.responses.create(
        model=GPT_TARGET, input="x", background=True, stream=True
    )
    first: Any = await anext(stream)
    again = await client.responses.retrieve(first.response.id, stream=True)
    heard: list[Any] = [await anext(again)]
    store = gateway.plane._apart.followers._store
    asked = asyncio.Event()

    async def away(*_: Any) -> Any:
        asked.set()
        raise Unavailable("The database does not answer.")

    with monkeypatch.context() as changed:
        changed.setattr(store, "find", away)
        await asked.wait()
    hold.set()
    ended = await over(client, first.response.id)
    rest: list[Any] = [event async for event in stream]
    heard += [event async for event in again]
    assert rest[-1].response.to_dict() == ended.to_dict()
    assert [first, *rest] == heard


async def test_what_a_server_says_of_itself_in_an_answer_is_read_as_it_was_kept(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    upstreams.openai.answer_once(
        Answer(
            body=b'{"id":"resp_1","object":"response","created_at":1,"model":"m",'
            b'"status":null,"background":"no","output":[{"type":"message","id":"msg_1",'
            b'"role":"assistant","status":"completed","content":[{"type":"output_text",'
            b'"text":"Hi","annotations":[]}]}],"usage":{"input_tokens":1,"output_tokens":1}}'
        )
    )
    made = await client.responses.create(model=GPT_TARGET, input="x")
    assert (await client.responses.retrieve(made.id)).output_text == "Hi"
