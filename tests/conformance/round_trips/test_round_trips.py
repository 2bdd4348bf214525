"""Every shape from every caller to every upstream and back, as `cells.txt` says."""

import re
from collections.abc import AsyncIterator
from itertools import product

import pytest

from gateway.types import DialectName
from tests.conformance.contract import ROOT
from tests.conformance.probes import words_of, words_sent
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


def test_every_name_that_is_told_is_one_that_its_caller_sent() -> None:
    written = cells.written()
    every = [each for way in product(cells.NAMES, cells.TARGETS) for each in cells.cells(*way)]
    told = [
        (cell, name)
        for cell in every
        for names in re.findall(r"(?:reported|refused:) ([^:;]+)", written[str(cell)])
        for name in names.split(", ")
    ]

    assert len(told) > 30
    for cell, name in told:
        assert words_of(name) <= words_sent(cells.asking(cell)), (str(cell), name)


def test_the_documents_say_how_many_there_are() -> None:
    text = ROOT.joinpath("docs", "translation.md").read_text(encoding="utf-8")

    assert f"cells.txt`: {len(cells.written())} of a caller" in text
