"""Content that could not be inspected counts as secret: it stays in the house or goes nowhere."""

from pathlib import Path

import aiohttp
import msgspec
import pytest

from classifiers.parts import Part
from gateway.inspection import inspector as inspection_module
from tests.faults.envelopes import STYLES, Caller, Style, ask, check_error, only_outcome
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)


pytestmark = pytest.mark.anyio

SETTINGS = """
[inspection]
deadline_s = 0.000001
deadline_s_per_mib = 0.0
inline_bytes_max = 10000
"""
both = pytest.mark.parametrize("style", STYLES)
models = pytest.mark.parametrize("model", ["auto", "auto:quality", CLAUDE_TARGET, GPT_TARGET])
CANARY = "canary-in-a-broken-classifier"
LONG = [{"role": "user", "content": "A harmless sentence about the weather. " * 1000}]


class Broken:
    """A classifier that fails in a way nobody thought of."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, *_: object) -> list[Part]:
        raise self._error


@pytest.fixture(params=[RuntimeError(CANARY), RecursionError(), MemoryError(), TimeoutError()])
def broken_classifier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection_module, "parts_of", Broken(request.param))


async def assert_stayed_home(
    caller: Caller, upstreams: Upstreams, style: Style, body: dict[str, object]
) -> None:
    reply = await caller.post(style, body)

    assert reply.status == 200
    assert reply.headers["x-gatewright-target"] == ENGINE_TARGET
    assert not any(upstream.requests for upstream in upstreams.managed)
    outcome = await only_outcome(caller.gateway, reply.request_id, "ok", "")
    assert outcome.data_class == "S4"
    assert not outcome.inspection_complete


@both
@models
@pytest.mark.parametrize("stream", [False, True])
async def test_a_late_inspection_keeps_a_request_at_home(
    caller: Caller, upstreams: Upstreams, style: Style, model: str, stream: bool
) -> None:
    body = ask(style, model=model, stream=stream, messages=LONG)

    await assert_stayed_home(caller, upstreams, style, body)


@both
@models
@pytest.mark.usefixtures("broken_classifier")
async def test_a_failing_classifier_keeps_a_request_at_home(
    caller: Caller, upstreams: Upstreams, style: Style, model: str
) -> None:
    await assert_stayed_home(caller, upstreams, style, ask(style, model=model))


@both
async def test_a_failing_complexity_model_keeps_a_request_at_home(
    caller: Caller, upstreams: Upstreams, style: Style, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = caller.gateway.plane._inspector._scorer
    monkeypatch.setattr(type(scorer), "assess", Broken(ValueError(CANARY)))

    await assert_stayed_home(caller, upstreams, style, ask(style, model="auto"))


@both
@models
async def test_without_the_engine_what_was_not_inspected_goes_nowhere(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    style: Style,
    model: str,
) -> None:
    await own_upstreams.engine.stop()
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=SETTINGS) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        reply = await caller.post(style, ask(style, model=model, messages=LONG))
        records = await gateway.records(reply.request_id)

    check_error(reply, style, "no_target_available")
    assert not any(upstream.requests for upstream in own_upstreams.managed)
    assert records[-1].data_class == "S4"


@both
async def test_the_text_of_a_classifiers_error_goes_nowhere(
    caller: Caller,
    upstreams: Upstreams,
    style: Style,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(inspection_module, "parts_of", Broken(RuntimeError(CANARY)))

    reply = await caller.post(style, ask(style))

    records = await caller.gateway.records(reply.request_id)
    captured = capfd.readouterr()
    assert CANARY not in captured.out + captured.err
    assert CANARY.encode() not in reply.body + msgspec.json.encode(records)
