"""Reads the tree of limits branch by branch: open branches are shown, a hundred lines at most.

A small organisation sees all of its tree; one with thousands of keys opens the branches it needs,
or searches. The cost of a page depends on what it shows, not on the size of the tree.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from admin.costs.accounts import LEVELS, Branch, Path, account_of, path_of
from admin.keys.lines import KeyLine
from admin.keys.reader import KeyPage, KeyReader
from admin.queries import PAGE_ROWS
from admin.services import Services
from gateway.store.identity.key_lists import KeySearch, PlaceKeys
from gateway.store.pages import START


SMALL: Final = 60
"""A tree of no more accounts is shown whole."""
KEY: Final = "key:"
EACH_USER: Final = "end user"
NO_KEYS: Final = KeyPage((), 0, 0, 0)


class LimitTree(Struct, frozen=True):
    """What is shown of the tree of limits."""

    branches: tuple[Branch, ...]
    opened: str = ""
    """The account whose branches are counted here; empty where all are shown, or keys sought."""
    count: int = 0
    """How many branches the opened one has, or how many keys were found."""
    first: int = 0
    """How many of them come before those shown."""
    following: int = 0
    """Where the next page begins; 0 after the last one."""
    keys: int = 0
    """Live keys of the organisation."""
    limited: int = 0
    """Its keys that have a limit of their own."""
    onward: str = ""
    """The key of the last key of these, behind which the next page is sought; empty of places."""


class BranchReader:
    """The tree of one organisation at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._keys = KeyReader(services)

    async def opened(
        self, organisation: str, opened: str, first: int = 0, after: str = ""
    ) -> LimitTree:
        """The way down to one branch and what hangs on it; the whole tree where it is small.

        An account that is none of the organisation's opens the organisation itself. `after` is as
        `onward` says it, here and below.
        """
        nodes = await self._nodes(organisation)
        root = nodes[()]
        path = await self._path(organisation, opened)
        path = path if path in nodes else ()
        is_small = len(nodes) + root.keys + root.limited <= SMALL
        page = NO_KEYS
        if is_small or len(path) == len(LEVELS) - 2:
            fields = zip(("workspace", "project"), () if is_small else path, strict=False)
            sought = KeySearch(fields=tuple(fields), is_charged=True)
            place = START if is_small else (first, after)
            page = await self._keys.page(organisation, sought, place[0], after=place[1])
            first = page.first
        if is_small:
            path, first = (), 0
        laid = _laid(nodes, path, page, first, is_whole=is_small)
        branches = await self._limited([*laid, *_end_users(organisation)], page)
        if is_small:
            return _tree(branches, root)
        account = account_of(organisation, path)
        if page.count:
            return _tree(branches, root, page, account)
        count, end = sum(each[:-1] == path for each in nodes if each), first + PAGE_ROWS
        below = KeyPage((), count, first, end if end < count else 0)
        return _tree(branches, root, below, account)

    async def found(
        self, organisation: str, search: KeySearch, first: int = 0, after: str = ""
    ) -> LimitTree:
        """Places whose name holds every word, and the keys that are sought."""
        nodes = await self._nodes(organisation)
        sought = replace(search, is_charged=True)
        page = await self._keys.page(organisation, sought, first, after=after)
        words = [word.lower() for word in search.words]
        is_named = bool(words) and not search.fields and not first
        named = [
            replace(each, is_open=False)
            for path, each in nodes.items()
            if is_named and path and all(word in "/".join(path).lower() for word in words)
        ]
        branches = await self._limited([*named[:PAGE_ROWS], *map(_beside, page.keys)], page)
        return _tree(branches, nodes[()], page)

    async def limited(self, organisation: str, first: int = 0, after: str = "") -> LimitTree:
        """Every account with a limit of its own: places first, then keys."""
        nodes = await self._nodes(organisation)
        page = await self._keys.page(organisation, KeySearch(is_limited=True), first, after=after)
        places = [] if first else [*nodes.values(), *_end_users(organisation)]
        had = [each for each in await self._limited(places) if each.spendings or each.rate]
        branches = [*had, *await self._limited(list(map(_beside, page.keys)), page)]
        return _tree(branches, nodes[()], page)

    async def _nodes(self, organisation: str) -> dict[Path, Branch]:
        """The organisation, its workspaces and their projects, in the order of a tree."""
        lists, keys = self._keys.lists, self._services.keys
        counted = {
            (each.workspace, each.project): each for each in await lists.places(organisation)
        }
        found: dict[Path, Branch] = {}
        for place in await keys.places(organisation):
            path = (place.workspace, place.project)
            for depth in range(len(path) + 1):
                at = path[:depth]
                had = found.get(at) or Branch(
                    account_of(organisation, at),
                    LEVELS[depth],
                    at[-1] if at else organisation,
                    depth,
                )
                found[at] = _with(had, counted.get(path))
        root = Branch(account_of(organisation, ()), LEVELS[0], organisation, 0)
        return {(): root} | dict(sorted(found.items()))

    async def _path(self, organisation: str, opened: str) -> Path:
        """Workspace and project of an account; of a key those that it is in."""
        if opened.startswith(KEY):
            found = await self._services.key_names.facts(organisation, opened.removeprefix(KEY))
            return (found[0].workspace, found[0].project) if found else ()
        return path_of(opened, organisation) or ()

    async def _limited(self, branches: Sequence[Branch], page: KeyPage = NO_KEYS) -> list[Branch]:
        """The same with their limits; those of keys are known already."""
        rates = {rate.account: rate for rate in await self._services.rates.all()}
        known = {f"{KEY}{key.key_id}": key.spendings for key in page.keys}
        asked = [each.account for each in branches if each.account not in known]
        read = await self._keys.spendings_of(asked)
        spendings = {account: tuple(each) for account, each in read.items()} | known
        found = [
            replace(
                each,
                spendings=spendings.get(each.account, ()),
                rate=rates.get(each.account),
            )
            for each in branches
        ]
        return [each for each in found if each.level != EACH_USER or each.spendings or each.rate]


