"""Evidence packs: chooses what the pack of one log and period contains, writes and tracks it.

The command line and the control plane make packs with the same function; the control plane also
keeps a row for each, so that people with the permission can fetch it later.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from sqlalchemy import delete, insert, select, update

from gateway.audit.projecting.projection import SequencedRecord
from gateway.audit.proving.checkpoints import SIGNERS_NAME, origin_of, verifier_keys
from gateway.audit.proving.exported import SignedCheckpoint
from gateway.audit.proving.offline import Wrong, open_checkpoint, parse_key
from gateway.audit.proving.pack import CHECKPOINTS_MAX, PackRefused, PackRequest, write_pack
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.oversight.deeds import OPERATORS
from gateway.store.engine import Database
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.sink import AuditQuery
from gateway.store.pages import Order, Part, part_behind
from gateway.store.policies.documents import PolicyStore
from gateway.store.schema.custody import evidence_packs
from policies.document import canonical_json


NOT_YET = "no checkpoint can cover it: its tree does not hold it yet"
RECORDS_MAX = 1_000_000
KEPT_US = 30 * 86_400_000_000
_ID_BYTES = 6
Progress = Callable[[int, int], None]
"""Called with the number of records written and their total."""


class PackOrder(Struct, frozen=True):
    """What a pack is to hold."""

    organisation: str
    """The organisation whose log it is."""
    since_us: int
    until_us: int
    """Exclusive."""
    recipient: str = ""
    records_max: int | None = None
    policies: PolicyStore | None = None
    """The source of policy documents; without it the pack has none."""


class EvidencePack(Struct, frozen=True):
    """A pack requested in the control plane; times and sizes are 0 until it exists."""

    id: str
    organisation: str
    log: str
    recipient: str
    since_us: int
    until_us: int
    with_policies: bool
    made_by: str
    made_us: int
    state: str
    """`waiting`, `writing`, `ready`, `failed` or `expired`."""
    records: int = 0
    size_bytes: int = 0
    sha256: str = ""
    problem: str = ""


async def make_pack(
    parts: Integration,
    settings: Settings,
    order: PackOrder,
    path: Path,
    *,
    created_us: int,
    progress: Progress | None = None,
) -> tuple[int, int]:
    """Write a pack of a period's records; returns their first and last number.

    Raises:
        PackRefused: there are no records, too many, one is damaged, or no checkpoint covers the
            last.
        OSError: the file cannot be written.
    """
    await parts.projector.catch_up()
    span = await parts.sink.span(order.organisation, order.since_us, order.until_us)
    if span is None:
        raise PackRefused("there are no such records")
    first, last = span
    count = last - first + 1
    if order.records_max is not None and count > order.records_max:
        raise PackRefused(f"{count} records are more than {order.records_max}: shorten the period")
    covering = await parts.checkpoint_of(order.organisation, last)
    if covering is None:
        raise PackRefused(NOT_YET)
    keys = tuple(verifier_keys(parts.directory))
    _require_signed(covering, keys)
    total, signed = await parts.trees.spread(
        order.organisation, order.since_us, covering.signed_us, CHECKPOINTS_MAX
    )
    request = PackRequest(
        origin=origin_of(settings.audit.log_name, order.organisation),
        organisation=order.organisation,
        first_sequence=first,
        last_sequence=last,
        keys=keys,
        policies=await _policies(parts, order, first, last),
        created_us=created_us,
        recipient=order.recipient,
        checkpoints_left_out=total - len(signed),
    )
    rows = parts.sink.records(AuditQuery(organisation=order.organisation), after=first - 1)
    if progress is not None:
        rows = _counted(rows, count, progress)
    await write_pack(path, request, rows, [*signed, covering], parts.trees)
    return first, last


def _require_signed(checkpoint: SignedCheckpoint, keys: Sequence[str]) -> None:
    """Refuse a checkpoint that the pack's own keys do not verify: such a pack is worthless."""
    try:
        open_checkpoint(checkpoint.note, [parse_key(key) for key in keys])
    except Wrong as error:
        raise PackRefused(f"it would not hold: {error}; see {SIGNERS_NAME}") from error


