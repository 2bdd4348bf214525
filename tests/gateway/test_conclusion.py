"""Whatever became of a request: it is settled once, at what it cost, and its outcome says so."""

from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import StoppedClock
from gateway.conclusion import Conclusion
from gateway.configuration.settings import Limits
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.attempts import AttemptLog
from gateway.errors import ClientGone, GatewrightError, PolicyDenied, UpstreamTimeout, WorkerStopped
from gateway.identity import KeyTable
from gateway.metrics import Metrics
from gateway.money.bills import Bill
from gateway.money.budgets import Limit, MemoryLedger
from gateway.money.rates import LocalRates, Permit
from gateway.passage import Arrival, Errand, Passage
from gateway.recording.evidence import Loss
from gateway.recording.floods import ALIKE_AT_ONCE_MAX
from gateway.rollout.versions import PolicySet
from gateway.routing.board import TargetBoard
from gateway.routing.planning import gather, rule
from gateway.snapshot import Snapshot
from gateway.types import Attempt, AuditRecord, ChatRequest, Receipt, Usage
from tests.gateway.providers.samples import make_target
from tests.gateway.test_relay import INSPECTION, LIMIT_MICROUSD, ORG, PRINCIPAL
from tests.policies.worlds import document


pytestmark = pytest.mark.anyio

ONE, OTHER = make_target("scripted/one"), make_target("scripted/two")
COUNTED, COST_MICROUSD = Usage(100, 50), 350
CONTENT = b'{"content":"It is fine."}'
LOSS = Loss("leaf", ONE.name, "somebody", cost_microusd=7)
CASCADED = {"cascade": "kept"}


class TakenOver(GatewrightError):
    """A line of a batch is another worker's by now."""


class NotedRates(LocalRates):
    """Notes how many tokens each request had used in the end."""

    def __init__(self, clock: StoppedClock) -> None:
        super().__init__(clock)
        self.released: list[int] = []

    def release(self, permit: Permit, tokens: int) -> None:
        self.released.append(tokens)
        super().release(permit, tokens)


class Scene(Struct):
    """One request that was let through, and who ends it."""

    conclusion: Conclusion
    audit: MemoryAuditLog
    ledger: MemoryLedger
    passage: Passage
    released: list[int]
    """Tokens that were counted against rates in the end."""

    @property
    def spent_microusd(self) -> int:
        return LIMIT_MICROUSD - (self.ledger.left_microusd((ORG,)) or 0)

    @property
    def outcome(self) -> AuditRecord:
        (record,) = self.audit.records
        assert (record.stage, record.intent) == ("outcome", "leaf")
        return record


async def scene(audit_content: str = "none", errand: Errand | None = None) -> Scene:
    clock, audit = StoppedClock(), MemoryAuditLog()
    await audit.start()
    ledger = MemoryLedger([Limit(ORG, LIMIT_MICROUSD)], clock)
    board = TargetBoard({ONE.name: ONE}, {})
    body = {"model": "auto", "messages": [{"role": "user", "content": "x"}]}
    request = DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")
    facts = gather(request, PRINCIPAL, INSPECTION, None, clock.utc_us(), board)
    ruling = rule(document(), facts, request, board, Limits())
    plan = msgspec.structs.replace(ruling.plan, audit_content=audit_content)
    ruling = msgspec.structs.replace(ruling, plan=plan)
    snapshot = Snapshot("s", KeyTable(1, {}), PolicySet(document()), board)
    arrival = Arrival(
        "req_1", "/x", DIALECTS["openai_chat"], [], clock.utc_us(), snapshot, errand=errand
    )
    reservation = await ledger.reserve(PRINCIPAL.accounts, plan.worst_cost_microusd)
    passage = Passage(
        *(arrival, PRINCIPAL, request, INSPECTION, ruling, reservation),
        Receipt("w0", 1, 0, "leaf"),
    )

    async def blacken(asked: ChatRequest, organisation: str, answer: bytes) -> bytes:
        assert (asked, organisation) == (request, "acme")
        return b"black: " + answer

    rates = NotedRates(clock)
    conclusion = Conclusion(ledger, audit, clock, Metrics(), rates, blacken=blacken)
    return Scene(conclusion, audit, ledger, passage, rates.released)


def tried(*usages: Usage | None) -> AttemptLog:
    """Attempts at two targets in turn, and what each of them is owed."""
    log = AttemptLog()
    log.cascade = CASCADED
    for at, usage in enumerate(usages):
        target = (ONE, OTHER)[at % 2]
        log.add(log.begin(), Attempt(target.name, 200, "", 1, 1), Bill(target, usage))
    return log


