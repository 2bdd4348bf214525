"""The replica simulator: the pool's router against round robin and others, on one trace.

    python -m benchmarks.replicas [--seeds 10] [--requests 10000] [--sglang PYTHON]

Deterministic: a seed draws the trace and a discrete clock runs it; no network, no sleeping. A
replica prefills one prompt at a time and decodes beside it at the measured pace of a batch; its
prefix cache has a bounded number of blocks. Only the router under test is real. `--sglang` names
the interpreter of an environment with the `sglang-router` wheel, which is then tested too.
"""

import argparse
import heapq
import random
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from benchmarks.sglang import SglangPolicy
from gateway.errors import PoolBusy
from gateway.pool.members import Load, Member, PoolRules
from gateway.pool.prefixes import BLOCK_BYTES, Prompt, chained, prompt_of
from gateway.pool.router import Router


REPLICAS = 8
BUSY = 0.70
"""The load: under round robin the replicas are busy for this share of the time."""
BUSY_ROUNDS = 6
BUSY_NEAR = 0.005
BLOCK_TOKENS = 128
"""512 bytes, at four bytes per token."""
PREFILL_TOKENS_PER_S = 8_000.0
DECODE_S_PER_TOKEN = 0.012
CACHE_BLOCKS = 1_600
"""All replicas together can hold about all system prompts; one holds an eighth of them."""
SYSTEM_PROMPTS = 192
OUTPUT_TOKENS = (32, 256)
ZIPF = 0.6
THINK_S = (2.0, 20.0)
STUDENT_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's distribution with one to nine degrees of freedom: 95 % lie within."""


class Kind(Struct, frozen=True):
    """Conversations over a system prompt; lengths in blocks of 128 tokens."""

    name: str
    system_blocks: tuple[int, int]
    turn_blocks: tuple[int, int]
    turns: tuple[int, int]


ASSISTANTS = Kind("assistants: long instructions, short turns", (32, 96), (1, 4), (1, 8))
AGENTS = Kind("agents: many turns with tool results", (8, 48), (4, 16), (4, 16))
DOCUMENTS = Kind("documents: a few turns with long texts", (8, 32), (8, 24), (2, 6))
WORKLOADS: Mapping[str, tuple[Kind, ...]] = {
    "all three kinds on one pool": (ASSISTANTS, AGENTS, DOCUMENTS),
    **{kind.name: (kind,) for kind in (ASSISTANTS, AGENTS, DOCUMENTS)},
}


class Turn(Struct, frozen=True):
    """One request of the trace."""

    at_s: float
    blocks: tuple[int, ...]
    output_tokens: int
    tenant: str

    @property
    def tokens(self) -> int:
        return len(self.blocks) * BLOCK_TOKENS


class Result(Struct, frozen=True):
    """A router's result on the trace."""

    name: str
    hit_share: float
    p50_first_s: float
    p90_first_s: float
    busiest: float
    """Work of the busiest replica over the mean, in seconds of its device."""
    refused: int
    busy: float
    """Share of the trace's time in which the replicas worked."""


class Replica:
    """A fake engine: a block cache, one prefill at a time, decoding beside it."""

    def __init__(self) -> None:
        self.cache: OrderedDict[int, None] = OrderedDict()
        self.free_s = 0.0
        self.work_s = 0.0
        self.served = 0

    def hit(self, blocks: Sequence[int]) -> int:
        """Number of leading cached blocks; afterwards all of them are cached and recent."""
        depth = 0
        while depth < len(blocks) and blocks[depth] in self.cache:
            depth += 1
        for block in blocks:
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) > CACHE_BLOCKS:
            self.cache.popitem(last=False)
        return depth

    def run(self, turn: Turn, now_s: float) -> tuple[float, float, int]:
        """When the first and the last token come, and how many tokens were cached."""
        cached = self.hit(turn.blocks) * BLOCK_TOKENS
        prefill_s = max(turn.tokens - cached, 1) / PREFILL_TOKENS_PER_S
        first_s = max(now_s, self.free_s) + prefill_s
        self.free_s = first_s
        decode_s = turn.output_tokens * DECODE_S_PER_TOKEN
        # Decoding shares the device with prefill: a tenth of it delays the next prompt.
        self.free_s += 0.1 * decode_s
        self.work_s += prefill_s + 0.1 * decode_s
        self.served += 1
        return first_s, first_s + decode_s, cached


