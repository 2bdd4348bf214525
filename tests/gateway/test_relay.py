"""A stream ends once, honestly, and is on record before anybody sees that it ended."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import nullcontext

import msgspec
import pytest
from msgspec import Struct

from gateway.answers.traits import AnswerTraits
from gateway.audit.memory import MemoryAuditLog
from gateway.caching.kept_streams import RepeatedStream
from gateway.caching.response_cache import KeptReply
from gateway.clock import StoppedClock
from gateway.conclusion import Conclusion
from gateway.configuration.settings import Limits
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.attempts import AttemptLog, RunningAttempt
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.live_stream import LiveStream
from gateway.errors import UpstreamTimeout
from gateway.identity import KeyTable
from gateway.metrics import Metrics
from gateway.money.budgets import Limit, MemoryLedger
from gateway.pacing.pings import Pings
from gateway.passage import Arrival, Passage
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from gateway.recording.evidence import intent
from gateway.relay import Relay
from gateway.rollout.versions import PolicySet
from gateway.routing.board import TargetBoard
from gateway.routing.planning import gather, rule
from gateway.snapshot import Snapshot
from gateway.tally import Tally
from gateway.types import AuditRecord, Inspection, Principal, Receipt, StreamEvent
from tests.gateway.providers.samples import HOME, make_target
from tests.policies.worlds import document


pytestmark = pytest.mark.anyio

ORG = "org:acme"
LIMIT_MICROUSD = 10**9
PRINCIPAL = Principal("k1", "test", "acme", "research", "x", (), None, (ORG,))
INSPECTION = Inspection("S0", {}, True, (), 0.5, "mid", "v1", 10)
ROLE = b'data: {"id":"x","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
WORD = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"one two three"}}]}\n\n'
USAGE = b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":50}}\n\n'
STOP = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
END = STOP + DONE


class HeldAudit(MemoryAuditLog):
    """Takes a record at once, and says so only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.taken, self.let = asyncio.Event(), asyncio.Event()
        self.let.set()

    async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
        receipt = await super().append(record, content)
        self.taken.set()
        await self.let.wait()
        return receipt


class Scene(Struct):
    """One relay with everything around it in memory."""

    relay: Relay
    audit: HeldAudit
    ledger: MemoryLedger
    written: list[bytes]

    async def write(self, data: bytes) -> None:
        self.written.append(data)

    @property
    def text(self) -> bytes:
        return b"".join(self.written)

    @property
    def outcomes(self) -> list[AuditRecord]:
        return [record for record in self.audit.records if record.stage == "outcome"]


async def keep_nothing(passage: Passage, response: bytes) -> None:
    """A store for dialects without threads."""


async def scene(*pieces: bytes, late: bool = False, repeated: bool = False) -> Scene:
    clock, audit = StoppedClock(), HeldAudit()
    await audit.start()
    ledger = MemoryLedger([Limit(ORG, LIMIT_MICROUSD)], clock)
    board = TargetBoard({"scripted/one": make_target()}, {})
    dialect = DIALECTS["openai_chat"]
    body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    request = dialect.decode_request(msgspec.json.encode(body), "req_1")
    facts = gather(request, PRINCIPAL, INSPECTION, None, clock.utc_us(), board)
    policy = document()
    ruling = rule(policy, facts, request, board, Limits())
    arrival = Arrival(
        "req_1",
        "/x",
        dialect,
        [],
        clock.utc_us(),
        Snapshot("s", KeyTable(1, {}), PolicySet(policy), board),
    )
    reservation = await ledger.reserve(PRINCIPAL.accounts, ruling.plan.worst_cost_microusd)
    receipt = await audit.append(
        intent(
            PRINCIPAL,
            request,
            INSPECTION,
            ruling,
            reservation,
            arrival=arrival,
            decided_us=clock.utc_us(),
        )
    )
    audit.taken.clear()
    passage = Passage(arrival, PRINCIPAL, request, INSPECTION, ruling, reservation, receipt)
    reply = ScriptedUpstreamReply(
        ScriptedProvider("p", HOME),
        ScriptedReply(pieces=pieces, break_off=UpstreamTimeout("late") if late else None),
    )
    candidate, log = ruling.plan.candidates[0], AttemptLog()
    attempt = RunningAttempt(candidate.target, log, TargetHealth(), clock)
    log.answer = attempt.number
    live = LiveStream(candidate, "openai_chat", reply, dialect.stream_decoder(), attempt)
    conclusion = Conclusion(ledger, audit, clock, Metrics())
    again: RepeatedStream | None = None
    if repeated:
        events = tuple(dialect.stream_decoder().feed(b"".join(pieces)))
        kept = KeptReply(candidate.target, "openai_chat", (), "req_0", 0.0, None, events)
        again, log = RepeatedStream(candidate, kept), AttemptLog()
        log.repeats = {"cache": "hit"}
    written: list[bytes] = []

    async def write(data: bytes) -> None:
        written.append(data)

    pings = Pings(60.0, lambda: write, lambda: b"")
    relay = Relay(
        passage,
        log,
        again or live,
        conclusion,
        kept_bytes_max=10_000,
        keep=keep_nothing,
        pings=pings,
    )
    return Scene(relay, audit, ledger, written)


