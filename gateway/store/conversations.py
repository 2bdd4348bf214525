"""Conversations that are kept for their project, in the table of kept answers.

Each is one row, written as a whole and under a new key each time, so holds, expiry, erasures and
changes of the master key work as for kept answers. A `revision` says which state a change builds
on.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, RowMapping, func, not_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.continuing.kept_conversations import (
    TURN_US_MAX,
    Entry,
    KeptConversation,
    TakenTurn,
)
from gateway.projects import Project
from gateway.secrets.envelope import MasterKey
from gateway.store.engine import Database
from gateway.store.held import is_held
from gateway.store.kept_answers import about_answer, forget_kept, kept_answers, opened, sealed
from gateway.store.schema.owned import is_of, owned_by, owner_columns, owner_of
from gateway.store.schema.tables import projects


_ROW: Final = kept_answers.c
_IS_CONVERSATION: Final = _ROW.revision > 0
_RENEWED_AT_ONCE: Final = 100


class _Head(Struct, frozen=True):
    """What is sealed of a conversation, besides its items."""

    created_us: int
    metadata: dict[str, str]
    users: tuple[str, ...]


_HEAD: Final = msgspec.json.Decoder(_Head)
_ENTRIES: Final = msgspec.json.Decoder(tuple[Entry, ...])


class DatabaseConversations:
    """The `ConversationStore` of a running gateway."""

    def __init__(self, database: Database, master: MasterKey) -> None:
        self._database = database
        self._master = master

    async def make(self, made: KeptConversation, count_max: int) -> bool:
        row = {
            **owned_by(made.project),
            "id": made.conversation_id,
            "key_id": made.key_id,
            "previous_id": "",
            "revision": made.revision,
            **self._written(made),
        }
        its = select(projects.c.name).where(
            projects.c.organisation == made.project.organisation,
            projects.c.workspace == made.project.workspace,
            projects.c.name == made.project.name,
        )
        shown = (_IS_CONVERSATION, _ROW.expires_us > made.changed_us)
        count = select(func.count()).where(*is_of(kept_answers, made.project), *shown)
        async with self._database.writing() as connection:
            # Others who make one for this project wait, so that none comes in between.
            await connection.execute(its.with_for_update(key_share=True))
            if (await connection.execute(count)).scalar_one() >= count_max:
                return False
            await connection.execute(kept_answers.insert(), row)
        return True

    async def find(
        self, project: Project, conversation_id: str, now_us: int
    ) -> KeptConversation | None:
        query = select(kept_answers).where(*_is(project, conversation_id), _ROW.expires_us > now_us)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else read_conversation(self._master, row)

    async def write(self, changed: KeptConversation, now_us: int) -> bool:
        async with self._database.writing() as connection:
            return await self.write_in(connection, changed, now_us)

    async def write_in(
        self, connection: AsyncConnection, changed: KeptConversation, now_us: int
    ) -> bool:
        """The same, together with other changes."""
        there = [
            *_is(changed.project, changed.conversation_id),
            _ROW.revision == changed.revision,
            _ROW.expires_us > now_us,
        ]
        shown = changed.unhidden()
        keeps_all = len(shown.entries) == len(changed.entries)
        clear = update(kept_answers).where(*there)
        if not keeps_all:
            clear = clear.where(not_(is_held(kept_answers)))
        count = (await connection.execute(clear.values(self._changed(shown)))).rowcount
        if not count and not keeps_all:
            held = update(kept_answers).where(*there, is_held(kept_answers))
            count = (await connection.execute(held.values(self._changed(changed)))).rowcount
        return bool(count)

    async def take(self, taken: KeptConversation, now_us: int) -> bool:
        until_us = _ROW.turn_until_us
        is_free = (_ROW.turn == "") | (until_us <= now_us) | (until_us > now_us + TURN_US_MAX)
        change = update(kept_answers).where(
            *_is(taken.project, taken.conversation_id),
            _ROW.revision == taken.revision,
            _ROW.expires_us > now_us,
            is_free,
        )
        values = {
            "turn": taken.turn,
            "turn_until_us": taken.turn_until_us,
            "revision": taken.revision + 1,
        }
        async with self._database.writing() as connection:
            return bool((await connection.execute(change.values(values))).rowcount)

    async def renew(self, turns: Sequence[TakenTurn], until_us: int) -> None:
        its = [*owner_columns(kept_answers), _ROW.id, _ROW.turn]
        for at in range(0, len(turns), _RENEWED_AT_ONCE):
            some = turns[at : at + _RENEWED_AT_ONCE]
            mine = [(*each.project, each.conversation_id, each.request_id) for each in some]
            # Rows that somebody else is changing are renewed the next time: waiting for several of
            # them might deadlock.
            free = select(*its).where(tuple_(*its).in_(mine)).with_for_update(skip_locked=True)
            change = update(kept_answers).where(tuple_(*its).in_(free))
            async with self._database.writing() as connection:
                await connection.execute(change.values(turn_until_us=until_us))

    async def let_go(self, project: Project, conversation_id: str, turn: str) -> None:
        change = update(kept_answers).where(*_is(project, conversation_id), _ROW.turn == turn)
        # Another writer may have read the turn, and would write it back.
        values = {"turn": "", "turn_until_us": 0, "revision": _ROW.revision + 1}
        async with self._database.writing() as connection:
            await connection.execute(change.values(values))

    async def forget(self, project: Project, conversation_id: str) -> bool:
        return await forget_kept(self._database, _is(project, conversation_id))

    def _changed(self, changed: KeptConversation) -> dict[str, object]:
        return {**self._written(changed), "revision": changed.revision + 1}

    def _written(self, written: KeptConversation) -> dict[str, object]:
        about = about_answer(written.project, written.conversation_id, written.data_class)
        head = _Head(written.created_us, dict(written.metadata), written.users)
        content = msgspec.json.encode(written.entries), msgspec.json.encode(head)
        return {
            "data_class": written.data_class,
            "created_us": written.changed_us,
            "expires_us": written.expires_us,
            "turn": written.turn,
            "turn_until_us": written.turn_until_us,
            **sealed(self._master, about, content),
        }


def read_conversation(master: MasterKey, row: RowMapping) -> KeptConversation:
    """The conversation in a row; raises as `kept_answers.opened`."""
    entries, told = opened(master, row)
    head = _HEAD.decode(told)
    return KeptConversation(
        conversation_id=row["id"],
        project=owner_of(row),
        key_id=row["key_id"],
        data_class=row["data_class"],
        created_us=head.created_us,
        changed_us=row["created_us"],
        expires_us=row["expires_us"],
        metadata=head.metadata,
        users=head.users,
        entries=_ENTRIES.decode(entries),
        revision=row["revision"],
        turn=row["turn"],
        turn_until_us=row["turn_until_us"],
    )


def users_of(told: bytes) -> tuple[str, ...]:
    """End users named by the turns of a conversation: `told` is the second sealed part."""
    return _HEAD.decode(told).users


def _is(project: Project, conversation_id: str) -> list[ColumnElement[bool]]:
    return [*is_of(kept_answers, project), _ROW.id == conversation_id, _IS_CONVERSATION]