def make_trace(kinds: Sequence[Kind], count: int, seed: int, load: float) -> list[Turn]:
    """Multi-turn conversations over system prompts drawn by Zipf, the kinds taking turns.

    `load` is relative to what the replicas could do if nothing were ever cached.
    """
    draw = random.Random(seed)
    weights = [1.0 / (rank + 1) ** ZIPF for rank in range(SYSTEM_PROMPTS)]
    kind_of = [kinds[n % len(kinds)] for n in range(SYSTEM_PROMPTS)]
    systems = [
        chained(b"system", (b"%d-%d" % (n, at) for at in range(draw.randint(*kind.system_blocks))))
        for n, kind in enumerate(kind_of)
    ]
    conversations: list[list[tuple[float, tuple[int, ...], int, str]]] = []
    total, work_s, number = 0, 0.0, 0
    while total < count:
        which = draw.choices(range(SYSTEM_PROMPTS), weights)[0]
        kind, blocks, at_s = kind_of[which], systems[which], 0.0
        turns = []
        for _ in range(draw.randint(*kind.turns)):
            fresh = (b"%d-%d" % (number, at) for at in range(draw.randint(*kind.turn_blocks)))
            number += 1
            blocks += chained(blocks[-1].to_bytes(8), fresh)
            output = draw.randint(*OUTPUT_TOKENS)
            turns.append((at_s, blocks, output, f"tenant-{which % 16}"))
            at_s += draw.uniform(*THINK_S)
            work_s += len(blocks) * BLOCK_TOKENS / PREFILL_TOKENS_PER_S
            work_s += 0.1 * output * DECODE_S_PER_TOKEN
        total += len(turns)
        conversations.append(turns)
    span_s = work_s / (REPLICAS * load)
    trace = []
    for turns in conversations:
        start_s = draw.uniform(0.0, span_s)
        trace += [Turn(start_s + at, blocks, out, who) for at, blocks, out, who in turns]
    return sorted(trace, key=lambda turn: turn.at_s)


def busy_trace(kinds: Sequence[Kind], count: int, seed: int) -> list[Turn]:
    """A trace dense enough to keep the replicas busy for `BUSY` of the time under round robin."""
    load = 1.0
    trace = make_trace(kinds, count, seed, load)
    for _ in range(BUSY_ROUNDS):
        busy = simulate(BlindPolicy("round robin"), trace).busy
        if abs(busy - BUSY) < BUSY_NEAR:
            break
        load *= BUSY / busy
        trace = make_trace(kinds, count, seed, load)
    return trace


BLIND = ("round robin", "least calls", "hash of the first block")


class Policy(Protocol):
    """A router under test: it chooses, and is told of first tokens and ends as in service."""

    name: str

    def choose(self, turn: Turn, now_s: float) -> tuple[int, Any]:
        """The chosen replica's index, and a value that `first` and `end` get back."""
        ...

    def first(self, handle: Any, now_s: float) -> None: ...

    def end(self, handle: Any) -> None: ...


class PoolPolicy:
    """The router of `gateway.pool`, told what it would hear in service and nothing else."""

    name = "gatewright pool"

    def __init__(self) -> None:
        rules = PoolRules(prefill_tokens_per_s=PREFILL_TOKENS_PER_S, shard_share=1.0)
        self.members = [Member(str(place), rules) for place in range(REPLICAS)]
        self.router = Router(self.members, rules)

    def choose(self, turn: Turn, now_s: float) -> tuple[int, Load | None]:
        prompt = Prompt(turn.blocks, turn.blocks[-1], float(turn.tokens))
        load = self.router.choose(prompt, 144.0, now_s, tenant=turn.tenant)
        return int(load.member.name), load

    @staticmethod
    def first(load: Load | None, now_s: float) -> None:
        assert load is not None
        load.member.answered(load, now_s)

    @staticmethod
    def end(load: Load | None) -> None:
        assert load is not None
        load.member.end(load)


