"""What changed between two documents, in words."""

from policies.checking.difference import difference
from policies.program import PolicyDocument
from tests.policies.worlds import document


def words(before: PolicyDocument, after: PolicyDocument) -> str:
    return "\n".join(difference(before.body, after.body))


def test_the_same_document_has_no_difference() -> None:
    one = document({"deny": "No."}, preferences=({"order": ["cheapest"]},))
    assert difference(one.body, one.body) == ()


def test_every_kind_of_change_is_said_in_words_and_widening_ones_are_marked() -> None:
    before = document(
        {"when": 'data_class >= "S3"', "allow_only": {"in_house": True}},
        {"forbid": {"tiers": ["frontier"]}, "cap_output_tokens": 10},
        preferences=(
            {"name": "a", "order": ["cheap"], "weights": {"x": 1}},
            {"name": "b", "order": ["mid"], "canary": {"target": "t", "percent": 5}},
        ),
        tests=[
            {"name": "one", "expect": {"effect": "allow"}},
            {"name": "two", "expect": {"effect": "allow"}},
        ],
    )
    after = document(
        {"when": 'data_class >= "S4"', "allow_only": {"in_house": True}, "no_cache": True},
        preferences=(
            {"name": "b", "order": ["mid"], "canary": {"target": "t", "percent": 50}},
            {"name": "a", "order": ["cheap"], "weights": {"x": 1}},
            {"name": "c", "targets": ["t"]},
        ),
        tests=[{"name": "two", "expect": {"effect": "deny"}}],
        defaults={"output_tokens_max": 7},
    )
    said = words(before, after)
    assert "default output_tokens_max: nothing → 7" in said
    assert "constraint *c0* changed (may widen what is allowed): " in said
    assert 'when: data_class >= "S3" → data_class >= "S4"; no_cache: no → yes' in said
    assert "constraint *c1* was removed (may widen what is allowed): forbid tier frontier" in said
    assert "preference *b* changed: canary: t for 5% → t for 50%" in said
    assert "preference *c* was added: targets t" in said
    assert "preferences are asked in another order: b, a" in said
    assert "test cases removed: one" in said
    assert "test cases changed: two" in said
    assert "preference *c* was removed: targets t" in words(after, before)
    unweighted = document(preferences=({"name": "a", "order": ["cheap"]},))
    weighted = document(preferences=({"name": "a", "order": ["cheap"], "weights": {"x": 1}},))
    assert "weights: nothing → x 1" in words(unweighted, weighted)
