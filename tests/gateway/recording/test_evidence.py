"""Records hold types, counts, digests and names, and never a piece of what was said."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from classifiers.pii.scanner import PATTERNS_ONLY
from gateway.admission.withholding import WITHHELD
from gateway.clock import HOUR_US
from gateway.configuration.settings import Limits
from gateway.dialects.registry import DIALECTS
from gateway.errors import (
    BudgetExhausted,
    ClosedByPolicy,
    FeatureUnsupported,
    GatewrightError,
    ModelUnknown,
    PolicyDenied,
    Unauthenticated,
)
from gateway.identity import KeyTable
from gateway.passage import Arrival, Passage
from gateway.recording.evidence import (
    UNKNOWN_ORGANISATION,
    Ending,
    Loss,
    intent,
    lost,
    outcome,
    refusal,
)
from gateway.recording.recall import Recaller
from gateway.rollout.versions import PolicySet
from gateway.routing.board import TargetBoard
from gateway.routing.planning import Ruling, decision_digest, gather, rule
from gateway.snapshot import Snapshot
from gateway.types import (
    Attempt,
    AuditRecord,
    ChatRequest,
    Inspection,
    Principal,
    Receipt,
    Reservation,
    Usage,
)
from gateway.veiling.output_scan import OutputScan
from gateway.veiling.redaction import Pseudonyms
from gateway.veiling.veil import Veil
from policies.decide import decide
from tests.gateway.providers.samples import make_target
from tests.identifiers import card
from tests.policies.worlds import document


PRINCIPAL = Principal("k1", "a secret title", "acme", "research", "x", ("l",), None, ("org:acme",))
INSPECTION = Inspection("S3", {"aadhaar": 2}, True, (), 0.25, "mid", "v1", 10)
BOARD = TargetBoard({"scripted/one": make_target()}, {})
ARRIVAL = Arrival(
    "req_1",
    "/v1/chat/completions",
    DIALECTS["openai_chat"],
    [],
    0,
    Snapshot("s1", KeyTable(1, {}), PolicySet(document()), BOARD),
)
contents = st.text(min_size=12, max_size=60).map(lambda text: f"{text[:-3]}\u00a7{text[-3:]}")
"""With a sign that no record has: any words of its own may be drawn, such as `budget_left_`."""


def intent_for(content: str) -> AuditRecord:
    body = {"model": "auto", "messages": [{"role": "user", "content": content}], "user": content}
    request = DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")
    facts = gather(request, PRINCIPAL, INSPECTION, 5, 0, BOARD)
    return intent(
        PRINCIPAL,
        request,
        INSPECTION,
        rule(document(), facts, request, BOARD, Limits()),
        Reservation("r1", ("org:acme",), 77, 0, 5),
        arrival=ARRIVAL,
        decided_us=5,
    )


@given(contents)
def test_an_intent_holds_nothing_of_the_content(content: str) -> None:
    record = intent_for(content)

    assert content not in msgspec.json.encode(record).decode()
    assert record == intent_for(content)


def test_an_intent_says_who_what_where_and_why() -> None:
    record = intent_for("Good morning everybody")

    assert (record.stage, record.organisation, record.key_id) == ("intent", "acme", "k1")
    assert (record.data_class, record.findings) == ("S3", {"aadhaar": 2})
    assert record.complexity_ppm == 250_000
    assert record.candidates == ("scripted/one",)
    assert record.clearance == ("home",)
    assert record.reserved_microusd == 77
    assert record.decision
    assert record.policy_digest


@pytest.mark.parametrize(
    "error", [Unauthenticated("no"), PolicyDenied("no"), BudgetExhausted("no")]
)
def test_a_refusal_of_a_stranger_names_nobody(error: GatewrightError) -> None:
    record = refusal(ARRIVAL, None, None, None, error, utc_us=9, duration_us=4)

    assert (record.organisation, record.key_id) == (UNKNOWN_ORGANISATION, "")
    assert (record.stage, record.status, record.error) == ("outcome", "refused", error.code)
    assert record.http_status == error.http_status
    assert not record.intent


def test_a_refusal_keeps_what_was_known_by_then() -> None:
    record = refusal(
        ARRIVAL,
        PRINCIPAL,
        None,
        INSPECTION,
        PolicyDenied("Not today."),
        utc_us=9,
        duration_us=4,
    )

    assert (record.organisation, record.key_id, record.data_class) == ("acme", "k1", "S3")
    assert record.decision_reason == "Not today."
    assert record.facts is None


@pytest.mark.parametrize("prefix", ["", "auto:", "gpt-"])
@pytest.mark.parametrize("sent", [card(3), "ingrid@corp-mail.no", "gpt-9.1-none"])
def test_what_is_sent_as_a_models_name_is_kept_where_it_is_nobodys_data(
    sent: str, prefix: str
) -> None:
    body = {"model": prefix + sent, "messages": [{"role": "user", "content": "Hello"}]}
    request = DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")
    error = ModelUnknown(f"There is no model `{request.model}` here.")
    record = refusal(ARRIVAL, PRINCIPAL, request, None, error, utc_us=9, duration_us=4)

    told = request.model if sent.endswith("none") else WITHHELD
    assert record.model_requested == told
    assert record.decision_reason == f"There is no model `{told}` here."


def test_a_name_is_withheld_from_refusals_that_come_before_it_is_looked_up() -> None:
    body = {"model": card(3), "messages": [{"role": "user", "content": "Hello"}]}
    request = DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")
    error = FeatureUnsupported("messages: Too many.")
    record = refusal(ARRIVAL, PRINCIPAL, request, None, error, utc_us=9, duration_us=4)

    assert (record.model_requested, record.decision_reason) == (WITHHELD, "messages: Too many.")


def test_a_refusal_of_policy_keeps_the_decision_and_what_it_was_made_on() -> None:
    body = {"model": "auto", "messages": [{"role": "user", "content": "x"}], "service_tier": "flex"}
    request = DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")
    policy = document({"when": "hour_utc == 0", "deny": "Not at night."})
    facts = gather(request, PRINCIPAL, INSPECTION, 5, HOUR_US - 1, BOARD, headers={"x": "y"})
    with pytest.raises(PolicyDenied) as denied:
        rule(policy, facts, request, BOARD, Limits())

    for ended_us, took_us in ((HOUR_US - 1, 5), (HOUR_US + 1, 5)):
        record = refusal(
            ARRIVAL,
            PRINCIPAL,
            request,
            INSPECTION,
            denied.value,
            utc_us=ended_us,
            duration_us=took_us,
        )
        stored = msgspec.json.decode(msgspec.json.encode(record), type=AuditRecord)
        assert Recaller({BOARD.digest: BOARD.facts_for(None)}.get).facts(stored) == facts
        assert (record.policy_digest, record.decision) == (
            policy.digest,
            decision_digest(decide(policy, facts)),
        )
    assert facts.service_tier == "batch"


def test_an_intent_gives_its_facts_back_and_they_decide_the_same() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(intent_for("hello")), type=AuditRecord)
    boards = {BOARD.digest: BOARD.facts_for(None)}
    facts = Recaller(boards.get).facts(stored)

    assert facts is not None
    assert decision_digest(decide(document(), facts)) == stored.decision
    assert Recaller(lambda _: None).facts(stored) is None
    assert Recaller(boards.get).facts(structs.replace(stored, facts=None)) is None


def test_an_intent_is_of_when_its_money_came_and_its_facts_of_when_it_was_ruled() -> None:
    begun, request, seen, ruling = known_of_a_request()
    ruled = structs.replace(ruling, facts=gather(request, PRINCIPAL, seen, 5, HOUR_US - 1, BOARD))
    recaller = Recaller({BOARD.digest: BOARD.facts_for(None)}.get)
    for admitted_us, decided_us in ((HOUR_US - 1, 0), (HOUR_US, HOUR_US - 1)):
        reservation = Reservation("r1", ("org:acme",), 77, 0, admitted_us)
        record = intent(
            *(PRINCIPAL, request, seen, ruled, reservation), arrival=begun, decided_us=HOUR_US - 1
        )
        assert record.utc_us == admitted_us
        assert record.facts is not None
        assert record.facts.decided_us == decided_us
        assert recaller.facts(record) == ruled.facts


def test_the_scope_of_a_key_is_part_of_the_facts() -> None:
    narrow = structs.replace(PRINCIPAL, models=frozenset({"another"}))
    request = DIALECTS["openai_chat"].decode_request(
        b'{"model":"auto","messages":[{"role":"user","content":"x"}]}', "req_1"
    )
    facts = gather(request, narrow, INSPECTION, 5, 0, BOARD)
    with pytest.raises(ClosedByPolicy) as closed:
        rule(document(), facts, request, BOARD, Limits())
    record = refusal(ARRIVAL, narrow, request, INSPECTION, closed.value, utc_us=9, duration_us=4)
    assert Recaller({BOARD.digest: BOARD.facts_for(None)}.get).facts(record) == facts
    assert Recaller(lambda _: None).facts(record) is None


def test_how_long_the_longest_of_several_prompts_is_is_part_of_the_facts() -> None:
    body = {"model": "auto", "prompt": ["short", "long " * 50]}
    request = DIALECTS["openai_completions"].decode_request(msgspec.json.encode(body), "req_1")
    facts = gather(request, PRINCIPAL, INSPECTION, 5, 0, BOARD)
    with pytest.raises(FeatureUnsupported) as lacking:
        rule(document(), facts, request, BOARD, Limits())
    record = refusal(
        ARRIVAL, PRINCIPAL, request, INSPECTION, lacking.value, utc_us=9, duration_us=4
    )

    assert 0 < facts.longest_tokens_estimate < facts.input_tokens_estimate
    assert Recaller({BOARD.digest: BOARD.facts_for(None)}.get).facts(record) == facts


LOSS = Loss("i", "here", "cloud", "ann", 7)
PLAIN = AuditRecord("admin", "", "", 0)
DEFAULTS = {name: getattr(PLAIN, name) for name in PLAIN.__struct_fields__}
OF_ADMIN = {"actor", "action"}
OF_INTENTS = {
    *("snapshot", "complexity_ppm", "candidates", "clearance", "reserved_microusd", "facts"),
    *("classifier", "complexity_parts_ppm", "calibration", "decision_reason"),
}
OF_OUTCOMES = {
    *("intent", "status", "http_status", "error", "attempts", "usage", "cost_microusd"),
    *("price_as_of", "duration_us", "dropped"),
}
SCANNED = {"output_findings"}


def unsaid(record: AuditRecord) -> set[str]:
    """Fields that say nothing, as where nothing is known."""
    return {name for name, nothing in DEFAULTS.items() if getattr(record, name) == nothing}


def known_of_a_request() -> tuple[Arrival, ChatRequest, Inspection, Ruling]:
    """All of it that a record may say, and nothing of it empty."""
    seen = structs.replace(
        INSPECTION,
        complete=False,
        incomplete_reasons=("timeout",),
        calibration="of acme",
        complexity_parts=(("words", 0.25),),
    )
    body = {"model": "auto", "messages": [{"role": "user", "content": "x"}]}
    asked = DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")
    request = structs.replace(asked, end_user="5b0e")
    facts = gather(request, PRINCIPAL, seen, 5, 0, BOARD)
    ruling = rule(document(), facts, request, BOARD, Limits())
    return structs.replace(ARRIVAL, trace="trace-span"), request, seen, ruling


def test_an_intent_and_its_outcome_leave_out_nothing_that_is_known() -> None:
    begun, request, seen, ruling = known_of_a_request()
    wide = structs.replace(ruling, plan=structs.replace(ruling.plan, clearance=frozenset("cabed")))
    parts = (PRINCIPAL, request, seen, wide, Reservation("r1", ("org:acme",), 77, 0, 5))
    first = intent(*parts, arrival=begun, decided_us=5)
    assert unsaid(first) == OF_ADMIN | OF_OUTCOMES | SCANNED
    assert (first.detail["trace"], first.complexity_parts_ppm) == ("trace-span", {"words": 250_000})
    assert (first.target, first.provider, first.jurisdiction) == (
        "scripted/one",
        "somebody",
        "home",
    )
    assert first.clearance == (*"abcde",)

    passage = Passage(begun, *parts, Receipt("w0", 1, 0, "leaf"), subject="5b0e")
    usage, attempts = (
        Usage(input_tokens=3),
        (Attempt("scripted/one", 502, "upstream_failed", 4, 0),),
    )
    target = structs.replace(wide.plan.candidates[0].target, digest="d1")
    ending = Ending("failed", 502, target, attempts, usage, 9, "upstream_failed", ("top_k",))
    last = outcome(passage, ending, utc_us=9, duration_us=4)
    assert unsaid(last) == OF_ADMIN | OF_INTENTS | SCANNED
    assert (last.intent, last.subject, last.price_as_of) == ("leaf", "5b0e", target.price.as_of)
    assert last.detail == {"trace": "trace-span", "model_digest": "d1"}
    nameless = structs.replace(ending, target=structs.replace(target, digest=""))
    assert outcome(passage, nameless, utc_us=9, duration_us=4).detail == {"trace": "trace-span"}


def test_an_outcome_says_how_a_request_left_and_what_its_answer_held() -> None:
    begun, request, seen, ruling = known_of_a_request()
    redacting = structs.replace(ruling.decision.obligations, redact=True)
    blackening = structs.replace(
        ruling, decision=structs.replace(ruling.decision, obligations=redacting)
    )
    plain = Passage(
        *(begun, PRINCIPAL, request, seen, ruling, Reservation("r1", ("org:acme",), 77, 0, 5)),
        Receipt("w0", 1, 0, "leaf"),
    )
    veiled = structs.replace(plain, veil=Veil(request, Pseudonyms({}, {})))
    sent = Ending("ok", 200, None, (Attempt("scripted/one", 200, "", 4, 0),), Usage(1, 1), 0)
    trace = {"trace": "trace-span"}

    def detail(passage: Passage, ending: Ending = sent) -> Mapping[str, str]:
        return outcome(passage, ending, utc_us=9, duration_us=4).detail

    assert detail(plain) == trace
    assert detail(veiled) == {**trace, "sent": "surrogates"}
    assert detail(structs.replace(veiled, ruling=blackening)) == {**trace, "sent": "blackened"}
    harmless = structs.replace(seen, findings={})
    assert detail(structs.replace(veiled, inspection=harmless)) == trace
    assert detail(veiled, structs.replace(sent, attempts=())) == trace
    told = structs.replace(
        sent, counted="upstream", stop_reason="refusal", cascade={"a": "1"}, repeats={"b": "2"}
    )
    said = {"counted": "upstream", "stop_reason": "refusal", "a": "1", "b": "2"}
    assert detail(plain, told) == trace | said

    scan = OutputScan(PATTERNS_ONLY.scan, PATTERNS_ONLY.scan, None)
    scan.unveiled(msgspec.json.encode({"content": f"It is {card(3)} ."}))
    scanned = structs.replace(plain, output=scan)
    assert outcome(scanned, sent, utc_us=9, duration_us=4).output_findings == {"CREDIT_CARD": 1}


def test_what_was_refused_or_lost_leaves_out_nothing_that_is_known() -> None:
    begun, request, seen, _ = known_of_a_request()
    error = ClosedByPolicy("no")
    refused = refusal(begun, PRINCIPAL, request, seen, error, utc_us=9, duration_us=4)
    untold = {*OF_INTENTS, *OF_OUTCOMES, *SCANNED, *OF_ADMIN, "decision", "policy_digest"}
    untold |= {"target", "provider", "jurisdiction"}
    said = {"decision_reason", "status", "http_status", "error", "duration_us"}
    assert unsaid(refused) == untold - said

    loss = structs.replace(LOSS, usage=Usage(input_tokens=3))
    away = lost(begun, PRINCIPAL, loss, GatewrightError("gone"), utc_us=9)
    assert away.detail == {"trace": "trace-span"}
    untold = {"attempts", "price_as_of", "dropped", "dialect", "model_requested", "jurisdiction"}
    untold |= {"decision", "policy_digest", "data_class", "findings", "inspection_complete"}
    assert unsaid(away) == untold | OF_ADMIN | SCANNED | OF_INTENTS - {"decision_reason"}


def test_a_clock_set_back_gives_no_negative_duration() -> None:
    begun = structs.replace(ARRIVAL, arrived_us=100)
    error = GatewrightError("gone")
    assert lost(begun, PRINCIPAL, LOSS, error, utc_us=130).duration_us == 30
    assert lost(begun, PRINCIPAL, LOSS, error, utc_us=40).duration_us == 0


def test_a_cost_that_nobody_counted_says_that_it_is_what_was_set_aside() -> None:
    error = GatewrightError("gone")
    record = lost(ARRIVAL, PRINCIPAL, LOSS, error, utc_us=130)
    assert (record.intent, record.subject) == ("i", "ann")
    assert (record.target, record.provider, record.cost_microusd) == ("here", "cloud", 7)
    assert (record.usage, record.detail) == (None, {"cost": "reserved"})
    usage = Usage(input_tokens=3)
    record = lost(ARRIVAL, PRINCIPAL, structs.replace(LOSS, usage=usage), error, utc_us=130)
    assert (record.cost_microusd, record.usage, record.detail) == (7, usage, {})
    free = structs.replace(LOSS, cost_microusd=0)
    assert lost(ARRIVAL, PRINCIPAL, free, error, utc_us=130).detail == {}