async def _policies(parts: Integration, order: PackOrder, first: int, last: int) -> dict[str, str]:
    """Documents that these records name, and all versions of the levels that govern their log.

    By digest, as the canonical JSON that the digest is of. If a record's own document was composed
    of several levels', it may not be kept yet, or belong to a worker that kept none; the levels'
    versions stand in. No other organisation's documents are included.
    """
    store, found = order.policies, {}
    if store is None:
        return {}
    named = await parts.sink.policy_digests(order.organisation, first, last)
    own = {each.digest for each in await store.versions() if _governs(each.level, order)}
    for digest in named | own:
        document = await store.document(digest)
        if document is not None:
            found[digest] = canonical_json(document.body).decode()
    return found


def _governs(level: str, order: PackOrder) -> bool:
    """Whether a level governs the log: an organisation's own and the house's; for deeds, all."""
    owner = level.partition(":")[2].partition("/")[0]
    return order.organisation == OPERATORS or owner in ("", order.organisation)


async def _counted(
    rows: AsyncIterator[SequencedRecord], total: int, progress: Progress
) -> AsyncIterator[SequencedRecord]:
    done = 0
    async for row in rows:
        yield row
        done += 1
        progress(min(done, total), total)


_NEWEST: Final = Order((evidence_packs.c.made_us, evidence_packs.c.id), frozenset({0}))


class EvidencePacks:
    """The rows and files of the packs requested in the control plane."""

    def __init__(self, database: Database, folder: Path, clock: Clock) -> None:
        self._database = database
        self._folder = folder
        self._clock = clock

    def path(self, pack: EvidencePack) -> Path:
        return self._folder / f"{pack.id}.zip"

    async def ask(self, pack: EvidencePack) -> None:
        async with self._database.writing() as connection:
            values = {name: getattr(pack, name) for name in pack.__struct_fields__}
            await connection.execute(insert(evidence_packs).values(values))

    def new_id(self) -> str:
        return secrets.token_hex(_ID_BYTES)

    async def packs(self, organisation: str, limit: int = 50) -> list[EvidencePack]:
        """The newest packs, newest first."""
        query = select(evidence_packs).where(evidence_packs.c.organisation == organisation)
        async with self._database.reading() as connection:
            found = await connection.execute(_NEWEST.reading(query).limit(limit))
            rows = found.mappings().all()
        return [EvidencePack(**row) for row in rows]

    async def page(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[EvidencePack]:
        """A page of them in the same order; `after` is the key of the last one before it."""
        query = select(evidence_packs).where(evidence_packs.c.organisation == organisation)
        async with self._database.reading() as connection:
            place = (first, after)
            return await part_behind(
                connection, query, _NEWEST, place, limit, lambda row: EvidencePack(**row)
            )

    async def pack(self, organisation: str, pack_id: str) -> EvidencePack | None:
        columns = evidence_packs.c
        query = select(evidence_packs).where(
            columns.organisation == organisation, columns.id == pack_id
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return EvidencePack(**row) if row else None

    async def change(self, pack_id: str, **values: object) -> None:
        where = evidence_packs.c.id == pack_id
        async with self._database.writing() as connection:
            await connection.execute(update(evidence_packs).where(where).values(**values))

    async def settle(self, pack: EvidencePack) -> None:
        """Note the length and digest of a pack's finished file."""
        path = self.path(pack)
        digest, size = await asyncio.to_thread(_digest_of, path)
        await self.change(pack.id, state="ready", size_bytes=size, sha256=digest)

    async def drop_expired(self) -> None:
        """Remove files whose time to be fetched is over; their rows stay for a year."""
        now_us, columns = self._clock.utc_us(), evidence_packs.c
        old = (columns.made_us < now_us - KEPT_US) & (columns.state == "ready")
        async with self._database.reading() as connection:
            query = select(evidence_packs).where(old)
            rows = (await connection.execute(query)).mappings().all()
        for row in rows:
            pack = EvidencePack(**row)
            await asyncio.to_thread(self.path(pack).unlink, missing_ok=True)
            await self.change(pack.id, state="expired")
        async with self._database.writing() as connection:
            gone = columns.made_us < now_us - 12 * KEPT_US
            await connection.execute(delete(evidence_packs).where(gone))


def _digest_of(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest, path.stat().st_size
