"""A worker that is ended during requests: recorded as ended by us, not by their callers.

The server is the real one: it waits, then ends the requests that it will not wait for any longer.
"""

import asyncio
from pathlib import Path

import aiohttp
import msgspec
import pytest

from gateway.types import AuditRecord
from tests.faults.envelopes import PATHS, Caller, Style, ask
from tests.faults.patience import wait_for_answers
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

UNENDING = Answer(text="word " * 3000, gap_s=0.02)
WORDS_SENT = 10
NEVER = Answer(hold=asyncio.Event())


async def asked(
    http: aiohttp.ClientSession, caller: Caller, style: Style, target: str, *, stream: bool
) -> tuple[int, bytes]:
    """Status and body of what is cut off or refused; 0 where not even a head came."""
    body = msgspec.json.encode(ask(style, model=target, stream=stream))
    url = caller.gateway.url + PATHS[style]
    status, said = 0, b""
    try:
        async with http.post(url, data=body, headers=caller.headers(style)) as answer:
            status = answer.status
            async for piece in answer.content.iter_any():
                said += piece
    except aiohttp.ClientError:
        return status, said + b"(cut)"
    return status, said


async def test_what_a_workers_end_breaks_off_is_recorded_as_such(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    asks: tuple[tuple[Style, str], ...] = (("openai", GPT_TARGET), ("anthropic", CLAUDE_TARGET))
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams) as gateway:
        wait_for_answers(gateway, own_upstreams)
        caller = Caller(gateway, http, await gateway.issue_key())
        waiting = []
        for answer, stream in ((UNENDING, True), (NEVER, False)):
            for upstream in own_upstreams.managed:
                upstream.answer(answer)
            for style, target in asks:
                one = asked(http, caller, style, target, stream=stream)
                waiting.append(asyncio.create_task(one))
            for upstream in own_upstreams.managed:
                await upstream.called(1 if stream else 2)
                while upstream.events_sent < WORDS_SENT:
                    await asyncio.sleep(0.01)

    chat, message, whole_chat, whole_message = await asyncio.gather(*waiting)
    assert chat[0] == message[0] == 200
    assert chat[1].endswith(b"(cut)")
    assert message[1].endswith(b"(cut)")
    assert b"[DONE]" not in chat[1]
    assert b"message_stop" not in message[1]
    assert (whole_chat[0], whole_message[0]) == (503, 529)
    assert b'"code":"worker_stopped"' in whole_chat[1]
    assert b'"type":"overloaded_error"' in whole_message[1]

    ends = [record for record in await gateway.records() if record.stage == "outcome"]
    assert sorted(map(ended_as, ends)) == sorted(
        ("incomplete", "worker_stopped", target, status)
        for _, target in asks
        for status in (200, 503)
    )
    for end in ends:
        assert [attempt.error for attempt in end.attempts] == ["worker_stopped"]
        assert end.usage is not None
        assert end.usage.estimated


def ended_as(end: AuditRecord) -> tuple[str, str, str, int]:
    return end.status, end.error, end.target, end.http_status
