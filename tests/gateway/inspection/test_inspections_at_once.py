"""Many callers at once: a text is read once, and nobody is failed for what befell another."""

import asyncio
import threading
from collections.abc import Callable
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.complexity.model import load
from classifiers.pii.detect import Scan
from classifiers.pii.scanner import Scanner
from gateway.clock import SystemClock
from gateway.configuration.sections import InspectionSettings
from gateway.dialects.registry import DIALECTS
from gateway.inspection.inspector import MOST_SENSITIVE, Inspector
from gateway.types import ChatRequest, Inspection


pytestmark = pytest.mark.anyio

Fate = Literal["failed", "deadline"]
ORG = "acme"
CALLERS = 16
LIMIT_S = 1.0
UNHURRIED_S = 20.0


def request(text: str) -> ChatRequest:
    body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
    return DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")


class SlowClock(SystemClock):
    """A clock that goes on when somebody reads, and not while somebody waits."""

    __slots__ = ("now_s",)

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


class Scripted(Scanner):
    """A scanner that has its own way with each text it is given, as long as it is told how."""

    def __init__(self, fates: list[Fate], clock: SlowClock | None = None) -> None:
        super().__init__(None)
        self.gate = threading.Event()
        self.read: list[str] = []
        self._fates = fates
        self.clock = clock

    def scan(self, text: str, expired: Callable[[], bool] = lambda: False) -> Scan:
        self.read.append(text)
        self.gate.wait(UNHURRIED_S)
        if self.clock is not None:
            self.clock.now_s += 0.75 * LIMIT_S
        fate = self._fates.pop(0) if self._fates else None
        if fate == "failed":
            raise ValueError("broken")
        scanned = super().scan(text)
        late = fate == "deadline" or expired()
        return Scan(scanned.findings, complete=not late, late=late)


def inspector_of(scanner: Scanner, clock: SystemClock | None = None) -> Inspector:
    settings = InspectionSettings(
        inline_bytes_max=0,
        deadline_s=LIMIT_S if clock else UNHURRIED_S,
        deadline_s_per_mib=0.0,
        queue_s=UNHURRIED_S,
    )
    return Inspector(settings, load(), clock or SystemClock(), scanner)


@given(
    st.lists(st.sampled_from(["failed", "deadline"]), max_size=4),
    st.sets(st.integers(0, CALLERS - 1), max_size=CALLERS - 1),
)
async def test_one_reads_for_all_whoever_leaves_or_fails_before(
    fates: list[Fate], leaving: set[int]
) -> None:
    scanner = Scripted(list(fates))
    inspector = inspector_of(scanner)
    asking = [
        asyncio.create_task(inspector.inspect(request("mail jane@corp.io"), ORG))
        for _ in range(CALLERS)
    ]
    while not scanner.read:
        await asyncio.sleep(0)
    for number in leaving:
        asking[number].cancel()
    await asyncio.sleep(0)
    scanner.gate.set()
    async with asyncio.timeout(UNHURRIED_S):
        answers = await asyncio.gather(*asking, return_exceptions=True)
    inspector.close()

    gone = {at for at, got in enumerate(answers) if isinstance(got, asyncio.CancelledError)}
    stayed = [got for got in answers if isinstance(got, Inspection)]
    unread = [got for got in stayed if not got.complete]
    # The first was being read for when it left; those behind it were not yet.
    befell = fates[1:] if 0 in leaving else fates
    assert (gone, len(stayed)) == (leaving, CALLERS - len(leaving))
    assert [got.incomplete_reasons for got in unread] == [(each,) for each in befell[: len(stayed)]]
    assert {got.data_class for got in unread} <= {MOST_SENSITIVE}
    assert all(got.findings == {"EMAIL": 1} for got in stayed if got.complete)
    assert len(scanner.read) <= len(fates) + 1


