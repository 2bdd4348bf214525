"""The Merkle trees of the audit log in the database: grown with the rows, read for proofs.

A tree grows in the transaction that numbers its records, under the lock of its organisation's row,
so that record n is leaf n-1 whatever happens, however many processes project.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    bindparam,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.audit.proving.exported import SignedCheckpoint
from gateway.audit.proving.integrator import Question, TreeDamaged
from gateway.audit.proving.kept_still import Moment
from gateway.audit.proving.merkle import (
    HASH_BYTES,
    TILE_HASHES,
    OpenTree,
    Tile,
    TileKey,
    split_hashes,
)
from gateway.errors import NotReady
from gateway.store.engine import Asking, Database
from gateway.store.glance import is_read_only_in
from gateway.store.schema.audit import audit_checkpoints, audit_sequences, audit_tiles


_T = TypeVar("_T")
_NO_HASHES = [bytes(32)] * TILE_HASHES
_KEYS_AT_ONCE = 200
_MOMENTS_AT_ONCE = 500
# Built once: an idle worker runs these queries every few seconds, and building them takes longer
# than answering them.
_TREES = select(audit_sequences)
_SIZES = select(audit_sequences.c.organisation, audit_sequences.c.next_sequence)
_GROWN = (
    update(audit_sequences)
    .where(audit_sequences.c.organisation == bindparam("grown"))
    .values(open_tiles=bindparam("tiles"))
)
_FULL = insert(audit_tiles)


def _newest_of_all() -> Select[Any]:
    columns, other = audit_checkpoints.c, audit_checkpoints.alias()
    # One index lookup for each log; every log that was ever signed has a sequence, or had one.
    last = (
        select(func.max(other.c.signed_us))
        .where(other.c.organisation == audit_sequences.c.organisation)
        .scalar_subquery()
    )
    return select(audit_checkpoints).join(
        audit_sequences,
        and_(columns.organisation == audit_sequences.c.organisation, columns.signed_us == last),
    )


_NEWEST_OF_ALL = _newest_of_all()
_NAMES: Any = bindparam("names", expanding=True)
_NEWEST_OF = _NEWEST_OF_ALL.where(audit_checkpoints.c.organisation.in_(_NAMES))
_HELD = (
    select(audit_sequences.c.organisation)
    .where(audit_sequences.c.organisation.in_(_NAMES))
    .order_by(audit_sequences.c.organisation)
    .with_for_update()
)
_KEPT = insert(audit_checkpoints)


class Growth(Struct, frozen=True):
    """What a batch adds to one organisation's tree."""

    organisation: str
    open_tiles: bytes
    full: list[Tile]


def grow(
    batch: list[ProjectedRecord], names: list[str], before: Mapping[str, tuple[int, bytes]]
) -> list[Growth]:
    """Add a batch to the trees; `names` gives each record's log, `before` size and open tiles.

    Raises:
        TreeDamaged: an organisation's open tiles do not fit its size.
    """
    leaves: dict[str, list[str]] = {name: [] for name in before}
    for name, projected in zip(names, batch, strict=True):
        leaves[name].append(projected.known_leaf or projected.leaf_hash)
    growths = []
    for name, added in leaves.items():
        size, open_tiles = before[name]
        tree = _open_tree(name, size + 1, open_tiles)
        full = tree.extend(list(map(bytes.fromhex, added)))
        growths.append(Growth(name, tree.encode(), full))
    return growths


def saving(growths: list[Growth]) -> list[Asking]:
    """Statements that store the growth, in the transaction that numbered it."""
    grown = [{"grown": each.organisation, "tiles": each.open_tiles} for each in growths]
    tiles = [
        {
            "organisation": growth.organisation,
            "level": tile.level,
            "number": tile.number,
            "hashes": tile.hashes,
        }
        for growth in growths
        for tile in growth.full
    ]
    # A statement given no values would be run once, without any.
    return [(statement, rows) for statement, rows in ((_GROWN, grown), (_FULL, tiles)) if rows]


