"""Chooses the member of a pool that will answer soonest, within bounds that keep the pool even.

It compares costs, not hit ratios: the estimated milliseconds until the first token, less the part
of the prompt that the member holds. Bounds come first: no member gets more than 1.25 times the mean
load, a tenant stays within its shard while the shard is healthy, and a prompt that killed two
members is not tried on a third.
"""

from collections.abc import Mapping, Sequence
from math import ceil, exp

from gateway.errors import PoolBusy, RequestInvalid
from gateway.pool.members import Load, Member, PoolRules
from gateway.pool.prefixes import BLOCK_BYTES, PrefixIndex, Prompt
from policies.facts import SERVICE_TIERS
from policies.ordering import share


DEATHS_MAX = 2
QUARANTINED_MAX = 10_000
_ODD = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
WORK_LOOK_S = 0.25
_NEVER = float("inf")
RETRY_AFTER_S: Mapping[str, float] = dict(zip(SERVICE_TIERS, (1.0, 2.0, 10.0), strict=True))
CALLS_MAX: Mapping[str, float] = dict(zip(SERVICE_TIERS, (1.0, 0.9, 0.5), strict=True))
"""Share of a pool's places that each service tier may fill."""


class Router:
    """The members of one pool and the contents of their caches."""

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
        self._long_from_tokens = self.rules.long_prompt_tokens
        self._shards: dict[str, frozenset[int]] = {}
        self._deaths: dict[int, tuple[frozenset[str], float]] = {}
        self._decay_s = self._mean_work = 0.0
        self._none = [0.0] * len(self.members)

    def choose(
        self,
        prompt: Prompt,
        output_tokens: float,
        now_s: float,
        *,
        tenant: str = "",
        tier: str = "standard",
        avoid: frozenset[str] = frozenset(),
        rather_not: frozenset[str] = frozenset(),
    ) -> Load:
        """The member that gets a prompt; its load counts from now on, and `end` gives it back.

        Members in `avoid` never get it, those in `rather_not` only if nobody else can.

        Raises:
            PoolBusy: no member is up, or the pool is full for this tier.
            RequestInvalid: this prompt was under way when two members died.
        """
        if self._deaths and (killed := self._killed(prompt.fingerprint, now_s)):
            avoid |= killed
        places = self._places(prompt.tokens, tenant, avoid | rather_not)
        if not places and rather_not:
            places = self._places(prompt.tokens, tenant, avoid)
        if not places:
            raise PoolBusy("No engine of the pool is up.", retry_after_s=2.0)
        places = self._within_bound(places, now_s, tier)
        best, left = self._soonest(places, prompt, now_s)
        load = Load(best, prompt.tokens, left, output_tokens, now_s)
        best.begin(load)
        self.prefixes.sent(best.name, prompt.blocks, now_s)
        return load

    def _soonest(self, places: Sequence[int], prompt: Prompt, now_s: float) -> tuple[Member, float]:
        """The member with the least estimated cost, and how many tokens it has to read.

        This loop runs for every member and every request.
        """
        rules, members, blocks, tokens = self.rules, self.members, prompt.blocks, prompt.tokens
        depths: Sequence[float] = self.prefixes.depths(blocks, now_s) if blocks else self._none
        if now_s >= self._decay_s:
            self._forget_work(now_s)
        mean_work, excess_cost = self._mean_work, rules.excess_cost
        reading_cost = 1.0 + rules.displacement
        block_tokens = BLOCK_BYTES / rules.bytes_per_token
        home, home_depth = -1, 0.0
        if blocks and max(depths) < (home_depth := rules.home_credit * len(blocks)):
            home = self._home(blocks[0], places)
        best, best_wait, best_left = members[places[0]], _NEVER, tokens
        for place in places:
            member, depth = members[place], depths[place]
            if place == home and depth < home_depth:
                depth = home_depth
            left = tokens - depth * block_tokens
            left = max(left, 1.0)
            behind = member.backlog_tokens + reading_cost * left
            if member.work_tokens > mean_work:
                behind += excess_cost * (member.work_tokens - mean_work)
            wait = behind / (member.prefill_per_s * member.weight)
            if wait < best_wait or (wait == best_wait and member.calls < best.calls):
                best, best_wait, best_left = member, wait, left
        return best, best_left

    def sort_by_window(self, windows: Mapping[str, int], shortest: int) -> None:
        """Reserve members with a window longer than the shortest for the prompts that need it."""
        for member in self.members:
            if window := windows.get(member.name, 0):
                member.long_context = window > shortest
        self._has_long = any(member.long_context for member in self.members)
        if self._has_long:
            self._long_from_tokens = min(self.rules.long_prompt_tokens, shortest)

    def lost(self, member: Member) -> None:
        """A member cannot be reached: it gets nothing until seen again, with an empty cache."""
        member.down()
        self.prefixes.cleared(member.name)

    def died(self, prompt: Prompt, member: Member, now_s: float) -> None:
        """A member died with this prompt under way: its cache is gone, the prompt is suspect."""
        self.lost(member)
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
        """Members that may get it: the tenant's shard, or all if the shard is down."""
        up = [
            place
            for place, member in enumerate(self.members)
            if member.is_up and not member.is_draining and member.name not in avoid
        ]
        if self._has_long:
            up = self._fitting(up, prompt_tokens)
        shard = self._shard(tenant)
        if len(shard) == len(self.members):
            return up
        return [place for place in up if place in shard] or up

    def _fitting(self, up: list[int], prompt_tokens: float) -> list[int]:
        """Members for long contexts help out if no other is left, but not the reverse."""
        long = [place for place in up if self.members[place].long_context]
        if prompt_tokens >= self._long_from_tokens:
            return long
        return [place for place in up if not self.members[place].long_context] or long

    def _shard(self, tenant: str) -> frozenset[int]:
        """A tenant's own members, by rendezvous hashing: few tenants share all of theirs."""
        known = self._shards.get(tenant)
        if known is None:
            count = len(self.members)
            size = count if not tenant else max(min(2, count), ceil(count * self.rules.shard_share))
            ranked = sorted(range(count), key=lambda at: share(tenant, self.members[at].name))
            if len(self._shards) >= QUARANTINED_MAX:
                self._shards.clear()
            known = self._shards[tenant] = frozenset(ranked[:size])
        return known

    def _forget_work(self, now_s: float) -> None:
        """Let recent work fade; a few times a second is often enough."""
        passed_s = now_s - self._decay_s + WORK_LOOK_S
        fade = exp(-passed_s / self.rules.work_kept_s)
        for member in self.members:
            member.work_tokens *= fade
        self._mean_work = sum(each.work_tokens for each in self.members) / len(self.members)
        self._decay_s = now_s + WORK_LOOK_S

    def _home(self, first: int, places: Sequence[int]) -> int:
        """The home of an unknown prefix: of two by rendezvous hashing, the one with less work.

        Engines keep prefixes longer than we assume: an old prefix is often still at its former
        place, and all workers look for it at the same two. The one with less recent work has
        dropped less of its cache, and loses least by a new prefix.
        """
        salts, home, second, highest, next_highest = self._salts, -1, -1, -1, -1
        for place in places:
            drawn = ((first ^ salts[place]) * _ODD) & _MASK
            if drawn > highest:
                second, next_highest = home, highest
                home, highest = place, drawn
            elif drawn > next_highest:
                second, next_highest = place, drawn
        members = self.members
        if second >= 0 and members[second].work_tokens < members[home].work_tokens:
            return second
        return home

    def _within_bound(self, places: list[int], now_s: float, tier: str) -> list[int]:
        """Members with less than their share; one that just came back has a smaller share."""
        members = self.members
        rules = self.rules
        warm_since_s = now_s - rules.slow_start_s
        under_way = most = 0
        is_even = True
        for place in places:
            member = members[place]
            calls = member.calls
            under_way += calls
            most = max(most, calls)
            if member.weight != 1.0 or member.up_since_s > warm_since_s:
                is_even = False
        if under_way >= self._calls_max * CALLS_MAX.get(tier, 1.0) * len(places):
            raise PoolBusy(
                f"The pool is full for the service tier {tier}.",
                retry_after_s=RETRY_AFTER_S.get(tier, 1.0),
            )
        slack = rules.slack_calls
        if is_even:
            limit = ceil(rules.bound * (under_way + 1) / len(places)) + slack
            if most < limit:
                return places
            return [place for place in places if members[place].calls < limit] or places
        shares = [members[at].weight * members[at].ready_share(now_s) for at in places]
        each = rules.bound * (under_way + 1) / sum(shares)
        within = [
            place
            for place, own in zip(places, shares, strict=True)
            if members[place].calls < max(ceil(each * own), 1) + slack * own
        ]
        return within or places
