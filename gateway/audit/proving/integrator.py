"""Signs checkpoints of every organisation's log, and never one that contradicts an earlier one.

The projection numbers the records and grows the trees (`gateway.store.evidence.tree`), in one
transaction for each batch, done by whichever worker comes first. Here the result is signed and
copied out of the database, to files that a restored backup does not set back to an older state.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from gateway.audit.proving.checkpoints import Checkpoint, Signer, origin_of
from gateway.audit.proving.exported import CheckpointFiles, SignedCheckpoint, furthest
from gateway.audit.proving.kept_still import KeptStill, Moment
from gateway.audit.proving.leaves import AT_ONCE, KEPT_AT_FIRST
from gateway.audit.proving.merkle import TILE_HASHES, HashesOfTile, OpenTree, subtree_root
from gateway.clock import Clock
from gateway.errors import ToldToOperators
from gateway.telemetry import Event, logger


_T = TypeVar("_T")
_AT_ONCE = 50
Question = Callable[[HashesOfTile], _T]
"""A pure computation over the tiles of one tree."""


class TreeDamaged(ToldToOperators):
    """The stored tree is damaged."""


class LogForked(ToldToOperators):
    """The database contradicts a checkpoint that was signed before."""


class LogPutBack(LogForked):
    """The database has lost checkpoints that were exported after it had stored them."""


_Newest = Mapping[str, SignedCheckpoint]


class TreeStore(Protocol):
    """Where the trees are kept; `gateway.store.evidence.tree` is one. All may raise NotReady."""

    async def trees(self) -> Mapping[str, OpenTree]:
        """Every organisation's tree as it is now; raises TreeDamaged if one is damaged."""
        ...

    async def sizes(self) -> Mapping[str, int]:
        """How many records each log has, whatever the state of its tree."""
        ...

    async def tree(self, organisation: str) -> OpenTree:
        """One log's tree as it is now; raises TreeDamaged."""
        ...

    async def ask(self, organisation: str, question: Question[_T]) -> _T:
        """Answer a question about one tree; raises TreeDamaged if tiles are missing."""
        ...

    async def leaves(self, organisation: str, size: int, until: int) -> bytes:
        """The leaf hashes of the numbers from `size` + 1 to `until`; raises TreeDamaged."""
        ...

    async def newest(self, organisation: str) -> SignedCheckpoint | None: ...

    async def newest_of_all(self) -> Mapping[str, SignedCheckpoint]:
        """The newest checkpoint of each log that was ever signed."""
        ...

    async def between(
        self, organisation: str, since_us: int, until_us: int, limit: int | None = None
    ) -> Sequence[SignedCheckpoint]:
        """Those signed in a period (without its end), oldest first; a year has a million."""
        ...

    async def covering(self, organisation: str, size: int) -> SignedCheckpoint | None:
        """The first checkpoint that covers at least this size."""
        ...

    async def lacking(self, moments: Collection[Moment]) -> Collection[Moment]:
        """Those moments whose checkpoint is not stored."""
        ...

    async def keep(self, checkpoints: Sequence[SignedCheckpoint]) -> Sequence[SignedCheckpoint]:
        """Store them, except those behind another worker's newer ones; returns the stored ones."""
        ...