class BlindPolicy:
    """Round robin, least calls, or a hash of the system prompt: what proxies do today."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = [0] * REPLICAS
        self.turn = 0

    def choose(self, turn: Turn, _: float) -> tuple[int, int]:
        if self.name == "round robin":
            place = self.turn % REPLICAS
        elif self.name == "least calls":
            place = min(range(REPLICAS), key=self.calls.__getitem__)
        else:
            place = turn.blocks[0] % REPLICAS
        self.turn += 1
        self.calls[place] += 1
        return place, place

    def first(self, place: int, now_s: float) -> None:
        """It learns nothing from answers."""

    def end(self, place: int) -> None:
        self.calls[place] -= 1


def simulate(policy: Policy, trace: Sequence[Turn]) -> Result:
    """Run a trace to its end."""
    replicas = [Replica() for _ in range(REPLICAS)]
    events: list[tuple[float, int, Callable[[], None]]] = []
    firsts: list[float] = []
    cached = asked = refused = number = 0
    for turn in trace:
        while events and events[0][0] <= turn.at_s:
            heapq.heappop(events)[2]()
        try:
            place, handle = policy.choose(turn, turn.at_s)
        except PoolBusy:
            refused += 1
            continue
        first_s, last_s, hit = replicas[place].run(turn, turn.at_s)
        firsts.append(first_s - turn.at_s)
        cached, asked, number = cached + hit, asked + turn.tokens, number + 2
        heapq.heappush(events, (first_s, number, _first(policy, handle, first_s)))
        heapq.heappush(events, (last_s, number + 1, _end(policy, handle)))
    work = [replica.work_s for replica in replicas]
    deciles = statistics.quantiles(firsts, n=10)
    return Result(
        policy.name,
        cached / asked,
        deciles[4],
        deciles[8],
        max(work) / statistics.mean(work),
        refused,
        sum(work) / (REPLICAS * (trace[-1].at_s - trace[0].at_s)),
    )


def _first(policy: Policy, handle: Any, at_s: float) -> Callable[[], None]:
    return lambda: policy.first(handle, at_s)


def _end(policy: Policy, handle: Any) -> Callable[[], None]:
    return lambda: policy.end(handle)


def ceiling(trace: Sequence[Turn]) -> float:
    """The hit share of one unbounded cache: no router reaches more."""
    seen: set[int] = set()
    found = asked = 0
    for turn in trace:
        found += sum(block in seen for block in turn.blocks)
        asked += len(turn.blocks)
        seen.update(turn.blocks)
    return found / asked


def decision_us(members: int = 16, tokens: int = 8_192) -> tuple[float, float]:
    """Microseconds per choice among members, and per hash of the prompt.

    Conversations continue: each prompt is one of a hundred known beginnings with a new end, and
    time passes, so that known prefixes have to be noted again.
    """
    rules = PoolRules(shard_share=1.0)
    router = Router([Member(str(place), rules) for place in range(members)], rules)
    best_hash, took = float("inf"), []
    for at in range(2_000):
        text = b"%d " % (at % 100) + b"abcdefg " * (tokens // 2) + b"%d " % at * 400
        body = b'{"messages":[{"role":"user","content":"' + text + b'"}]}'
        began_s = time.perf_counter()
        prompt = prompt_of(b"tenant", body, 4.0)
        best_hash = min(best_hash, time.perf_counter() - began_s)
        assert len(prompt.blocks) >= tokens * 4 // BLOCK_BYTES
        began_s = time.perf_counter()
        load = router.choose(prompt, 144.0, at * 0.05, tenant="tenant")
        took.append(time.perf_counter() - began_s)
        load.member.end(load)
    return 1e6 * statistics.median(took), 1e6 * best_hash


def compare(name: str, seeds: Sequence[int], count: int, sglang: str) -> None:
    """Print each router's result on a workload: means over the seeds, and the worst ratios."""
    rows: dict[str, list[Result]] = {}
    ideal = []
    for seed in seeds:
        trace = busy_trace(WORKLOADS[name], count, seed)
        ideal.append(ceiling(trace))
        results = [simulate(PoolPolicy(), trace), *(simulate(BlindPolicy(n), trace) for n in BLIND)]
        if sglang:
            with SglangPolicy(sglang, REPLICAS) as policy:
                results.append(simulate(policy, trace))
        for each in results:
            rows.setdefault(each.name, []).append(each)
    print(f"\n{name}; at most {statistics.mean(ideal):.1%} of the tokens can be found")
    titles = f"{'TTFT p50':>9} {'p90':>8} {'max/mean':>9} {'busy':>6} {'refused':>8}"
    print(f"{'router':26} {'hits':>6} {titles}")
    for router, results in rows.items():
        hits, p50, p90, busiest, busy, refused = (
            statistics.mean(getattr(each, field) for each in results)
            for field in ("hit_share", "p50_first_s", "p90_first_s", "busiest", "busy", "refused")
        )
        spread = f"{busiest:9.2f} {busy:6.0%} {refused:8.0f}"
        print(f"{router:26} {hits:6.1%} {p50:8.3f}s {p90:7.3f}s {spread}")
    ours, blind = rows[PoolPolicy.name], rows[BLIND[0]]
    more = [one.hit_share / other.hit_share for one, other in zip(ours, blind, strict=True)]
    most = [share / other.hit_share for share, other in zip(ideal, blind, strict=True)]
    late = [one.p90_first_s / other.p90_first_s for one, other in zip(ours, blind, strict=True)]
    print(
        f"to round robin: hits {statistics.mean(more):.2f}x (least {min(more):.2f}x, sought 3, "
        f"possible {statistics.mean(most):.2f}x), "
        f"p90 {statistics.mean(late):.2f}x (most {max(late):.2f}x, sought 0.3), "
        f"max/mean at most {max(each.busiest for each in ours):.2f} (sought 1.25)"
    )

    if sglang:
        print_difference(ours, rows[SglangPolicy.name])


