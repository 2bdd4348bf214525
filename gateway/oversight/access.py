"""Access control of the control plane: roles, permissions, and where each grant holds.

Pure, and closed by default: without a grant nothing is allowed, and what is not named is denied. A
grant holds for one organisation or everywhere; nobody can give what they do not have themselves.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gateway.actors import TOKENS_NAME
from gateway.roles import ROLES as ROLES  # noqa: PLC0414 -- Whoever asks about access asks here.
from gateway.roles import Role as Role  # noqa: PLC0414


EVERYWHERE = "*"


class Permission(StrEnum):
    """What a handler may require; a handler without one of these is not served."""

    OVERVIEW_READ = "overview:read"
    TRAFFIC_READ = "traffic:read"
    POLICIES_READ = "policies:read"
    POLICIES_EDIT = "policies:edit"
    POLICIES_APPROVE = "policies:approve"
    POLICIES_PUBLISH = "policies:publish"
    KEYS_READ = "keys:read"
    KEYS_ISSUE = "keys:issue"
    KEYS_APPROVE = "keys:approve"
    BUDGETS_READ = "budgets:read"
    BUDGETS_ASK = "budgets:ask"
    BUDGETS_SET = "budgets:set"
    COSTS_READ = "costs:read"
    AUDIT_READ = "audit:read"
    AUDIT_EXPORT = "audit:export"
    CONTENT_REVEAL = "content:reveal"
    CONTENT_APPROVE_REVEAL = "content:approve_reveal"
    CONTENT_ERASE = "content:erase"
    CONTENT_APPROVE_ERASURE = "content:approve_erasure"
    HOLDS_SET = "holds:set"
    REVIEWS_SIGN = "reviews:sign"
    INCIDENTS_LEAD = "incidents:lead"
    OBLIGATIONS_SET = "obligations:set"
    BATCHES_MANAGE = "batches:manage"
    PEOPLE_READ = "people:read"
    PEOPLE_MANAGE = "people:manage"
    SECRETS_SET = "secrets:set"
    PRICES_PROPOSE = "prices:propose"
    PRICES_APPROVE = "prices:approve"
    SYSTEM_READ = "system:read"
    SYSTEM_CONFIGURE = "system:configure"
    WORKERS_RETIRE = "workers:retire"
    WORKERS_APPROVE_RETIREMENT = "workers:approve_retirement"


_P = Permission
_READING = frozenset(
    {_P.OVERVIEW_READ, _P.TRAFFIC_READ, _P.POLICIES_READ, _P.KEYS_READ, _P.BUDGETS_READ}
    | {_P.COSTS_READ, _P.SYSTEM_READ}
)
ROLE_PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    "viewer": _READING,
    "app_owner": _READING | {_P.KEYS_ISSUE, _P.BATCHES_MANAGE, _P.BUDGETS_ASK},
    "policy_editor": _READING | {_P.POLICIES_EDIT},
    "approver": _READING
    | {_P.POLICIES_APPROVE, _P.POLICIES_PUBLISH, _P.CONTENT_APPROVE_REVEAL, _P.PRICES_APPROVE}
    | {_P.CONTENT_APPROVE_ERASURE, _P.KEYS_APPROVE, _P.WORKERS_APPROVE_RETIREMENT},
    # Reads everything; changes only holds, reveals, erasures, reviews, incidents and obligations,
    # and ends requests of lost workers: that concerns the evidence, not the platform.
    "compliance": _READING
    | {_P.AUDIT_READ, _P.AUDIT_EXPORT, _P.PEOPLE_READ}
    | {_P.CONTENT_REVEAL, _P.CONTENT_APPROVE_REVEAL, _P.HOLDS_SET}
    | {_P.CONTENT_ERASE, _P.CONTENT_APPROVE_ERASURE}
    | {_P.REVIEWS_SIGN, _P.INCIDENTS_LEAD, _P.OBLIGATIONS_SET}
    | {_P.WORKERS_RETIRE, _P.WORKERS_APPROVE_RETIREMENT},
    "security_admin": _READING
    | {_P.AUDIT_READ, _P.PEOPLE_READ, _P.PEOPLE_MANAGE, _P.SECRETS_SET, _P.KEYS_ISSUE}
    | {_P.INCIDENTS_LEAD, _P.BATCHES_MANAGE, _P.BUDGETS_ASK},
    # Runs the platform; it has no rights to content or holds, and does not approve others' work.
    "platform_admin": _READING
    | {
        _P.KEYS_ISSUE,
        _P.BUDGETS_ASK,
        _P.BUDGETS_SET,
        _P.SECRETS_SET,
        _P.SYSTEM_CONFIGURE,
        _P.POLICIES_EDIT,
    }
    | {_P.BATCHES_MANAGE, _P.INCIDENTS_LEAD, _P.PRICES_PROPOSE, _P.WORKERS_RETIRE}
    | {_P.AUDIT_READ, _P.PEOPLE_READ, _P.PEOPLE_MANAGE},
}

STEP_UP = frozenset(
    {_P.CONTENT_REVEAL, _P.CONTENT_APPROVE_REVEAL, _P.CONTENT_ERASE, _P.CONTENT_APPROVE_ERASURE}
    | {_P.POLICIES_PUBLISH}
    | {_P.KEYS_ISSUE, _P.SECRETS_SET, _P.PEOPLE_MANAGE, _P.REVIEWS_SIGN, _P.PRICES_APPROVE}
    | {_P.KEYS_APPROVE, _P.WORKERS_RETIRE, _P.WORKERS_APPROVE_RETIREMENT}
)
"""Requires somebody who proved their identity a moment ago."""


APPROVING = frozenset(
    {_P.POLICIES_APPROVE, _P.KEYS_APPROVE, _P.PRICES_APPROVE, _P.CONTENT_APPROVE_REVEAL}
    | {_P.CONTENT_APPROVE_ERASURE, _P.WORKERS_APPROVE_RETIREMENT}
)
"""Reserved for a second person; nobody who acts through the admin token counts as one."""


PROVIDER = "oidc-provider"
"""The OpenID provider itself, if it ends somebody's session."""
NAMES_OF_PARTS = frozenset(
    {TOKENS_NAME, PROVIDER} | {"drift", "gateway", "guard", "invitation", "schedule", "setup-link"}
)
"""Names under which deeds without a person are recorded. A person with such a name would act as
that part: under the first one with everything that the token may do."""
PROVIDED = "oidc-"
"""Prefix for the names of people whom an OpenID provider vouches for."""


