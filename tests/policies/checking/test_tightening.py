"""A change is said to narrow only where no request reaches a target that was out of its reach."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.checking.difference import Amendment, amendments
from policies.checking.kinds import kinds
from policies.decide import decide
from policies.facts import Facts
from policies.selectors import Selector, compile_selector
from tests.policies.worlds import (
    NAMES,
    PREFERENCE_LISTS,
    RULE_LISTS,
    SELECTORS,
    constraints,
    defaults,
    document,
    request,
    requests,
    targets,
)


Rule = Mapping[str, object]
ALL = frozenset({"tools", "streaming"})
REFUSE: Rule = {"when_requested_model_closed": "refuse"}
RAW_SELECTORS = SELECTORS.map(lambda raw: msgspec.convert(raw, Selector))


def _said(old: Rule, new: Rule, standard: Rule) -> Amendment:
    before = document({"name": "c", **old}, defaults=standard)
    after = document({"name": "c", **new}, defaults=standard)
    (found,) = amendments(before.body, after.body)
    return found


EFFECTS: dict[str, st.SearchStrategy[object]] = {
    "allow_only": SELECTORS,
    "forbid": SELECTORS,
    "cap_input_tokens": st.integers(0, 2_000),
    "deny": st.just("No."),
    "require_approval": st.just("Ask."),
}
WHENS = st.none() | st.sampled_from(
    ["stream", "has_tools", "stream and has_tools", "stream or has_tools", 'data_class >= "S2"']
)


@st.composite
def changed(draw: st.DrawFn) -> tuple[Rule, Rule]:
    """A rule before and after: one effect is set anew, and perhaps when it applies."""
    kind, when = draw(st.sampled_from(sorted(EFFECTS))), draw(WHENS)
    old: dict[str, object] = {"no_cache": True, "when": when}
    if draw(st.booleans()):
        old[kind] = draw(EFFECTS[kind])
    new: dict[str, object] = {**old, kind: draw(EFFECTS[kind])}
    if draw(st.booleans()):
        new["when"] = draw(WHENS)
    before, after = (
        {key: value for key, value in rule.items() if value is not None} for rule in (old, new)
    )
    return before, after


@st.composite
def reaching(draw: st.DrawFn) -> Facts:
    """A request that would be answered if no rule was against it."""
    usable = (
        msgspec.structs.replace(
            draw(targets(name)),
            available=True,
            permitted_to_key=True,
            context_window_tokens=200_000,
            capabilities=draw(st.sampled_from([ALL, ALL | {"images"}])),
        )
        for name in NAMES
    )
    model = draw(st.sampled_from(["auto", "auto", *NAMES]))
    return msgspec.structs.replace(
        draw(requests()), targets=tuple(usable), model_requested=model, has_documents=False
    )


@settings(max_examples=2 * settings().max_examples)
@given(
    change=changed() | st.tuples(constraints(), constraints()),
    others=st.just([]) | RULE_LISTS,
    preferences=PREFERENCE_LISTS,
    standard=defaults(),
    asked=st.lists(reaching() | requests(), min_size=1, max_size=3),
)
def test_what_is_said_to_narrow_lets_no_request_reach_more(
    change: tuple[Rule, Rule],
    others: list[Rule],
    preferences: tuple[Rule, ...],
    standard: Rule,
    asked: list[Facts],
) -> None:
    before, after = (
        document({"name": "c", **each}, *others, preferences=preferences, defaults=standard)
        for each in change
    )
    said = [each for each in amendments(before.body, after.body) if each.name == "c"]
    assert not any(each.narrows and each.may_widen for each in said)
    if any(each.narrows for each in said):
        for facts in asked:
            reached = set(decide(after, facts).candidates)
            assert reached <= set(decide(before, facts).candidates)


@given(
    selectors=st.lists(RAW_SELECTORS, min_size=1, max_size=3),
    name=st.sampled_from([*NAMES, "unheard-of"]),
    data=st.data(),
)
def test_every_target_is_of_a_kind_that_the_same_selectors_select(
    selectors: list[Selector], name: str, data: st.DataObject
) -> None:
    target = data.draw(targets(name))
    seen = kinds(selectors, at_most=1_000_000)
    listed = {each for selector in selectors for each in selector.targets}
    chosen = [compile_selector(each) for each in selectors]
    assert any(
        [selects(kind.target) for selects in chosen] == [selects(target) for selects in chosen]
        for kind in seen
        if (name in kind.names if name in listed else not kind.names)
    )
    assert kinds(selectors, at_most=len(seen)) == seen
    assert kinds(selectors, at_most=len(seen) - 1) == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"cap_output_tokens": 10}, {"cap_output_tokens": 9}),
        ({"cap_output_tokens": 10}, {"cap_output_tokens": 10, "cap_input_tokens": 5}),
        ({"no_cache": True}, {"no_cache": True, "deny": "No."}),
        ({"no_cache": True}, {"no_cache": True, "require_approval": "Ask."}),
        ({"scan_output": "count"}, {"scan_output": "mask"}),
        ({"deny": "No.", "when": "stream and has_tools"}, {"deny": "No.", "when": "stream"}),
        ({"deny": "No.", "when": "stream"}, {"deny": "Never."}),
        ({"deny": "No.", "cap_input_tokens": 9}, {"deny": "Never.", "cap_input_tokens": 8}),
    ],
)
def test_what_refuses_more_or_caps_lower_narrows_whatever_the_default(old: Rule, new: Rule) -> None:
    for standard in ({}, REFUSE):
        found = _said(old, new, standard)
        assert (found.narrows, found.may_widen) == (True, False)
        assert "changed (narrows what is allowed): " in found.sentence
        back = _said(new, old, standard)
        assert (back.narrows, back.may_widen) == (False, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"allow_only": {"jurisdictions": ["eu", "us"]}},
            {"allow_only": {"jurisdictions": ["eu"]}},
        ),
        ({"allow_only": {"tiers": ["mid"]}}, {"allow_only": {"tiers": ["mid"], "in_house": True}}),
        ({"forbid": {"tiers": ["mid"]}}, {"forbid": {"tiers": ["cheap", "mid"]}}),
        ({"no_cache": True}, {"no_cache": True, "forbid": {"providers": ["other"]}}),
        ({"forbid": {"in_house": False}, "when": "stream"}, {"forbid": {"in_house": False}}),
    ],
)
def test_closing_more_may_widen_where_a_closed_model_is_substituted(old: Rule, new: Rule) -> None:
    assert _said(old, new, REFUSE).narrows
    assert _said(old, new, {}).may_widen
    assert _said(new, old, REFUSE).may_widen


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"cap_output_tokens": 10, "no_cache": True}, {"cap_output_tokens": 9}),
        ({"audit_content": "none"}, {"audit_content": "encrypted"}),
        ({"allow_only": {"tiers": ["mid"]}}, {"allow_only": {"jurisdictions": ["eu"]}}),
        ({"deny": "No.", "when": "stream"}, {"deny": "No.", "when": "has_tools"}),
    ],
)
def test_what_cannot_be_shown_may_widen(old: Rule, new: Rule) -> None:
    found = _said(old, new, REFUSE)
    assert (found.narrows, found.may_widen) == (False, True)


def test_a_request_for_a_closed_model_by_name_is_why_substitution_counts() -> None:
    names = list(NAMES)
    old: Rule = {"name": "c", "allow_only": {"targets": names}}
    new: Rule = {"name": "c", "allow_only": {"targets": names[1:]}}
    facts = request(model_requested=names[0])
    assert decide(document(old), facts).candidates == (names[0],)
    assert set(decide(document(new), facts).candidates) == set(names[1:])


EU: Rule = {"allow_only": {"jurisdictions": ["eu"]}}
EU_US: Rule = {"allow_only": {"jurisdictions": ["eu", "us"]}}
FREE_CHOICE = 'model_requested == "auto" or startswith(model_requested, "auto:")'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Only for requests that leave the choice to the policy.
        ({**EU_US, "when": FREE_CHOICE}, {**EU, "when": FREE_CHOICE}),
        ({**EU_US, "when": 'model_requested == "auto"'}, {**EU, "when": FREE_CHOICE}),
        ({"when": 'model_requested == "auto"', **EU}, {"when": FREE_CHOICE, **EU}),
        # Whoever asks for a model by name asks for one that stays open.
        (
            {"allow_only": {"targets": ["a", "b", "c"]}, "when": 'model_requested in ["a", "b"]'},
            {"allow_only": {"targets": ["a", "b"]}, "when": 'model_requested in ["a", "b"]'},
        ),
        # Nothing is left that could take the place of what it closes.
        (EU, {**EU, "forbid": {"jurisdictions": ["eu", "us"]}}),
        (EU, {**EU, "forbid": {"in_house": True, "jurisdictions": ["eu"]}, "deny": "No."}),
        ({"deny": "No.", **EU_US}, {"deny": "No.", **EU}),
    ],
)
def test_a_smaller_choice_narrows_where_no_request_can_be_given_a_substitute(
    old: Rule, new: Rule
) -> None:
    assert (_said(old, new, {}).narrows, _said(old, new, {}).may_widen) == (True, False)
    assert (_said(new, old, {}).narrows, _said(new, old, {}).may_widen) == (False, True)


@pytest.mark.parametrize(
    "others",
    [
        # Closed to the same requests before and after, by a rule that stays.
        [{"forbid": {"jurisdictions": ["us"]}}],
        [{"allow_only": {"jurisdictions": ["eu", "in-house"]}, "when": "stream or not stream"}],
        # Whoever names a model is refused.
        [{"deny": "No.", "when": f"not ({FREE_CHOICE})"}],
        [
            {"deny": "No.", "when": 'stream and model_requested != "auto"'},
            {"deny": "No.", "when": 'not stream and model_requested != "auto"'},
        ],
        # Nothing else stays open.
        [{"forbid": {"jurisdictions": ["eu", "in-house"]}}],
    ],
)
def test_the_rules_beside_it_may_show_that_a_smaller_choice_narrows(others: list[Rule]) -> None:
    before, after = (
        document({"name": "c", **EU_US}, *others),
        document({"name": "c", **EU}, *others),
    )
    (found,) = amendments(before.body, after.body)
    assert not found.may_widen
    assert amendments(document({"name": "c", **EU_US}).body, document({"name": "c", **EU}).body)[
        0
    ].may_widen


@pytest.mark.parametrize(
    "others",
    [
        [{"forbid": {"jurisdictions": ["us"]}, "when": "stream"}],
        [{"deny": "No.", "when": 'model_requested != "auto" and has_tools'}],
        [{"require_approval": "Ask."}],
        [{"forbid": {"jurisdictions": ["in-house"]}}],
    ],
)
def test_rules_beside_it_that_leave_a_request_to_be_substituted_show_nothing(
    others: list[Rule],
) -> None:
    before, after = (
        document({"name": "c", **EU_US}, *others),
        document({"name": "c", **EU}, *others),
    )
    (found,) = amendments(before.body, after.body)
    assert (found.narrows, found.may_widen) == (False, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"deny": "No."}, {"deny": "Never."}),
        ({"allow_only": {"in_house": True}}, {"forbid": {"in_house": False}}),
        ({**EU, "when": "stream and has_tools"}, {**EU, "when": "has_tools and stream"}),
        ({**EU, "forbid": {"jurisdictions": ["us"]}}, EU),
    ],
)
def test_a_change_that_leaves_every_request_its_reach_is_marked_as_neither(
    old: Rule, new: Rule
) -> None:
    for standard in ({}, REFUSE):
        for found in (_said(old, new, standard), _said(new, old, standard)):
            assert (found.narrows, found.may_widen) == (False, False)
            assert found.sentence.startswith("constraint *c* changed: ")


def test_no_longer_refusing_requests_for_closed_models_may_widen() -> None:
    refusing, standing_in = document(defaults=REFUSE), document()
    (opened,) = amendments(refusing.body, standing_in.body)
    (shut,) = amendments(standing_in.body, refusing.body)
    assert (opened.may_widen, opened.narrows) == (True, False)
    assert (shut.may_widen, shut.narrows) == (False, True)


def test_too_many_kinds_of_targets_show_nothing() -> None:
    many = {"allow_only": {"targets": [f"t{n}" for n in range(200)]}}
    assert _said(many, {"allow_only": {"targets": ["t1"]}}, REFUSE).narrows, "they are alike"
    beside: list[Rule] = [
        {"forbid": {"targets": [f"t{n}"], "jurisdictions": [f"x{n}"], "providers": [f"y{n}"]}}
        for n in range(60)
    ]
    before = document({"name": "c", **many}, *beside, defaults=REFUSE)
    after = document({"name": "c", "allow_only": {"targets": ["t1"]}}, *beside, defaults=REFUSE)
    assert amendments(before.body, after.body)[0].narrows, "the rule's own kinds are few"
    promises = {"assurances": ["no_training", "no_retention"], "capabilities": ["tools", "images"]}
    wide = {"allow_only": {"targets": [f"t{n}" for n in range(200)], **promises}}
    assert kinds([msgspec.convert(wide["allow_only"], Selector)], at_most=7) == ()
