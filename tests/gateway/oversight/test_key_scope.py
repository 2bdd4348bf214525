"""What lets a key do more is told from what only takes away; what cannot be told counts as more."""

import itertools

import pytest
from msgspec.structs import replace

from gateway.oversight.key_scope import KeyScope, changes, is_widening, new_models, scope_of


NARROW = scope_of(["house"], 1_000, ["team"], "warn")
FIELDS: tuple[dict[str, object], ...] = (
    {"models": None},
    {"models": ("claude", "house")},
    {"models": ("claude",)},
    {"expires_us": None},
    {"expires_us": 1_001},
    {"labels": ()},
    {"labels": ("team", "tier:priority")},
    {"translation": "lenient"},
)


@pytest.mark.parametrize("more", FIELDS, ids=str)
def test_each_way_to_do_more_is_wider_and_the_way_back_as_well_where_it_cannot_be_told(
    more: dict[str, object],
) -> None:
    wider = replace(NARROW, **more)
    assert is_widening(NARROW, wider)
    exchanged = more in ({"models": ("claude",)}, FIELDS[5], FIELDS[6])
    assert is_widening(wider, NARROW) is exchanged


def test_what_only_takes_away_is_narrower_however_much_of_it_is_done_at_once() -> None:
    wide = KeyScope(None, None, ("a",), "lenient")
    less = KeyScope((), 5, ("a",), "strict")
    assert not is_widening(wide, less)
    assert [(each.field, each.is_wider) for each in changes(wide, less)] == [
        *(("models", False), ("expires_us", False), ("translation", False)),
    ]
    assert is_widening(wide, replace(less, labels=())), "one part that may be wider is enough"


def test_a_scope_does_no_more_than_itself_and_two_that_open_each_other_are_equal() -> None:
    scopes = [
        scope_of(models, expires_us, ["a"], translation)
        for models in (None, [], ["x"], ["x", "y"], ["y"])
        for expires_us in (None, 1, 2)
        for translation in ("strict", "warn", "lenient")
    ]
    for one, other in itertools.product(scopes, repeat=2):
        if one == other:
            assert changes(one, other) == ()
        else:
            assert is_widening(one, other) or is_widening(other, one), "one of them does more"


def test_what_comes_and_goes_is_named_and_an_order_of_models_says_nothing() -> None:
    assert scope_of(["b", "a", "b"], None, [], "warn") == scope_of(["a", "b"], None, [], "warn")
    (change,) = changes(NARROW, replace(NARROW, models=("claude",)))
    assert (change.gained, change.lost) == (("claude",), ("house",))
    everything = replace(NARROW, models=None)
    assert new_models(NARROW, everything, ["house", "claude", "far"]) == ("claude", "far")
    assert new_models(everything, NARROW, ["house", "claude"]) == ()
