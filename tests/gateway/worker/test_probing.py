"""Engines are asked; the board changes when an answer does, and only then."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from gateway.errors import UpstreamMalformed
from gateway.ports import ServedModel
from gateway.providers.engine import EngineModel
from gateway.providers.scripted import ScriptedProvider
from gateway.worker.probing import NOT_SERVED, Prober
from tests.gateway.providers.samples import HOME, make_target


pytestmark = pytest.mark.anyio

TARGET = make_target("scripted/one")


class Host(ScriptedProvider):
    """An engine that says what it is told to say."""

    def __init__(self) -> None:
        super().__init__("somebody", HOME)
        self.models: list[ServedModel] = [EngineModel("fake-model", "digest-1", 500)]
        self.is_garbled = False

    async def list_models(self) -> Sequence[ServedModel]:
        if self.is_garbled:
            raise UpstreamMalformed("it lists its models in an unknown form")
        return self.models


class Board:
    def __init__(self) -> None:
        self.host = Host()
        self.published = 0
        providers = {"somebody": self.host}
        self.prober = Prober(providers, providers, (TARGET,), self._publish)

    def _publish(self) -> None:
        self.published += 1

    @property
    def reason(self) -> str:
        return self.prober.board().unavailable_reason(TARGET.name)


async def test_before_the_first_probe_a_target_counts_as_available() -> None:
    board = Board()

    assert board.reason == ""
    assert board.prober.board().targets == {TARGET.name: TARGET}


async def test_a_board_is_published_when_an_answer_changes_and_not_otherwise() -> None:
    board = Board()
    for verdict, published in (("", 1), ("", 1), ("down", 2), ("down", 2), ("up?", 3), ("", 4)):
        board.host.probe_verdict = verdict
        await board.prober.probe()
        assert (board.published, board.reason) == (published, verdict)


async def test_an_engine_that_hangs_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, other, asked = Host(), Host(), asyncio.Event()

    async def until_the_other_was_asked() -> str:
        await asked.wait()
        return "it took too long"

    async def down() -> str:
        asked.set()
        return "down"

    monkeypatch.setattr(hanging, "probe", until_the_other_was_asked)
    monkeypatch.setattr(other, "probe", down)
    hosts = {"hanging": hanging, "somebody": other}
    prober = Prober(hosts, hosts, (TARGET,), lambda: None)
    async with asyncio.timeout(20):
        await prober.probe()

    assert prober.said("hanging") == ("it took too long", ())
    assert prober.board().unavailable_reason(TARGET.name) == "down"


async def test_what_the_engine_says_of_itself_is_on_the_board() -> None:
    board = Board()
    await board.prober.probe()
    target = board.prober.board().targets[TARGET.name]
    assert (target.digest, target.context_window_tokens) == ("digest-1", 500)

    board.host.models = [EngineModel("fake-model", "digest-2", 10**9)]
    await board.prober.probe()
    target = board.prober.board().targets[TARGET.name]

    assert target.digest == "digest-2"
    assert target.context_window_tokens == TARGET.context_window_tokens
    assert board.published == 2


async def test_a_model_the_engine_does_not_serve_is_unavailable() -> None:
    board = Board()
    board.host.models = [EngineModel("another")]
    await board.prober.probe()

    assert board.reason == NOT_SERVED


async def test_a_garbled_list_takes_the_target_away_and_is_logged() -> None:
    board = Board()
    await board.prober.probe()
    board.host.is_garbled = True
    with capture_logs() as logs:
        await board.prober.probe()
        board.host.is_garbled = False
        await board.prober.probe()

    assert [log["event"] for log in logs] == ["probe:failed", "probe:recovered"]
    assert board.reason == ""


async def test_a_provider_that_cannot_be_called_needs_no_probe() -> None:
    board = Board()
    board.host.unavailable_reason = "no credential"

    assert board.reason == "no credential"


async def test_what_hosts_said_is_told_and_what_serves_only_while_it_is_up() -> None:
    board = Board()
    assert board.prober.said("somebody") is None
    assert list(board.prober.serving("somebody")) == []

    await board.prober.probe()
    assert board.prober.said("somebody") == ("", ("fake-model",))
    assert list(board.prober.serving("somebody")) == board.host.models

    board.host.probe_verdict = "down"
    await board.prober.probe()
    assert board.prober.said("somebody") == ("down", ())
    assert list(board.prober.serving("somebody")) == []


def test_speeds_are_on_the_board_and_published_when_they_change_alone() -> None:
    board = Board()
    for speeds, published in (({"one": 200}, 1), ({"one": 200}, 1), ({"one": 400}, 2)):
        board.prober.measured(speeds)
        assert board.prober.board().first_token_ms == speeds
        assert board.published == published


def test_other_prices_are_on_the_board_at_once() -> None:
    board = Board()
    price = structs.replace(TARGET.price, input_microusd_per_mtok=7)
    dearer = structs.replace(TARGET, price=price)
    board.prober.retarget((dearer,))
    assert board.published == 1
    assert board.prober.board().targets == {TARGET.name: dearer}
