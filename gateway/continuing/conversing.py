"""Conversations of a project: made, read, changed, and continued, one turn at a time.

A request that is answered with a conversation has it for that long: others that come meanwhile are
told to try again, so that no two answers are given to the same state, and each turn is added as a
whole. A change starts from exactly what was read. Items are as they were asked and answered; models
get them anew.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import ceil

import msgspec
from msgspec import Struct, structs

from gateway.clock import DAY_US, SECOND_US, Clock
from gateway.configuration.sections import ResponsesSettings
from gateway.configuration.settings import Limits
from gateway.continuing.held_turns import HeldTurns
from gateway.continuing.items import FIELDS, as_input, name_of
from gateway.continuing.kept_conversations import (
    CONVERSATION_PREFIX,
    TURN_LEASE_US,
    ConversationStore,
    Entry,
    KeptConversation,
    TakenTurn,
    new_names,
)
from gateway.errors import (
    BodyTooLarge,
    ConversationLocked,
    ConversationUnknown,
    Exhausted,
    FeatureUnsupported,
    ItemUnknown,
)
from gateway.projects import Project, project_of
from gateway.telemetry import Event, logger
from gateway.types import Principal


ID_BYTES = 24
"""192 bits: nobody can guess an id, and using one still takes a key of its project."""

AFTERWARDS_S = 30.0
"""How much longer than any request lasts its turn does: what it adds is written at its end."""

TRIES = 16
"""How often a change is tried again because somebody else's came first."""

RETRY_S = 1.0
SILENT_US = TURN_LEASE_US // 2
"""A turn that was not renewed for this long has missed two renewals."""
ID_LENGTH_MAX = 64
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}

Change = Callable[[KeptConversation], KeptConversation]
Write = Callable[[KeptConversation, int], Awaitable[bool]]
"""Writes a changed conversation, with the time; False if it has changed since it was read."""


class Turn(Struct, frozen=True):
    """What is added to a conversation once the answer is complete."""

    request_id: str
    project: Project
    conversation_id: str
    asked: Sequence[msgspec.Raw]
    answered: Sequence[msgspec.Raw]
    data_class: str
    user: str = ""
    """The end user that the request names."""