def print_difference(ours: Sequence[Result], theirs: Sequence[Result]) -> None:
    """By seed, since seeds differ more from each other than routers do."""
    points = [100 * (a.hit_share - b.hit_share) for a, b in zip(ours, theirs, strict=True)]
    known = statistics.mean(points)
    within = "one seed says nothing of chance"
    if len(points) > 1:
        width = STUDENT_95[min(len(points) - 2, len(STUDENT_95) - 1)]
        half = width * statistics.stdev(points) / len(points) ** 0.5
        within = f"95 % within {known - half:+.2f} and {known + half:+.2f}"
    own = [100 * each.hit_share for each in ours]
    print(
        f"to {theirs[0].name}: hits {known:+.2f} points ({within}; "
        f"seeds {' '.join(f'{each:+.2f}' for each in points)}); "
        f"our own seeds lie {max(own) - min(own):.2f} points apart"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1_001)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--sglang", default="", help="an interpreter that has sglang-router")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    print(
        f"{options.requests} requests, {REPLICAS} replicas, {BUSY:.0%} busy under round robin, "
        f"{len(seeds)} seeds"
    )
    for name in WORKLOADS:
        compare(name, seeds, options.requests, options.sglang)
    choice, hashing = decision_us()
    print(f"\ndecision at 16 members, 8k tokens: {choice:.1f} us (sought 50); ", end="")
    print(f"hashing the prompt: {hashing:.1f} us")


if __name__ == "__main__":
    main()
