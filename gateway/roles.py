"""Roles of the control plane by name; `gateway/oversight/access.py` says what each may do. Pure."""

from typing import Literal, get_args


Role = Literal[
    "viewer",
    "app_owner",
    "policy_editor",
    "approver",
    "compliance",
    "security_admin",
    "platform_admin",
]
ROLES: tuple[Role, ...] = get_args(Role)
