"""Answers that are kept for their project: found by project and id, their content encrypted.

The table also holds conversations (`store.conversations`), with the same owners, keys, holds and
times, so whatever destroys, counts or reseals rows reaches both.
"""

import hashlib
import os
from collections.abc import Collection, Sequence

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ForeignKeyConstraint,
    Index,
    LargeBinary,
    RowMapping,
    String,
    Table,
    and_,
    delete,
    func,
    not_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from classifiers.identifiers import is_name
from gateway.continuing.kept_answers import DELETED_MAX, DELETED_US, KeptAnswer
from gateway.projects import Project
from gateway.secrets.content_keys import ContentDamaged, KeyClosed
from gateway.secrets.envelope import KEY_BYTES, MasterKey, UnwrapFailed
from gateway.store.engine import Database
from gateway.store.erased_since import Begun, erased_since
from gateway.store.expired import delete_over
from gateway.store.held import is_held
from gateway.store.schema.owned import (
    OWNER,
    is_of,
    owned_by,
    owner_columns,
    owner_of,
    same_owner,
)
from gateway.store.schema.tables import metadata
from gateway.store.speech import insert_into


_NONCE_BYTES = 12
_FORGOTTEN_AT_ONCE = 20

kept_answers = Table(
    "kept_answers",
    metadata,
    Column("organisation", String(63), primary_key=True),
    Column("workspace", String(63), primary_key=True),
    Column("project", String(63), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("key_id", String(12), nullable=False),
    Column("previous_id", String(128), nullable=False),
    Column("data_class", String(2), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("master_key_id", String(32), nullable=False, server_default="", index=True),
    Column("revision", BigInteger, nullable=False, server_default="0"),
    Column("turn", String(64), nullable=False, server_default=""),
    Column("turn_until_us", BigInteger, nullable=False, server_default="0"),
    Index(None, "expires_us"),
)
"""`sealed` holds the request and the answer, under a key of its own that the master key wraps.

For a conversation, `revision` says how often it was written, `created_us` when it was last written,
and `turn` which request is being answered with it. For an answer `revision` is 0.
"""

kept_items = Table(
    "kept_items",
    metadata,
    Column("organisation", String(63), primary_key=True),
    Column("workspace", String(63), primary_key=True),
    Column("project", String(63), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("answer_id", String(64), primary_key=True),
    ForeignKeyConstraint(
        [*OWNER, "answer_id"],
        [*owner_columns(kept_answers), kept_answers.c.id],
        ondelete="CASCADE",
    ),
    Index(None, *OWNER, "answer_id"),
)
"""The answers that hold an item which requests may name; deleted with the answer in any case."""


deleted_answers = Table(
    "deleted_answers",
    metadata,
    Column("organisation", String(63), primary_key=True),
    Column("workspace", String(63), primary_key=True),
    Column("project", String(63), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("deleted_us", BigInteger, nullable=False, index=True),
)
"""What a project deleted before it was written: a worker may still be waiting to write it."""


IS_ANSWER = kept_answers.c.revision == 0


class DatabaseAnswers:
    """The `AnswerStore` of a running gateway."""

    def __init__(self, database: Database, master: MasterKey) -> None:
        self._database = database
        self._master = master

    async def keep(self, answer: KeptAnswer, items: Collection[str] = ()) -> bool:
        async with self._database.writing() as connection:
            if await is_erased_in(connection, answer):
                return False
            # Ids cannot be guessed: a row with this id is from an earlier try whose reply was lost.
            new = insert_into(self._database.kind, kept_answers).on_conflict_do_nothing()
            done = await connection.execute(new.values(answer_row(self._master, answer)))
            if done.rowcount and (rows := item_rows(answer, items)):
                await connection.execute(kept_items.insert(), rows)
        return True

    async def is_erased(self, answer: KeptAnswer) -> bool:
        async with self._database.reading() as connection:
            return await is_erased_in(connection, answer)

    async def find(self, project: Project, answer_id: str, now_us: int) -> KeptAnswer | None:
        query = select(kept_answers).where(
            *_is(project, answer_id), kept_answers.c.expires_us > now_us, IS_ANSWER
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            return None
        asked, response = opened(self._master, row)
        return KeptAnswer(
            answer_id=answer_id,
            project=project,
            key_id=row["key_id"],
            previous_id=row["previous_id"],
            data_class=row["data_class"],
            created_us=row["created_us"],
            expires_us=row["expires_us"],
            input_items=asked,
            response=response,
        )

    async def content(self, project: Project, answer_id: str) -> tuple[int, bytes, bytes] | None:
        """The revision and the two parts of an answer or a conversation, even a hidden one."""
        query = select(kept_answers).where(*_is(project, answer_id))
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else (row["revision"], *opened(self._master, row))

    async def holding(self, project: Project, items: Collection[str], now_us: int) -> Sequence[str]:
        named, kept = kept_items.c, kept_answers.c
        query = (
            select(kept.id)
            .join(
                kept_items,
                and_(named.answer_id == kept.id, *same_owner(kept_items, kept_answers)),
            )
            .where(
                *is_of(kept_answers, project),
                named.id.in_({*items, *(_listed(project, each) for each in items)}),
                kept.expires_us > now_us,
            )
            .group_by(kept.id, kept.created_us)
            .order_by(kept.created_us, kept.id)
        )
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalars().all()

    async def forget(self, project: Project, answer_id: str) -> bool:
        """Delete an answer; returns whether it existed. Under a hold it is only hidden."""
        return await forget_kept(self._database, [*_is(project, answer_id), IS_ANSWER])

    async def note_deleted(self, project: Project, answer_id: str, now_us: int) -> None:
        row = {**_place(project, answer_id), "deleted_us": now_us}
        count = select(func.count()).where(*is_of(deleted_answers, project))
        new = insert_into(self._database.kind, deleted_answers).on_conflict_do_nothing()
        async with self._database.writing() as connection:
            if (await connection.execute(count)).scalar_one() < DELETED_MAX:
                await connection.execute(new.values(row))

    async def is_deleted(self, project: Project, answer_id: str) -> bool:
        its = [*is_of(deleted_answers, project), deleted_answers.c.id == answer_id]
        async with self._database.reading() as connection:
            found = await connection.execute(select(deleted_answers.c.id).where(*its))
            return found.first() is not None

    async def forget_expired(self, now_us: int) -> int:
        is_old = deleted_answers.c.deleted_us <= now_us - DELETED_US
        await delete_over(self._database, deleted_answers, is_old, _FORGOTTEN_AT_ONCE)
        is_over = and_(kept_answers.c.expires_us <= now_us, _is_free())
        return await delete_over(self._database, kept_answers, is_over, _FORGOTTEN_AT_ONCE)

    async def forget_beyond(self, project: Project, length_bytes_max: int) -> int:
        its = and_(*is_of(kept_answers, project))
        order = kept_answers.c.created_us.desc()
        # Neither database has to read a value to tell its length.
        until_now = func.sum(func.length(kept_answers.c.sealed)).over(order_by=order)
        added = select(kept_answers.c.created_us, until_now.label("bytes")).where(its).subquery()
        newest = select(func.max(added.c.created_us)).where(added.c.bytes > length_bytes_max)
        async with self._database.reading() as connection:
            last_us = (await connection.execute(newest)).scalar_one()
        if last_us is None:
            return 0
        is_over = and_(its, kept_answers.c.created_us <= last_us, _is_free())
        return await delete_over(self._database, kept_answers, is_over, _FORGOTTEN_AT_ONCE)


async def is_erased_in(connection: AsyncConnection, answer: KeptAnswer) -> bool:
    """See `AnswerStore.is_erased`; without `asked_us` it counts from when the answer was made."""
    begun = Begun(answer.project, answer.asked_us or answer.created_us, answer.subject)
    is_its, is_anybodys = await erased_since(connection, begun)
    if is_its or not is_anybodys:
        return is_its
    names = {answer.previous_id, *answer.sources} - {""}
    there = select(func.count()).where(
        *is_of(kept_answers, answer.project), kept_answers.c.id.in_(names)
    )
    return int((await connection.execute(there)).scalar_one()) < len(names)


def answer_row(master: MasterKey, answer: KeptAnswer) -> dict[str, object]:
    """A row of an answer, under a new key."""
    return {
        **_place(answer.project, answer.answer_id),
        "key_id": answer.key_id,
        "previous_id": answer.previous_id,
        "data_class": answer.data_class,
        "created_us": answer.created_us,
        "expires_us": answer.expires_us,
        **sealed_answer(master, answer),
    }


def item_rows(answer: KeptAnswer, items: Collection[str]) -> list[dict[str, str]]:
    """Rows of the items by which an answer may be named."""
    place = _place(answer.project, answer.answer_id)
    names = {_listed(answer.project, each) for each in items}
    return [{**place, "id": each, "answer_id": place["id"]} for each in names]


def sealed_answer(master: MasterKey, answer: KeptAnswer) -> dict[str, object]:
    """The values of a row that hold the request and the answer."""
    about = about_answer(answer.project, answer.answer_id, answer.data_class)
    return sealed(master, about, (answer.input_items, answer.response))


def sealed(master: MasterKey, about: bytes, content: tuple[bytes, bytes]) -> dict[str, object]:
    """The values of a row that holds this content, under a new key."""
    key, nonce = os.urandom(KEY_BYTES), os.urandom(_NONCE_BYTES)
    plain = msgspec.msgpack.encode(content)
    return {
        "wrapped_key": master.wrap(key, about),
        "master_key_id": master.key_id,
        "sealed": nonce + AESGCM(key).encrypt(nonce, plain, about),
    }


def opened(master: MasterKey, row: RowMapping) -> tuple[bytes, bytes]:
    """The content of a row; a row that was changed or moved cannot be opened.

    Raises:
        KeyClosed: this master key does not open it.
        ContentDamaged: it was changed.
    """
    return opened_about(master, row, about_answer(owner_of(row), row["id"], row["data_class"]))


def opened_about(master: MasterKey, row: RowMapping, about: bytes) -> tuple[bytes, bytes]:
    """The content of any row that `sealed` has sealed, bound to `about`."""
    try:
        key = master.unwrap(bytes(row["wrapped_key"]), about)
    except UnwrapFailed:
        raise KeyClosed("a kept answer cannot be opened with this master key") from None
    try:
        nonce, cipher = bytes(row["sealed"][:_NONCE_BYTES]), bytes(row["sealed"][_NONCE_BYTES:])
        content = AESGCM(key).decrypt(nonce, cipher, about)
    except (InvalidTag, ValueError):
        raise ContentDamaged("a kept answer was changed and cannot be opened") from None
    return msgspec.msgpack.decode(content, type=tuple[bytes, bytes])


async def forget_kept(database: Database, there: list[ColumnElement[bool]]) -> bool:
    """Delete rows; returns whether there were any. Under a hold they are only hidden."""
    async with database.writing() as connection:
        return await forget_in(connection, there)


async def forget_in(connection: AsyncConnection, there: list[ColumnElement[bool]]) -> bool:
    """Like `forget_kept`, in a transaction with other changes."""
    is_shown = kept_answers.c.expires_us > 0
    hidden = update(kept_answers).where(*there, is_shown, is_held(kept_answers))
    kept = await connection.execute(hidden.values(expires_us=0))
    gone = await connection.execute(delete(kept_answers).where(*there, _is_free()))
    return bool(kept.rowcount + gone.rowcount)


def _listed(project: Project, item: str) -> str:
    """How an item is listed: by its id, or by a digest if the id may say more than a name."""
    if is_name(item):
        return item
    return hashlib.sha256(msgspec.msgpack.encode((*project, item))).hexdigest()


def _place(project: Project, answer_id: str) -> dict[str, str]:
    return {**owned_by(project), "id": answer_id}


def _is(project: Project, answer_id: str) -> list[ColumnElement[bool]]:
    return [*is_of(kept_answers, project), kept_answers.c.id == answer_id]


def _is_free() -> ColumnElement[bool]:
    """The rows that no hold protects."""
    return not_(is_held(kept_answers))


def about_answer(project: Project, answer_id: str, data_class: str) -> bytes:
    """What the ciphertext is bound to: it opens only for its project, its id and its class."""
    return msgspec.msgpack.encode(("kept answer", project, answer_id, data_class))