class DatabaseAuditTrees:
    """See `gateway.audit.proving.integrator.TreeStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def trees(self) -> dict[str, OpenTree]:
        rows = await self._database.peek(_TREES)
        return {row[0]: _open_tree(*row) for row in rows}

    async def sizes(self) -> dict[str, int]:
        return {name: following - 1 for name, following in await self._database.peek(_SIZES)}

    async def tree(self, organisation: str) -> OpenTree:
        async with self._database.reading() as connection:
            return await _tree_in(connection, organisation)

    async def ask(self, organisation: str, question: Question[_T]) -> _T:
        needed: set[TileKey] = set()

        def note(key: TileKey) -> list[bytes]:
            needed.add(key)
            return _NO_HASHES

        question(note)
        async with self._database.reading() as connection:
            tree = await _tree_in(connection, organisation)
            stored = await _tiles(connection, organisation, sorted(needed))

        def answer(key: TileKey) -> list[bytes]:
            hashes = stored.get(key) or tree.hashes(key)
            if hashes is None:
                raise TreeDamaged(f"tile {key} of the tree of {organisation} is missing")
            if key in stored and len(hashes) != TILE_HASHES:
                raise TreeDamaged(f"tile {key} of the tree of {organisation} is cut off")
            return hashes

        return question(answer)

    async def leaves(self, organisation: str, size: int, until: int) -> bytes:
        first, last = size // TILE_HASHES, (until - 1) // TILE_HASHES
        columns = audit_tiles.c
        full = select(columns.number, columns.hashes).where(
            columns.organisation == organisation,
            columns.level == 0,
            columns.number.between(first, last),
        )
        async with self._database.reading() as connection:
            # Read before the tiles, so that tiles that have become full since are among them.
            tree = await _tree_in(connection, organisation)
            stored = {number: bytes(hashes) for number, hashes in await connection.execute(full)}
        pieces = []
        for number in range(first, last + 1):
            hashes = stored.get(number) or b"".join(tree.hashes((0, number)) or ())
            begin = max(size - number * TILE_HASHES, 0) * HASH_BYTES
            pieces.append(hashes[begin : (until - number * TILE_HASHES) * HASH_BYTES])
        leaves = b"".join(pieces)
        if len(leaves) != (until - size) * HASH_BYTES:
            raise TreeDamaged(f"leaves of {organisation} after {size} are missing")
        return leaves

    async def newest(self, organisation: str) -> SignedCheckpoint | None:
        return next(iter(await self.latest(organisation, 1)), None)

    async def latest(self, organisation: str, limit: int) -> list[SignedCheckpoint]:
        """The last signed checkpoints, newest first."""
        columns = audit_checkpoints.c
        query = select(audit_checkpoints).where(columns.organisation == organisation)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(columns.signed_us.desc()).limit(limit))
            return [SignedCheckpoint(*row) for row in rows]

    async def newest_of_all(self) -> dict[str, SignedCheckpoint]:
        newest = [SignedCheckpoint(*row) for row in await self._database.peek(_NEWEST_OF_ALL)]
        return {each.organisation: each for each in newest}

    async def between(
        self, organisation: str, since_us: int, until_us: int, limit: int | None = None
    ) -> Sequence[SignedCheckpoint]:
        query = select(audit_checkpoints).where(_signed(organisation, since_us, until_us))
        query = query.order_by(audit_checkpoints.c.signed_us).limit(limit)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [SignedCheckpoint(*row) for row in rows]

    async def spread(
        self, organisation: str, since_us: int, until_us: int, count_max: int
    ) -> tuple[int, Sequence[SignedCheckpoint]]:
        """How many were signed in a period, and up to `count_max` of them: evenly, from the first.

        The database chooses: a log that was idle for a year has a million.
        """
        columns, mine = audit_checkpoints.c, _signed(organisation, since_us, until_us)
        number = func.row_number().over(order_by=columns.signed_us).label("number")
        async with self._database.reading() as connection:
            counted = select(func.count()).select_from(audit_checkpoints).where(mine)
            total = int((await connection.execute(counted)).scalar_one())
            step = max(-(-total // count_max), 1)
            places = select(columns.signed_us, number).where(mine).subquery()
            chosen = select(places.c.signed_us).where((places.c.number - 1) % step == 0)
            query = (
                select(audit_checkpoints)
                .where(columns.organisation == organisation, columns.signed_us.in_(chosen))
                .order_by(columns.signed_us)
            )
            rows = (await connection.execute(query)).all()
        return total, [SignedCheckpoint(*row) for row in rows]

    async def covering(self, organisation: str, size: int) -> SignedCheckpoint | None:
        columns = audit_checkpoints.c
        query = select(audit_checkpoints).where(
            columns.organisation == organisation, columns.size >= size
        )
        async with self._database.reading() as connection:
            row = (
                await connection.execute(query.order_by(columns.signed_us).limit(1))
            ).one_or_none()
        return SignedCheckpoint(*row) if row else None

    async def lacking(self, moments: Collection[Moment]) -> set[Moment]:
        """The moments of which no checkpoint is kept.

        Raises:
            NotReady: the database does not answer, or is a replica, which may be about to get what
                it lacks.
        """
        asked, kept = sorted(moments), set[Moment]()
        async with self._database.reading() as connection:
            for start in range(0, len(asked), _MOMENTS_AT_ONCE):
                query = kept_of(asked[start : start + _MOMENTS_AT_ONCE])
                kept |= {(name, at) for name, at in (await connection.execute(query)).all()}
            lacking = set(asked) - kept
            # Asked of the same server: other connections of the pool may lead to another one.
            if lacking and await is_read_only_in(connection):
                raise NotReady("the database takes no writes", retry_after_s=1.0)
        return lacking

    async def keep(self, checkpoints: Sequence[SignedCheckpoint]) -> list[SignedCheckpoint]:
        """Keep checkpoints, and return those kept: not if another worker signed further on.

        Their maker was stopped in between. Such a checkpoint would be the newest, and prove less
        than the previous one.
        """
        if not checkpoints:
            return []
        names = {"names": sorted({each.organisation for each in checkpoints})}
        async with self._database.writing() as connection:
            # Others that number or sign wait: the sizes stay as they are until the end.
            await connection.execute(_HELD, names)
            found = (await connection.execute(_NEWEST_OF, names)).all()
            newest = {row.organisation: (row.size, row.signed_us) for row in found}
            kept = [each for each in checkpoints if _goes_on(each, newest.get(each.organisation))]
            rows = [{name: getattr(each, name) for name in each.__struct_fields__} for each in kept]
            if rows:
                await connection.execute(_KEPT, rows)
        return kept


def _goes_on(checkpoint: SignedCheckpoint, newest: tuple[int, int] | None) -> bool:
    """Whether it covers no less than the newest, given by size and moment, and is later."""
    if newest is None:
        return True
    size, signed_us = newest
    return checkpoint.size >= size and checkpoint.signed_us > signed_us


def kept_of(moments: Sequence[Moment]) -> Select[Any]:
    """Those moments whose checkpoint exists; `moments` are in order.

    One condition per organisation: for a list of pairs SQLite reads the complete index.
    """
    columns = audit_checkpoints.c
    asked = [
        and_(columns.organisation == name, columns.signed_us.in_([at for _, at in mine]))
        for name, mine in groupby(moments, key=itemgetter(0))
    ]
    return select(columns.organisation, columns.signed_us).where(or_(*asked))


def _signed(organisation: str, since_us: int, until_us: int) -> ColumnElement[bool]:
    columns = audit_checkpoints.c
    return and_(
        columns.organisation == organisation,
        columns.signed_us >= since_us,
        columns.signed_us < until_us,
    )


async def _tree_in(connection: AsyncConnection, organisation: str) -> OpenTree:
    row = select(audit_sequences).where(audit_sequences.c.organisation == organisation)
    found = (await connection.execute(row)).one_or_none()
    return _open_tree(*found) if found else OpenTree()


def _open_tree(organisation: str, following: int, open_tiles: bytes) -> OpenTree:
    try:
        return OpenTree(following - 1, bytes(open_tiles))
    except ValueError as error:
        said = f"the open tiles of the tree of {organisation} are not those of its size"
        raise TreeDamaged(said) from error


async def _tiles(
    connection: AsyncConnection, organisation: str, keys: Sequence[TileKey]
) -> dict[TileKey, list[bytes]]:
    columns = audit_tiles.c
    found: dict[TileKey, list[bytes]] = {}
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        wanted: Any = keys[start : start + _KEYS_AT_ONCE]
        query = select(columns.level, columns.number, columns.hashes).where(
            columns.organisation == organisation,
            tuple_(columns.level, columns.number).in_(wanted),
        )
        for level, number, hashes in (await connection.execute(query)).all():
            found[level, number] = split_hashes(bytes(hashes))
    return found
