"""The engine over its socket: streams, early leaving, failing steps, lost workers."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from local_engine.core.limits import QueueFull
from local_engine.sampling_params import SamplingParams
from local_engine.serve.compute import worker
from local_engine.serve.engine import Engine
from local_engine.serve.generation import Caller, Generation
from local_engine.serve.link import StepFailed
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
    assert place.runner._chooser._kept == {}


async def test_leaving_early_stops_the_sequence_and_frees_its_blocks(place: Served) -> None:
    one = await generation(place.engine, logit_bias=NEVER_END)
    async with place.engine.generate(one) as running:
        await anext(running.outputs)
    await until_idle(place)
    follower = await generation(place.engine, max_tokens=1)
    async with place.engine.generate(follower) as running:
        assert len([output async for output in running.outputs]) == 1
    assert one.finish_reason is None
    assert place.runner._chooser._kept == {}


async def test_texts_to_embed_take_turns_with_steps_and_are_let_go_with_their_caller(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tiny_model, max_waiting=5) as place:
        worker, embed, steps = place.worker, place.runner.embed, []

        def counted(token_ids: list[int]) -> list[float]:
            steps.append(worker._num_steps)
            return embed(token_ids)

        monkeypatch.setattr(place.runner, "embed", counted)
        running = await generation(place.engine, logit_bias=NEVER_END)
        place.fragile.may_run.clear()
        async with place.engine.generate(running):
            while not place.scheduler.num_running:
                await asyncio.sleep(0.001)
            # The first step is under way, and nothing is read before it ends.
            asking = [asyncio.create_task(place.engine.embed([5, 6])) for _ in range(6)]
            await asyncio.sleep(0)
            asking[4].cancel()
            await asyncio.wait(asking[4:5])
            place.fragile.may_run.set()
            *found, refused = await asyncio.gather(*asking[:4], asking[5], return_exceptions=True)
    assert [isinstance(each, list) for each in found] == [True] * 4
    assert isinstance(refused, StepFailed)
    assert refused.code == "queue_full"
    assert len(steps) == len(set(steps)) == 4, "a step lies between two, and one was let go"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_health_is_told_while_a_long_answer_is_written(
    place: Served, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_writing, is_told = threading.Event(), threading.Event()
    token_text = place.engine.tokenizer.token_text

    def slowly(token_id: int) -> str:
        is_writing.set()
        assert is_told.wait(10), "nobody else was served meanwhile"
        return token_text(token_id)

    monkeypatch.setattr(place.engine.tokenizer, "token_text", slowly)
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 2, "ignore_eos": True}
    if "chat" in path:
        asked |= {"messages": MESSAGES, "logprobs": True}
    else:
        asked |= {"prompt": "hello", "logprobs": 0}
    async with client_of(place.engine) as client:
        answering = asyncio.create_task(client.post(path, json=asked))
        assert await asyncio.to_thread(is_writing.wait, 20)
        for probe in ("/health/ready", "/health"):
            assert (await client.get(probe)).status_code == 200
        is_told.set()
        assert (await answering).status_code == 200


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


@pytest.mark.parametrize("num_choices", [1, 2])
async def test_a_fault_of_our_own_ends_a_request_of_several_choices_too(
    place: Served, monkeypatch: pytest.MonkeyPatch, num_choices: int
) -> None:
    def broken(_: Any) -> str:
        raise ValueError("the answer was: hello")

    monkeypatch.setattr(place.engine.tokenizer, "decode", broken)
    async with asyncio.timeout(20), client_of(place.engine) as client:
        response = await client.post("/v1/chat/completions", json={**BODY, "n": num_choices})
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    await until_idle(place)


async def test_before_the_model_is_there_the_engine_is_alive_but_not_ready() -> None:
    async with client_of(None) as client:
        assert (await client.get("/health/live")).status_code == 200
        ready = await client.get("/health/ready")
        chat = await client.post("/v1/chat/completions", json=BODY)
    assert (ready.status_code, chat.status_code) == (503, 503)
    assert chat.json()["error"]["code"] == "model_loading"
    assert int(chat.headers["retry-after"]) >= 1


async def test_who_drains_an_engine_that_still_loads_need_not_come_back() -> None:
    async with client_of(None) as client:
        assert (await client.get("/metrics")).status_code == 200
        drained = await client.post("/drain")
        assert drained.status_code == 200
        assert drained.json() == {"status": "draining", "running": 0, "waiting": 0}
        ready = await client.get("/health/ready")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "draining")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"stop_token_ids": [99999], "min_tokens": 1}, "stop_token_ids"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"stop_token_ids": [1 << 80]}, "stop_token_ids"),
        ({"max_tokens": 1 << 80}, "max_tokens"),
        ({"min_tokens": 1 << 80}, "min_tokens"),
    ],
)
async def test_a_number_that_means_nothing_is_refused_by_name(
    place: Served, fields: dict[str, Any], param: str
) -> None:
    async with client_of(place.engine) as client:
        response = await client.post("/v1/chat/completions", json={**BODY, **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert place.engine._link.num_open == 0


async def test_a_tenants_share_is_the_longest_that_a_text_can_be(tiny_model: Path) -> None:
    body = {key: value for key, value in BODY.items() if key != "max_tokens"}
    chosen = {"tenant_share": 0.1, "max_running": 1}
    async with served(tiny_model, **chosen) as place, client_of(place.engine) as client:
        response = await client.post("/v1/chat/completions", json={**body, "ignore_eos": True})
        assert response.status_code == 200, response.text
        assert response.json()["usage"]["total_tokens"] == place.engine.context_window


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
        assert await cached(tenant="a", data_class="s4") == 0
        assert await cached(tenant="a", data_class="s4") == 0, "what is no class counts as S4"


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


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tenant", ("a", "b")),
        ("tenant", ("a", "a")),
        ("data-class", ("S4", "S0")),
        ("tier", ("batch", "priority")),
    ],
)
async def test_who_a_request_is_for_is_said_once_or_it_is_refused(
    place: Served, name: str, values: tuple[str, str]
) -> None:
    headers = [(f"X-Gatewright-{name}", value) for value in values]
    async with client_of(place.engine) as client:
        response = await client.post("/v1/chat/completions", json=BODY, headers=headers)
    assert response.status_code == 400
    assert f"x-gatewright-{name} comes twice" in response.json()["error"]["message"]


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


async def test_leaving_in_the_middle_of_a_step_frees_its_blocks_before_the_next(
    place: Served,
) -> None:
    one = await generation(place.engine, logit_bias=NEVER_END)
    async with place.engine.generate(one) as running:
        await anext(running.outputs)
        place.fragile.may_run.clear()
        begun = place.worker._num_steps
    place.fragile.may_run.set()
    await until_idle(place)
    # One was held in its middle, and one may have ended just before.
    assert place.worker._num_steps - begun <= 2


async def test_planning_ahead_changes_no_token(tiny_model: Path) -> None:
    async def answer(client: Any, number: int) -> Any:
        body = {
            "model": "tiny",
            "prompt": f"number {number}",
            "max_tokens": 3 + number,
            "temperature": (0, 0.8)[number % 2],
            "seed": number,
            "frequency_penalty": (0, 0, 1)[number % 3],
            "min_tokens": number % 4,
            "ignore_eos": number % 5 > 0,
            **({"guided_regex": "[a-z]+"} if number == 7 else {}),
        }
        response = await client.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        return response.json()["choices"]

    async def answers(overlap: str) -> list[Any]:
        chosen = {"overlap": overlap, "kv_memory_bytes": 40_000, "max_running": 5}
        async with served(tiny_model, **chosen) as place, client_of(place.engine) as client:
            found = await asyncio.gather(*(answer(client, number) for number in range(14)))
            await until_idle(place)
            assert place.runner._chooser._kept == {}
            assert place.runner._last_tokens == {}
        return found

    assert await answers("on") == await answers("off")


async def test_a_draining_engine_begins_nothing_new_and_ends_what_it_began(place: Served) -> None:
    one = await generation(place.engine, max_tokens=20, logit_bias=NEVER_END)
    async with client_of(place.engine) as client, place.engine.generate(one) as running:
        await anext(running.outputs)
        drained = await client.post("/drain")
        assert (drained.status_code, drained.json()["status"]) == (200, "draining")
        assert drained.json()["running"] == 1
        for path in ("/health/ready", "/health"):
            assert (await client.get(path)).status_code == 503
        assert (await client.get("/health/live")).status_code == 200
        refused = await client.post("/v1/chat/completions", json=BODY)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert refused.headers["retry-after"] == "1"
        outputs = [output async for output in running.outputs]
    assert outputs[-1].finish_reason == "length"
    await until_idle(place)


async def test_lost_blocks_end_the_worker_so_that_a_clean_one_starts(
    place: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Counted after every step and not before the first one, however late the worker comes to wait.
    monkeypatch.setattr(worker, "_CHECK_EVERY_STEPS", 1)
    place.scheduler.blocks.pool.take()
    one = await generation(place.engine, max_tokens=1)
    async with place.engine.generate(one) as running:
        _ = [output async for output in running.outputs]
    await place.engine._link.closed()
    assert "engine.blocks_lost" in capsys.readouterr().out


async def test_a_lost_device_ends_the_worker_so_that_a_new_process_gets_it_back(
    place: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place.runner, "is_usable", lambda: False)
    place.fragile.is_broken = True
    async with place.engine.generate(await generation(place.engine)) as running:
        with pytest.raises(StepFailed):
            await anext(running.outputs)
    await place.engine._link.closed()
    assert "engine.device_lost" in capsys.readouterr().out


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