class Conversations:
    """Keeps conversations; holds the store."""

    def __init__(
        self,
        store: ConversationStore,
        clock: Clock,
        settings: ResponsesSettings,
        limits: Limits,
        random_hex: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._store = store
        self._clock = clock
        self._keep_us = settings.conversation_keep_days * DAY_US
        self._count_max = settings.conversations_max
        self._length_max = limits.body_bytes_max
        self._turn_s = limits.request_deadline_s + AFTERWARDS_S
        self._away_turn_s = max(settings.background_deadline_s + AFTERWARDS_S, self._turn_s)
        self._random_hex = random_hex
        self.turns = HeldTurns(store, clock)
        self._log = logger()
        self.kept: Callable[[Project, int], None] = lambda _project, _length_bytes: None
        """Told how much was written, so that a project's oldest are deleted if it has too much."""

    def now_us(self) -> int:
        """The time by the database's clock."""
        return self._clock.utc_us()

    @property
    def are_kept(self) -> bool:
        return self._keep_us > 0

    async def create(
        self,
        principal: Principal,
        items: Sequence[msgspec.Raw],
        metadata: Mapping[str, str],
        data_class: str,
    ) -> KeptConversation:
        """A new conversation of the caller's project.

        Raises:
            FeatureUnsupported: none are kept here.
            Exhausted: the project has as many as it may.
        """
        if not self.are_kept:
            raise FeatureUnsupported("Conversations are not kept here.")
        now_us = self._clock.utc_us()
        made = KeptConversation(
            conversation_id=CONVERSATION_PREFIX + self._random_hex(ID_BYTES),
            project=project_of(principal),
            key_id=principal.key_id,
            data_class=data_class,
            created_us=now_us,
            changed_us=now_us,
            expires_us=now_us + self._keep_us,
            metadata=metadata,
        )
        made = made.with_more(self._named(made, items))
        self._check_length(made)
        if not await self._store.make(made, self._count_max):
            reason = f"This project has {self._count_max} conversations; delete some."
            raise Exhausted(reason, retry_after_s=60.0)
        self.kept(made.project, made.length_bytes)
        return made

    async def find(self, principal: Principal, conversation_id: str) -> KeptConversation:
        """A conversation of the caller's project; raises ConversationUnknown."""
        return await self._found(project_of(principal), conversation_id)

    async def describe(
        self, principal: Principal, conversation_id: str, metadata: Mapping[str, str]
    ) -> KeptConversation:
        """Give it other metadata; raises ConversationUnknown."""

        def described(found: KeptConversation) -> KeptConversation:
            return structs.replace(found, metadata=metadata)

        return await self._change(project_of(principal), conversation_id, described)

    async def forget(self, principal: Principal, conversation_id: str) -> None:
        """Delete a conversation; raises ConversationUnknown if it does not exist."""
        if not await self._store.forget(project_of(principal), conversation_id):
            raise unknown(conversation_id)

    async def add(
        self,
        principal: Principal,
        conversation_id: str,
        items: Sequence[msgspec.Raw],
        data_class: str,
    ) -> Sequence[Entry]:
        """Add items as if somebody had asked them; returns them with their ids.

        Raises:
            ConversationUnknown, ConversationLocked
            BodyTooLarge: it would be longer than any request may be.
        """
        added: list[Entry] = []

        def longer(found: KeptConversation) -> KeptConversation:
            self._check_free(found)
            added[:] = self._named(found, items)
            highest = max(found.data_class, data_class)
            more = structs.replace(found.with_more(added), data_class=highest)
            self._check_length(more)
            return more

        await self._change(project_of(principal), conversation_id, longer)
        return added

    async def remove(
        self, principal: Principal, conversation_id: str, item_id: str
    ) -> KeptConversation:
        """Remove an item; the conversation stays as sensitive as it was.

        Raises:
            ConversationUnknown, ConversationLocked, ItemUnknown
        """

        def shorter(found: KeptConversation) -> KeptConversation:
            require_item(found, item_id)
            self._check_free(found)
            return found.without(item_id)

        return await self._change(project_of(principal), conversation_id, shorter)

    async def begin(
        self,
        request_id: str,
        project: Project,
        conversation_id: str,
        *,
        takes: bool,
        is_away: bool = False,
    ) -> KeptConversation:
        """The conversation that a request continues; if it `takes` it, it is locked until it ends.

        `is_away` says that its caller does not wait: then it may take longer.

        Raises:
            ConversationUnknown
            ConversationLocked: another request is being answered with it.
        """
        for _ in range(TRIES):
            found = await self._found(project, conversation_id, "conversation")
            if not takes:
                return found
            self._check_free(found)
            turn = TakenTurn(request_id, project, conversation_id)
            until_us = self.turns.note(turn, self._away_turn_s if is_away else self._turn_s)
            taken = structs.replace(found, turn=request_id, turn_until_us=until_us)
            if await self._store.take(taken, self._clock.utc_us()):
                return taken
        raise locked()

    async def append(self, turn: Turn, *, is_again: bool = False) -> bool:
        """Add what was asked and answered. The caller has the answer already: a failure is logged.

        False if the conversation is gone: it may have been erased while the request was answered.
        With `is_again` the turn may have been added already.

        Raises:
            Unavailable
        """
        try:
            await self.add_turn(turn, self._store.write, is_again=is_again)
        except (ConversationUnknown, ConversationLocked) as error:
            code = error.code
            self._log.warning(Event.CONVERSATION_NOT_KEPT, request_id=turn.request_id, code=code)
            return not isinstance(error, ConversationUnknown)
        return True

    async def add_turn(self, turn: Turn, write: Write, *, is_again: bool = False) -> None:
        """The same, with the caller's own function that writes it.

        Raises:
            ConversationUnknown, Unavailable
            ConversationLocked: others change it again and again.
        """
        request_id, user = turn.request_id, turn.user

        def longer(found: KeptConversation) -> KeptConversation:
            more, is_mine = found, found.turn == request_id
            # With what it adds a turn ends: while it lasts, nothing of it stands there yet.
            if is_mine or not (is_again and stands_in(found, turn)):
                more = found.with_more(self._named(found, turn.asked))
                more = more.with_more(self._named(more, turn.answered, is_answer=True))
            users = more.users if not user or user in more.users else (*more.users, user)
            return structs.replace(
                more,
                users=users,
                data_class=max(found.data_class, turn.data_class),
                turn="" if is_mine else found.turn,
                turn_until_us=0 if is_mine else found.turn_until_us,
            )

        await self._change(turn.project, turn.conversation_id, longer, write)
        self.turns.is_over(request_id)

    async def let_go(self, request_id: str) -> None:
        """End the turn of a request that added nothing, if it has one."""
        await self.turns.let_go(request_id)

    async def end_turn(self, project: Project, conversation_id: str, request_id: str) -> None:
        """End the turn of a request whose worker is gone; raises Unavailable."""
        await self._store.let_go(project, conversation_id, request_id)

    async def _found(
        self, project: Project, conversation_id: str, parameter: str | None = None
    ) -> KeptConversation:
        found = await self._store.find(project, conversation_id, self._clock.utc_us())
        if found is None:
            raise unknown(conversation_id, parameter)
        return found

    async def _change(
        self,
        project: Project,
        conversation_id: str,
        change: Change,
        write: Write | None = None,
    ) -> KeptConversation:
        """Write a change that starts from the conversation's present state."""
        write = write or self._store.write
        for _ in range(TRIES):
            found = await self._found(project, conversation_id)
            now_us = self._clock.utc_us()
            until_us = now_us + self._keep_us if self.are_kept else found.expires_us
            changed = structs.replace(
                change(found), changed_us=max(now_us, found.changed_us), expires_us=until_us
            )
            if await write(changed, now_us):
                self.kept(project, max(0, changed.length_bytes - found.length_bytes))
                return changed
        raise locked()

    def _named(
        self,
        conversation: KeptConversation,
        items: Sequence[msgspec.Raw],
        *,
        is_answer: bool = False,
    ) -> list[Entry]:
        """The items, with ids that nothing else in the conversation has."""
        fields = [FIELDS.decode(item) for item in items]
        kinds = [msgspec.json.decode(each.get("type", b"null")) or "message" for each in fields]
        fresh = [
            f"{_PREFIXES.get(str(kind), 'item')}_{self._random_hex(ID_BYTES)}" for kind in kinds
        ]
        taken = [entry.item_id for entry in conversation.entries]
        names = new_names(taken, [name_of(each) for each in fields], fresh)
        return [
            Entry(name, msgspec.Raw(bytes(item)), is_answer)
            for name, item in zip(names, items, strict=True)
        ]

    def _check_length(self, conversation: KeptConversation) -> None:
        if conversation.length_bytes > self._length_max:
            reason = f"The conversation would be longer than {self._length_max} bytes."
            raise BodyTooLarge(reason, parameter="items")

    def _check_free(self, found: KeptConversation) -> None:
        now_us = self._clock.utc_us()
        if found.is_taken(now_us):
            raise locked(retry_after_s(found.turn_until_us - now_us))


def stands_in(conversation: KeptConversation, turn: Turn) -> bool:
    """Whether all items of a turn have been added, one after the other."""
    added = [(bytes(item), False) for item in turn.asked]
    added += [(bytes(item), True) for item in turn.answered]
    there = [(bytes(entry.item), entry.is_answer) for entry in conversation.entries]
    return any(there[at : at + len(added)] == added for at in range(len(there)))


def said(conversation: KeptConversation) -> list[msgspec.Raw]:
    """Its items, in the form of a request's."""
    items: list[msgspec.Raw] = []
    for entry in conversation.shown:
        items += as_input(b"[" + bytes(entry.item) + b"]") if entry.is_answer else [entry.item]
    return items


def require_item(conversation: KeptConversation, item_id: str) -> Entry:
    """An item by its id; raises ItemUnknown."""
    entry = conversation.find(item_id)
    if entry is None:
        raise ItemUnknown("There is no such item in this conversation.")
    return entry


def unknown(conversation_id: str, parameter: str | None = None) -> ConversationUnknown:
    """The same error for every reason. It repeats what was asked for if that looks like an id."""
    name = conversation_id.removeprefix(CONVERSATION_PREFIX)
    is_id = (
        name != conversation_id and name.isascii() and name.isalnum() and len(name) <= ID_LENGTH_MAX
    )
    named = f" with id '{conversation_id}'" if is_id else ""
    return ConversationUnknown(f"Conversation{named} not found.", parameter=parameter)


def retry_after_s(left_us: int) -> float:
    """When to try again. A turn that is no longer renewed lasts as long as its lease.

    Its worker was killed, as it seems: clients that try twice would be gone before that.
    """
    is_silent = left_us <= TURN_LEASE_US - SILENT_US
    return ceil(left_us / SECOND_US) if is_silent else RETRY_S


def locked(after_s: float = RETRY_S) -> ConversationLocked:
    """In the vendor's words."""
    error = ConversationLocked(
        "Another process is currently operating on this conversation. Please retry in a few"
        " seconds.",
        parameter="conversation",
    )
    error.retry_after_s = after_s
    return error