@pytest.mark.parametrize(("reason", "told"), [("refusal", "refusal"), ("stop", "")])
async def test_an_answer_costs_what_it_was_counted_and_what_was_tried_before(
    reason: str, told: str
) -> None:
    played, attempts = await scene(), tried(Usage(10, 1), Usage(1, 1))
    attempts.answer = 2
    done = await played.conclusion.answered(
        *(played.passage, attempts, OTHER, COUNTED, CONTENT, ("top_k",)), stop_reason=reason
    )
    in_all = COST_MICROUSD + 15
    assert (done.cost_microusd, played.spent_microusd) == (in_all, in_all)
    outcome = played.outcome
    assert (outcome.status, outcome.http_status, outcome.error) == ("ok", 200, "")
    assert (outcome.target, outcome.usage, outcome.cost_microusd) == (OTHER.name, COUNTED, in_all)
    assert [each.cost_microusd for each in outcome.attempts] == [15, COST_MICROUSD]
    assert outcome.dropped == ("top_k",)
    assert outcome.detail == CASCADED | ({"stop_reason": told} if told else {})
    assert played.released == [COUNTED.input_tokens + COUNTED.output_tokens]
    assert done.receipt == played.audit.receipts[0]


async def test_of_each_attempt_it_is_said_whether_its_cost_is_a_guess() -> None:
    played, guess = await scene(), Usage(10, 1, estimated=True)
    await played.conclusion.failed(
        played.passage, tried(guess, COUNTED, None), UpstreamTimeout("late")
    )
    assert [each.estimated for each in played.outcome.attempts] == [True, False, False]


