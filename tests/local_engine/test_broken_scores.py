"""Scores that are no numbers, as after an overflow, are told as a fault and never as an answer."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from local_engine.runner import model_runner
from tests.local_engine.late_device import LateTimeline
from tests.local_engine.served import Served, client_of, served


BODY = {"model": "tiny", "prompt": "word " * 40, "max_tokens": 4, "ignore_eos": True}
TENANT = {"x-gatewright-tenant": "a"}
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Overflow:
    """Stands before a decoder's last product: the scores of some rows are no numbers."""

    def __init__(self, place: Served, value: float) -> None:
        self._logits = place.runner._decoder.logits
        self._value = value
        self.rows: slice | None = None
        self.fewest = 1
        """With fewer rows than that nothing is broken."""
        place.runner._decoder.logits = self  # type: ignore[method-assign]

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._logits(hidden).clone()
        if self.rows is not None and len(logits) >= self.fewest:
            first = 0 if self._value == -torch.inf else 700
            logits[self.rows, first:] = self._value
        return logits


async def ask(client: httpx.AsyncClient, **fields: Any) -> tuple[int, Any]:
    response = await client.post("/v1/completions", json={**BODY, **fields}, headers=TENANT)
    return response.status_code, response.json()


WAYS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1},
    {"temperature": 1, "top_p": 0.5},
    {"temperature": 0, "presence_penalty": 1, "logprobs": 2},
    {"temperature": 1, "guided_regex": "[a-z]{9}"},
]


DEVICES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "ahead": {"overlap": "on"},
    "with guesses": {"num_drafts": 2},
    "a device that works on": {"overlap": "on"},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
async def test_scores_that_are_no_numbers_fail_the_request_and_are_not_met_again(
    tiny_model_for_module: Path, device: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = DEVICES[device]
    if device == "a device that works on":
        monkeypatch.setattr(model_runner, "choose_timeline", lambda _: LateTimeline())
    async with served(tiny_model_for_module, **options) as place, client_of(place.engine) as client:
        overflow = Overflow(place, value)
        for way in WAYS:
            overflow.rows = slice(None)
            status, answer = await ask(client, **way)
            assert (status, answer["error"]["code"]) == (500, "engine_failed"), way
        overflow.rows = None
        status, answer = await ask(client)
        assert status == 200
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        status, answer = await ask(client)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        while place.scheduler.has_work:
            await asyncio.sleep(0.005)
        place.scheduler.check()


async def test_who_is_in_the_same_step_gets_the_answer_it_would_have_got(
    tiny_model_for_module: Path,
) -> None:
    async with served(tiny_model_for_module) as place, client_of(place.engine) as client:
        _, alone = await ask(client, temperature=0)
        overflow = Overflow(place, float("nan"))
        overflow.rows, overflow.fewest = slice(0, 1), 2
        place.fragile.may_run.clear()
        both = [asyncio.create_task(ask(client, temperature=0)) for _ in range(2)]
        while place.engine._link.num_open < 2:
            await asyncio.sleep(0.005)
        place.fragile.may_run.set()
        answers = [await task for task in both]
    assert sorted(status for status, _ in answers) == [200, 500]
    (answer,) = (answer for status, answer in answers if status == 200)
    assert answer["choices"][0]["text"] == alone["choices"][0]["text"]


async def test_a_text_whose_states_are_no_numbers_has_no_embedding(
    tiny_model_for_module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tiny_model_for_module) as place, client_of(place.engine) as client:
        asked = {"model": "tiny", "input": "a"}
        broken = torch.full((1, 3, 8), float("nan"))
        with monkeypatch.context() as patch:
            patch.setattr(place.runner._decoder, "forward", lambda *_: broken)
            answer = await client.post("/v1/embeddings", json=asked)
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_failed")
        assert (await client.post("/v1/embeddings", json=asked)).status_code == 200
