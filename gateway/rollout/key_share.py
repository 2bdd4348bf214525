"""How many keys a share gives to a canary: with few keys it may be none. Pure."""

from collections.abc import Collection
from math import floor
from typing import Final

from msgspec import Struct

from gateway.rollout.versions import PERCENT, State, is_taken
from policies.ordering import share


ROLLED_OUT: Final[tuple[State, ...]] = ("approved", "canary", "shadow")
"""Versions that are canaries, or can become one."""
KEYS_COUNTED_MAX: Final = 20_000
"""With more keys than this even the smallest share has some."""
_STEPS = 10
"""A share is chosen in tenths of a percent."""


class KeyShare(Struct, frozen=True):
    """What a share means for the keys of a level."""

    keys: int
    taken: int
    first_percent: float
    """The share from which on the first of them is included; 0 without keys."""
    all_percent: float
    """The share from which on all of them are."""


def place_below(level: str) -> tuple[str, str, str]:
    """Organisation, workspace and project of a level's keys; an empty name stands for all."""
    names = level.partition(":")[2].split("/")
    organisation, workspace, project = [*names, "", "", ""][:3]
    return organisation, workspace, project


def key_share(version_digest: str, key_ids: Collection[str], percent: float) -> KeyShare:
    """Counts the keys that a canary for `percent` of them gets."""
    shares = [share(version_digest, key_id) for key_id in key_ids]
    taken = sum(is_taken(version_digest, key_id, percent) for key_id in key_ids)
    first, last = (_step_above(each) for each in (min(shares, default=0), max(shares, default=0)))
    return KeyShare(len(shares), taken, first, last) if shares else KeyShare(0, 0, 0.0, 0.0)


def _step_above(drawn: float) -> float:
    return min(floor(drawn * PERCENT * _STEPS + 1) / _STEPS, PERCENT)
