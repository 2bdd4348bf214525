"""What this worker has learned of its targets' health: breakers, speed and free capacity.

Nothing here forbids a permitted target for good: a broken or slow target is asked later than the
others. Only a full target turns a request away, and the lower service tiers first. All of it may be
lost.
"""

from collections.abc import Mapping
from math import log2

from msgspec import Struct
from msgspec.structs import replace

from gateway.dispatch.accounts import Accounts
from gateway.dispatch.breaker import Breakers, Position, judge
from gateway.errors import GatewrightError, UpstreamTimeout
from policies.facts import SERVICE_TIERS


class SpeedRules(Struct, frozen=True):
    """When a target counts as slower than it used to be."""

    samples_min: int = 20
    recent_weight: float = 0.3
    usual_weight: float = 0.02
    ratio: float = 3.0
    excess_s: float = 0.25
    slow_s: float = 30.0
    """How long it is then asked after the others."""


class Speed(Struct, frozen=True):
    """Time to first byte of one target's good answers; for streams, to their first content."""

    samples: int = 0
    recent_s: float = 0.0
    usual_s: float = 0.0
    slow_until_s: float = 0.0


_UNKNOWN = Speed()


def observe(state: Speed, first_byte_s: float, now_s: float, rules: SpeedRules) -> Speed:
    """The state after one more good answer."""
    if not state.samples:
        return Speed(1, first_byte_s, first_byte_s)
    recent = state.recent_s + rules.recent_weight * (first_byte_s - state.recent_s)
    usual = state.usual_s + rules.usual_weight * (first_byte_s - state.usual_s)
    is_slow = (
        state.samples >= rules.samples_min
        and recent > rules.ratio * usual
        and recent - usual > rules.excess_s
    )
    slow_until = now_s + rules.slow_s if is_slow else state.slow_until_s
    return Speed(state.samples + 1, recent, usual, slow_until)


class RoomRules(Struct, frozen=True):
    """How many calls of a target may be under way, and who may take the last places."""

    start: float = 512.0
    least: float = 8.0
    most: float = 4096.0
    shrink: float = 0.8
    shrink_every_s: float = 1.0
    shares: tuple[float, ...] = (1.0, 0.9, 0.5)
    """Shares of the room, per service tier in the order of `SERVICE_TIERS`."""


class Room(Struct, frozen=True):
    """Additive increase, multiplicative decrease: the limit follows what the target can take."""

    limit: float
    shrunk_s: float = float("-inf")


def grown(room: Room, under_way: int, rules: RoomRules) -> Room:
    """The room after a good answer, if it was used."""
    if under_way * 2 < room.limit:
        return room
    return replace(room, limit=min(room.limit + 1.0 / room.limit, rules.most))


def shrunk(room: Room, under_way: int, now_s: float, rules: RoomRules) -> Room:
    """The room after the target said, or showed by silence, that it is overloaded."""
    if now_s - room.shrunk_s < rules.shrink_every_s:
        return room
    limit = max(min(room.limit, under_way + 1) * rules.shrink, rules.least)
    return replace(room, limit=limit, shrunk_s=now_s)


class TargetHealth:
    """Everything a worker learns from its attempts, by target."""

    def __init__(
        self,
        breakers: Breakers | None = None,
        speed: SpeedRules | None = None,
        room: RoomRules | None = None,
    ) -> None:
        self.breakers = breakers or Breakers()
        self.accounts = Accounts()
        self._speed_rules = speed or SpeedRules()
        self._room_rules = room or RoomRules()
        self._speeds: dict[str, Speed] = {}
        self._rooms: dict[str, Room] = {}
        self._under_way: dict[str, int] = {}
        self._unused = Room(self._room_rules.start)
        self._told_ms: dict[str, int] = {}
        self._shares = dict(zip(SERVICE_TIERS, self._room_rules.shares, strict=True))

    def began(self, target: str) -> None:
        """A call is under way; `ended` must follow, however it ends."""
        self._under_way[target] = self._under_way.get(target, 0) + 1

    def ended(
        self, target: str, now_s: float, first_byte_s: float, error: BaseException | None
    ) -> None:
        """A call is over. An error that is not one of ours says nothing about the target."""
        under_way = self._under_way[target] = max(self._under_way.get(target, 0) - 1, 0)
        if error is not None and not isinstance(error, GatewrightError):
            return
        self.breakers.record(target, now_s, error)
        room = self._rooms.get(target, self._unused)
        if error is None:
            state = self._speeds.get(target, _UNKNOWN)
            self._speeds[target] = observe(state, first_byte_s, now_s, self._speed_rules)
            self._rooms[target] = grown(room, under_way, self._room_rules)
        elif judge(error) == "throttled" or isinstance(error, UpstreamTimeout):
            self._rooms[target] = shrunk(room, under_way, now_s, self._room_rules)

    def has_room(self, target: str, service_tier: str) -> bool:
        """Whether one more call of this tier fits."""
        limit = self._rooms.get(target, self._unused).limit
        return self._under_way.get(target, 0) < limit * self._shares.get(service_tier, 1.0)

    def asks(self, target: str, now_s: float) -> None:
        """The target is asked now: if it was broken, as its trial, for which others wait.

        A target that is only behind another one in a plan gets no trial.
        """
        self.breakers.permits(target, now_s)

    def place(self, target: str, now_s: float, account: str = "") -> int:
        """0 for a healthy target, higher for one that is asked later; `account` is its provider."""
        if not self.breakers.would_permit(target, now_s):
            return 2
        if self.accounts.is_paused(account, now_s):
            return 2
        state = self._speeds.get(target)
        return 1 if state is not None and now_s < state.slow_until_s else 0

    def position(self, target: str, now_s: float, account: str = "") -> Position:
        """The position of the target's breaker; open as well while its account is not served."""
        if self.accounts.is_paused(account, now_s):
            return "open"
        return self.breakers.position(target, now_s)

    def first_token_ms(self) -> Mapping[str, int]:
        """How fast targets were lately, on a coarse scale that changes only with a real change."""
        for target, state in self._speeds.items():
            told = self._told_ms.get(target, 0)
            measured = max(state.recent_s * 1e3, 1.0)
            if not told or abs(log2(measured / told)) > 0.5:  # noqa: PLR2004 - a factor of 1.4
                self._told_ms[target] = round(2.0 ** (round(log2(measured) * 2) / 2))
        return dict(self._told_ms)
