"""The engine over its socket: streams, early leaving, failing steps, lost workers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from local_engine.core.sampling_params import SamplingParams
from local_engine.core.scheduler import QueueFull
from local_engine.serve.engine import Caller, Engine, Generation, StepFailed
from tests.local_engine.served import Served, client_of, served


MESSAGES = [{"role": "user", "content": "hello"}]
BODY: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 3}
NEVER_END = {1: -100.0}
pytestmark = pytest.mark.anyio


@pytest.fixture
async def place(tiny_model: Path) -> AsyncIterator[Served]:
    async with served(tiny_model, max_running=1, max_waiting=1) as found:
        yield found


async def generation(engine: Engine, **params: Any) -> Generation:
    prompt = await engine.encode_chat(MESSAGES)
    chosen = SamplingParams(**{"temperature": 0.0, **params})
    return engine.new_generation(prompt, chosen, Caller())


async def until_idle(place: Served) -> None:
    while place.scheduler.has_work:
        await asyncio.sleep(0.005)
    place.scheduler.check()
    assert place.scheduler.blocks.pool.num_free == place.scheduler.limits.num_blocks


async def test_outputs_end_with_a_reason_and_leave_nothing_behind(place: Served) -> None:
    one = await generation(place.engine, max_tokens=5, logit_bias=NEVER_END)
    async with place.engine.generate(one) as running:
        outputs = [output async for output in running.outputs]
    assert len(outputs) == 5
    assert [output.finish_reason for output in outputs] == [None] * 4 + ["length"]
    await until_idle(place)
    assert place.runner._kept == {}


async def test_leaving_early_stops_the_sequence_and_frees_its_blocks(place: Served) -> None:
    one = await generation(place.engine, logit_bias=NEVER_END)
    async with place.engine.generate(one) as running:
        await anext(running.outputs)
    await until_idle(place)
    follower = await generation(place.engine, max_tokens=1)
    async with place.engine.generate(follower) as running:
        assert len([output async for output in running.outputs]) == 1
    assert one.finish_reason is None
    assert place.runner._kept == {}


async def test_a_full_house_refuses_and_a_place_left_can_be_taken(place: Served) -> None:
    place.fragile.may_run.clear()
    one, two, three = [await generation(place.engine) for _ in range(3)]
    async with place.engine.generate(one):
        async with place.engine.generate(two):
            with pytest.raises(QueueFull):
                await place.engine.generate(three).__aenter__()
        async with place.engine.generate(three):
            place.fragile.may_run.set()


async def test_a_failing_step_fails_its_requests_and_not_the_engine(
    place: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    place.fragile.is_broken = True
    async with place.engine.generate(await generation(place.engine)) as running:
        with pytest.raises(StepFailed):
            await anext(running.outputs)
    place.fragile.is_broken = False
    async with client_of(place.engine) as client:
        response = await client.post("/v1/chat/completions", json=BODY)
    assert response.status_code == 200
    logged = capsys.readouterr().out
    assert "engine.step_failed" in logged
    assert "hello" not in logged
    await until_idle(place)


async def test_a_failing_step_reaches_the_client_as_an_error(place: Served) -> None:
    async with client_of(place.engine) as client:
        place.fragile.is_broken = True
        whole = await client.post("/v1/chat/completions", json=BODY)
        stream = await client.post("/v1/chat/completions", json={**BODY, "stream": True})
    for response in (whole, stream):
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "engine_failed"


async def test_before_the_model_is_there_the_engine_is_alive_but_not_ready() -> None:
    async with client_of(None) as client:
        assert (await client.get("/health/live")).status_code == 200
        ready = await client.get("/health/ready")
        chat = await client.post("/v1/chat/completions", json=BODY)
    assert (ready.status_code, chat.status_code) == (503, 503)
    assert chat.json()["error"]["code"] == "model_loading"
    assert int(chat.headers["retry-after"]) >= 1


async def test_a_bias_on_a_token_that_does_not_exist_is_refused(place: Served) -> None:
    async with client_of(place.engine) as client:
        response = await client.post(
            "/v1/chat/completions", json={**BODY, "logit_bias": {"99999": 1}}
        )
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "logit_bias"


async def test_only_the_same_tenant_and_class_see_cached_tokens(tiny_model: Path) -> None:
    long = {**BODY, "messages": [{"role": "user", "content": "word " * 12}], "max_tokens": 1}

    async def cached(**headers: str) -> int:
        named = {f"x-gatewright-{name.replace('_', '-')}": value for name, value in headers.items()}
        response = await client.post("/v1/chat/completions", json=long, headers=named)
        return int(response.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    async with served(tiny_model) as place, client_of(place.engine) as client:
        assert await cached(tenant="a", data_class="S1") == 0
        assert await cached(tenant="a", data_class="S1") >= 16
        assert await cached(tenant="b", data_class="S1") == 0
        assert await cached(tenant="a", data_class="S2") == 0
        assert await cached(tenant="a", data_class="S4") == 0
        assert await cached(tenant="a", data_class="S4") == 0, "S4 leaves nothing to be found"


@pytest.mark.parametrize("shares", [False, True])
async def test_requests_that_nobody_names_share_only_where_there_is_one_tenant(
    tiny_model: Path, *, shares: bool
) -> None:
    long = {**BODY, "messages": [{"role": "user", "content": "word " * 12}], "max_tokens": 1}
    async with (
        served(tiny_model, shares_nameless=shares) as place,
        client_of(place.engine) as client,
    ):
        await client.post("/v1/chat/completions", json=long)
        response = await client.post("/v1/chat/completions", json=long)
    details = response.json()["usage"]["prompt_tokens_details"]
    assert (details["cached_tokens"] > 0) == shares


async def test_a_header_that_means_nothing_is_refused(place: Served) -> None:
    async with client_of(place.engine) as client:
        headers = {"x-gatewright-tier": "royal"}
        response = await client.post("/v1/chat/completions", json=BODY, headers=headers)
    assert response.status_code == 400


async def test_many_at_once_answer_what_one_at_a_time_answers(tiny_model: Path) -> None:
    async def text(client: Any, number: int) -> str:
        body = {
            **BODY,
            "messages": [{"role": "user", "content": f"number {number}"}],
            "max_tokens": 12,
            "temperature": 0,
        }
        response = await client.post("/v1/chat/completions", json=body)
        return str(response.json()["choices"][0]["message"]["content"])

    async with served(tiny_model) as place, client_of(place.engine) as client:
        together = await asyncio.gather(*(text(client, number) for number in range(12)))
        steps = place.engine.stats().num_steps
        alone = [await text(client, number) for number in range(12)]
    assert together == alone
    assert steps < 12 * 12


async def test_a_lost_worker_fails_what_is_in_flight_by_name(place: Served) -> None:
    one = await generation(place.engine, logit_bias=NEVER_END)
    async with place.engine.generate(one) as running:
        await anext(running.outputs)
        place.engine._link._writer.close()
        with pytest.raises(StepFailed) as failure:
            _ = [output async for output in running.outputs]
    assert failure.value.code == "worker_gone"
    assert not place.engine.is_alive
    async with client_of(place.engine) as client:
        response = await client.post("/v1/chat/completions", json=BODY)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "worker_gone")
