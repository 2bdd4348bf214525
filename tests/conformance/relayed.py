"""A stream of an upstream as it goes through dispatch and relay, with all around it in memory."""

import asyncio
from collections.abc import Sequence

from msgspec import Struct, structs

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import StoppedClock
from gateway.conclusion import Conclusion
from gateway.configuration.settings import Limits
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.attempts import AttemptLog, RunningAttempt
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.live_stream import LiveStream
from gateway.errors import GatewrightError
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
from gateway.types import AuditRecord, ChatRequest, DialectName, Inspection, Principal
from tests.gateway.providers.samples import HOME, make_target
from tests.policies.worlds import document


ORG = "org:acme"
PRINCIPAL = Principal("k1", "test", "acme", "research", "x", (), None, (ORG,))
INSPECTION = Inspection("S0", {}, True, (), 0.5, "mid", "v1", 10)


class Ending(Struct, frozen=True):
    """What a caller got, and what is on record of it."""

    sent: bytes = b""
    is_cut: bool = False
    """Whether the body breaks off, for a dialect without an event for errors."""
    refusal: str = ""
    """Code of the error that came instead of a stream: another target would have been tried."""
    outcome: AuditRecord | None = None


def relayed(
    source: DialectName, request: ChatRequest, pieces: Sequence[bytes], *, explains: bool = False
) -> Ending:
    """Of an upstream that `explains` why its streams stop. Raises whatever is no error of ours."""
    asked = structs.replace(request, model="auto", has_tools=False)
    return asyncio.run(_relayed(source, asked, tuple(pieces), explains=explains))


async def _relayed(
    source: DialectName, request: ChatRequest, pieces: tuple[bytes, ...], *, explains: bool
) -> Ending:
    clock, audit = StoppedClock(), MemoryAuditLog()
    await audit.start()
    ledger = MemoryLedger([Limit(ORG, 10**9)], clock)
    passage = await _passage(request, clock, audit, ledger)
    reply = ScriptedUpstreamReply(ScriptedProvider("p", HOME), ScriptedReply(pieces=pieces))
    candidate, log = passage.ruling.plan.candidates[0], AttemptLog()
    attempt = RunningAttempt(candidate.target, log, TargetHealth(), clock)
    log.answer = attempt.number
    decoder = DIALECTS[source].stream_decoder()
    explaining = {candidate.target.name} if explains else None
    live = LiveStream(candidate, source, reply, decoder, attempt, explaining=explaining)
    try:
        await live.hold_until_content()
    except GatewrightError as error:
        await live.close(error)
        return Ending(refusal=error.code)
    sent: list[bytes] = []

    async def write(data: bytes) -> None:
        sent.append(data)

    async def keep_nothing(passage: Passage, response: bytes) -> None:
        """What is kept is no part of what is sent."""

    relay = Relay(
        *(passage, log, live, Conclusion(ledger, audit, clock, Metrics())),
        kept_bytes_max=10_000,
        keep=keep_nothing,
        pings=Pings(60.0, lambda: write, lambda: b""),
    )
    is_whole = await relay.run(write)
    (outcome,) = [record for record in audit.records if record.stage == "outcome"]
    return Ending(b"".join(sent), is_cut=not is_whole, outcome=outcome)


async def _passage(
    request: ChatRequest, clock: StoppedClock, audit: MemoryAuditLog, ledger: MemoryLedger
) -> Passage:
    board, policy = TargetBoard({"scripted/one": make_target()}, {}), document()
    facts = gather(request, PRINCIPAL, INSPECTION, None, clock.utc_us(), board)
    ruling = rule(policy, facts, request, board, Limits())
    snapshot = Snapshot("s", KeyTable(1, {}), PolicySet(policy), board)
    dialect = DIALECTS[request.dialect]
    arrival = Arrival("req_1", "/x", dialect, [], clock.utc_us(), snapshot)
    reservation = await ledger.reserve(PRINCIPAL.accounts, ruling.plan.worst_cost_microusd)
    let = intent(
        *(PRINCIPAL, request, INSPECTION, ruling, reservation),
        arrival=arrival,
        decided_us=clock.utc_us(),
    )
    receipt = await audit.append(let)
    return Passage(arrival, PRINCIPAL, request, INSPECTION, ruling, reservation, receipt)
