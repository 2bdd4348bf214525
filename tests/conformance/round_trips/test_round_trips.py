"""Every shape from every caller to every upstream and back, as `cells.txt` says."""

from collections.abc import AsyncIterator

import pytest

from gateway.types import DialectName
from tests.conformance.contract import ROOT
from tests.conformance.round_trips import cells
from tests.conformance.round_trips.heard import Callers
from tests.conformance.round_trips.said import SpeakingUpstreams
from tests.running_gateway import RunningGateway


pytestmark = pytest.mark.anyio

SETTINGS = cells.SETTINGS


@pytest.fixture(scope="module")
async def shared_upstreams() -> AsyncIterator[SpeakingUpstreams]:
    async with SpeakingUpstreams() as running:
        yield running


@pytest.fixture
async def callers(shared_gateway: RunningGateway, shared_key: str) -> AsyncIterator[Callers]:
    clients = Callers(shared_gateway.url, shared_key)
    yield clients
    await clients.close()


@pytest.mark.parametrize("target", cells.TARGETS)
@pytest.mark.parametrize("caller", cells.NAMES)
async def test_every_shape_comes_through_or_is_refused_in_words(
    callers: Callers, shared_upstreams: SpeakingUpstreams, caller: DialectName, target: str
) -> None:
    verdicts = cells.Verdicts(callers, shared_upstreams)
    found = {str(cell): await verdicts.of(cell) for cell in cells.cells(caller, target)}

    way = f"{cells.NAMES[caller]} → {target}: "
    written = {name: told for name, told in cells.written().items() if name.startswith(way)}
    assert found == written, "if it is meant so: `python -m tests.conformance.round_trips.cells`"


def test_what_arrives_otherwise_without_a_word_is_explained() -> None:
    lost = {name for name, told in cells.written().items() if told.startswith("other")}
    shapes = {name.partition(": ")[2] for name in lost}

    assert shapes == set(cells.EXPLAINED)


def test_the_documents_say_how_many_there_are() -> None:
    text = ROOT.joinpath("docs", "api.md").read_text(encoding="utf-8")

    assert f"cells.txt`: {len(cells.written())} of a caller" in text
