"""Groups in an identity token, and the roles that they give. Pure.

The signed claim is taken as it stands: names are compared exactly, and a claim that cannot be read
gives no roles rather than some.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gateway.configuration.sections import GroupRole
from gateway.errors import Unauthenticated
from gateway.oversight.access import Grant


OVERAGE: Final = (
    "You are in more groups than your identity provider writes into a token, so no role can be "
    "told from them. Ask whoever runs the provider to send only the groups of this application."
)
ILLEGIBLE: Final = (
    "Your identity provider sends your groups in a form that is not read here. Ask whoever runs "
    "Gatewright to look at oidc.groups_claim."
)


class GroupsUnread(Unauthenticated):
    """A token does not say which groups somebody is in; the message is for them."""


def groups_in(claims: Mapping[str, Any], path: Sequence[str]) -> frozenset[str]:
    """The groups that a token names at a path of claims; none where the claim is absent.

    Raises:
        GroupsUnread: they are elsewhere (an overage), or neither a text nor a list of texts.
    """
    if _is_elsewhere(claims, path[0]):
        raise GroupsUnread(OVERAGE)
    found: Any = claims
    for name in path:
        if not isinstance(found, Mapping):
            raise GroupsUnread(ILLEGIBLE)
        found = found.get(name)
        if found is None:
            return frozenset()
    # Of one group some providers write the name alone; it is not taken apart.
    groups = [found] if isinstance(found, str) else found
    if not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
        raise GroupsUnread(ILLEGIBLE)
    return frozenset(groups)


def roles_of(groups: frozenset[str], mapping: Iterable[GroupRole]) -> dict[Grant, str]:
    """Each role with the group that gives it; of several the one that the settings name first."""
    roles: dict[Grant, str] = {}
    for each in mapping:
        if each.group in groups:
            roles.setdefault(Grant(each.role, each.organisation), each.group)
    return roles


def _is_elsewhere(claims: Mapping[str, Any], name: str) -> bool:
    """Whether a provider left a claim out because it was too long (Core, 5.6.2; Entra ID)."""
    pointers = claims.get("_claim_names")
    if isinstance(pointers, Mapping) and name in pointers:
        return True
    return name == "groups" and claims.get("hasgroups") in (True, "true")
