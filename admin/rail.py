"""The eight rooms of the control plane and the screens in each, as the rail lists them.

Pure. A screen of one organisation has `{organisation}` in its path; whoever lacks its permission
there is not shown the way.
"""

from typing import Final

from msgspec import Struct

from gateway.oversight.access import Permission, Person, allows, organisations_of


_P = Permission
_C: Final = "/o/{organisation}/compliance"


class Screen(Struct, frozen=True):
    """One line of the rail; `name` is what a page calls itself."""

    name: str
    title: str
    path: str
    needs: Permission
    is_everywhere: bool = False
    """Only for who may do this in all organisations."""


class Room(Struct, frozen=True):
    """A first line of the rail, with an icon of the same name, and what lies below it."""

    name: str
    title: str
    screens: tuple[Screen, ...]


ROOMS: Final = (
    Room("overview", "Overview", (Screen("overview", "Overview", "/", _P.OVERVIEW_READ),)),
    Room(
        "traffic",
        "Traffic",
        (
            Screen("traffic", "Requests", "/o/{organisation}/traffic", _P.TRAFFIC_READ),
            Screen("profiles", "Profiles", "/o/{organisation}/traffic/profiles", _P.TRAFFIC_READ),
            Screen("batches", "Batches", "/o/{organisation}/batches", _P.TRAFFIC_READ),
            Screen("files", "Files", "/o/{organisation}/files", _P.TRAFFIC_READ),
        ),
    ),
    Room(
        "policies",
        "Policies",
        (
            Screen("policies", "Policies", "/o/{organisation}/policies", _P.POLICIES_READ),
            Screen(
                "simulator",
                "Simulator",
                "/o/{organisation}/policies/simulator",
                _P.POLICIES_READ,
            ),
            Screen("approvals", "Approvals", "/o/{organisation}/approvals", _P.POLICIES_READ),
        ),
    ),
    Room(
        "models",
        "Models",
        (
            Screen("models", "Configured", "/models", _P.SYSTEM_READ),
            Screen(
                *("credentials", "Credentials", "/models/credentials", _P.SYSTEM_READ),
                is_everywhere=True,
            ),
            Screen("engine", "Engine", "/models/engine", _P.SYSTEM_READ, is_everywhere=True),
            Screen("prices", "Prices", "/models/prices", _P.SYSTEM_READ, is_everywhere=True),
            Screen("planner", "Capacity planner", "/models/planner", _P.SYSTEM_READ),
        ),
    ),
    Room(
        "keys",
        "Keys & Teams",
        (
            Screen("keys", "Keys", "/o/{organisation}/keys", _P.KEYS_READ),
            Screen("teams", "Teams", "/o/{organisation}/teams", _P.KEYS_READ),
            Screen("people", "People & roles", "/people", _P.PEOPLE_READ, is_everywhere=True),
        ),
    ),
    Room(
        "money",
        "Budgets & Cost",
        (
            Screen("costs", "Cost", "/o/{organisation}/costs", _P.COSTS_READ),
            Screen("limits", "Limits", "/o/{organisation}/costs/limits", _P.BUDGETS_READ),
        ),
    ),
    Room(
        "compliance",
        "Compliance",
        (
            Screen("compliance", "Due", _C, _P.AUDIT_READ),
            Screen("obligations", "Obligations", f"{_C}/obligations", _P.AUDIT_READ),
            Screen("reviews", "Reviews", f"{_C}/reviews", _P.AUDIT_READ),
            Screen("audit", "Audit", "/o/{organisation}/audit", _P.AUDIT_READ),
            Screen("integrity", "Integrity", "/o/{organisation}/integrity", _P.AUDIT_READ),
            Screen(
                *("audit-installation", "Installation audit", "/audit", _P.AUDIT_READ),
                is_everywhere=True,
            ),
            Screen("incidents", "Incidents", f"{_C}/incidents", _P.AUDIT_READ),
            Screen("reveals", "Reveals", f"{_C}/reveals", _P.AUDIT_READ),
            Screen("holds", "Holds", f"{_C}/holds", _P.AUDIT_READ),
            Screen("retention", "Retention", f"{_C}/retention", _P.AUDIT_READ),
            Screen("erasures", "Erasure", f"{_C}/erasures", _P.AUDIT_READ),
            Screen("packs", "Evidence packs", f"{_C}/packs", _P.AUDIT_READ),
        ),
    ),
    Room(
        "system",
        "System",
        (
            Screen("system", "Workers", "/system", _P.SYSTEM_READ, is_everywhere=True),
            Screen("gone", "Gone workers", "/system/gone", _P.SYSTEM_READ, is_everywhere=True),
            Screen(
                *("configuration", "Configuration", "/system/configuration", _P.SYSTEM_READ),
                is_everywhere=True,
            ),
            Screen("sinks", "Sinks", "/system/sinks", _P.SYSTEM_READ, is_everywhere=True),
            Screen(
                *("diagnostics", "Diagnostics", "/system/diagnostics", _P.SYSTEM_CONFIGURE),
                is_everywhere=True,
            ),
        ),
    ),
)
"""In the order of the rail."""


class Line(Struct, frozen=True):
    """A room or a screen as somebody sees it."""

    name: str
    title: str
    href: str
    is_current: bool
    below: tuple["Line", ...] = ()


def rail_of(person: Person, organisation: str, current: str) -> list[Line]:
    """The lines that lead somewhere for a person who looks at an organisation (or at none).

    `current` is the name of the screen that is shown; only its room shows what lies below it.
    """
    lines = []
    for room in ROOMS:
        shown = [each for each in room.screens if _leads(each, person, organisation)]
        if not shown:
            continue
        is_here = any(each.name == current for each in room.screens)
        below = tuple(
            Line(each.name, each.title, _href(each, organisation), each.name == current)
            for each in shown
        )
        lines += [
            Line(
                room.name,
                room.title,
                below[0].href,
                is_here,
                below if is_here and len(below) > 1 else (),
            )
        ]
    return lines


def places_of(person: Person, organisation: str) -> list[Line]:
    """Every screen that leads somewhere, for the finder."""
    return [
        Line(each.name, f"{room.title}: {each.title}", _href(each, organisation), is_current=False)
        for room in ROOMS
        for each in room.screens
        if _leads(each, person, organisation)
    ]


def _leads(screen: Screen, person: Person, organisation: str) -> bool:
    if "{organisation}" in screen.path:
        return bool(organisation) and allows(person, screen.needs, organisation)
    if screen.is_everywhere:
        return allows(person, screen.needs)
    visible = organisations_of(person, screen.needs)
    return visible is None or bool(visible)


def _href(screen: Screen, organisation: str) -> str:
    return screen.path.replace("{organisation}", organisation)
