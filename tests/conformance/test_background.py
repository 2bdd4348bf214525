"""Answers made in the background, with OpenAI's client: polled, followed, cancelled, deleted."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from anyio import to_thread
from openai.types.responses import Response

from gateway.store.identity.keys import Place
from tests.conformance.test_kept_responses import SETTINGS, TARGETS
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

__all__ = ["SETTINGS"]
SAID = "Hello from the upstream."


@pytest.fixture
async def client(gateway: RunningGateway, shared_key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=shared_key, max_retries=0
    ) as client:
        yield client


async def over(client: openai.AsyncOpenAI, answer_id: str) -> Response:
    """An answer once it has ended."""
    while True:
        found = await client.responses.retrieve(answer_id)
        if found.status not in {"queued", "in_progress"}:
            return found
        await asyncio.sleep(0.02)


async def under_way(client: openai.AsyncOpenAI, answer_id: str) -> Response:
    """An answer once it is being made."""
    while (found := await client.responses.retrieve(answer_id)).status == "queued":
        await asyncio.sleep(0.02)
    return found


@pytest.mark.parametrize("target", TARGETS)
async def test_any_model_answers_whom_nobody_waits_for(
    client: openai.AsyncOpenAI, gateway: RunningGateway, upstreams: Upstreams, target: str
) -> None:
    raw = await client.responses.with_raw_response.create(
        model=target, input="Good morning", background=True, metadata={"topic": "x"}
    )
    made = raw.parse()
    assert (made.status, made.background, made.output) == ("queued", True, [])
    assert made.metadata == {"topic": "x"}

    ended = await over(client, made.id)
    assert (ended.id, ended.status, ended.output_text) == (made.id, "completed", SAID)
    assert ended.background is True
    assert ended.to_dict()["store"] is True
    assert ended.usage is not None
    asked = await client.responses.input_items.list(made.id)
    assert [item.to_dict()["content"] for item in asked.data] == [
        [{"type": "input_text", "text": "Good morning"}]
    ]
    intent, outcome = await gateway.records(raw.headers["x-request-id"])
    assert (intent.stage, outcome.stage, outcome.status) == ("intent", "outcome", "ok")
    assert outcome.cost_microusd > 0 or target == ENGINE_TARGET
    calls = [
        call.json for upstream in (upstreams.engine, *upstreams.managed) for call in upstream.calls
    ]
    assert [("background" in call, call["stream"]) for call in calls] == [(False, True)]


@pytest.mark.parametrize("target", TARGETS)
async def test_who_follows_hears_every_event_once_and_in_order(
    client: openai.AsyncOpenAI, upstreams: Upstreams, target: str
) -> None:
    stream = await client.responses.create(
        model=target, input="Good morning", background=True, stream=True
    )
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == [*range(len(events))]
    kinds = [event.type for event in events]
    assert kinds[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    last: Any = events[-1]
    assert last.response.output_text == SAID
    said = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(said) == SAID
    assert (await client.responses.retrieve(last.response.id)).to_dict() == last.response.to_dict()

    for after in (0, 3, len(events) - 2, len(events) - 1):
        more = await client.responses.retrieve(last.response.id, stream=True, starting_after=after)
        again = [event async for event in more]
        assert [event.to_dict() for event in again] == [
            event.to_dict() for event in events[after + 1 :]
        ]
    async with client.responses.stream(response_id=last.response.id) as resumed:
        assert (await resumed.get_final_response()).output_text == SAID


async def test_who_leaves_a_stream_cancels_nothing_and_comes_back_to_it(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    upstreams.anthropic.answer_once(Answer(hold=hold))
    stream = await client.responses.create(
        model=CLAUDE_TARGET, input="Good morning", background=True, stream=True
    )
    heard: list[Any] = []
    async for event in stream:
        heard.append(event)
        if event.type == "response.in_progress":
            break
    await stream.close()
    answer_id = heard[0].response.id
    found = await under_way(client, answer_id)
    assert (found.status, found.error) == ("in_progress", None)

    follows = await client.responses.retrieve(
        answer_id, stream=True, starting_after=heard[-1].sequence_number
    )
    hold.set()
    rest: list[Any] = [event async for event in follows]
    numbers = [event.sequence_number for event in [*heard, *rest]]
    assert numbers == [*range(len(numbers))]
    assert rest[-1].response.output_text == SAID
    assert upstreams.anthropic.client_aborts == 0


async def test_what_is_cancelled_is_cut_off_upstream_and_stays_cancelled(
    client: openai.AsyncOpenAI, gateway: RunningGateway, upstreams: Upstreams
) -> None:
    upstreams.openai.answer_once(Answer(hold=asyncio.Event()))
    raw = await client.responses.with_raw_response.create(
        model=GPT_TARGET, input="Good morning", background=True, stream=False
    )
    made = raw.parse()
    await upstreams.openai.called()
    await under_way(client, made.id)
    cancelled = await client.responses.cancel(made.id)
    assert (cancelled.status, cancelled.output) == ("cancelled", [])
    await upstreams.openai.aborted()
    assert (await client.responses.cancel(made.id)).to_dict() == cancelled.to_dict()
    assert (await client.responses.retrieve(made.id)).status == "cancelled"
    while len(records := await gateway.records(raw.headers["x-request-id"])) < 2:
        await asyncio.sleep(0.02)
    assert [record.status for record in records] == ["", "cancelled"]
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model=GPT_TARGET, input="x", previous_response_id=made.id)
    assert caught.value.param == "previous_response_id"

    ended = await over(client, (await _made(client)).id)
    assert (await client.responses.cancel(ended.id)).to_dict() == ended.to_dict()
    usual = await client.responses.create(model=ENGINE_TARGET, input="Good morning")
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.cancel(usual.id)
    assert "background" in refused.value.message
    with pytest.raises(openai.NotFoundError):
        await client.responses.cancel("resp_0000")


async def _made(client: openai.AsyncOpenAI, **more: Any) -> Response:
    made: Response = await client.responses.create(
        model=ENGINE_TARGET, input="Good morning", background=True, **more
    )
    return made


async def test_what_is_deleted_while_it_is_made_is_cut_off_and_not_kept(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    upstreams.engine.answer_once(Answer(hold=asyncio.Event()))
    made = await _made(client)
    await upstreams.engine.called()
    await client.responses.delete(made.id)
    await upstreams.engine.aborted()
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)


@pytest.mark.parametrize("fault", ["status", "mid_reset", "error_event"])
@pytest.mark.parametrize("target", TARGETS)
async def test_what_fails_says_why_and_keeps_nothing_of_half_an_answer(
    client: openai.AsyncOpenAI, upstreams: Upstreams, target: str, fault: Any
) -> None:
    answer = Answer(status=500) if fault == "status" else Answer(fault=fault)
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.answer(answer)
    try:
        stream = await client.responses.create(
            model=target, input="Good morning", background=True, stream=True
        )
        events: list[Any] = [event async for event in stream]
    finally:
        for upstream in (upstreams.engine, *upstreams.managed):
            upstream.answer(Answer())
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert events[-1].type == "response.failed"
    failed = events[-1].response
    assert (failed.status, failed.output, failed.usage) == ("failed", [], None)
    assert failed.error.code == "server_error"
    assert failed.error.message
    assert (await client.responses.retrieve(failed.id)).to_dict() == failed.to_dict()


async def test_an_answer_that_is_cut_short_is_incomplete(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    upstreams.anthropic.answer_once(Answer(stop="max_tokens"))
    made = await client.responses.create(model=CLAUDE_TARGET, input="x", background=True)
    ended = await over(client, made.id)
    assert ended.status == "incomplete"
    assert ended.incomplete_details is not None
    more = await client.responses.create(
        model=ENGINE_TARGET, input="Go on", previous_response_id=made.id
    )
    assert more.status == "completed"


async def test_a_turn_of_a_conversation_lasts_until_its_answer_has_ended(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    talk = await client.conversations.create()
    hold = asyncio.Event()
    upstreams.engine.answer_once(Answer(hold=hold))
    made = await _made(client, conversation=talk.id)
    await upstreams.engine.called()
    with pytest.raises(openai.ConflictError):
        await client.responses.create(model=ENGINE_TARGET, input="x", conversation=talk.id)
    hold.set()
    ended = await over(client, made.id)
    assert ended.conversation is not None
    listed = await client.conversations.items.list(talk.id)
    assert len(listed.data) == 2

    upstreams.engine.answer_once(Answer(hold=asyncio.Event()))
    made = await _made(client, conversation=talk.id)
    await client.responses.cancel(made.id)
    while True:
        try:
            await client.responses.create(model=ENGINE_TARGET, input="x", conversation=talk.id)
            break
        except openai.ConflictError:
            await asyncio.sleep(0.02)
    assert len((await client.conversations.items.list(talk.id)).data) == 4


async def test_a_thread_goes_on_from_what_was_made_in_the_background(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    first = await _made(client)
    await over(client, first.id)
    second = await client.responses.create(
        model=GPT_TARGET, input="And?", previous_response_id=first.id, background=True
    )
    assert second.previous_response_id == first.id
    assert (await over(client, second.id)).output_text == SAID
    (call,) = upstreams.openai.calls
    assert b"Good morning" in call.body
    assert first.id.encode() not in call.body


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"store": False}, "background"),
        ({"background": "yes"}, "background"),
        ({"model": "no-such-model"}, "model"),
    ],
)
async def test_what_cannot_be_is_refused_at_once(
    client: openai.AsyncOpenAI, fields: dict[str, Any], parameter: str
) -> None:
    asked: dict[str, Any] = {"model": GPT_TARGET, "input": "x", "background": True} | fields
    with pytest.raises(openai.APIStatusError) as caught:
        await client.responses.create(**asked)
    assert caught.value.status_code in {400, 404}
    assert caught.value.param in {parameter, None}


async def test_only_what_has_events_is_followed(client: openai.AsyncOpenAI) -> None:
    quiet = await over(client, (await _made(client)).id)
    usual = await client.responses.create(model=ENGINE_TARGET, input="Good morning")
    for answer_id in (quiet.id, usual.id):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.retrieve(answer_id, stream=True)
        assert caught.value.param == "stream"
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_0000", stream=True)
    wrong: Any
    for wrong in (-3, "0" * 5000, "x", "٣"):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.retrieve(quiet.id, stream=True, starting_after=wrong)
        assert refused.value.param == "starting_after"


async def test_the_client_that_blocks_asks_and_follows_as_well(
    gateway: RunningGateway, shared_key: str
) -> None:
    def converse() -> tuple[list[int], str, str]:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=shared_key) as client:
            stream: Any = client.responses.create(
                model=CLAUDE_TARGET, input="Good morning", background=True, stream=True
            )
            events: list[Any] = [*stream]
            found = client.responses.retrieve(events[0].response.id)
            rest: Any = client.responses.retrieve(found.id, stream=True, starting_after=1)
            assert [*rest] == events[2:]
            numbers = [event.sequence_number for event in events]
            return numbers, found.output_text, client.responses.cancel(found.id).status or ""

    numbers, text, status = await to_thread.run_sync(converse)
    assert numbers == [*range(len(numbers))]
    assert (text, status) == (SAID, "completed")


async def test_nobody_elses_key_reads_follows_or_cancels_it(
    gateway: RunningGateway, client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    upstreams.engine.answer_once(Answer(hold=hold))
    made = await _made(client)
    key = await gateway.issue_key(Place("acme", "research", "other"))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as other:
        responses = other.responses
        for call in (responses.retrieve, responses.cancel, responses.delete):
            with pytest.raises(openai.NotFoundError):
                await call(made.id)
        with pytest.raises(openai.NotFoundError):
            await responses.retrieve(made.id, stream=True)
    hold.set()
    assert (await over(client, made.id)).status == "completed"