class Grant(Struct, frozen=True, order=True):
    """A role, and the organisation in which it is held; `*` means everywhere."""

    role: Role
    organisation: str


class ByGroup(Struct, frozen=True, order=True):
    """A role that somebody holds because of a group of the OpenID provider."""

    role: Role
    organisation: str
    group: str


class Person(Struct, frozen=True):
    """Somebody who signs in to the control plane."""

    name: str
    title: str = ""
    grants: frozenset[Grant] = frozenset()
    is_disabled: bool = False
    of_token: bool = False
    """The admin token itself, or somebody who signed in by a link made with it."""
    by_group: frozenset[ByGroup] = frozenset()
    """The grants that come from a group; the others were given by hand."""

    def group_of(self, grant: Grant) -> str:
        """The group that a grant comes from; empty if it was given by hand."""
        where = (grant.role, grant.organisation)
        return next(
            (each.group for each in self.by_group if (each.role, each.organisation) == where), ""
        )


TOKEN_PERSON = Person(
    TOKENS_NAME,
    "Admin token",
    frozenset({Grant("platform_admin", EVERYWHERE), Grant("security_admin", EVERYWHERE)}),
    of_token=True,
)
"""Whoever has the token of the settings: the first to sign in, before there are people."""


def allows(person: Person, permission: Permission, organisation: str | None = None) -> bool:
    """Whether a person may do this in an organisation; without one, everywhere.

    Without an organisation only a grant that holds everywhere counts: what concerns all
    organisations is not for somebody who belongs to one.
    """
    if person.is_disabled or (person.of_token and permission in APPROVING):
        return False
    return any(
        permission in ROLE_PERMISSIONS[grant.role]
        and grant.organisation in (EVERYWHERE, organisation or EVERYWHERE)
        for grant in person.grants
    )


def organisations_of(person: Person, permission: Permission) -> frozenset[str] | None:
    """Organisations in which a person may do this; None means everywhere, an empty set nowhere."""
    if allows(person, permission):
        return None
    held = {grant.organisation for grant in person.grants}
    return frozenset(name for name in held if allows(person, permission, name))


def may_grant(grantor: Person, grant: Grant) -> bool:
    """Whether a grantor may give this: only what they may do themselves, and only there."""
    where = None if grant.organisation == EVERYWHERE else grant.organisation
    if not allows(grantor, Permission.PEOPLE_MANAGE, where):
        return False
    return all(allows(grantor, permission, where) for permission in ROLE_PERMISSIONS[grant.role])
