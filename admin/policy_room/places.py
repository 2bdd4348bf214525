"""Levels of policy as an organisation sees them, and how an address names one. Pure.

`installation` is the installation's own, above all organisations; then come `organisation`,
`ws:research` for a workspace of it, and `proj:research:assistant` for a project.
"""

import re
from typing import Final

from litestar.exceptions import NotFoundException
from msgspec import Struct

from gateway.oversight.access import Permission, Person, allows
from gateway.rollout.versions import INSTALLATION


SLUG_INSTALLATION: Final = "installation"
SLUG_ORGANISATION: Final = "organisation"
_NAME: Final = r"[a-z0-9][a-z0-9._-]{0,62}"
_WORKSPACE: Final = re.compile(rf"ws:({_NAME})", re.ASCII)
_PROJECT: Final = re.compile(rf"proj:({_NAME}):({_NAME})", re.ASCII)


class Place(Struct, frozen=True):
    """A level: `slug` in an address, `name` in the store, `title` for people."""

    slug: str
    name: str
    title: str
    depth: int
    """0 is the installation, 3 a project."""

    @property
    def below(self) -> tuple[str, str]:
        """The workspace and the project that it names; empty for all of them."""
        _, *names = (*self.slug.split(":"), "", "")
        return names[0], names[1]


def place_of(organisation: str, slug: str) -> Place:
    """The level that an address of this organisation names.

    Raises:
        NotFoundException: it names none.
    """
    if slug == SLUG_INSTALLATION:
        return Place(slug, INSTALLATION, "Installation", 0)
    if slug == SLUG_ORGANISATION:
        return Place(slug, f"org:{organisation}", f"Organisation {organisation}", 1)
    if found := _WORKSPACE.fullmatch(slug):
        return Place(slug, f"ws:{organisation}/{found[1]}", f"Team {found[1]}", 2)
    if found := _PROJECT.fullmatch(slug):
        name = f"proj:{organisation}/{found[1]}/{found[2]}"
        return Place(slug, name, f"Project {found[1]} / {found[2]}", 3)
    raise NotFoundException


def above(organisation: str, place: Place) -> list[Place]:
    """The levels whose documents apply before its own, the outermost first."""
    workspace, project = place.below
    slugs = [SLUG_INSTALLATION, SLUG_ORGANISATION, *([f"ws:{workspace}"] if project else [])]
    return [place_of(organisation, slug) for slug in slugs][: place.depth]


def place_named(organisation: str, name: str) -> Place | None:
    """The level of this name in the store; None if it is another organisation's."""
    if name == INSTALLATION:
        return place_of(organisation, SLUG_INSTALLATION)
    if name == f"org:{organisation}":
        return place_of(organisation, SLUG_ORGANISATION)
    kind, _, path = name.partition(":")
    owner, *rest = path.split("/")
    if owner != organisation or (kind, len(rest)) not in (("ws", 1), ("proj", 2)):
        return None
    return place_of(organisation, ":".join([kind, *rest]))


def may(person: Person, permission: Permission, organisation: str, place: Place) -> bool:
    """Whether somebody may do this at a level; at the installation's only who may everywhere."""
    where = None if place.name == INSTALLATION else organisation
    return allows(person, permission, where)