class Integrator:
    """Checks signed checkpoints against the logs, and signs what grew or was signed long ago."""

    def __init__(
        self,
        trees: TreeStore,
        signer: Signer,
        files: CheckpointFiles,
        clock: Clock,
        *,
        log_name: str,
        period_s: float,
    ) -> None:
        self._trees = trees
        self._signer = signer
        self._files = files
        self._clock = clock
        self._log_name = log_name
        self._period_us = round(period_s * 1_000_000)
        self._log = logger()
        self._exported: dict[str, SignedCheckpoint] | None = None
        self._lines: list[Moment] = []
        """The moments of the last lines in each file, as last read."""
        self._kept = KeptStill(trees.lacking)
        self._signed_s: dict[str, float] = {}
        """When this process last signed each log, by the monotonic clock."""
        self.problem = ""
        """Why nothing may be added to the log any more; empty if all is well."""
        self._oldest_us: int | None = None
        """When the log that has waited longest was last signed."""

    def age_s(self) -> float | None:
        """Age of the newest checkpoint, for the log that waited longest; None before the first."""
        if self._oldest_us is None:
            return None
        return max(self._clock.utc_us() - self._oldest_us, 0) / 1e6

    async def check(self) -> None:
        """Compare every log with its newest checkpoints, in the database and outside of it.

        Raises:
            LogForked: a log is shorter than, or other than, what was signed before: an old backup
                was restored, or somebody rewrote it.
            TreeDamaged: a tree is damaged.
        """
        exported, newest = await self._newest_exported(), await self._trees.newest_of_all()
        trees = await self._trees.trees()
        for organisation in sorted({*trees, *exported, *newest}):
            tree = trees.get(organisation, OpenTree())
            known = exported.get(organisation), newest.get(organisation)
            await self._require_extends(organisation, tree, *known)

    async def sign_due(self) -> int:
        """Sign each log whose newest checkpoint has become old; returns how many that were.

        Raises:
            LogForked, TreeDamaged: nothing more was signed, and `problem` says why.
            LogPutBack: nothing was signed, nor will be until every process has been restarted.
        """
        with self._saying():
            return await self._sign_due()

    async def _sign_due(self) -> int:
        exported, newest = await self._signed_before()
        trees = await self._trees.trees()
        due = {name: tree for name, tree in trees.items() if self._is_due(name, newest.get(name))}
        now_us = self._clock.utc_us()
        await self._sign_all(due, exported, newest)
        others = [known.signed_us for name, known in newest.items() if name in trees.keys() - due]
        self._oldest_us = min([*others, now_us]) if trees else None
        await self._follow(trees, exported, newest)
        self.problem = ""
        return len(due)

    def _is_due(self, organisation: str, known: SignedCheckpoint | None) -> bool:
        if known is None:
            return True
        age_us = self._clock.utc_us() - known.signed_us
        if age_us >= 0:
            return age_us >= self._period_us
        # The clock was set back, perhaps by years: until it catches up, it does not tell ages.
        signed_s = self._signed_s.get(organisation)
        now_s = self._clock.monotonic_s()
        return signed_s is None or (now_s - signed_s) * 1_000_000 >= self._period_us

    async def sign_grown(self) -> int:
        """Sign each log that grew since its newest checkpoint, as the last act before stopping.

        Raises:
            LogForked, TreeDamaged: nothing more was signed, and `problem` says why.
            LogPutBack: nothing was signed, nor will be until every process has been restarted.
        """
        with self._saying():
            return await self._sign_grown()

    async def _sign_grown(self) -> int:
        exported, newest = await self._signed_before()
        grown = {}
        for organisation, tree in (await self._trees.trees()).items():
            known = newest.get(organisation)
            if known is None or known.size < tree.size:
                grown[organisation] = tree
        await self._sign_all(grown, exported, newest)
        return len(grown)

    async def sign_now(self, organisation: str, size: int) -> SignedCheckpoint | None:
        """A fresh checkpoint of one log, if it has `size` records.

        Raises:
            LogForked, TreeDamaged: as in `sign_due`; whether the database was put back is not
                checked.
        """
        exported, newest = await self._newest_exported(), await self._trees.newest(organisation)
        with self._saying():
            tree = await self._trees.tree(organisation)
            if tree.size < size:
                return None
            known = {} if newest is None else {organisation: newest}
            signed = await self._sign_all({organisation: tree}, exported, known)
        return signed[0] if signed else await self._trees.covering(organisation, size)

    async def _sign_all(
        self,
        trees: Mapping[str, OpenTree],
        exported: _Newest,
        newest: _Newest,
    ) -> list[SignedCheckpoint]:
        """A few logs at a time share a transaction and a turn of the exporting thread."""
        done: list[SignedCheckpoint] = []
        logs = list(trees.items())
        for start in range(0, len(logs), _AT_ONCE):
            signed = []
            for organisation, tree in logs[start : start + _AT_ONCE]:
                known = newest.get(organisation), exported.get(organisation)
                await self._require_extends(organisation, tree, *known)
                utc_us = max(self._clock.utc_us(), *map(_after, known))
                await self._copy_leaves(organisation, tree.size)
                signed.append(self._sign(organisation, tree, utc_us))
            kept = await self._trees.keep(signed)
            await asyncio.to_thread(self._export, kept)
            now_s = self._clock.monotonic_s()
            self._signed_s |= {each.organisation: now_s for each in kept}
            done += kept
        return done

    async def _follow(
        self, trees: Mapping[str, OpenTree], exported: _Newest, newest: _Newest
    ) -> None:
        """Export what others signed, too, so that this machine notices if the database loses it.

        If their own files are lost with it, only those here show that the database was put back.
        """
        others = []
        for name, known in newest.items():
            mine = exported.get(name)
            is_new = mine is None or (mine.size, mine.signed_us) < (known.size, known.signed_us)
            if is_new and name in trees:
                await self._require_extends(name, trees[name], known)
                await self._copy_leaves(name, known.size)
                others.append(known)
        if others:
            await asyncio.to_thread(self._export, others)

    async def _copy_leaves(self, organisation: str, size: int) -> None:
        """Copy the order of a log out of the database, as far as it is signed.

        A failure is logged, and the next checkpoint tries again; signing goes on.
        """
        files = self._files.leaves
        try:
            known = await asyncio.to_thread(files.reach, organisation)
            if not known:
                known = max(0, size - KEPT_AT_FIRST) // TILE_HASHES * TILE_HASHES
            while known < size:
                until = min(size, known + AT_ONCE)
                leaves = await self._trees.leaves(organisation, known, until)
                await asyncio.to_thread(files.append, organisation, known + 1, leaves)
                known = until
        except OSError as error:
            reason = error.strerror or type(error).__name__
            self._log.error(Event.AUDIT_CHECKPOINT_NOT_EXPORTED, reason=reason)

    @contextmanager
    def _saying(self) -> Iterator[None]:
        """Around code that signs: any fault it finds becomes the `problem`."""
        try:
            yield
        except (LogForked, TreeDamaged) as error:
            self.problem = str(error)
            raise

    def _sign(self, organisation: str, tree: OpenTree, utc_us: int) -> SignedCheckpoint:
        checkpoint = Checkpoint(
            origin_of(self._log_name, organisation), tree.size, tree.root(), utc_us
        )
        note = self._signer.sign(checkpoint)
        return SignedCheckpoint(organisation, utc_us, tree.size, checkpoint.root, note)

    async def _require_extends(
        self, organisation: str, tree: OpenTree, *signed: SignedCheckpoint | None
    ) -> None:
        for known in filter(None, signed):
            if tree.size < known.size:
                raise LogForked(
                    f"the log of {organisation} has {tree.size} records, but a checkpoint of "
                    f"{known.size} was signed: an old backup was restored, or records were removed"
                )
            if await self._root_at(organisation, tree, known.size) != known.root:
                raise LogForked(
                    f"the log of {organisation} is not the one that was signed at {known.size}"
                    " records"
                )

    async def _root_at(self, organisation: str, tree: OpenTree, size: int) -> bytes:
        if tree.size == size:
            return tree.root()  # An idle log is compared without asking the database.
        return await self._trees.ask(organisation, lambda at: subtree_root(0, size, at))

    async def _signed_before(self) -> tuple[_Newest, _Newest]:
        """The newest checkpoint of each log, outside of the database and in it.

        Always read before the trees: what another worker signs meanwhile is no contradiction.
        """
        exported, newest = await self._newest_exported(), await self._trees.newest_of_all()
        await self._require_kept(newest.values())
        return exported, newest

    async def require_kept(self) -> None:
        """Raises LogPutBack as `sign_due` does; callers of `sign_now` may ask for it."""
        with self._saying():
            await self._signed_before()

    async def _require_kept(self, newest: Collection[SignedCheckpoint]) -> None:
        """Raises LogPutBack if the database has lost what was exported here."""
        lost = await self._kept.lost(self._lines, [each.moment for each in newest])
        if lost:
            raise LogPutBack(
                f"the database lacks a checkpoint of {lost[0][0]} that was exported from it: it was"
                " put back to an earlier state. Stop every process and start anew"
            )

    async def _newest_exported(self) -> dict[str, SignedCheckpoint]:
        """Read again, since other workers export too; if that fails, as last read."""
        try:
            lines = await asyncio.to_thread(self._files.recent)
        except OSError:
            if self._exported is None:
                raise
        else:
            self._lines = [each.moment for each in lines]
            self._exported = furthest(lines)
        return self._exported

    def _export(self, signed: Sequence[SignedCheckpoint]) -> None:
        """Export outside the database; a failure is logged, and the next checkpoint tries again."""
        for each in signed:
            try:
                self._files.append(each)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                self._log.error(Event.AUDIT_CHECKPOINT_NOT_EXPORTED, reason=reason)
                return
            if self._exported is not None:
                self._exported[each.organisation] = each


def _after(newest: SignedCheckpoint | None) -> int:
    """Keeps the order of checkpoints even if the clock is set back.

    Also after those outside of the database: a database that was put back could otherwise sign what
    it lost again, for the same moment, and seem complete.
    """
    return newest.signed_us + 1 if newest else 0
