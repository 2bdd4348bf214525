"""Grants give what they say, where they say; no sequence of grants raises what somebody may do."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.actors import TOKENS_NAME
from gateway.errors import RequestInvalid
from gateway.oversight.access import (
    APPROVING,
    EVERYWHERE,
    NAMES_OF_PARTS,
    PROVIDER,
    ROLE_PERMISSIONS,
    ROLES,
    STEP_UP,
    ByGroup,
    Grant,
    Permission,
    Person,
    Role,
    allows,
    may_grant,
    organisations_of,
)
from gateway.secrets.passwords import LENGTH_MAX, hash_password, proves
from gateway.secrets.secret import Secret
from tests.rooms import ROOT


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


@pytest.mark.parametrize("giving", ROLES)
@pytest.mark.parametrize("given", ROLES)
def test_a_role_is_given_by_who_manages_people_there_and_may_do_all_of_it(
    giving: Role, given: Role
) -> None:
    mine, theirs = ROLE_PERMISSIONS[giving], ROLE_PERMISSIONS[given]
    is_able = Permission.PEOPLE_MANAGE in mine and theirs <= mine
    for held in ("acme", EVERYWHERE):
        person = Person("ann", grants=frozenset({Grant(giving, held)}))
        for place in PLACES:
            reaches = held in (place, EVERYWHERE)
            assert may_grant(person, Grant(given, place)) is (is_able and reaches), (held, place)


def test_whom_the_token_let_in_may_do_all_but_agree() -> None:
    grants = frozenset(Grant(role, "acme") for role in ROLES)
    person, theirs = (Person("ann", "", grants, of_token=each) for each in (False, True))
    lost = {permission for permission, _ in powers(person) - powers(theirs)}
    assert lost == set(APPROVING)
    assert powers(theirs) < powers(person)


def test_a_role_is_of_the_group_that_gives_it_there() -> None:
    by_group = frozenset({ByGroup("viewer", "acme", "auditors"), ByGroup("viewer", "*", "staff")})
    ann = Person("ann", by_group=by_group)
    assert ann.group_of(Grant("viewer", "acme")) == "auditors"
    assert ann.group_of(Grant("viewer", EVERYWHERE)) == "staff"
    assert ann.group_of(Grant("viewer", "umbrella")) == ""
    assert ann.group_of(Grant("approver", "acme")) == ""


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
        *(Permission.WORKERS_RETIRE, Permission.WORKERS_APPROVE_RETIREMENT),
    }


PART = re.compile(r'^ACTOR\b[^=\n]*= "([^"]+)"|\.(?:doing|record)\(\s*"([a-z-]+)"', re.MULTILINE)
"""How a part of the gateway says under which name it does something."""


def test_nobody_is_called_as_a_part_of_the_gateway_that_leaves_records() -> None:
    sources = [*(ROOT / "gateway").rglob("*.py"), *(ROOT / "admin").rglob("*.py")]
    found = {one or other for each in sources for one, other in PART.findall(each.read_text())}

    assert len(found) > 5
    assert {*found, TOKENS_NAME, PROVIDER} == NAMES_OF_PARTS


READ_BY_ALL = ["budgets", "costs", "keys", "overview", "policies", "system", "traffic"]
"""What every role reads."""
MORE: dict[str, str] = {
    "viewer": "",
    "app_owner": "keys:issue batches:manage budgets:ask",
    "policy_editor": "policies:edit",
    "approver": "policies:approve policies:publish prices:approve keys:approve"
    " content:approve_reveal content:approve_erasure workers:approve_retirement",
    "compliance": "audit:read audit:export people:read content:reveal content:approve_reveal"
    " content:erase content:approve_erasure holds:set reviews:sign incidents:lead obligations:set"
    " workers:retire workers:approve_retirement",
    "security_admin": "audit:read people:read people:manage secrets:set keys:issue incidents:lead"
    " batches:manage budgets:ask",
    "platform_admin": "audit:read people:read people:manage secrets:set keys:issue incidents:lead"
    " batches:manage budgets:ask budgets:set system:configure policies:edit prices:propose"
    " workers:retire",
}
"""What a role may do beyond that: whoever gives or takes a permission says it here too."""


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_do_what_is_said_of_it_here_and_nothing_else(role: Role) -> None:
    expected = {f"{each}:read" for each in READ_BY_ALL} | set(MORE[role].split())

    assert {each.value for each in ROLE_PERMISSIONS[role]} == expected


def test_what_opens_or_destroys_asks_for_a_fresh_proof() -> None:
    assert {each.value for each in STEP_UP} == {
        *("content:reveal", "content:approve_reveal", "content:erase", "content:approve_erasure"),
        *("keys:issue", "keys:approve", "secrets:set", "people:manage"),
        *("policies:publish", "prices:approve", "reviews:sign"),
        *("workers:retire", "workers:approve_retirement"),
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