def _laid(
    nodes: Mapping[Path, Branch], path: Path, page: KeyPage, first: int, *, is_whole: bool
) -> list[Branch]:
    """Branches from the top down: what is open, and what hangs on it."""
    shown: list[Branch] = []

    def lay(at: Path) -> None:
        is_open = is_whole or path[: len(at)] == at
        shown.append(replace(nodes[at], is_open=is_open))
        if not is_open:
            return
        keys = [key for key in page.keys if (key.workspace, key.project) == at]
        shown.extend(_key_branch(key) for key in keys)
        below = [each for each in nodes if each and each[:-1] == at]
        if not is_whole and at == path:
            below = below[first : first + PAGE_ROWS]
        elif len(below) > PAGE_ROWS:
            below = [each for each in below if each == path[: len(each)]]
        for each in below:
            lay(each)

    lay(())
    return shown


def _tree(
    branches: Sequence[Branch], root: Branch, page: KeyPage = NO_KEYS, opened: str = ""
) -> LimitTree:
    """`page` says what is counted: keys, or where it has none the places of the opened one."""
    return LimitTree(
        branches=tuple(branches),
        opened=opened,
        count=page.count,
        first=page.first,
        following=page.following,
        keys=root.keys,
        limited=root.limited,
        onward=page.onward,
    )


def _with(branch: Branch, keys: PlaceKeys | None) -> Branch:
    if keys is None:
        return branch
    return replace(branch, keys=branch.keys + keys.live, limited=branch.limited + keys.limited)


def _key_branch(key: KeyLine) -> Branch:
    account = f"{KEY}{key.key_id}"
    return Branch(account, "key", key.name, 3, state=key.state, key_id=key.key_id)


def _beside(key: KeyLine) -> Branch:
    """A key without the tree above it: it says itself where it is."""
    return replace(_key_branch(key), depth=1, place=f"{key.workspace} / {key.project}")


def _end_users(organisation: str) -> list[Branch]:
    """The limit that holds for each end user, shown where there is one."""
    return [Branch(f"user:{organisation}/*", EACH_USER, "each end user", 1)]
