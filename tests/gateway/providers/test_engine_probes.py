"""An engine that is slow to answer a probe is busy; one that never does, or that left, is down."""

import asyncio
from collections.abc import AsyncIterator
from typing import Self

import pytest

from gateway.errors import UpstreamTimeout
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.egress.reply import EgressLimits
from gateway.providers.engine import SILENCES_MAX, EngineProvider
from gateway.worker.probing import Prober
from tests.gateway.providers.samples import HOME, make_call, make_target


pytestmark = pytest.mark.anyio

TARGET = make_target("scripted/one")
LISTED = b'{"data":[{"id":"fake-model"}]}'
SAID_NOTHING = "the upstream did not answer in time"
AT_ONCE_S = 0.1


class Engine:
    """On a real socket; it takes every question and answers those it has time for."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.free.set()
        self.held = ""
        """Only what is asked there waits; everything where it is empty."""
        self.status = b"200 OK"
        self.slowly_s = 0.0
        self.port = 0
        self.asked: list[str] = []
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def leave(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self.free.set()
            for writer in self._writers:
                writer.transport.abort()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.asked.append(head.split(b" ")[1].decode())
                if self.asked[-1].startswith(self.held):
                    await self.free.wait()
                await asyncio.sleep(self.slowly_s)
                sizes = (self.status, len(LISTED))
                writer.write(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n" % sizes + LISTED)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with Engine() as running:
        yield running


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    # Callers wait no time at all for a first byte: whatever is waited for here has its own time.
    made = Egress(EgressLimits(first_byte_s=0.0, idle_s=5.0))
    yield made
    await made.close()


def provider(engine: Engine, egress: Egress, probe_timeout_s: float) -> EngineProvider:
    return EngineProvider(
        ProviderConfig(
            name="house",
            kind="engine",
            jurisdiction=HOME,
            base_url=f"http://127.0.0.1:{engine.port}",
            probe_timeout_s=probe_timeout_s,
        ),
        egress,
    )


def prober(house: EngineProvider) -> Prober:
    hosts = {"somebody": house}
    return Prober(hosts, hosts, (TARGET,), lambda: None)


async def test_a_probe_waits_longer_than_callers_do_for_a_first_byte(
    engine: Engine, egress: Egress
) -> None:
    engine.slowly_s = 0.01

    assert await provider(engine, egress, 30.0).probe() == ""


async def test_an_engine_that_was_well_may_leave_some_probes_unanswered(
    engine: Engine, egress: Egress
) -> None:
    house = provider(engine, egress, 30.0)
    looking = prober(house)
    await looking.probe()
    house._probe_timeout_s = AT_ONCE_S
    engine.free.clear()
    for _ in range(SILENCES_MAX):
        await looking.probe()
        assert looking.said("somebody") == ("", ("fake-model",))

    await looking.probe()

    assert looking.said("somebody") == (SAID_NOTHING, ())


async def test_while_a_probe_is_unanswered_the_engine_is_asked_nothing_more(
    engine: Engine, egress: Egress
) -> None:
    house = provider(engine, egress, 30.0)
    looking = prober(house)
    await looking.probe()
    house._probe_timeout_s = AT_ONCE_S
    engine.free.clear()
    engine.asked.clear()
    await looking.probe()

    assert engine.asked == ["/health/ready"]


async def test_an_answer_in_between_makes_the_count_of_silences_begin_anew(
    engine: Engine, egress: Egress
) -> None:
    house = provider(engine, egress, 30.0)
    for silences in (SILENCES_MAX, 1):
        assert await house.probe() == ""
        house._probe_timeout_s = AT_ONCE_S
        engine.free.clear()
        for _ in range(silences):
            assert await house.probe() == ""
        engine.free.set()
        house._probe_timeout_s = 30.0

    assert await house.probe() == ""
    assert [model.id for model in await house.list_models()] == ["fake-model"]


async def test_a_list_that_does_not_come_is_a_silence_too(engine: Engine, egress: Egress) -> None:
    house = provider(engine, egress, 30.0)
    assert await house.probe() == ""
    house._probe_timeout_s = AT_ONCE_S
    engine.held = "/v1/models"
    engine.free.clear()
    looking = prober(house)
    for _ in range(SILENCES_MAX):
        await looking.probe()
        assert looking.said("somebody") == ("", ("fake-model",))

    await looking.probe()

    assert looking.said("somebody") == (SAID_NOTHING, ())


async def test_a_list_that_is_late_after_a_good_probe_is_the_one_before(
    engine: Engine, egress: Egress
) -> None:
    house = provider(engine, egress, 30.0)
    assert await house.probe() == ""
    house._probe_timeout_s = AT_ONCE_S
    engine.free.clear()

    assert [model.id for model in await house.list_models()] == ["fake-model"]


async def test_an_engine_that_never_answered_is_down_at_once(
    engine: Engine, egress: Egress
) -> None:
    engine.free.clear()
    house = provider(engine, egress, AT_ONCE_S)

    assert await house.probe() == SAID_NOTHING
    with pytest.raises(UpstreamTimeout):
        await house.list_models()


async def test_an_engine_that_left_is_down_at_once_and_so_while_it_is_silent_after_that(
    engine: Engine, egress: Egress
) -> None:
    house = provider(engine, egress, 30.0)
    assert await house.probe() == ""
    await engine.leave()
    assert "could not be connected to" in await house.probe()

    async with engine:
        engine.free.clear()
        house._probe_timeout_s = AT_ONCE_S
        assert await house.probe() == SAID_NOTHING


async def test_an_engine_that_says_it_is_not_ready_is_down_at_once(
    engine: Engine, egress: Egress
) -> None:
    house = provider(engine, egress, 30.0)
    assert await house.probe() == ""
    engine.status = b"503 Busy"
    assert await house.probe() == "it is not ready (HTTP 503)"

    house._probe_timeout_s = AT_ONCE_S
    engine.free.clear()
    assert await house.probe() == SAID_NOTHING


async def test_a_machine_that_takes_no_connection_is_down_at_once_and_until_it_answers(
    engine: Engine, egress: Egress, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = provider(engine, egress, 30.0)
    assert await house.probe() == ""
    await engine.leave()
    house._probe_timeout_s = AT_ONCE_S

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    # A machine without power: nobody says no.
    with monkeypatch.context() as without_power:
        without_power.setattr(asyncio.get_running_loop(), "create_connection", never)
        assert await house.probe() == "the upstream could not be connected to in time"

    async with engine:
        engine.free.clear()
        assert await house.probe() == SAID_NOTHING


async def test_an_engine_whose_connections_are_all_taken_is_asked_all_the_same(
    engine: Engine,
) -> None:
    """Whether it answers says something of the engine; how many calls it has says nothing."""
    egress = Egress(EgressLimits(connections_per_host_max=1))
    house = provider(engine, egress, 1.0)
    assert await house.probe() == ""
    engine.free.clear()
    engine.held = "/v1/chat"
    call = asyncio.create_task(house.open(make_call()))
    while "/v1/chat/completions" not in engine.asked:
        await asyncio.sleep(0.01)
    waiting = asyncio.create_task(house.open(make_call()))
    for _ in range(SILENCES_MAX + 2):
        assert await house.probe() == ""
    assert [model.id for model in await house.list_models()] == ["fake-model"]
    assert house._silences == 0
    assert engine.asked.count("/v1/chat/completions") == 1
    engine.free.set()
    for each in (call, waiting):
        await (await each).close()
    await egress.close()