async def test_a_stream_leaves_nothing_that_only_the_cycle_collector_could_free() -> None:
    async def nowhere(data: bytes) -> None:
        """Unlike the scene's own, it holds nothing that holds the relay."""

    played = await scene(ROLE, WORD, USAGE, END)
    gc.collect()
    gc.disable()
    try:
        await played.relay.run(nowhere)
        live = weakref.ref(played.relay._live)
        del played
        assert live() is None
    finally:
        gc.enable()


async def test_a_whole_stream_is_recorded_before_its_terminal_event_is_written() -> None:
    played = await scene(ROLE, WORD, USAGE, END)
    played.audit.let.clear()
    running = asyncio.create_task(played.relay.run(played.write))
    await played.audit.taken.wait()

    assert WORD in played.text
    assert DONE not in played.text
    played.audit.let.set()
    await running

    assert played.text.endswith(DONE)
    (outcome,) = played.outcomes
    assert (outcome.status, outcome.cost_microusd) == ("ok", 350)
    assert played.ledger.left_microusd((ORG,)) == LIMIT_MICROUSD - 350


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_stream_that_is_given_again_costs_nothing_and_neither_does_leaving_it(
    leaves: bool,
) -> None:
    played = await scene(ROLE, WORD, USAGE, END, repeated=True)

    async def write(data: bytes) -> None:
        if leaves:
            raise asyncio.CancelledError
        await played.write(data)

    with pytest.raises(asyncio.CancelledError) if leaves else nullcontext():
        await played.relay.run(write)

    (outcome,) = played.outcomes
    assert outcome.status == ("cancelled" if leaves else "ok")
    assert (outcome.cost_microusd, outcome.usage, outcome.attempts) == (0, None, ())
    assert played.ledger.left_microusd((ORG,)) == LIMIT_MICROUSD


async def test_a_caller_who_is_slow_is_waited_for_between_pieces_that_go_straight() -> None:
    played = await scene(ROLE, WORD, WORD, WORD, USAGE, END)
    waits: list[int] = []

    async def write(data: bytes) -> None:
        if data:
            await played.write(data)
        else:
            waits.append(len(played.written))

    def push(data: bytes) -> bool:
        played.written.append(data)
        return len(played.written) == 3

    assert await played.relay.run(write, lambda: push)

    assert played.text.count(WORD) == 3
    assert played.text.endswith(DONE)
    assert waits[0] == 3, "the third piece was enough for a while"
    (outcome,) = played.outcomes
    assert (outcome.status, outcome.cost_microusd) == ("ok", 350)


