"""Which lines a vendor's batch API may answer, at what price, and for which keys."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.admission.hosted_tools import SEARCHES_ASSUMED
from gateway.batching.intake import BATCH_TIER, SECONDS_LEFT_MIN, LineIntake
from gateway.batching.parking import (
    PLAIN_TIERS,
    Remnant,
    RemnantIntent,
    RemnantReservation,
    decode_ticket,
    deferred,
    encode_ticket,
    may_wait,
    remnant_of,
    resumed,
    ticket_of,
)
from gateway.clock import StoppedClock
from gateway.conclusion import Conclusion
from gateway.configuration.settings import Limits, Settings
from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported, Unauthenticated
from gateway.identity import KeyRecord, KeyTable
from gateway.intake import Stages
from gateway.metrics import Metrics
from gateway.money.catalogue import cost
from gateway.passage import Arrival, Errand, Passage
from gateway.ports import UpstreamBody
from gateway.price import Price
from gateway.rollout.versions import PolicySet
from gateway.routing.board import TargetBoard
from gateway.routing.planning import Ruling, gather, rule
from gateway.thread import Thread
from gateway.types import ChatRequest, Receipt, Reservation, Usage
from policies.decision import Obligations
from tests.gateway.batching.parking_lot import (
    BOARD,
    DIALECT,
    ENDPOINT,
    INSPECTION,
    NOBODY,
    PRINCIPAL,
    SNAPSHOT,
)
from tests.gateway.providers.samples import make_target
from tests.policies.worlds import document


CLOCK = StoppedClock()
LATER_US = CLOCK.utc_us() + round(SECONDS_LEFT_MIN * 1e6)
BODY = {"model": "auto", "messages": [{"role": "user", "content": "Hi"}]}
KEEPING = document(defaults={"cache_s": 60})


def asked(**fields: Any) -> ChatRequest:
    return DIALECT.decode_request(msgspec.json.encode(BODY | fields), "req-1")


REQUEST = asked()
RULING = rule(
    document(),
    gather(REQUEST, PRINCIPAL, INSPECTION, None, CLOCK.utc_us(), BOARD),
    REQUEST,
    BOARD,
    Limits(),
)


def arriving(until_us: int = LATER_US, **values: Any) -> Arrival:
    errand = Errand("batch_1", 1, "k1", until_us)
    arrival = Arrival("req-1", ENDPOINT, DIALECT, [], CLOCK.utc_us(), SNAPSHOT, errand)
    return structs.replace(arrival, **values)


def obliged(**obligations: Any) -> Ruling:
    decision = structs.replace(RULING.decision, obligations=Obligations(**obligations))
    return structs.replace(RULING, decision=decision)


def planned(**values: Any) -> Ruling:
    return structs.replace(RULING, plan=structs.replace(RULING.plan, **values))


def at(**values: Any) -> Ruling:
    """The only candidate is another one."""
    (first,) = RULING.plan.candidates
    target = structs.replace(first.target, **values)
    return planned(candidates=(structs.replace(first, target=target),))


def at_percent(percent: int) -> Ruling:
    price = RULING.plan.candidates[0].target.price
    return at(price=structs.replace(price, batch_percent=percent))


@pytest.mark.parametrize("tier", sorted(PLAIN_TIERS - {None}, key=str))
def test_a_line_waits_that_asks_for_nothing_in_particular(tier: str) -> None:
    assert may_wait(REQUEST, PRINCIPAL, RULING, arriving())
    assert may_wait(asked(service_tier=tier), PRINCIPAL, RULING, arriving())
    threaded = structs.replace(REQUEST, thread=Thread(keeps=True))
    assert may_wait(threaded, PRINCIPAL, RULING, arriving())
    assert may_wait(REQUEST, PRINCIPAL, at_percent(99), arriving())


@pytest.mark.parametrize(
    "ruling",
    [
        *(obliged(pseudonymise=True), obliged(redact=True), obliged(scan_output="mask")),
        *(planned(cascade_above=0.5), planned(hedge_after_s=1.0)),
        *(planned(audit_content="redacted"), planned(audit_content="none")),
        *(at(in_house=True), at_percent(100)),
    ],
)
def test_a_line_that_policy_wants_more_of_is_sent_at_once(ruling: Ruling) -> None:
    assert not may_wait(REQUEST, PRINCIPAL, ruling, arriving())


@pytest.mark.parametrize("fields", [{"service_tier": "flex"}, {"speed": "fast"}])
def test_a_line_that_names_a_tier_or_a_speed_is_sent_at_once(fields: dict[str, str]) -> None:
    assert not may_wait(asked(**fields), PRINCIPAL, RULING, arriving())


def test_a_line_that_goes_on_with_an_answer_is_sent_at_once() -> None:
    threaded = structs.replace(REQUEST, thread=Thread(previous_id="resp_1"))
    assert not may_wait(threaded, PRINCIPAL, RULING, arriving())


def test_a_line_that_may_be_answered_from_the_cache_is_sent_at_once() -> None:
    snapshot = structs.replace(SNAPSHOT, policies=PolicySet(KEEPING))
    assert not may_wait(REQUEST, PRINCIPAL, RULING, arriving(snapshot=snapshot))
    assert may_wait(REQUEST, PRINCIPAL, obliged(no_cache=True), arriving(snapshot=snapshot))


@pytest.mark.parametrize(("worst", "aside"), [(8, 4), (7, 4), (1, 1), (0, 0)])
def test_what_is_set_aside_is_the_batchs_price_and_never_less(worst: int, aside: int) -> None:
    candidates = tuple(
        structs.replace(RULING.plan.candidates[0], worst_cost_microusd=cost)
        for cost in (worst, 10 * worst)
    )
    errand = Errand("batch_1", 1, "k1", LATER_US)
    body = UpstreamBody(b"{}", ("seed",))
    plan = planned(candidates=candidates)
    waiting, ruling = deferred(arriving(), errand, REQUEST, plan, body, 77.0)
    assert waiting.detail["path"] == "native_batch"
    (candidate,) = ruling.plan.candidates
    assert (candidate.body, candidate.dropped) == (b"{}", ("seed",))
    assert (ruling.plan.worst_cost_microusd, ruling.plan.reserved_for_s) == (aside, 77.0)


MESSAGES = DIALECTS["anthropic_messages"]
SEARCH = {"type": "web_search_20260209", "name": "web_search"}


@given(
    st.integers(0, 99),
    st.integers(0, 20_000),
    st.one_of(st.none(), st.integers(1, 50)),
    st.booleans(),
    st.sampled_from([(3_000_000, 15_000_000), (1, 1), (0, 0)]),
)
def test_no_line_costs_more_in_a_batch_than_is_set_aside_for_it(
    percent: int,
    search_microusd: int,
    uses: int | None,
    is_searching: bool,
    tokens: tuple[int, int],
) -> None:
    """Searches cost there what they do elsewhere, and half of that was set aside."""
    price = Price(*tokens, 1, 2, 3, percent, "", "", web_search_microusd=search_microusd)
    able = structs.replace(make_target(), capabilities=frozenset({"streaming", "tools"}))
    target = structs.replace(able, price=structs.replace(price, unbilled_tools=True))
    board = TargetBoard({target.name: target}, {})
    tool = SEARCH | ({} if uses is None else {"max_uses": uses})
    body = BODY | {"max_tokens": 50} | ({"tools": [tool]} if is_searching else {})
    request = MESSAGES.decode_request(msgspec.json.encode(body), "req-1")
    facts = gather(request, PRINCIPAL, INSPECTION, None, CLOCK.utc_us(), board)
    ruling = rule(document(), facts, request, board, Limits())
    errand, raw = Errand("batch_1", 1, "k1", LATER_US), UpstreamBody(b"{}", ())
    _, waiting = deferred(arriving(), errand, request, ruling, raw, 77.0)
    (candidate,) = waiting.plan.candidates
    used = Usage(
        max(request.input_tokens_most, request.input_tokens_estimate),
        candidate.output_tokens_cap,
        web_searches=(SEARCHES_ASSUMED if uses is None else uses) * is_searching,
    )
    billed = cost(target.price, used, is_batch=True)
    assert billed <= waiting.plan.worst_cost_microusd <= ruling.plan.worst_cost_microusd


class Bodies:
    """Stands for the dispatcher, which encodes the first candidate's body."""

    def first_body(self, request: ChatRequest, plan: object) -> tuple[str, UpstreamBody]:
        del plan
        if "speech" in request.tree:
            raise FeatureUnsupported("That candidate cannot.")
        return "openai_chat", UpstreamBody(b"{}")


