"""What upstreams say of answers that is ours to say, and odd events in streams of theirs."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from tests.conformance.test_background import SAID, client, over
from tests.conformance.test_kept_responses import IBAN
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams
from tests.upstream_responses import openai_response, openai_response_events
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

__all__ = ["client"]
MASKS = """
name = "masks"
version = 1
[[constraints]]
name = "mask"
scan_output = "mask"
"""
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


ODD = [
    b'data: {"type":"response.note\\n\\nevent: response.completed\\ndata: {}","text":"%b"}\n\n',
    b'data: {"type":"response.note\\r\\ndata: x","more":7,"text":"%b"}\n\n',
    b'data: {"type":"","text":"%b"}\n\n',
    b'event: %b\ndata: {"type":"response.%b"}\n\n',
    b'event: response.created\ndata: {"type":"response.queued","text":"%b"}\n\n',
    b'data: {"type":"keepalive","sequence_number":"x","response":7,"text":"%b"}\n\n',
    b'data: {"type":"response.odd.delta","delta":"%b","output_index":9}\n\n',
    b'data: {"type":"response.odd","response":{"id":"r","status":"queued","note":"%b"}}\n\n',
]


@pytest.mark.parametrize("odd", ODD)
async def test_events_of_odd_kinds_are_followed_like_any_other(
    client: openai.AsyncOpenAI, upstreams: Upstreams, odd: bytes
) -> None:
    upstreams.openai.answer_once(streamed({}, odd.replace(b"%b", b"Hello")))
    stream: Any = await client.responses.create(
        model=GPT_TARGET, input="x", background=True, stream=True
    )
    heard: list[Any] = [event async for event in stream]
    assert [event.sequence_number for event in heard] == [*range(len(heard))]
    assert [event.type for event in heard].count("response.completed") == 1
    assert heard[-1].response.output_text == SAID
    again: Any = await client.responses.retrieve(heard[-1].response.id, stream=True)
    assert [event.to_dict() async for event in again] == [event.to_dict() for event in heard]


@pytest.mark.parametrize("odd", ODD)
async def test_what_policy_masks_in_answers_is_masked_in_odd_events_as_well(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, odd: bytes
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(MASKS)
    more = f'[inspection]\ndeadline_s = 5.0\n[policy]\nfile = "{policy}"\n'
    upstreams.openai.answer_once(streamed({}, odd.replace(b"%b", IBAN.encode())))
    async with (
        RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway,
        openai.AsyncOpenAI(
            base_url=f"{gateway.url}/v1", api_key=await gateway.issue_key(), max_retries=0
        ) as client,
    ):
        stream: Any = await client.responses.create(
            model=GPT_TARGET, input="x", background=True, stream=True
        )
        heard: list[Any] = [event async for event in stream]
    assert IBAN not in str([event.to_dict() for event in heard])
    assert heard[-1].type in {"response.completed", "response.failed"}
