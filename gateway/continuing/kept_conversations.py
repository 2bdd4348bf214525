"""Kept conversations: their definition and changes, and the contract of every store of them.

A conversation is a list of named items, which turns add to. All of it is written at once, so that a
reader sees one writer's complete state, never half of it. Pure but for the store.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct, structs

from gateway.clock import DAY_US, SECOND_US
from gateway.projects import Project


CONVERSATION_PREFIX = "conv_"

TURN_LEASE_US = 20 * SECOND_US
"""A turn whose worker has said nothing for so long is over."""
TURN_US_MAX = DAY_US
"""A turn that would end later than that was begun by a clock that was wrong: nobody waits."""


class Entry(Struct, frozen=True, omit_defaults=True):
    """One item of a conversation, with its id there."""

    item_id: str
    item: msgspec.Raw
    """The item as it was asked, or as the caller received it in an answer."""
    is_answer: bool = False
    is_hidden: bool = False
    """Whether its project has deleted it, and only a legal hold keeps it."""


class KeptConversation(Struct, frozen=True):
    """A list of items that its project may read, change and continue."""

    conversation_id: str
    project: Project
    key_id: str
    data_class: str
    """The most sensitive class that any of its turns or items has had."""
    created_us: int
    changed_us: int
    expires_us: int
    metadata: Mapping[str, str] = {}
    users: tuple[str, ...] = ()
    """End users whom its turns named."""
    entries: tuple[Entry, ...] = ()
    revision: int = 1
    """How often it was written; each write is based on exactly one revision."""
    turn: str = ""
    """The request that is being answered with it; empty for none."""
    turn_until_us: int = 0
    """When that turn is over, unless its worker renews it by then."""

    @property
    def shown(self) -> Sequence[Entry]:
        """The entries that its project and models see."""
        return [entry for entry in self.entries if not entry.is_hidden]

    @property
    def length_bytes(self) -> int:
        """About the size of its items."""
        return sum(len(entry.item) + len(entry.item_id) for entry in self.entries)

    def is_taken(self, now_us: int) -> bool:
        """Whether a turn is under way with it."""
        return bool(self.turn) and 0 < self.turn_until_us - now_us <= TURN_US_MAX

    def find(self, item_id: str) -> Entry | None:
        return next((entry for entry in self.shown if entry.item_id == item_id), None)

    def with_more(self, entries: Sequence[Entry]) -> "KeptConversation":
        return structs.replace(self, entries=(*self.entries, *entries))

    def without(self, item_id: str) -> "KeptConversation":
        """A copy with the item hidden; `unhidden` removes it where no hold keeps it."""
        entries = tuple(
            structs.replace(entry, is_hidden=True) if entry.item_id == item_id else entry
            for entry in self.entries
        )
        return structs.replace(self, entries=entries)

    def unhidden(self) -> "KeptConversation":
        """A copy without the entries that only a hold keeps."""
        return structs.replace(self, entries=tuple(self.shown))

    def __repr__(self) -> str:
        return f"KeptConversation({self.conversation_id})"  # The rest is content.


class TakenTurn(Struct, frozen=True):
    """A conversation that a request of this worker has taken."""

    request_id: str
    project: Project
    conversation_id: str


class ConversationStore(Protocol):
    """Conversations that are kept for their project, encrypted."""

    async def make(self, made: KeptConversation, count_max: int) -> bool:
        """Add one, unless its project has `count_max`; whether it was added. Raises Unavailable."""
        ...

    async def find(
        self, project: Project, conversation_id: str, now_us: int
    ) -> KeptConversation | None:
        """The conversation; None if it does not exist in this project, or no longer."""
        ...

    async def write(self, changed: KeptConversation, now_us: int) -> bool:
        """Whether it was written: not if it has changed since it was read, or no longer exists.

        Hidden items are deleted, unless a hold is in force.
        """
        ...

    async def take(self, taken: KeptConversation, now_us: int) -> bool:
        """Take it for its turn; not if another turn has it, or it has changed since it was read."""
        ...

    async def renew(self, turns: Sequence[TakenTurn], until_us: int) -> None:
        """Renew turns until then; those that others have taken over stay as they are."""
        ...

    async def let_go(self, project: Project, conversation_id: str, turn: str) -> None:
        """End a turn that added nothing."""
        ...

    async def forget(self, project: Project, conversation_id: str) -> bool:
        """Delete it; whether it existed. While a hold is in force, it is only hidden."""
        ...


class MemoryConversations:
    """A `ConversationStore` that lives in memory: for tests and dry runs, a restart forgets it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Project, str], KeptConversation] = {}

    async def make(self, made: KeptConversation, count_max: int) -> bool:
        its = [each for each in self._kept.values() if each.project == made.project]
        if sum(each.expires_us > made.changed_us for each in its) >= count_max:
            return False
        self._kept[made.project, made.conversation_id] = made
        return True

    async def find(
        self, project: Project, conversation_id: str, now_us: int
    ) -> KeptConversation | None:
        found = self._kept.get((project, conversation_id))
        return found if found is not None and found.expires_us > now_us else None

    async def write(self, changed: KeptConversation, now_us: int) -> bool:
        return await self._put(changed.unhidden(), now_us)

    async def take(self, taken: KeptConversation, now_us: int) -> bool:
        before = await self.find(taken.project, taken.conversation_id, now_us)
        if before is None or before.is_taken(now_us):
            return False
        return await self._put(taken, now_us)

    async def _put(self, changed: KeptConversation, now_us: int) -> bool:
        before = await self.find(changed.project, changed.conversation_id, now_us)
        if before is None or before.revision != changed.revision:
            return False
        key = (changed.project, changed.conversation_id)
        self._kept[key] = structs.replace(changed, revision=changed.revision + 1)
        return True

    async def renew(self, turns: Sequence[TakenTurn], until_us: int) -> None:
        for each in turns:
            found = self._kept.get((each.project, each.conversation_id))
            if found is not None and found.turn == each.request_id:
                renewed = structs.replace(found, turn_until_us=until_us)
                self._kept[each.project, each.conversation_id] = renewed

    async def let_go(self, project: Project, conversation_id: str, turn: str) -> None:
        found = self._kept.get((project, conversation_id))
        if found is not None and found.turn == turn:
            await self._put(structs.replace(found, turn="", turn_until_us=0), 0)

    async def forget(self, project: Project, conversation_id: str) -> bool:
        return self._kept.pop((project, conversation_id), None) is not None


def new_names(taken: Collection[str], wanted: Sequence[str], fresh: Sequence[str]) -> list[str]:
    """Each item's id: the one it came with, if that is valid and not taken, else a new one.

    `fresh` has a new one for each.
    """
    seen, names = set(taken), []
    for own, new in zip(wanted, fresh, strict=True):
        name = own if own and own not in seen else new
        seen.add(name)
        names.append(name)
    return names
