"""Drafts of policy documents: one per level, saved as often as people like.

A draft may be invalid; it takes effect nowhere. Each save names the revision that it started from:
if somebody else saved meanwhile, nothing is overwritten and both texts are returned.
"""

from typing import Final

from msgspec import Struct
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.store.engine import Database
from gateway.store.schema.policies import policy_drafts, policy_texts
from policies.limits import DOCUMENT_LENGTH_MAX


_D = policy_drafts.c
AUTHOR_LENGTH_MAX = 200


class PolicyDraft(Struct, frozen=True):
    """A level's draft; `base` is the version it was begun from, 0 for none."""

    level: str
    text: str
    base: int
    revision: int
    author: str
    changed_us: int


_FINISHED: Final = "it was finished, or another version went live,"


class DraftChanged(ChangedMeanwhile):
    """Somebody else saved meanwhile; `theirs` is the present draft, None if it is gone."""

    def __init__(self, theirs: PolicyDraft | None) -> None:
        who = f"{theirs.author} saved revision {theirs.revision}" if theirs else _FINISHED
        super().__init__(f"the draft is not what it was when you began: {who} meanwhile")
        self.theirs = theirs


class DraftTable:
    """Reads and saves drafts, and reads the texts of versions."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def drafts(self) -> dict[str, PolicyDraft]:
        """All drafts by level."""
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(policy_drafts))).all()
        return {row.level: PolicyDraft(*row) for row in rows}

    async def draft(self, level: str) -> PolicyDraft | None:
        """A level's draft, if there is one."""
        async with self._database.reading() as connection:
            return await _draft(connection, level)

    async def save(
        self, level: str, text: str, author: str, *, revision: int, base: int = 0
    ) -> PolicyDraft:
        """Save a draft that was read at `revision`; 0 begins a new one.

        Raises:
            DraftChanged: it has another revision now.
            RequestInvalid: it is longer than a document may be.
        """
        if len(text) > DOCUMENT_LENGTH_MAX:
            message = f"the document is longer than {DOCUMENT_LENGTH_MAX} characters"
            raise RequestInvalid(message, parameter="text")
        try:
            async with self._database.writing() as connection:
                found = await _draft(connection, level)
                if (found.revision if found else 0) != revision:
                    raise DraftChanged(found)
                draft = PolicyDraft(
                    level,
                    text,
                    found.base if found else base,
                    revision + 1,
                    author[:AUTHOR_LENGTH_MAX],
                    self._clock.utc_us(),
                )
                await self._store(connection, draft, is_new=found is None)
                return draft
        except IntegrityError:  # Two began at the same moment.
            raise DraftChanged(await self.draft(level)) from None

    @staticmethod
    async def _store(connection: AsyncConnection, draft: PolicyDraft, *, is_new: bool) -> None:
        values = {name: getattr(draft, name) for name in draft.__struct_fields__}
        if is_new:
            await connection.execute(insert(policy_drafts).values(values))
            return
        here = (_D.level == draft.level) & (_D.revision == draft.revision - 1)
        changed = await connection.execute(update(policy_drafts).where(here).values(values))
        if changed.rowcount != 1:
            raise DraftChanged(await _draft(connection, draft.level))

    async def discard(self, level: str, revision: int) -> None:
        """Discard a draft; raises DraftChanged if somebody saved meanwhile."""
        async with self._database.writing() as connection:
            await end_draft(connection, level, revision)

    async def text_of(self, level: str, number: int) -> str | None:
        """A version as it was written; None if only its canonical form is known."""
        columns = policy_texts.c
        query = select(columns.text).where(columns.level == level, columns.number == number)
        async with self._database.reading() as connection:
            text: str | None = (await connection.execute(query)).scalar_one_or_none()
        return text


async def end_draft(connection: AsyncConnection, level: str, revision: int) -> None:
    """Delete a draft as part of a transaction; raises DraftChanged."""
    here = (_D.level == level) & (_D.revision == revision)
    if (await connection.execute(delete(policy_drafts).where(here))).rowcount != 1:
        raise DraftChanged(await _draft(connection, level))


async def _draft(connection: AsyncConnection, level: str) -> PolicyDraft | None:
    row = (await connection.execute(select(policy_drafts).where(_D.level == level))).first()
    return None if row is None else PolicyDraft(*row)
