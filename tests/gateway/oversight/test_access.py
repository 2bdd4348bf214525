"""Grants give what they say, where they say; no sequence of grants raises what somebody may do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestInvalid
from gateway.oversight.access import (
    EVERYWHERE,
    ROLE_PERMISSIONS,
    ROLES,
    Grant,
    Permission,
    Person,
    allows,
    may_grant,
    organisations_of,
)
from gateway.secrets.passwords import LENGTH_MAX, hash_password, proves
from gateway.secrets.secret import Secret


PLACES = ("acme", "umbrella", EVERYWHERE)
grants = st.builds(Grant, st.sampled_from(ROLES), st.sampled_from(PLACES))
people = st.builds(lambda held: Person("ann", "", frozenset(held)), st.lists(grants, max_size=4))


def powers(person: Person) -> set[tuple[Permission, str | None]]:
    return {
        (permission, place)
        for permission in Permission
        for place in ("acme", "umbrella", "another", None)
        if allows(person, permission, place)
    }


def test_without_a_grant_nothing_is_allowed() -> None:
    assert powers(Person("ann")) == set()
    assert (
        powers(Person("ann", "", frozenset({Grant("viewer", "acme")}), is_disabled=True)) == set()
    )


@given(people)
def test_a_grant_in_one_organisation_never_reaches_another_or_everywhere(person: Person) -> None:
    scoped = frozenset(grant for grant in person.grants if grant.organisation == "acme")
    reached = {place for _, place in powers(Person("ann", "", scoped))}

    assert reached <= {"acme"}


@given(people, st.lists(st.tuples(st.booleans(), grants), max_size=20))
def test_no_sequence_of_grants_among_colluders_raises_what_they_may_do_together(
    first: Person, moves: list[tuple[bool, Grant]]
) -> None:
    """Two people who give each other whatever they can end with no more than they began with."""
    second = Person("bob")
    before = powers(first) | powers(second)
    for by_first, grant in moves:
        grantor = first if by_first else second
        if may_grant(grantor, grant):
            first = Person("ann", "", first.grants | ({grant} if not by_first else set()))
            second = Person("bob", "", second.grants | ({grant} if by_first else set()))

    assert powers(first) | powers(second) <= before


def test_organisations_are_named_unless_it_is_everywhere() -> None:
    both = Person("ann", "", frozenset({Grant("viewer", "acme"), Grant("compliance", "umbrella")}))

    assert organisations_of(both, Permission.KEYS_READ) == frozenset({"acme", "umbrella"})
    assert organisations_of(both, Permission.AUDIT_READ) == frozenset({"umbrella"})
    assert organisations_of(both, Permission.PEOPLE_MANAGE) == frozenset()
    everywhere = Person("ann", "", frozenset({Grant("viewer", EVERYWHERE)}))
    assert organisations_of(everywhere, Permission.KEYS_READ) is None


def test_compliance_changes_nothing_but_what_compliance_is_about() -> None:
    changing = {
        each for each in ROLE_PERMISSIONS["compliance"] if not each.endswith((":read", ":export"))
    }

    assert changing == {
        *(Permission.HOLDS_SET, Permission.CONTENT_ERASE, Permission.CONTENT_APPROVE_ERASURE),
        *(Permission.CONTENT_REVEAL, Permission.CONTENT_APPROVE_REVEAL),
        *(Permission.REVIEWS_SIGN, Permission.INCIDENTS_LEAD, Permission.OBLIGATIONS_SET),
    }


def test_no_role_that_edits_policies_approves_them() -> None:
    both = {Permission.POLICIES_EDIT, Permission.POLICIES_APPROVE}

    assert not [role for role in ROLES if both <= ROLE_PERMISSIONS[role]]


def test_no_role_that_proposes_prices_approves_them() -> None:
    both = {Permission.PRICES_PROPOSE, Permission.PRICES_APPROVE}

    assert not [role for role in ROLES if both <= ROLE_PERMISSIONS[role]]
    assert all(any(each in ROLE_PERMISSIONS[role] for role in ROLES) for each in both)


def test_passwords_are_argon2id_with_the_strength_that_owasp_asks_for() -> None:
    password = Secret("a dozen characters")
    encoded = hash_password(password)

    assert encoded.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert proves(password, encoded)
    assert not proves(Secret("another dozen chars"), encoded)
    assert not proves(password, None)
    assert not proves(password, "no hash at all")
    assert not proves(Secret("x" * (LENGTH_MAX + 1)), encoded)


@pytest.mark.parametrize("password", ["", "short", "x" * (LENGTH_MAX + 1)])
def test_a_password_that_is_no_good_is_refused(password: str) -> None:
    with pytest.raises(RequestInvalid):
        hash_password(Secret(password))