class Seen:
    """Stands where answers are rewritten: notes what it is shown, and changes nothing."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def events(self, events: list[StreamEvent]) -> list[StreamEvent]:
        self.words += [delta.text for each in events for delta in each.deltas]
        return events


def _words(text: str) -> bytes:
    return WORD.replace(b"one two three", text.encode())


def _by_format(relay: Relay) -> Callable[[], str]:
    said = relay._said = []
    return lambda: "".join(said)


def _by_channel(relay: Relay) -> Callable[[], str]:
    relay._by_channel, relay._tally = True, Tally(10_000, by_channel=True)
    return lambda: str(relay._tally.content, "utf-8")


def _by_rewriting(relay: Relay) -> Callable[[], str]:
    assert isinstance(relay._live, LiveStream)
    seen = Seen()
    relay._live._lift = seen
    return lambda: "".join(seen.words)


class Traits(AnswerTraits):
    """Notes what it is shown."""

    words: list[str] = msgspec.field(default_factory=list)

    def see(self, events: list[StreamEvent]) -> None:
        self.words += [delta.text for each in events for delta in each.deltas]


def _by_trial(relay: Relay) -> Callable[[], str]:
    traits = relay._traits = Traits()
    return lambda: "".join(traits.words)


@pytest.mark.parametrize("looked_at", [_by_format, _by_channel, _by_rewriting, _by_trial])
async def test_words_that_somebody_looks_at_are_shown_to_them_on_the_straight_way_too(
    looked_at: Callable[[Relay], Callable[[], str]],
) -> None:
    played = await scene(ROLE, *map(_words, ("one", " two", " three", " four")), USAGE, END)
    words = looked_at(played.relay)

    def push(data: bytes) -> bool:
        played.written.append(data)
        return False

    assert await played.relay.run(played.write, lambda: push)
    assert "one two three four" in words()


async def test_words_that_nobody_looks_at_go_past_the_parser_and_are_kept() -> None:
    pieces = [_words(text) for text in ("one", " two", " three", " four")]
    played = await scene(ROLE, *pieces[:2], b"".join(pieces[2:]), END)
    assert isinstance(played.relay._live, LiveStream)
    parsed: list[bytes] = []
    decoder = played.relay._live._decoder
    feed = decoder.feed

    class Watched:
        plain_words, close = decoder.plain_words, decoder.close
        is_told, conclude = False, decoder.conclude

        def feed(self, data: bytes) -> list[StreamEvent]:
            parsed.append(data)
            return feed(data)

    played.relay._live._decoder = Watched()

    def push(data: bytes) -> bool:
        played.written.append(data)
        return False

    assert await played.relay.run(played.write, lambda: push)
    assert parsed == [ROLE, pieces[0], END]
    assert b"".join(pieces) in played.text
    assert b"".join(pieces) in played.relay._tally.content
    (outcome,) = played.outcomes
    assert outcome.usage is not None
    assert outcome.usage.output_tokens == 4


async def test_a_crash_on_the_straight_way_is_recorded_as_one() -> None:
    played = await scene(ROLE, WORD, WORD, END)

    def crash(_: bytes) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await played.relay.run(played.write, lambda: crash)

    assert b"internal_error" in played.written[-1]
    assert DONE not in played.text
    (outcome,) = played.outcomes
    assert (outcome.status, outcome.error) == ("incomplete", "internal_error")


@pytest.mark.parametrize("late", [False, True], ids=["whole", "broken"])
async def test_leaving_while_a_ping_is_stuck_after_the_last_piece_leaves_an_outcome(
    late: bool,
) -> None:
    """A caller who reads nothing holds a ping up; the upstream is done meanwhile; he leaves."""
    played = await scene(ROLE, WORD, USAGE, *([] if late else [END]), late=late)

    async def ping() -> None:
        await asyncio.Event().wait()

    stuck = asyncio.create_task(ping())
    played.relay._pings._task = stuck
    running = asyncio.create_task(played.relay.run(played.write))
    while played.relay._pings._task is stuck:
        await asyncio.sleep(0)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    stuck.cancel()
    assert [each.stage for each in played.audit.records] == ["intent", "outcome"]
    (outcome,) = played.outcomes
    assert outcome.status == ("incomplete" if late else "cancelled")
    assert outcome.cost_microusd == 350
    assert played.ledger.left_microusd((ORG,)) == LIMIT_MICROUSD - 350
    assert DONE not in played.text


async def test_leaving_while_the_end_is_recorded_makes_no_second_end() -> None:
    played = await scene(ROLE, WORD, USAGE, END)
    played.audit.let.clear()
    running = asyncio.create_task(played.relay.run(played.write))
    await played.audit.taken.wait()

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert DONE not in played.text
    assert [outcome.status for outcome in played.outcomes] == ["ok"]
    assert played.ledger.left_microusd((ORG,)) == LIMIT_MICROUSD - 350


@pytest.mark.parametrize(
    ("pieces", "late", "code"),
    [((ROLE, WORD), False, "stream_broken"), ((ROLE, WORD), True, "upstream_timeout")],
)
async def test_a_broken_stream_ends_with_an_error_and_costs_what_came(
    pieces: tuple[bytes, ...], late: bool, code: str
) -> None:
    played = await scene(*pieces, late=late)
    await played.relay.run(played.write)

    assert played.written[-1].startswith(b'data: {"error"')
    assert DONE not in played.text
    (outcome,) = played.outcomes
    assert (outcome.status, outcome.error) == ("incomplete", code)
    assert outcome.usage is not None
    assert outcome.usage.estimated
    assert outcome.usage.output_tokens == 3
    assert played.ledger.left_microusd((ORG,)) == LIMIT_MICROUSD - outcome.cost_microusd


async def test_leaving_in_the_middle_is_a_cancellation_and_costs_what_came() -> None:
    played = await scene(ROLE, WORD, WORD, END)

    async def leave(data: bytes) -> None:
        await played.write(data)
        if WORD in data:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await played.relay.run(leave)

    (outcome,) = played.outcomes
    assert (outcome.status, outcome.error) == ("cancelled", "client_gone")
    assert outcome.cost_microusd > 0


@pytest.mark.parametrize("pieces", [(ROLE, WORD, USAGE, END), (ROLE, WORD)])
async def test_an_end_that_cannot_be_recorded_is_an_error(pieces: tuple[bytes, ...]) -> None:
    played = await scene(*pieces)
    played.audit.failing = True
    await played.relay.run(played.write)

    assert b"audit_unavailable" in played.written[-1]
    assert DONE not in played.text


async def test_a_crash_of_ours_is_recorded_as_one() -> None:
    played = await scene(ROLE, WORD, END)

    async def crash(_: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await played.relay.run(crash)

    (outcome,) = played.outcomes
    assert (outcome.status, outcome.error) == ("incomplete", "internal_error")


async def test_a_crash_after_content_is_told_inside_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = await scene(ROLE, WORD, WORD, END)
    add = Tally.add

    def crash_once_the_caller_has_read(tally: Tally, events: list[StreamEvent]) -> None:
        if played.written:
            raise ZeroDivisionError
        add(tally, events)

    monkeypatch.setattr(Tally, "add", crash_once_the_caller_has_read)
    with pytest.raises(ZeroDivisionError):
        await played.relay.run(played.write)

    assert b"internal_error" in played.written[-1]
    assert DONE not in played.text
    (outcome,) = played.outcomes
    assert (outcome.status, outcome.error) == ("incomplete", "internal_error")
    assert [attempt.error for attempt in outcome.attempts] == ["internal_error"]