def intake(*, takes: bool = True) -> LineIntake:
    stages = ("peppers", "inspector", "ledger", "rates", "audit", "answers")
    bodies: Any = Bodies()
    return LineIntake(
        Stages(
            **dict.fromkeys((*stages, "threads", "turns"), NOBODY),
            dispatcher=bodies,
            conclusion=Conclusion(NOBODY, NOBODY, CLOCK, Metrics()),
            clock=CLOCK,
            settings=Settings(source="a test", folder="."),
        ),
        lambda *_: takes,
    )


@pytest.mark.parametrize(
    ("until_us", "takes", "fields", "waits"),
    [
        *((LATER_US, True, {}, True), (LATER_US - 1, True, {}, False), (0, True, {}, False)),
        *((LATER_US, False, {}, False), (LATER_US, True, {"speech": 1}, False)),
        (LATER_US, True, {"speed": "fast"}, False),
    ],
)
def test_a_line_waits_where_there_is_time_and_a_vendor_that_takes_it(
    until_us: int, fields: dict[str, Any], *, takes: bool, waits: bool
) -> None:
    arrival = arriving(until_us)
    found, _ = intake(takes=takes).defer(arrival, PRINCIPAL, asked(**fields), RULING)
    assert found.errand is not None
    assert found.errand.is_parked == waits


