"""An organisation's accounts as a tree: itself, workspaces, projects and their keys. Pure."""

import re
from collections.abc import Collection
from typing import Final

from msgspec import Struct

from admin.keys.lines import Spending
from gateway.money.rates import RateLimit


LEVELS: Final = ("organisation", "workspace", "project", "key")
_LEVELS: Final = ("org", "ws", "proj")
_WORDS: Final = {"org": "all of", "ws": "team", "proj": "project", "key": "key", "user": "end user"}
Path = tuple[str, ...]
"""Workspace and project, or the workspace alone, or nothing."""


class Branch(Struct, frozen=True):
    """One account of the tree, with its limits and the number of keys below it."""

    account: str
    level: str
    """One of LEVELS, or `end user` for what holds for each end user."""
    title: str
    depth: int
    """0 for the organisation, 3 for a key."""
    spendings: tuple[Spending, ...] = ()
    rate: RateLimit | None = None
    state: str = "live"
    """The state of a key, as in `gateway.store.identity.key_lists.STATES`."""
    key_id: str = ""
    keys: int = 0
    """Live keys below it."""
    limited: int = 0
    """Keys below it that have a limit of their own, including keys that have ended."""
    is_open: bool = False
    """Whether the accounts below it are shown."""
    place: str = ""
    """The workspace and project of a key that is shown without the tree above it."""


def is_of(account: str, organisation: str, key_ids: Collection[str]) -> bool:
    """Whether an account belongs to an organisation; the name of a key does not tell."""
    level, _, path = account.partition(":")
    if level == "key":
        return path in key_ids
    name = re.escape(organisation)
    return re.fullmatch(rf"org:{name}|(ws|proj|user):{name}/[a-z0-9._/*-]+", account) is not None


def path_of(account: str, organisation: str) -> Path | None:
    """The workspace and project in an account's name; None for any other account."""
    level, _, path = account.partition(":")
    first, *rest = path.split("/")
    is_place = first == organisation and level in _LEVELS[len(rest) : len(rest) + 1]
    return tuple(rest) if is_place else None


def account_of(organisation: str, path: Path) -> str:
    """The account of a place; for an empty path the organisation's own."""
    return f"{_LEVELS[len(path)]}:{'/'.join((organisation, *path))}"


def title_of(account: str, key_name: str) -> str:
    """An account's name for people."""
    level, _, path = account.partition(":")
    if level == "key":
        return key_name or path
    return "each end user" if account.endswith("/*") else path.rpartition("/")[2]


def told_of(account: str, key_name: str = "") -> str:
    """An account's name with its kind, for places where nothing else tells the kind."""
    title = title_of(account, key_name)
    return title if account.endswith("/*") else f"{_WORDS[account.partition(':')[0]]} {title}"
