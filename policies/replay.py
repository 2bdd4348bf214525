"""Replays recorded requests under a document: the recorded version, or a draft.

A recorded request is its facts, what was decided, and what it cost. Replaying a draft is a `for`
loop over them; replaying the recorded version gives the recorded decisions back.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from policies.decide import decide
from policies.decision import Decision
from policies.facts import Facts
from policies.ordering import OUTPUT_TOKENS_ASSUMED
from policies.program import PolicyDocument


EXAMPLES_MAX: Final = 5
_PER_MTOK: Final = 1_000_000


class Recorded(msgspec.Struct, frozen=True):
    """One request as it was: facts, document, decision, the target that answered, and its cost."""

    request_id: str
    facts: Facts
    document_digest: str
    decision_digest: str
    is_refused: bool
    first: str
    """The decision's first candidate; empty in a refusal."""
    target: str
    """The target that answered; after a fallback not the first candidate."""
    cost_microusd: int
    accounts: tuple[str, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0


class Change(msgspec.Struct, frozen=True):
    """A request that a draft would have treated differently."""

    request_id: str
    before: str
    after: str
    reason: str


class Impact(msgspec.Struct, frozen=True):
    """What a draft would have done to recorded traffic; costs are estimates at list prices."""

    requests: int
    rerouted: int
    newly_in_house: int
    no_longer_in_house: int
    newly_blocked: int
    newly_permitted: int
    cost_before_microusd: int
    cost_after_microusd: int
    routes: tuple[tuple[str, str, int], ...]
    """From, to and count, the most frequent first."""
    tripped: tuple[tuple[str, int], ...]
    """Budget accounts that the traffic would have overrun, each with its cost."""
    examples: tuple[Change, ...]

    @property
    def cost_delta_microusd(self) -> int:
        return self.cost_after_microusd - self.cost_before_microusd


class Reproduction(msgspec.Struct, frozen=True):
    """How many recorded decisions their own documents reproduced."""

    same: int
    different: tuple[str, ...]
    """Ids of the requests whose decision was not reproduced."""
    unknown_documents: int


def replay(document: PolicyDocument, recorded: Iterable[Facts]) -> Iterator[Decision]:
    """One decision per recorded request, in order; the recorded version gives the recorded ones."""
    for facts in recorded:
        yield decide(document, facts)


def reproduce(
    recorded: Iterable[Recorded],
    document_of: Callable[[str], PolicyDocument | None],
    digest: Callable[[Decision], str],
) -> Reproduction:
    """Decide every request again under the document that decided it."""
    same = unknown = 0
    different: list[str] = []
    for each in recorded:
        document = document_of(each.document_digest)
        if document is None:
            unknown += 1
        elif digest(decide(document, each.facts)) == each.decision_digest:
            same += 1
        else:
            different.append(each.request_id)
    return Reproduction(same, tuple(different), unknown)


class _Tally:
    """Counts of one replay."""

    def __init__(self, limits: "Limits") -> None:
        self.counts: Counter[str] = Counter()
        self.routes: Counter[tuple[str, str]] = Counter()
        self.cost_before = self.cost_after = 0
        self.spent: Counter[str] = Counter()
        self.limits = limits
        self.examples: list[Change] = []
        self._seen: set[tuple[str, str]] = set()

    def add(self, each: Recorded, decision: Decision, after: str) -> None:
        before = "refused" if each.is_refused else each.target
        self.counts["requests"] += 1
        cost = 0
        if after:
            cost = _cost(each, after)
        self.cost_before += each.cost_microusd
        self.cost_after += cost
        if self.limits:
            for account in each.accounts:
                self.spent[account] += cost
        shown = after or "refused"
        if shown == before:
            return
        self._count_change(each, before, shown)
        self.routes[before, shown] += 1
        if (before, shown) not in self._seen and len(self.examples) < EXAMPLES_MAX:
            self._seen.add((before, shown))
            self.examples.append(Change(each.request_id, before, shown, decision.reason))

    def _count_change(self, each: Recorded, before: str, after: str) -> None:
        homes = {target.name for target in each.facts.targets if target.in_house}
        if after == "refused":
            self.counts["newly_blocked"] += 1
        elif each.is_refused:
            self.counts["newly_permitted"] += 1
        else:
            self.counts["rerouted"] += 1
            # A blocked request is not sent anywhere, so it is not sent out of the house either.
            self.counts["no_longer_in_house"] += before in homes and after not in homes
            # Neither did a request that was refused before.
            self.counts["newly_in_house"] += after in homes and before not in homes


Limits = dict[str, int]
"""Limits in micro-dollars by budget account, for the time that is replayed."""


def impact(
    draft: PolicyDocument | Callable[[Recorded], PolicyDocument],
    recorded: Iterable[Recorded],
    limits: Limits | None = None,
) -> Impact:
    """What `draft`, or the document it gives for each request, would have done to this traffic."""
    tally = _Tally(limits or {})
    for each in recorded:
        document = draft if isinstance(draft, PolicyDocument) else draft(each)
        decision = decide(document, each.facts)
        # A fallback is no change of policy: with the same first candidate it stays what it was.
        after = decision.candidates[0] if decision.candidates else ""
        if after == each.first and each.target:
            after = each.target
        tally.add(each, decision, after)
    counts = tally.counts
    tripped = sorted(
        (account, tally.spent[account])
        for account, limit in tally.limits.items()
        if tally.spent[account] > limit
    )
    return Impact(
        requests=counts["requests"],
        rerouted=counts["rerouted"],
        newly_in_house=counts["newly_in_house"],
        no_longer_in_house=counts["no_longer_in_house"],
        newly_blocked=counts["newly_blocked"],
        newly_permitted=counts["newly_permitted"],
        cost_before_microusd=tally.cost_before,
        cost_after_microusd=tally.cost_after,
        routes=tuple((*pair, count) for pair, count in tally.routes.most_common(20)),
        tripped=tuple(tripped),
        examples=tuple(tally.examples),
    )


def _cost(each: Recorded, name: str) -> int:
    """The cost at a target: the true cost at the one that answered, list prices at any other."""
    if name == each.target and not each.is_refused:
        return each.cost_microusd
    target = next(target for target in each.facts.targets if target.name == name)
    facts = each.facts
    input_tokens = each.input_tokens or facts.input_tokens_estimate
    output_tokens = each.output_tokens or facts.max_output_tokens or OUTPUT_TOKENS_ASSUMED
    return (
        input_tokens * target.input_price_microusd_per_mtok
        + output_tokens * target.output_price_microusd_per_mtok
    ) // _PER_MTOK
