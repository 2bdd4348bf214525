"""Records hold types, counts, digests and names, and never a piece of what was said."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.registry import DIALECTS
from gateway.errors import BudgetExhausted, GatewrightError, PolicyDenied, Unauthenticated
from gateway.evidence import UNKNOWN_ORGANISATION, intent, refusal
from gateway.routing import TargetBoard, gather, rule
from gateway.settings import Limits
from gateway.types import AuditRecord, Inspection, Principal, Reservation
from tests.gateway.providers.samples import make_target
from tests.policies.worlds import document


PRINCIPAL = Principal("k1", "a secret title", "acme", "research", "x", ("l",), None, ("org:acme",))
INSPECTION = Inspection("S3", {"aadhaar": 2}, True, (), 0.25, "mid", "v1", 10)
BOARD = TargetBoard({"scripted/one": make_target()}, {})
contents = st.text(min_size=12, max_size=60)


def intent_for(content: str) -> AuditRecord:
    body = {"model": "auto", "messages": [{"role": "user", "content": content}], "user": content}
    request = DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")
    facts = gather(request, PRINCIPAL, INSPECTION, 5, 0, BOARD)
    return intent(
        PRINCIPAL,
        request,
        INSPECTION,
        rule(document(), facts, request, BOARD, Limits()),
        Reservation("r1", ("org:acme",), 77, 0),
        endpoint="/v1/chat/completions",
        snapshot="s1",
        utc_us=5,
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
    record = refusal(
        "req_1", None, None, None, error, endpoint="/v1/messages", utc_us=9, duration_us=4
    )

    assert (record.organisation, record.key_id) == (UNKNOWN_ORGANISATION, "")
    assert (record.stage, record.status, record.error) == ("outcome", "refused", error.code)
    assert record.http_status == error.http_status
    assert not record.intent


def test_a_refusal_keeps_what_was_known_by_then() -> None:
    record = refusal(
        "req_1",
        PRINCIPAL,
        None,
        INSPECTION,
        PolicyDenied("Not today."),
        endpoint="/v1/messages",
        utc_us=9,
        duration_us=4,
    )

    assert (record.organisation, record.key_id, record.data_class) == ("acme", "k1", "S3")
    assert record.decision_reason == "Not today."