KEY = KeyRecord("k1", (), PRINCIPAL, 0, "ann")
NOW_US = CLOCK.utc_us()
RESERVED = Reservation("r1", ("org:acme",), 7, 5)
INTENT = Receipt("w0", 1, 2, "ab")


def table(key: KeyRecord, steadily_us: int = 0) -> KeyTable:
    return KeyTable(1, {"k1": key}, lambda: steadily_us)


def test_a_line_has_its_keys_place_and_the_tier_of_a_batch() -> None:
    principal = structs.replace(PRINCIPAL, labels=("team:a", "tier:priority"))
    snapshot = structs.replace(SNAPSHOT, keys=table(structs.replace(KEY, principal=principal)))
    found = intake().identify(arriving(snapshot=snapshot))
    assert found == structs.replace(principal, labels=("team:a", BATCH_TIER))


@pytest.mark.parametrize(
    ("key", "steadily_us"),
    [
        *((structs.replace(KEY, revoked_us=1), 0), (structs.replace(KEY, expires_us=NOW_US), 0)),
        # The clock was set back: no key begins again by that.
        (structs.replace(KEY, expires_us=NOW_US + 5), NOW_US + 5),
    ],
)
def test_a_line_of_a_key_that_is_over_is_refused(key: KeyRecord, steadily_us: int) -> None:
    snapshot = structs.replace(SNAPSHOT, keys=table(key, steadily_us))
    with pytest.raises(Unauthenticated):
        intake().identify(arriving(snapshot=snapshot))
    with pytest.raises(Unauthenticated):
        intake().identify(arriving(snapshot=SNAPSHOT))


def test_a_ticket_is_read_as_far_as_this_version_can() -> None:
    passage = Passage(
        arriving(), PRINCIPAL, REQUEST, INSPECTION, RULING, RESERVED, INTENT, subject="s"
    )
    ticket = ticket_of(passage, "openai_chat")
    raw = encode_ticket(ticket)
    assert decode_ticket(raw) == ticket
    assert ticket.facts.targets == ()
    left = Remnant(
        *("req-1", passage.arrival.arrived_us, RemnantIntent("ab")),
        RemnantReservation(("org:acme",), 7),
        "s",
    )
    assert remnant_of(ticket) == left
    damaged = msgspec.msgpack.decode(raw)
    del damaged["plan"]
    assert decode_ticket(msgspec.msgpack.encode(damaged)) == left
    assert decode_ticket(b"\xc1") == Remnant()


def test_what_a_line_was_asked_under_goes_only_to_its_own_dialect_and_comes_back_with_it() -> None:
    asked_so = structs.replace(
        REQUEST, version="v7", betas=("b1",), end_user="ann", thread=Thread(keeps=True)
    )
    passage = Passage(arriving(), PRINCIPAL, asked_so, INSPECTION, RULING, RESERVED, INTENT)
    same, other = ticket_of(passage, "openai_chat"), ticket_of(passage, "anthropic_messages")
    assert (same.version, same.betas, same.call(9.0).betas) == ("v7", ("b1",), ("b1",))
    assert (other.version, other.betas) == ("", ())
    again = structs.replace(RESERVED, reservation_id="r2")
    found = resumed(same, arriving(), REQUEST.raw, again)
    assert (found.request.end_user, found.request.thread) == ("ann", Thread(keeps=True))
    assert (found.reservation, found.intent, found.ruling.plan) == (again, INTENT, RULING.plan)