@pytest.mark.parametrize(
    ("is_line", "in_house", "cost_microusd"),
    [(True, True, COST_MICROUSD // 2), (True, False, COST_MICROUSD), (False, True, COST_MICROUSD)],
)
async def test_only_a_line_that_waits_in_the_house_has_the_price_of_a_batch(
    *, is_line: bool, in_house: bool, cost_microusd: int
) -> None:
    played = await scene(errand=Errand("batch_1", 1, "k1") if is_line else None)
    target = msgspec.structs.replace(ONE, in_house=in_house)
    attempts = AttemptLog()
    attempts.answer = attempts.begin()
    attempts.add(1, Attempt(target.name, 200, "", 1, 1), Bill(target, COUNTED))
    done = await played.conclusion.answered(played.passage, attempts, target, COUNTED, CONTENT, ())
    assert done.cost_microusd == played.spent_microusd == cost_microusd


async def test_an_answer_that_was_given_before_costs_nothing_and_says_what_it_saved() -> None:
    played, attempts = await scene(), AttemptLog()
    attempts.repeats = {"cache": "hit"}
    done = await played.conclusion.answered(played.passage, attempts, ONE, COUNTED, CONTENT, ())
    assert (done.cost_microusd, played.spent_microusd, played.outcome.usage) == (0, 0, None)
    assert (played.outcome.status, played.outcome.http_status) == ("ok", 200)
    assert played.outcome.detail == {"cache": "hit", "cache_saved_microusd": str(COST_MICROUSD)}


async def test_a_request_that_nobody_answered_pays_for_what_was_tried() -> None:
    played, late = await scene(), UpstreamTimeout("late")
    await played.conclusion.failed(played.passage, tried(Usage(10, 1), COUNTED, None), late)
    outcome = played.outcome
    assert (outcome.status, outcome.error) == ("failed", late.code)
    assert outcome.http_status == late.http_status
    assert (outcome.target, outcome.usage) == (OTHER.name, COUNTED)
    assert outcome.cost_microusd == played.spent_microusd == COST_MICROUSD + 15
    assert (outcome.detail, played.released) == (CASCADED, [150])


async def test_where_nobody_was_asked_nothing_is_owed_and_no_target_named() -> None:
    played = await scene()
    await played.conclusion.failed(played.passage, AttemptLog(), UpstreamTimeout("late"))
    assert (played.outcome.target, played.outcome.usage, played.spent_microusd) == ("", None, 0)
    assert played.released == [0]


@pytest.mark.parametrize(
    ("code", "content", "status", "http_status"),
    [
        (ClientGone.code, CONTENT, "cancelled", 200),
        (ClientGone.code, b"", "cancelled", ClientGone.status),
        (WorkerStopped.code, b"", "incomplete", WorkerStopped.status),
        ("stream_broken", CONTENT, "incomplete", 200),
        ("internal_error", b"", "incomplete", 500),
    ],
)
async def test_what_was_broken_off_pays_for_what_came_and_says_why(
    code: str, content: bytes, status: str, http_status: int
) -> None:
    played = await scene("encrypted")
    await played.conclusion.broken_off(played.passage, tried(COUNTED), content, code)
    outcome = played.outcome
    assert (outcome.status, outcome.http_status, outcome.error) == (status, http_status, code)
    assert (outcome.target, outcome.usage) == (ONE.name, COUNTED)
    assert outcome.cost_microusd == played.spent_microusd == COST_MICROUSD
    assert (played.audit.contents, outcome.detail) == ([content or None], CASCADED)


async def test_what_was_broken_off_before_anybody_was_asked_names_who_would_have_been() -> None:
    played = await scene()
    await played.conclusion.broken_off(played.passage, AttemptLog(), b"", ClientGone.code)
    assert (played.outcome.target, played.spent_microusd) == (ONE.name, 0)


@pytest.mark.parametrize(("target", "by"), [(ONE, "upstream"), (None, "estimate")])
async def test_a_count_costs_nothing_and_says_who_counted(target: Any, by: str) -> None:
    played = await scene()
    await played.conclusion.counted(played.passage, tried(None), target, COUNTED)
    assert (played.outcome.detail, played.spent_microusd) == ({"counted": by}, 0)
    assert (played.outcome.status, played.outcome.http_status) == ("ok", 200)
    assert played.outcome.usage is None
    assert played.outcome.target == (ONE.name if target else "")


@pytest.mark.parametrize(
    ("kept", "content"),
    [("encrypted", CONTENT), ("redacted", b"black: " + CONTENT), ("none", None), ("digest", None)],
)
async def test_of_an_answer_the_log_keeps_what_the_plan_says(
    kept: str, content: bytes | None
) -> None:
    played, attempts = await scene(kept), tried(COUNTED)
    await played.conclusion.answered(played.passage, attempts, ONE, COUNTED, CONTENT, ())
    assert played.audit.contents == [content]
    assert played.outcome.status == "ok"


async def test_without_anything_that_blackens_nothing_of_an_answer_is_kept() -> None:
    played = await scene("redacted")
    bare = Conclusion(played.ledger, played.audit, StoppedClock(), Metrics())
    await bare.answered(played.passage, tried(COUNTED), ONE, COUNTED, CONTENT, ())
    assert played.audit.contents == [None]


async def test_a_line_for_which_nothing_was_set_aside_is_booked_and_not_settled() -> None:
    booked: list[int] = []

    async def book(cost_microusd: int) -> None:
        booked.append(cost_microusd)

    played = await scene(errand=Errand("batch_1", 1, "k1", book=book))
    done = await played.conclusion.answered(
        played.passage, tried(COUNTED), ONE, COUNTED, CONTENT, ()
    )
    assert booked == [done.cost_microusd] == [COST_MICROUSD]
    assert (played.spent_microusd, played.outcome.cost_microusd) == (0, COST_MICROUSD)


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_line_that_is_another_workers_by_now_gets_no_outcome_of_this_one(
    *, is_lost: bool
) -> None:
    def taken_over() -> None:
        raise TakenOver("taken over")

    played = await scene(errand=Errand("batch_1", 1, "k1", check_end=taken_over))
    passage, conclusion = played.passage, played.conclusion
    ending: Awaitable[Any] = (
        conclusion.lost(passage.arrival, PRINCIPAL, LOSS, UpstreamTimeout("late"))
        if is_lost
        else conclusion.answered(passage, tried(COUNTED), ONE, COUNTED, CONTENT, ())
    )
    with pytest.raises(TakenOver):
        await ending
    assert played.audit.records == []


async def test_what_too_little_is_known_of_to_end_it_is_on_record_with_what_it_cost() -> None:
    played = await scene()
    late = UpstreamTimeout("late")
    receipt = await played.conclusion.lost(played.passage.arrival, PRINCIPAL, LOSS, late)
    assert receipt == played.audit.receipts[0]
    assert (played.outcome.status, played.outcome.cost_microusd) == ("failed", 7)


@pytest.mark.parametrize("is_line", [False, True])
async def test_of_a_flood_of_refusals_a_few_are_on_record_and_of_a_batch_every_line(
    *, is_line: bool
) -> None:
    played = await scene(errand=Errand("batch_1", 1, "k1") if is_line else None)
    receipts = [
        await played.conclusion.refused(
            *(played.passage.arrival, PRINCIPAL, played.passage.request, INSPECTION),
            PolicyDenied("no"),
        )
        for _ in range(ALIKE_AT_ONCE_MAX + 3)
    ]
    left_out = 0 if is_line else 3
    assert receipts.count(None) == left_out
    assert len(played.audit.records) == len(receipts) - left_out
    assert {each.status for each in played.audit.records} == {"refused"}
