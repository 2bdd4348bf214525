"""Recorded traffic under a draft, and under the documents that decided it."""

import msgspec

from policies.decide import decide
from policies.decision import Decision
from policies.facts import Facts
from policies.program import PolicyDocument
from policies.render import render_impact
from policies.replay import Recorded, impact, reproduce
from tests.policies.worlds import document, request


OPEN = document(preferences=({"targets": ["managed-mid"]},))
HOME = document({"when": 'data_class >= "S2"', "allow_only": {"in_house": True}})


def digest(decision: Decision) -> str:
    return msgspec.json.encode(decision).hex()


def recorded(name: str, policy: PolicyDocument, facts: Facts, target: str = "") -> Recorded:
    decision = decide(policy, facts)
    first = decision.candidates[0] if decision.candidates else ""
    return Recorded(
        request_id=name,
        facts=facts,
        document_digest=policy.digest,
        decision_digest=digest(decision),
        is_refused=decision.effect == "deny",
        first=first,
        target=target or first,
        cost_microusd=1_000,
        accounts=("org:acme", f"key:{facts.key_id}"),
        input_tokens=1_000,
        output_tokens=100,
    )


def test_the_recorded_version_reproduces_every_decision_and_a_forged_one_is_named() -> None:
    traffic = [recorded(f"r{n}", OPEN, request(key_id=f"k{n}")) for n in range(5)]
    forged = msgspec.structs.replace(traffic[2], decision_digest="no")
    lost = msgspec.structs.replace(traffic[3], document_digest="gone")
    known = {OPEN.digest: OPEN}

    assert reproduce(traffic, known.get, digest).same == 5
    found = reproduce([*traffic[:2], forged, lost], known.get, digest)
    assert (found.same, found.different, found.unknown_documents) == (2, ("r2",), 1)


def test_a_draft_is_weighed_by_routes_costs_budgets_and_examples() -> None:
    traffic = [
        recorded("public", OPEN, request()),
        recorded("secret", OPEN, request(data_class="S3")),
        recorded("fallen", HOME, request(), target="managed-cheap"),
        recorded("refused", document({"deny": "No."}), request()),
    ]
    found = impact(HOME, traffic, {"org:acme": 1_500, "key:example": 10_000_000})

    assert (found.requests, found.rerouted, found.newly_blocked) == (4, 2, 0)
    assert (found.newly_in_house, found.newly_permitted) == (2, 1), "refused left as little"
    assert ("managed-mid", "in-house", 2) in found.routes
    assert [example.request_id for example in found.examples] == ["public", "refused"]
    # In-house: 1,000 in at 0.2 and 100 out at 0.6 micro-dollars each; "fallen" stays as it was.
    assert found.cost_after_microusd == 3 * 260 + 1_000
    assert found.cost_delta_microusd == found.cost_after_microusd - 4_000
    assert found.tripped == (("org:acme", 1_780),)


def test_what_a_draft_blocks_or_sends_out_is_counted() -> None:
    traffic = [recorded("home", HOME, request(data_class="S3"))]
    blocked = impact(document({"deny": "No."}), traffic)
    assert (blocked.newly_blocked, blocked.no_longer_in_house) == (1, 0), "it goes nowhere"
    assert impact(OPEN, traffic).no_longer_in_house == 1
    unmeasured = msgspec.structs.replace(traffic[0], input_tokens=0, output_tokens=0)
    assert impact(OPEN, [unmeasured]).cost_after_microusd > 0


def test_the_report_says_it_all_in_lines() -> None:
    traffic = [recorded("secret", OPEN, request(data_class="S3"))]
    found = impact(HOME, traffic, {"org:acme": 10})
    forged = msgspec.structs.replace(traffic[0], decision_digest="no")
    lost = msgspec.structs.replace(traffic[0], document_digest="gone")
    lines = render_impact(
        found, reproduce([*traffic, forged, lost], {OPEN.digest: OPEN}.get, digest)
    )

    assert "recorded decisions reproduced: 1 of 2; 1 under unknown documents" in lines
    assert "  NOT REPRODUCED: secret" in lines
    assert "cost: 1000 → 260 micro-dollars (-740)" in lines
    assert "route: managed-mid → in-house: 1" in lines
    assert "budget overrun: org:acme would cost 260" in lines
    assert "example: secret: managed-mid → in-house\n  Sent to the in-house engine" in lines
