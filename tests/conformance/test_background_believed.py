"""What upstreams say of answers that is ours to say, and odd events in streams of theirs."""

import asyncio
from typing import Any

import msgspec
import openai
import pytest

from tests.conformance.test_background import SAID, client, over
from tests.running_gateway import GPT_TARGET, Upstreams
from tests.upstream_responses import openai_response, openai_response_events
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

__all__ = ["client"]
CLAIMS: list[dict[str, object]] = [
    {"background": True, "status": "queued"},
    {"background": True, "status": None},
    {"background": "no", "status": "in_progress"},
    {"background": 7, "status": "almost"},
]


def framed(event: dict[str, Any]) -> bytes:
    data = msgspec.json.encode(event)
    return b"event: %b\ndata: %b\n\n" % (msgspec.json.encode(event["type"])[1:-1], data)


def streamed(claim: dict[str, object], *odd: bytes) -> Answer:
    """A whole stream of which each response claims this, with odd events before its end."""
    answer = Answer()
    events = []
    for raw in openai_response_events(answer, {"model": "m"}):
        event = msgspec.json.decode(raw.partition(b"data: ")[2])
        if "response" in event:
            event["response"] |= claim
        events.append(framed(event))
    return Answer(events=(*events[:-1], *odd, events[-1]))


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("way", ["whole", "stream", "background"])
async def test_how_an_answer_was_made_and_ended_is_not_its_upstreams_to_say(
    client: openai.AsyncOpenAI, upstreams: Upstreams, claim: dict[str, object], way: str
) -> None:
    told = streamed(claim)
    if way == "whole":
        claimed = openai_response(Answer(), "m") | claim
        told = Answer(body=msgspec.json.encode(claimed))
    upstreams.openai.answer_once(told)
    asked: dict[str, Any] = {"model": GPT_TARGET, "input": "x"}
    if way == "stream":
        stream = await client.responses.create(**asked, stream=True)
        last: Any = [event async for event in stream][-1]
        made = last.response
    else:
        made = await client.responses.create(**asked, background=way == "background")
    found = await asyncio.wait_for(over(client, made.id), 20)
    assert (found.status, found.output_text) == ("completed", SAID)
    assert found.background is (way == "background")
    if way != "background":
        assert (made.status, made.background) == ("completed", False)
        with pytest.raises(openai.BadRequestError, match="made in the background"):
            await client.responses.cancel(made.id)
    more = await client.responses.create(
        model=GPT_TARGET, input="Go on", previous_response_id=made.id
    )
    assert more.output_text == SAID
