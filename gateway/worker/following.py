"""Follows changes from outside and publishes them: keys, policies, limits, targets.

Others change these in the database, in files and at the upstreams. Each change found is one swap of
the snapshot, so that no request sees half of it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Protocol

from gateway.assembly.places import Rotation
from gateway.caching.response_cache import ResponseCache
from gateway.clock import Clock
from gateway.dispatch.health import TargetHealth
from gateway.identity import KeyTable, key_table
from gateway.money.rates import Rates
from gateway.snapshot import SnapshotKeeper
from gateway.store.engine import Database
from gateway.store.erasure.erased_wholly import ErasedWholly
from gateway.store.identity.keys import KeyStore
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.policies.documents import PolicyStore
from gateway.store.revisions import RevisionWatcher
from gateway.telemetry import Event, logger
from gateway.worker.presence import Presence
from gateway.worker.probing import Prober


class Obeying(Protocol):
    """Carries out at once what others ordered in the database."""

    async def obey(self) -> None:
        """Raises NotReady."""
        ...


class ErasedAnswers:
    """Keeps repeated answers from outliving the erasure of everything an organisation said.

    What names an end user is never kept, so other erasures have nothing to reach.
    """

    def __init__(self, database: Database, cache: ResponseCache, clock: Clock) -> None:
        self._erased, self._cache, self._clock = ErasedWholly(database), cache, clock
        self._known_us: dict[str, int] | None = None
        """By organisation, the time of the last erasure by the clock of whoever carried it out."""
        self._until_us: dict[str, int] = {}

    async def obey(self) -> None:
        """Forget what was kept before an erasure, and do not repeat shared answers from before it.

        An erasure that is noticed now happened before now, whatever the other's clock says. For
        those before the start nothing is kept here, so only the other's clock counts.
        """
        erased_us = dict(await self._erased.times_us())
        known_us = erased_us if self._known_us is None else self._known_us
        now_us = self._clock.utc_us()
        anew = [whose for whose, at_us in erased_us.items() if known_us.get(whose) != at_us]
        heard_us = {whose: max(erased_us[whose], now_us) for whose in anew}
        self._until_us = erased_us | self._until_us | heard_us
        self._known_us = erased_us
        self._cache.forget_erased(self._until_us, anew)


class Following:
    """Keys, policies, limits, credentials and drains, as the database has them."""

    def __init__(  # noqa: PLR0913 - one argument for each thing that is followed
        self,
        *,
        watcher: RevisionWatcher,
        snapshots: SnapshotKeeper,
        keys: KeyStore,
        policies: PolicyStore,
        ledger: LeasedLedger,
        rates: Rates,
        rate_limits: RateLimitTable,
        rotation: Rotation,
        obeyed: Sequence[Obeying],
        presence: Presence,
        changed: asyncio.Event,
    ) -> None:
        """`changed` is set with each change that was found, for those who look at the rest.

        `obeyed` are drains, and other orders that are carried out here at once.
        """
        self._watcher = watcher
        self._snapshots = snapshots
        self._keys = keys
        self._policies = policies
        self._ledger = ledger
        self._rates = rates
        self._rate_limits = rate_limits
        self._rotation = rotation
        self._obeyed = obeyed
        self._presence = presence
        self._changed = changed
        self._whole = KeyTable(-1, {})
        """The keys of the last change that has been applied completely."""
        self._log = logger()

    async def publish(self) -> None:
        """Publish everything as the database has it now, read after its counter.

        Keys and policies are one swap; no request sees one without the other. What was revoked is
        dead at once; a key that is new here waits until its budget and rate limits are known.
        """
        keys, levels = await self._keys.table(), await self._policies.levels()
        former = self._whole.records
        known = (each for each in keys.records.values() if each.key_id in former)
        table = key_table(keys.revision, known, keys.steadily_us)
        self._snapshots.publish(table, levels)
        await self._ledger.refresh()
        self._rates.publish(await self._rate_limits.all())
        self._snapshots.publish(keys, levels)
        self._presence.published(keys.revision)
        for each in self._obeyed:
            await each.obey()
        self._whole = keys

    async def follow(self) -> None:
        """Publish whenever the database reports a change; ends only with the worker.

        A change that was broken off in the middle is started again.
        """
        async with aclosing(self._watcher.changes(self._whole.revision)) as changes:
            async for _ in changes:
                await self.publish()
                # Not awaited: a place of secrets that hangs would hold back the next revocation.
                self._rotation.wake.set()
                self._changed.set()
                self._log.info(Event.SNAPSHOT_PUBLISHED, version=self._snapshots.revision)


class Board:
    """What policy knows about the targets: probed, published, and kept for replays."""

    def __init__(
        self,
        prober: Prober,
        snapshots: SnapshotKeeper,
        health: TargetHealth,
        policies: PolicyStore,
    ) -> None:
        self._prober = prober
        self._snapshots = snapshots
        self._health = health
        self._policies = policies
        self._kept = ""
        self._kept_documents: set[str] = set()

    async def probe(self) -> None:
        """Ask every target for its state, and publish what changed."""
        await self._prober.probe()
        if self._snapshots.policies.orders_by_speed:
            self._prober.measured(self._health.first_token_ms())
        await self.keep()

    async def keep(self) -> None:
        """Keep what policy knows about the targets, so that its decisions can be replayed.

        Documents composed of several levels are kept too: versions are kept only with their level.
        """
        board = self._snapshots.board
        if board.digest != self._kept:
            await self._policies.boards.keep(board.digest, board.facts_for(None))
            self._kept = board.digest
        unkept = self._snapshots.policies.unkept
        for digest, document in list(unkept.items()):
            if digest not in self._kept_documents:
                await self._policies.keep(document)
                self._kept_documents.add(digest)
            unkept.pop(digest, None)
