"""The engine inside one process: streams, early leaving, failing steps, not being ready yet."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from local_engine.core.sampling_params import SamplingParams
from local_engine.core.scheduler import QueueFull, Step
from local_engine.model.decoder import Decoder
from local_engine.model.loader import load_model
from local_engine.model.spec import SamplingDefaults
from local_engine.runner.model_runner import ModelRunner
from local_engine.runner.sampler import SampledToken
from local_engine.serve.app import EngineApp
from local_engine.serve.engine import Engine, StepFailed
from local_engine.text.tokenizer import load_chat_tokenizer


MESSAGES = [{"role": "user", "content": "hello"}]
BODY: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 3}
pytestmark = pytest.mark.anyio


class FragileRunner(ModelRunner):
    """A runner that can be held, and fails while `is_broken`, as a GPU without memory would."""

    is_broken = False

    def __init__(self, decoder: Decoder, device: torch.device) -> None:
        super().__init__(decoder, device)
        self.may_run = threading.Event()
        self.may_run.set()

    def execute(self, step: Step) -> SampledToken | None:
        self.may_run.wait()
        if self.is_broken:
            raise RuntimeError("the prompt was: hello")
        return super().execute(step)

    @property
    def num_kept(self) -> int:
        return len(self._running)


@pytest.fixture
def runner(tiny_model: Path) -> FragileRunner:
    return FragileRunner(load_model(tiny_model).decoder, torch.device("cpu"))


@pytest.fixture
def engine(tiny_model: Path, runner: FragileRunner) -> Iterator[Engine]:
    tokenizer = load_chat_tokenizer(tiny_model)
    defaults = SamplingDefaults(temperature=0.0)
    engine = Engine(
        tokenizer, runner, name="tiny", digest="sha256:0", defaults=defaults, max_waiting=1
    )
    yield engine
    engine.stop()


async def client_of(engine: Engine | None) -> httpx.AsyncClient:
    app = EngineApp()
    if engine is not None:
        app.attach("tiny", engine)
    transport = httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url="http://engine")


async def until_idle(engine: Engine) -> None:
    while engine.queue_lengths() != (0, 0):
        await asyncio.sleep(0.005)


async def test_outputs_end_with_a_reason_and_leave_nothing_behind(
    engine: Engine, runner: FragileRunner
) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=5, logit_bias={1: -100.0})
    sequence = await engine.prepare(MESSAGES, params)
    async with engine.generate(sequence) as running:
        outputs = [output async for output in running.outputs]
    assert len(outputs) == 5
    assert [output.finish_reason for output in outputs] == [None] * 4 + ["length"]
    assert runner.num_kept == 0


async def test_leaving_early_stops_the_sequence_and_frees_its_cache(
    engine: Engine, runner: FragileRunner
) -> None:
    params = SamplingParams(temperature=0.0, logit_bias={1: -100.0})
    sequence = await engine.prepare(MESSAGES, params)
    async with engine.generate(sequence) as running:
        await anext(running.outputs)
    await until_idle(engine)
    follower = await engine.prepare(MESSAGES, SamplingParams(temperature=0.0, max_tokens=1))
    async with engine.generate(follower) as running:
        outputs = [output async for output in running.outputs]
    assert len(outputs) == 1
    assert sequence.finish_reason in {"abort", "length"}
    assert runner.num_kept == 0


async def test_a_waiting_sequence_that_is_left_gives_its_place_back(
    engine: Engine, runner: FragileRunner
) -> None:
    runner.may_run.clear()
    one, two, three = [await engine.prepare(MESSAGES, SamplingParams()) for _ in range(3)]
    async with engine.generate(one):
        async with engine.generate(two):
            with pytest.raises(QueueFull):
                await engine.generate(three).__aenter__()
        async with engine.generate(three):
            assert two.finish_reason == "abort"
            runner.may_run.set()


async def test_a_failing_step_fails_one_request_and_not_the_engine(
    engine: Engine, runner: FragileRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.is_broken = True
    sequence = await engine.prepare(MESSAGES, SamplingParams())
    async with engine.generate(sequence) as running:
        with pytest.raises(StepFailed):
            await anext(running.outputs)
    runner.is_broken = False
    async with await client_of(engine) as client:
        response = await client.post("/v1/chat/completions", json=BODY)
    assert response.status_code == 200
    logged = capsys.readouterr().out
    assert "engine.step_failed" in logged
    assert "hello" not in logged


async def test_a_failing_step_reaches_the_client_as_an_error(
    engine: Engine, runner: FragileRunner
) -> None:
    runner.is_broken = True
    async with await client_of(engine) as client:
        whole = await client.post("/v1/chat/completions", json=BODY)
        stream = await client.post("/v1/chat/completions", json={**BODY, "stream": True})
    assert whole.status_code == 500
    assert whole.json()["error"]["code"] == "engine_failed"
    assert '"code":"engine_failed"' in stream.text
    assert "[DONE]" not in stream.text


async def test_before_the_model_is_there_the_engine_is_alive_but_not_ready() -> None:
    async with await client_of(None) as client:
        assert (await client.get("/health/live")).status_code == 200
        ready = await client.get("/health/ready")
        chat = await client.post("/v1/chat/completions", json=BODY)
    assert (ready.status_code, chat.status_code) == (503, 503)
    assert chat.json()["error"]["code"] == "model_loading"
    assert int(chat.headers["retry-after"]) >= 1


async def test_a_bias_on_a_token_that_does_not_exist_is_refused(engine: Engine) -> None:
    async with await client_of(engine) as client:
        response = await client.post(
            "/v1/chat/completions", json={**BODY, "logit_bias": {"99999": 1}}
        )
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "logit_bias"
