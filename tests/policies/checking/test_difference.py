"""What changed between two documents, in words."""

from policies.checking.difference import FIELD_WORDS, difference
from policies.document import Constraint, Defaults, Preference
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
    assert "default, output tokens at most: nothing → 7" in said
    assert "constraint *c0* changed (may widen what is allowed): " in said
    assert (
        'when: data_class >= "S3" → data_class >= "S4"; kept out of the response cache: no → yes'
        in said
    )
    assert (
        "constraint *c1* was removed (may widen what is allowed): never answered by: tier frontier"
        in said
    )
    assert "preference *b* changed: canary: t for 5% → t for 50%" in said
    assert "preference *c* was added: first: t" in said
    assert "preferences are asked in another order: b, a" in said
    assert "test cases removed: one" in said
    assert "test cases changed: two" in said
    assert "preference *c* was removed: first: t" in words(after, before)
    unweighted = document(preferences=({"name": "a", "order": ["cheap"]},))
    weighted = document(preferences=({"name": "a", "order": ["cheap"], "weights": {"x": 1}},))
    assert "shares: nothing → x 1" in words(unweighted, weighted)


def test_every_field_of_a_rule_and_of_the_defaults_has_words_of_its_own() -> None:
    fields = {
        name
        for kind in (Constraint, Preference, Defaults)
        for name in kind.__struct_fields__
        if name != "name"
    }
    assert set(FIELD_WORDS) == fields
    assert not [name for name, words in FIELD_WORDS.items() if "_" in words]
    house = document({"allow_only": {"in_house": True}})
    assert "was added: answered only by: in-house" in words(document(), house)
