"""Levels as an organisation names them: its own, the installation's, and never another's."""

import pytest
from litestar.exceptions import NotFoundException

from admin.policy_room.places import above, may, place_named, place_of
from gateway.oversight.access import EVERYWHERE, Grant, Permission, Person


SLUGS = {
    "installation": ("", 0, "Installation"),
    "organisation": ("org:acme", 1, "Organisation acme"),
    "ws:research": ("ws:acme/research", 2, "Team research"),
    "proj:research:bot": ("proj:acme/research/bot", 3, "Project research / bot"),
}


@pytest.mark.parametrize("slug", SLUGS)
def test_a_level_is_named_in_the_store_and_found_by_its_name_there(slug: str) -> None:
    name, depth, title = SLUGS[slug]
    place = place_of("acme", slug)
    assert (place.slug, place.name, place.depth, place.title) == (slug, name, depth, title)
    assert place_named("acme", name) == place
    assert [each.slug for each in above("acme", place)] == [*SLUGS][:depth]
    assert [each.name for each in above("acme", place)] == [SLUGS[each][0] for each in SLUGS][
        :depth
    ]


def test_no_address_of_one_organisation_names_a_level_of_another() -> None:
    for name in (
        *("org:umbrella", "ws:umbrella/research", "proj:umbrella/research/bot"),
        *("org:acme2", "ws:acme2/research", "ws:acme", "proj:acme/research", "ws:acme/a/b"),
        *("key:acme/research", "org:acme/research", "acme"),
    ):
        assert place_named("acme", name) is None, name


@pytest.mark.parametrize(
    "slug",
    [
        *("", "org", "org:umbrella", "installation ", "Organisation", "ws:", "ws:a/b", "ws:a:b"),
        *("ws:../umbrella", "ws:umbrella/research", "proj:a", "proj:a:b:c", "proj:a/b:c"),
        *("ws:É", "ws:A", "ws:-a", "ws:a\n", "ws:" + "a" * 64, "proj:a:" + "a" * 64, "xws:a"),
    ],
)
def test_what_names_no_level_is_not_there(slug: str) -> None:
    with pytest.raises(NotFoundException):
        place_of("acme", slug)


def test_a_name_is_as_long_as_names_may_be() -> None:
    long = "a" * 63
    assert place_of("acme", f"ws:{long}").below == (long, "")
    assert place_of("acme", f"proj:{long}:{long}").below == (long, long)


def test_at_the_installations_level_only_a_role_that_is_held_everywhere_counts() -> None:
    here = Person("ann", grants=frozenset({Grant("policy_editor", "acme")}))
    all_over = Person("bob", grants=frozenset({Grant("policy_editor", EVERYWHERE)}))
    for slug in SLUGS:
        place = place_of("acme", slug)
        is_shared = slug == "installation"
        assert may(here, Permission.POLICIES_EDIT, "acme", place) is not is_shared
        assert not may(here, Permission.POLICIES_EDIT, "umbrella", place)
        assert not may(here, Permission.POLICIES_APPROVE, "acme", place)
        assert may(all_over, Permission.POLICIES_EDIT, "acme", place)
