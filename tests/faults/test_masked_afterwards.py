"""Masked answers stay masked wherever they are read again: in batch files, and where stored."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conformance.test_batches import ended, line, make, results
from tests.faults.envelopes import Caller
from tests.faults.full_answers import STREAMED, WHOLE
from tests.faults.test_every_answer import VALUES, spread, stream_of
from tests.faults.test_native_batches import NATIVE, speaking
from tests.faults.test_scanned_answers import POLICY
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]


@pytest.fixture
async def masking(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> AsyncIterator[Caller]:
    (tmp_path / "policy.toml").write_text(POLICY.format(mode="mask"))
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    async with RunningGateway(
        tmp_path, sqlite_url, own_upstreams, more=more, managed=NATIVE
    ) as running:
        yield Caller(running, http, await running.issue_key())


async def test_results_of_a_batch_tell_nothing_that_is_masked(
    masking: Caller, own_upstreams: Upstreams
) -> None:
    """No line waits for a vendor's own batch API, whose answers nobody would read."""
    body, marks = spread(WHOLE["openai_chat"], VALUES["card"])
    own_upstreams.openai.answer(Answer(body=json.dumps(body).encode()))
    asked = [{"role": "user", "content": "Good morning"}]
    async with speaking(masking.gateway.url, masking.key) as client:
        lines = [line("q-1", model=GPT_TARGET, messages=asked)]
        batch = await ended(client, await make(client, lines))
        found = str(await results(client, batch.output_file_id))
    assert "[REDACTED:CREDIT_CARD]" in found
    assert not [place for mark, place in marks.items() if mark in found]
    assert not own_upstreams.openai.batches.batches


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_is_kept_is_had_again_and_continued_masked(
    masking: Caller, own_upstreams: Upstreams, http: aiohttp.ClientSession, stream: bool
) -> None:
    body, marks = spread(
        STREAMED["openai_responses"] if stream else WHOLE["openai_responses"], VALUES["card"]
    )
    events = tuple(stream_of("openai_responses", body)) if stream else None
    raw = None if stream else json.dumps(body).encode()
    own_upstreams.openai.answer(Answer(body=raw, events=events))
    url, headers = f"{masking.gateway.url}/v1/responses", masking.headers("openai")
    asked: dict[str, Any] = {"model": GPT_TARGET, "input": "Hi", "store": True}
    async with http.post(url, json=asked | {"stream": stream}, headers=headers) as reply:
        said = await reply.text()
    assert reply.status == 200
    name = said[said.rindex('"resp_') + 1 :].partition('"')[0] if stream else json.loads(said)["id"]
    async with http.get(f"{url}/{name}", headers=headers) as reply:
        again = await reply.text()
    assert "[REDACTED:CREDIT_CARD]" in again
    own_upstreams.openai.answer(Answer())
    async with http.post(
        url, json=asked | {"previous_response_id": name}, headers=headers
    ) as reply:
        await reply.read()
    assert reply.status in {200, 400}, "what was masked may be no history any more"
    sent = b"".join(call.body for call in own_upstreams.openai.calls[1:]).decode()
    for told in (said, again, sent):
        assert not [place for mark, place in marks.items() if mark in told]
