"""Orders the targets that are left, by ranks, shares and the price of the request.

Whatever depends on the target alone is worked out once for a set of targets; only prices and shares
are computed per request. A share is drawn by a hash of who asks, never by chance: the same key gets
the same answer on every worker and in every replay.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from math import log
from typing import Final, Literal, TypeAlias

import msgspec

from policies.document import Canary, Preference, Sticky
from policies.facts import TIERS, Facts, TargetFacts, tier_rank


# Assumed length of an answer when the request does not bound it; only used to compare prices.
OUTPUT_TOKENS_ASSUMED: Final = 1_000

IN_HOUSE_FIRST: Final = "in_house_first"
CHEAPEST: Final = "cheapest"
FASTEST: Final = "fastest"
ORDERINGS: Final = (*TIERS, CHEAPEST, FASTEST, IN_HOUSE_FIRST)

_PERCENT: Final = 100
_DRAWS: Final = 2.0**64

Rank: TypeAlias = Callable[[TargetFacts], int]
Place: TypeAlias = tuple[int, ...]


class Prepared(msgspec.Struct, frozen=True):
    """Targets with their ranks; `fixed` is the order if the ranks alone decide it."""

    rows: tuple[tuple[Place, Place, TargetFacts], ...]
    fixed: tuple[TargetFacts, ...] | None


class Ordering(msgspec.Struct, frozen=True):
    """The ranks before the price, whether it counts, the ranks after it, and shares of traffic."""

    name: str
    before: tuple[Rank, ...]
    after: tuple[Rank, ...] = ()
    weights: tuple[tuple[str, int], ...] = ()
    canary: Canary | None = None
    sticky: Sticky = "key"

    def prepare(self, targets: Sequence[TargetFacts]) -> Prepared:
        """Whatever can be worked out for these targets before a request is known."""
        rows = tuple(
            (
                tuple([rank(target) for rank in self.before]),
                tuple([rank(target) for rank in self.after]),
                target,
            )
            for target in targets
        )
        is_fixed = len({row[0] for row in rows}) == len(rows)
        fixed = tuple(row[2] for row in sorted(rows, key=_first)) if is_fixed else None
        return Prepared(rows, fixed)

    def sort(self, prepared: Prepared, facts: Facts) -> tuple[TargetFacts, ...]:
        """The targets in the order for this request."""
        ordered = prepared.fixed
        if ordered is None:
            keys = [
                (before, price_order(facts, target), after, target.name)
                for before, after, target in prepared.rows
            ]
            # Names are unique, so the places never decide.
            places = sorted(range(len(keys)), key=keys.__getitem__)
            ordered = tuple([prepared.rows[place][2] for place in places])
        if self.weights:
            ordered = self._weighted(ordered, facts)
        return ordered if self.canary is None else self._with_canary(ordered, self.canary, facts)

    def _weighted(self, ordered: tuple[TargetFacts, ...], facts: Facts) -> tuple[TargetFacts, ...]:
        """Weighted targets first, drawn by rendezvous: a lost target moves only its own share."""
        scores: dict[str, float] = {}
        who = sticky_value(facts, self.sticky)
        for name, weight in self.weights:
            # -ln(u)/w is the least with probability w/sum(w) (Efraimidis and Spirakis, 2006).
            scores[name] = -log(share(self.name, name, who)) / weight
        last = float("inf")
        return tuple(sorted(ordered, key=lambda target: scores.get(target.name, last)))

    def _with_canary(
        self, ordered: tuple[TargetFacts, ...], canary: Canary, facts: Facts
    ) -> tuple[TargetFacts, ...]:
        """The canary first for its share of the askers, last for everybody else."""
        who = sticky_value(facts, self.sticky)
        is_chosen = share(self.name, canary.target, who) * _PERCENT < canary.percent
        rest = tuple([target for target in ordered if target.name != canary.target])
        here = tuple([target for target in ordered if target.name == canary.target])
        return here + rest if is_chosen else rest + here


def make_ordering(preference: Preference, default_order: tuple[str, ...]) -> Ordering:
    """Named targets first; then each word of the order, the tiers together as one ladder."""
    order = preference.order or default_order
    before: list[Rank] = []
    after: list[Rank] = []
    ranks = before
    if preference.targets:
        ranks.append(_named_rank(preference.targets))
    tiers = tuple(word for word in order if word in TIERS)
    for word in order:
        if word == CHEAPEST:
            ranks = after
        elif word == FASTEST:
            ranks.append(_speed)
        elif word == IN_HOUSE_FIRST:
            ranks.append(_house)
        elif word == tiers[0]:
            ranks.append(_tier_rank(tiers))
    return Ordering(
        preference.name,
        tuple(before),
        tuple(after),
        tuple(sorted(preference.weights.items())),
        preference.canary,
        preference.sticky,
    )


def price_order(facts: Facts, target: TargetFacts) -> int:
    """Expected price of the request at this target in pico-dollars, for comparison only."""
    output_tokens = facts.max_output_tokens
    if output_tokens is None:
        output_tokens = OUTPUT_TOKENS_ASSUMED
    return (
        facts.input_tokens_estimate * target.input_price_microusd_per_mtok
        + output_tokens * target.output_price_microusd_per_mtok
    )


def warm_first(targets: tuple[TargetFacts, ...], facts: Facts) -> tuple[TargetFacts, ...]:
    """Puts the target with the conversation in its cache first, if the request costs no more."""
    warm = next((each for each in targets if each.name == facts.warm_target), None)
    if warm is None or warm is targets[0] or warm.cache_read_price_microusd_per_mtok is None:
        return targets
    cached = min(facts.warm_tokens, facts.input_tokens_estimate)
    saved = warm.input_price_microusd_per_mtok - warm.cache_read_price_microusd_per_mtok
    if price_order(facts, warm) - cached * saved > price_order(facts, targets[0]):
        return targets
    return (warm, *(each for each in targets if each is not warm))


def unsealing_first(targets: tuple[TargetFacts, ...], sealed: str) -> tuple[TargetFacts, ...]:
    """Puts targets first that can read the conversation's sealed reasoning; else no change.

    For all other targets it is dropped, and they reason from the beginning.
    """
    able = tuple(each for each in targets if each.seals == sealed)
    if not able or len(able) == len(targets):
        return targets
    return able + tuple(each for each in targets if each.seals != sealed)


def sticky_value(facts: Facts, sticky: Literal["key", "project", "workspace"]) -> str:
    """The value that identifies an asker."""
    if sticky == "key":
        return facts.key_id
    place = f"{facts.organisation}/{facts.workspace}"
    return place if sticky == "workspace" else f"{place}/{facts.project}"


def share(*names: str) -> float:
    """A number above 0 and at most 1: the same for the same names, and evenly spread."""
    text = "\x00".join(names).encode("utf-8", "replace")
    return (int.from_bytes(blake2b(text, digest_size=8).digest()) + 1) / _DRAWS


def _first(row: tuple[Place, Place, TargetFacts]) -> Place:
    return row[0]


def _house(target: TargetFacts) -> int:
    return 0 if target.in_house else 1


def _speed(target: TargetFacts) -> int:
    """Measured time to first token; targets that were never measured come last."""
    return target.first_token_ms or 10**9


def _named_rank(targets: tuple[str, ...]) -> Rank:
    places = {name: place for place, name in enumerate(targets)}
    return lambda target: places.get(target.name, len(places))


def _tier_rank(tiers: tuple[str, ...]) -> Rank:
    """The listed tiers in their order, then the others from the cheapest up."""
    places = {tier: place for place, tier in enumerate(tiers)}
    return lambda target: places.get(target.tier, len(TIERS) + tier_rank(target.tier))
