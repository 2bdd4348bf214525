"""One immutable configuration snapshot per request; publish = build anew, check, swap.

The keeper holds what a worker may lose at any moment without giving a wrong answer: keys, policy,
targets. It fetches nothing itself: the worker loop publishes what it has learned.
"""

import hashlib
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from gateway.errors import NotReady
from gateway.identity import KeyTable
from gateway.rollout.versions import Level, PolicySet
from gateway.routing.board import TargetBoard


STALE_AFTER_S = 60.0
"""A worker that could not confirm its keys for this long refuses service."""


class Snapshot(Struct, frozen=True):
    """Everything that may change while the process runs, as one request sees it."""

    digest: str
    keys: KeyTable
    policies: PolicySet
    board: TargetBoard


class SnapshotKeeper:
    """The current snapshot, and whether it may still be trusted."""

    def __init__(
        self,
        policies: PolicySet,
        board: TargetBoard,
        age_s: Callable[[], float],
    ) -> None:
        """`policies` govern until others are published.

        `age_s` gives the seconds since the database last confirmed what is published here.
        """
        self._first = self.policies = policies
        self._board = board
        self._keys: KeyTable | None = None
        self._current: Snapshot | None = None
        self.age_s = age_s

    @property
    def board(self) -> TargetBoard:
        return self._board

    @property
    def revision(self) -> int:
        """The revision of the keys in use; -1 before the first."""
        return self._keys.revision if self._keys is not None else -1

    def current(self) -> Snapshot:
        """The snapshot for a request that arrives now.

        Raises:
            NotReady: there is none yet, or it could not be confirmed for a minute.
        """
        if self._current is None:
            raise NotReady("This worker has no configuration yet.", retry_after_s=1.0)
        if self.age_s() > STALE_AFTER_S:
            raise NotReady("This worker's configuration is stale.", retry_after_s=5.0)
        return self._current

    def publish(self, keys: KeyTable, levels: Mapping[str, Level]) -> None:
        """Take in a change: keys and policies are swapped together."""
        self._keys = keys
        if levels != self.policies.levels:
            first = self._first
            self.policies = PolicySet(first.base, levels, first.visible_headers, first.unkept)
        self._swap(keys)

    def publish_board(self, board: TargetBoard) -> None:
        """A target became available or unavailable."""
        self._board = board
        if self._keys is not None:
            self._swap(self._keys)

    def _swap(self, keys: KeyTable) -> None:
        board = self._board
        named = msgspec.json.encode(
            [keys.revision, self.policies.digests, sorted(board.targets), board.unavailable]
        )
        digest = hashlib.sha256(named).hexdigest()[:32]
        self._current = Snapshot(digest, keys, self.policies, board)