@pytest.mark.parametrize("lines", [1, 10_000], ids=["short", "long"])
async def test_sixteen_callers_have_one_text_read_once(lines: int) -> None:
    scanner = Scripted([])
    scanner.gate.set()
    inspector = inspector_of(scanner)
    padding = "".join(f" line the {number}th" for number in range(lines))
    same = request(f"mail jane@corp.io {padding}")
    answers = await asyncio.gather(*(inspector.inspect(same, ORG) for _ in range(CALLERS)))
    once = len(scanner.read)
    other = await inspector.inspect(same, "another")
    inspector.close()

    assert len(scanner.read) == 2 * once == 2 * len(set(scanner.read))
    assert {got.data_class for got in (*answers, other)} == {"S2"}


async def test_what_others_took_before_it_is_not_counted_against_a_text() -> None:
    clock = SlowClock()
    scanner = Scripted([], clock)
    inspector = inspector_of(scanner, clock)
    asking = [
        asyncio.create_task(inspector.inspect(request(f"the {number}th text"), ORG))
        for number in range(CALLERS)
    ]
    scanner.gate.set()
    answers = await asyncio.gather(*asking)
    inspector.close()

    assert {(got.data_class, got.complete) for got in answers} == {("S0", True)}


async def test_nobody_waits_behind_somebody_who_sends_much_at_once() -> None:
    scanner = Scripted([])
    inspector = inspector_of(scanner)
    texts = [f"the {number}th of many" for number in range(CALLERS)]
    many = [inspector.inspect(request(text), ORG, (), "key1") for text in texts]
    asking = [asyncio.create_task(each) for each in many]
    while not scanner.read:
        await asyncio.sleep(0)
    asking.append(asyncio.create_task(inspector.inspect(request("hello"), ORG, (), "key2")))
    await asyncio.sleep(0)
    scanner.gate.set()
    await asyncio.gather(*asking)
    inspector.close()

    assert scanner.read == [*texts[:2], "hello", *texts[2:]]


@pytest.mark.parametrize(("longer", "shorter"), [(500, 1), (5000, 500)])
async def test_nobody_waits_behind_a_long_text(
    monkeypatch: pytest.MonkeyPatch, longer: int, shorter: int
) -> None:
    monkeypatch.setattr("gateway.inspection.inspector.LOOKED_UP_BYTES_MAX", 300)
    monkeypatch.setattr("gateway.inspection.inspector.LONG_BYTES_MAX", 3000)
    scanner = Scripted([])
    inspector = inspector_of(scanner)
    long = asyncio.create_task(inspector.inspect(request("x" * longer), ORG))
    while not scanner.read:
        await asyncio.sleep(0)
    short = asyncio.create_task(inspector.inspect(request("h" * shorter), ORG))
    try:
        async with asyncio.timeout(UNHURRIED_S):
            while "h" * shorter not in scanner.read:
                await asyncio.sleep(0.001)
    finally:
        scanner.gate.set()
    answers = await asyncio.gather(short, long)
    inspector.close()

    assert {got.data_class for got in answers} == {"S0"}


async def test_who_would_wait_too_long_counts_as_most_sensitive_and_is_not_read() -> None:
    scanner = Scripted([])
    settings = InspectionSettings(inline_bytes_max=0, deadline_s=0.005, queue_s=0.005)
    inspector = Inspector(settings, load(), SystemClock(), scanner)
    texts = ("first", "second")
    answers = await asyncio.gather(*(inspector.inspect(request(text), ORG) for text in texts))
    scanner.gate.set()
    inspector.close()

    assert {(got.data_class, got.incomplete_reasons) for got in answers} == {
        (MOST_SENSITIVE, ("deadline",))
    }
    assert "second" not in scanner.read


async def test_when_time_is_over_no_more_texts_of_a_request_are_read() -> None:
    """Patterns ask for no time: a thread went on for seconds with texts nobody waited for."""
    scanner = Scripted([], SlowClock())
    scanner.gate.set()
    inspector = inspector_of(scanner, scanner.clock)
    body = {
        "model": "auto",
        "messages": [{"role": "user", "content": f"text {number}"} for number in range(9)],
    }
    many = DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")
    seen = await inspector.inspect(many, ORG)
    inspector.close()

    assert (seen.data_class, seen.incomplete_reasons) == (MOST_SENSITIVE, ("deadline",))
    assert len(scanner.read) == 2
