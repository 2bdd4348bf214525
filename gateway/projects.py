"""A project and its place in the tree: the owner of files, batches and kept answers."""

from typing import NamedTuple

from gateway.types import Principal


class Project(NamedTuple):
    """One of a workspace of an organisation. Nobody else finds what belongs to it."""

    organisation: str
    workspace: str
    name: str


def project_of(principal: Principal) -> Project:
    """Whose project a caller's key hangs on."""
    return Project(principal.organisation, principal.workspace, principal.project)
