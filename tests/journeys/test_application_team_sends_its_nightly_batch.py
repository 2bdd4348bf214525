"""An application team sends a night's work in one file, and can answer for every line of it."""

import asyncio
from pathlib import Path

import aiohttp
import msgspec
import openai
import pytest

from tests.running_gateway import ENGINE_TARGET, GPT_TARGET, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio

IBAN = "DE89 3704 0044 0532 0130 00"
NOTES = {"public": "The bridge opens in May.", "payment": f"Pay {IBAN} by Friday."}


def _file() -> bytes:
    lines = [
        {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": GPT_TARGET, "messages": [{"role": "user", "content": note}]},
        }
        for name, note in NOTES.items()
    ]
    return b"\n".join(map(msgspec.json.encode, lines))


async def test_a_night_of_work_is_sent_fetched_explained_and_counted(
    tmp_path: Path, database_url: str
) -> None:
    settings = "[inspection]\ndeadline_s = 30.0\n"
    async with (
        Upstreams() as upstreams,
        RunningGateway(tmp_path, database_url, upstreams, more=settings) as gateway,
        aiohttp.ClientSession() as http,
    ):
        key = await gateway.issue_key()
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
            file = await client.files.create(file=("night.jsonl", _file()), purpose="batch")
            batch = await client.batches.create(
                input_file_id=file.id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
            )
            while batch.status != "completed":
                await asyncio.sleep(0.05)
                batch = await client.batches.retrieve(batch.id)
            content = (await client.files.content(batch.output_file_id or "")).content
            await client.files.delete(file.id)
            await client.files.delete(batch.output_file_id or "")
            left = [each.id async for each in client.files.list()]

        # Each line says what served it; what must stay home did, though it asked for another.
        wires = {each["custom_id"]: each for each in map(msgspec.json.decode, content.splitlines())}
        targets = {name: wire["gatewright"]["target"] for name, wire in wires.items()}
        assert targets == {"public": GPT_TARGET, "payment": ENGINE_TARGET}
        assert b"DE89" not in b"".join(call.body for call in upstreams.openai.calls)
        assert left == []

        # And why: the team asks by the request id that stands in its result.
        request_id = wires["payment"]["response"]["request_id"]
        headers = {"authorization": f"Bearer {key}"}
        status, explained = 0, {}
        while status != 200:
            await asyncio.sleep(0.1)
            url = f"{gateway.url}/v1/decisions/{request_id}"
            async with http.get(url, headers=headers) as response:
                status, explained = response.status, await response.json()
        assert "in-house engine instead of" in explained["sentence"]

        records = await gateway.records()
        details = [(each.stage, each.detail.get("line")) for each in records if each.detail]
        assert sorted(details) == [(stage, n) for stage in ("intent", "outcome") for n in "12"]
        async with http.get(f"{gateway.url}/metrics") as response:
            metrics = await response.text()
    assert 'gatewright_batch_lines_ended_total{state="succeeded"} 2.0' in metrics
