"""Who leaves is computed for no longer, whatever else of his waits on the connection."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from local_engine.serve.options import ConnectionBounds
from tests.local_engine.listening import anyio_backend, connect, is_encrypted, listening, wire
from tests.local_engine.models import tiny_spec, write_model_directory
from tests.local_engine.served import served


__all__ = ["anyio_backend", "is_encrypted", "wire"]
pytestmark = pytest.mark.anyio


def chat(num_tokens: int, *, is_stream: bool) -> bytes:
    asked = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": num_tokens,
        "ignore_eos": True,
        "stream": is_stream,
    }
    body = json.dumps(asked).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: here\r\n"
    return head + b"content-length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("num_answered", [0, 1])
async def test_who_leaves_while_more_of_his_waits_is_computed_for_no_longer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, num_answered: int, *, is_stream: bool
) -> None:
    write_model_directory(tmp_path / "long", tiny_spec(context_window=1 << 15))
    asked = [chat(1, is_stream=False)] * num_answered
    asked += [chat(30_000, is_stream=is_stream), chat(30_000, is_stream=is_stream)]
    async with (
        asyncio.timeout(60.0),
        served(tmp_path / "long", max_running=1) as place,
        listening(place.engine, ConnectionBounds()) as door,
    ):
        _, writer = await connect(door.port)
        writer.write(b"".join(asked))
        while not (place.scheduler.num_running and place.engine.stats().num_steps > 50):
            await asyncio.sleep(0.02)
        writer.transport.abort()
        with caplog.at_level(logging.ERROR):
            while place.scheduler.has_work:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
        metrics = place.engine.metrics.render(place.engine.stats()).decode()
        assert 'requests_total{finish_reason="abort"} 1.0' in metrics
        assert ('finish_reason="length"} 1.0' in metrics) == bool(num_answered)
        assert not caplog.records
