"""What is read of groups in a token, whatever it says: what was written there, or nothing."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admin.sign_in.groups import GroupsUnread, groups_in, roles_of
from gateway.configuration.sections import GroupRole
from gateway.oversight.access import Grant


NAMES = st.sampled_from(["groups", "realm_access", "roles", "_claim_names", "hasgroups", "a"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
CLAIMS = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES, lambda of: st.lists(of, max_size=4) | st.dictionaries(NAMES, of), max_leaves=8
    ),
)


@given(CLAIMS, st.lists(NAMES, min_size=1, max_size=3))
def test_a_claim_is_read_whole_or_refused(claims: dict[str, Any], path: list[str]) -> None:
    try:
        read = groups_in(claims, path)
    except GroupsUnread:
        return
    found: Any = claims
    for name in path:
        found = None if found is None else found.get(name)
    written = [] if found is None else [found] if isinstance(found, str) else found
    assert sorted(read) == sorted(set(written))
    pointers = claims.get("_claim_names")
    assert not (isinstance(pointers, dict) and path[0] in pointers)
    assert not (path[0] == "groups" and claims.get("hasgroups") is True)


@given(st.sets(st.sampled_from(["a", "A", "b", "ß", "ss"])))
def test_a_group_gives_a_role_only_where_it_is_written_the_same(groups: set[str]) -> None:
    mapping = [GroupRole("A", "viewer", "*"), GroupRole("ss", "viewer", "*")]
    found = roles_of(frozenset(groups), mapping)
    first = next((each.group for each in mapping if each.group in groups), None)
    assert found == ({Grant("viewer", "*"): first} if first else {})
