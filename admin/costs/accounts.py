"""Accounts of one organisation as a tree: itself, workspaces, projects and their keys. Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from admin.keys.lines import KeyLine, Spending
from gateway.rates import RateLimit
from gateway.store.keys import Place


LEVELS: Final = ("organisation", "workspace", "project", "key")


class Branch(Struct, frozen=True):
    """One account of the tree, with its limits."""

    account: str
    level: str
    title: str
    depth: int
    """0 for the organisation, 3 for a key."""
    spendings: tuple[Spending, ...] = ()
    rate: RateLimit | None = None
    state: str = "live"
    """Of a key, as in `admin.keys.lines.STATES`."""
    key_id: str = ""


def is_of(account: str, organisation: str, key_ids: Collection[str]) -> bool:
    """Whether an account lies in an organisation; a key's name does not say so."""
    level, _, path = account.partition(":")
    if level == "key":
        return path in key_ids
    name = re.escape(organisation)
    return re.fullmatch(rf"org:{name}|(ws|proj|user):{name}/[a-z0-9._/*-]+", account) is not None


def tree(
    organisation: str,
    places: Sequence[Place],
    keys: Sequence[KeyLine],
    spendings: Mapping[str, Sequence[Spending]],
    rates: Mapping[str, RateLimit],
) -> list[Branch]:
    """Branches from the top down; of keys that have ended only those with a limit."""
    found: list[Branch] = []

    def add(account: str, title: str, depth: int, state: str = "live", key_id: str = "") -> None:
        own = tuple(spendings.get(account, ()))
        branch = Branch(
            account, LEVELS[depth], title, depth, own, rates.get(account), state, key_id
        )
        found.append(branch)

    add(f"org:{organisation}", organisation, 0)
    for workspace in sorted({place.workspace for place in places}):
        add(f"ws:{organisation}/{workspace}", workspace, 1)
        for project in sorted(p.project for p in places if p.workspace == workspace):
            add(f"proj:{organisation}/{workspace}/{project}", project, 2)
            for key in keys:
                account = f"key:{key.key_id}"
                is_here = (key.workspace, key.project) == (workspace, project)
                if is_here and (key.is_live or spendings.get(account)):
                    add(account, key.name, 3, key.state, key.key_id)
    template = f"user:{organisation}/*"
    if template in spendings or template in rates:
        add(template, "each end user", 1)
    return found


def title_of(account: str, keys: Sequence[KeyLine]) -> str:
    """An account's name for people."""
    level, _, path = account.partition(":")
    if level == "key":
        return next((key.name for key in keys if key.key_id == path), path)
    return "each end user" if account.endswith("/*") else path.rpartition("/")[2]
