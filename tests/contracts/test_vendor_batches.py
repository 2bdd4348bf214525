"""The fake of the vendors' batch APIs takes what their own SDKs send, and gives what they read."""

import anthropic
import msgspec
import openai
import pytest

from tests.upstreams import RecordingUpstream


pytestmark = pytest.mark.anyio


async def test_openais_sdk_uploads_makes_reads_and_forgets_a_batch() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    url = "/v1/chat/completions"
    wire = {"custom_id": "gwp-a-1", "method": "POST", "url": url, "body": body}
    async with (
        RecordingUpstream() as upstream,
        openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="k") as client,
    ):
        file = await client.files.create(
            file=("gwp-a.jsonl", msgspec.json.encode(wire)),
            purpose="batch",
            expires_after={"anchor": "created_at", "seconds": 259_200},
        )
        made = await client.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={"gatewright": "gwp-a"},
            output_expires_after={"anchor": "created_at", "seconds": 259_200},
        )
        assert [each.id async for each in client.batches.list()] == [made.id]
        batch = await client.batches.retrieve(made.id)
        assert (batch.status, batch.metadata) == ("completed", {"gatewright": "gwp-a"})
        content = (await client.files.content(batch.output_file_id or "")).content
        await client.files.delete(file.id)
    assert msgspec.json.decode(content)["response"]["body"]["object"] == "chat.completion"
    assert upstream.batches.deleted == [file.id]


async def test_anthropics_sdk_makes_reads_and_forgets_a_batch() -> None:
    async with (
        RecordingUpstream() as upstream,
        anthropic.AsyncAnthropic(base_url=upstream.url, api_key="k") as client,
    ):
        batches = client.messages.batches
        made = await batches.create(
            requests=[
                {
                    "custom_id": "gwp-a-1",
                    "params": {
                        "model": "m",
                        "max_tokens": 5,
                        "messages": [{"role": "user", "content": "Hi"}],
                    },
                }
            ]
        )
        assert [each.id async for each in batches.list()] == [made.id]
        assert (await batches.retrieve(made.id)).processing_status == "ended"
        await batches.cancel(made.id)
        found = [each async for each in await batches.results(made.id)]
        await batches.delete(made.id)
    assert [(each.custom_id, each.result.type) for each in found] == [("gwp-a-1", "succeeded")]
    assert upstream.batches.deleted == [made.id]
