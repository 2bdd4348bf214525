"""Names that people gave the policy documents that records identify by digest."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import func, select

from gateway.store.engine import Database
from gateway.store.schema.policies import policy_documents, policy_versions


_AT_ONCE: Final = 500
_DIGEST_CHARS: Final = 8


class PolicyNames:
    """The names of policy documents in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def names(self, digests: Collection[str]) -> dict[str, str]:
        """Names by digest, of those that are known; raises NotReady.

        A document of one level is named by its version. Documents composed of several levels have
        no number: their names say which they join, since when, and how their digest begins.
        """
        known = sorted(set(digests) - {""})
        found: dict[str, str] = {}
        for start in range(0, len(known), _AT_ONCE):
            found |= await self._some(known[start : start + _AT_ONCE])
        return found

    async def _some(self, digests: list[str]) -> dict[str, str]:
        documents, versions = policy_documents.c, policy_versions.c
        kept = select(documents.digest, documents.name, documents.created_us).where(
            documents.digest.in_(digests)
        )
        # The same text may be a version of several levels, or of one level twice: the newest is
        # taken.
        numbered = (
            select(versions.digest, versions.level, func.max(versions.number))
            .where(versions.digest.in_(digests))
            .group_by(versions.digest, versions.level)
            .order_by(versions.level.desc())
        )
        async with self._database.reading() as connection:
            documents_found = (await connection.execute(kept)).all()
            places = {row[0]: (row[1], int(row[2])) for row in await connection.execute(numbered)}
        found = {}
        for digest, name, created_us in documents_found:
            if digest in places:
                level, number = places[digest]
                found[digest] = f"{name}: version {number} of {level or 'the installation'}"
            else:
                day = datetime.fromtimestamp(created_us / 1e6, UTC).date()
                found[digest] = f"{name}, since {day} ({digest[:_DIGEST_CHARS]})"
        return found
