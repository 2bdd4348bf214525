"""Chooses the member of a pool that will answer soonest, within bounds that keep the pool even.

A cost, not a hit ratio: estimated milliseconds until the first token, after what the member holds
of the prompt is left out. Bounds come first: nobody gets more than 1.25 times the mean, a tenant
stays within its shard while the shard is well, and what killed two members is not tried on a third.
"""

from collections.abc import Mapping, Sequence
from math import ceil

from gateway.errors import PoolBusy, RequestInvalid
from gateway.pool.members import Load, Member, PoolRules
from gateway.pool.prefixes import BLOCK_BYTES, PrefixIndex, Prompt
from policies.facts import SERVICE_TIERS
from policies.ordering import share


DEATHS_MAX = 2
QUARANTINED_MAX = 10_000
_ODD = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
RETRY_AFTER_S: Mapping[str, float] = dict(zip(SERVICE_TIERS, (1.0, 2.0, 10.0), strict=True))
CALLS_MAX: Mapping[str, float] = dict(zip(SERVICE_TIERS, (1.0, 0.9, 0.5), strict=True))
"""Share of a pool's places that each service tier may fill."""


class Router:
    """The members of one pool and what they hold."""

    def __init__(
        self,
        members: Sequence[Member],
        rules: PoolRules | None = None,
        *,
        calls_max: int = 1_024,
    ) -> None:
        """`calls_max` is how many calls one member may have under way."""
        self.members = tuple(members)
        self.rules = rules or PoolRules()
        self.prefixes = PrefixIndex([member.name for member in members])
        self._calls_max = calls_max
        self._salts = [int(share(member.name) * 2**62) for member in members]
        self._has_long = any(member.long_context for member in members)
        self._shards: dict[str, frozenset[int]] = {}
        self._deaths: dict[int, tuple[frozenset[str], float]] = {}

    def choose(
        self,
        prompt: Prompt,
        output_tokens: float,
        now_s: float,
        *,
        tenant: str = "",
        tier: str = "standard",
        avoid: frozenset[str] = frozenset(),
    ) -> Load:
        """The member that gets a prompt; its load counts from now on, and `end` gives it back.

        Raises:
            PoolBusy: no member is up, or the pool is full for this tier.
            RequestInvalid: this prompt was under way when two members died.
        """
        killed = self._killed(prompt.fingerprint, now_s)
        places = self._places(prompt.tokens, tenant, avoid | killed)
        if not places:
            raise PoolBusy("No engine of the pool is up.", retry_after_s=2.0)
        places = self._within_bound(places, now_s, tier)
        depths = self.prefixes.depths(prompt.blocks, now_s)
        best, best_cost, best_left = None, float("inf"), prompt.tokens
        held_tokens = BLOCK_BYTES / self.rules.bytes_per_token
        home = self._home(prompt, places) if prompt.blocks else -1
        for place in places:
            member = self.members[place]
            depth: float = depths[place]
            if place == home:
                depth = max(depth, self.rules.home_credit * len(prompt.blocks))
            left = max(prompt.tokens - depth * held_tokens, 1.0)
            cost = member.wait_ms(left)
            if cost < best_cost or (cost == best_cost and best and member.calls < best.calls):
                best, best_cost, best_left = member, cost, left
        assert best is not None
        load = Load(best, prompt.tokens, best_left, output_tokens, now_s)
        best.begin(load)
        self.prefixes.sent(best.name, prompt.blocks, now_s)
        return load

    def died(self, prompt: Prompt, member: Member, now_s: float) -> None:
        """A member died with this prompt under way: its cache is gone, the prompt is suspect."""
        member.down()
        self.prefixes.cleared(member.name)
        names, _ = self._deaths.get(prompt.fingerprint, (frozenset(), 0.0))
        if len(self._deaths) >= QUARANTINED_MAX:
            del self._deaths[next(iter(self._deaths))]
        until_s = now_s + self.rules.quarantine_s
        self._deaths[prompt.fingerprint] = (names | {member.name}, until_s)

    def _killed(self, fingerprint: int, now_s: float) -> frozenset[str]:
        """Members that died with this prompt."""
        known = self._deaths.get(fingerprint)
        if known is None:
            return frozenset()
        names, until_s = known
        if now_s >= until_s:
            del self._deaths[fingerprint]
            return frozenset()
        if len(names) >= DEATHS_MAX:
            raise RequestInvalid("Two engines died with this request; it is not tried again.")
        return names

    def _places(self, prompt_tokens: float, tenant: str, avoid: frozenset[str]) -> list[int]:
        """Members that may get it: the tenant's shard, or everybody when the shard is down."""
        is_long = prompt_tokens >= self.rules.long_prompt_tokens
        up = [
            place
            for place, member in enumerate(self.members)
            if member.takes(is_long=is_long, has_long=self._has_long) and member.name not in avoid
        ]
        shard = self._shard(tenant)
        return [place for place in up if place in shard] or up

    def _shard(self, tenant: str) -> frozenset[int]:
        """A tenant's own choice of members, by rendezvous: few tenants share all of theirs."""
        known = self._shards.get(tenant)
        if known is None:
            count = len(self.members)
            size = count if not tenant else max(min(2, count), ceil(count * self.rules.shard_share))
            ranked = sorted(range(count), key=lambda at: share(tenant, self.members[at].name))
            if len(self._shards) >= QUARANTINED_MAX:
                self._shards.clear()
            known = self._shards[tenant] = frozenset(ranked[:size])
        return known

    def _home(self, prompt: Prompt, places: Sequence[int]) -> int:
        """The member a prefix belongs to when nobody remembers it, by rendezvous.

        Engines keep prefixes longer than we believe they do: asked at the same place again, an old
        one is often still there, and a new one has a place where it will be looked for.
        """
        first = prompt.blocks[0]
        return max(places, key=lambda place: ((first ^ self._salts[place]) * _ODD) & _MASK)

    def _within_bound(self, places: list[int], now_s: float, tier: str) -> list[int]:
        """Those with less than their share; a member that just came back has a smaller one."""
        members = self.members
        under_way = sum(members[place].calls for place in places)
        ceiling = self._calls_max * CALLS_MAX.get(tier, 1.0)
        if under_way >= ceiling * len(places):
            raise PoolBusy(
                f"The pool is full for the service tier {tier}.",
                retry_after_s=RETRY_AFTER_S.get(tier, 1.0),
            )
        shares = {
            place: members[place].weight * members[place].ready_share(now_s) for place in places
        }
        each = self.rules.bound * (under_way + 1) / sum(shares.values())
        slack = self.rules.slack_calls
        within = [
            place
            for place in places
            if members[place].calls < max(ceil(each * shares[place]), 1) + slack * shares[place]
        ]
        return within or places
