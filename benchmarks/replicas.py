"""The replica simulator: the pool's router against round robin and others, on one trace.

    python -m benchmarks.replicas [--quick]

Deterministic: a seed draws the trace and a discrete clock runs it; no network, no sleeping. A
replica prefills one chunk at a time and decodes beside it at the measured pace of a batch; its
prefix cache has a bounded number of blocks. Only the router under test is real.
"""

import argparse
import heapq
import random
import statistics
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from msgspec import Struct

from gateway.errors import PoolBusy
from gateway.pool.members import Load, Member, PoolRules
from gateway.pool.prefixes import BLOCK_BYTES, Prompt, chained, prompt_of
from gateway.pool.router import Router


REPLICAS = 8
LOAD = 0.70
BLOCK_TOKENS = 128
"""What 512 bytes are, at four bytes a token."""
PREFILL_TOKENS_PER_S = 8_000.0
DECODE_S_PER_TOKEN = 0.012
CACHE_BLOCKS = 1_600
"""All replicas together can hold about what all system prompts have; one holds an eighth of it."""
SYSTEM_PROMPTS = 192
SYSTEM_BLOCKS = (32, 96)
TURN_BLOCKS = (1, 4)
TURNS = (1, 8)
OUTPUT_TOKENS = (32, 256)
ZIPF = 0.6
THINK_S = (2.0, 20.0)


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
    """What a router made of the trace."""

    name: str
    hit_share: float
    p50_first_s: float
    p90_first_s: float
    busiest: float
    """Work of the busiest replica over the mean, in tokens prefilled and decoded."""
    refused: int


class Replica:
    """A fake engine: a block cache, one prefill at a time, decoding beside it."""

    def __init__(self) -> None:
        self.cache: OrderedDict[int, None] = OrderedDict()
        self.free_s = 0.0
        self.work_s = 0.0
        self.served = 0

    def hit(self, blocks: Sequence[int]) -> int:
        """Leading blocks that are cached; all of them are cached and young afterwards."""
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


def make_trace(count: int, seed: int = 7, load: float = LOAD) -> list[Turn]:
    """Multi-turn conversations over system prompts drawn by Zipf, at a share of the capacity."""
    draw = random.Random(seed)
    weights = [1.0 / (rank + 1) ** ZIPF for rank in range(SYSTEM_PROMPTS)]
    systems = [
        chained(b"system", (b"%d-%d" % (n, at) for at in range(draw.randint(*SYSTEM_BLOCKS))))
        for n in range(SYSTEM_PROMPTS)
    ]
    conversations: list[list[tuple[float, tuple[int, ...], int, str]]] = []
    total, work_s, number = 0, 0.0, 0
    while total < count:
        which = draw.choices(range(SYSTEM_PROMPTS), weights)[0]
        blocks, at_s = systems[which], 0.0
        turns = []
        for _ in range(draw.randint(*TURNS)):
            fresh = (b"%d-%d" % (number, at) for at in range(draw.randint(*TURN_BLOCKS)))
            number += 1
            blocks += chained(blocks[-1].to_bytes(8), fresh)
            output = draw.randint(*OUTPUT_TOKENS)
            turns.append((at_s, blocks, output, f"tenant-{which % 16}"))
            at_s += draw.uniform(*THINK_S)
            # The load is set as if nothing were cached: a share of what the replicas can do cold.
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


def simulate(policy: PoolPolicy | BlindPolicy, trace: Sequence[Turn]) -> Result:
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
    )


def _first(policy: PoolPolicy | BlindPolicy, handle: object, at_s: float) -> Callable[[], None]:
    return lambda: policy.first(handle, at_s)  # type: ignore[arg-type]


def _end(policy: PoolPolicy | BlindPolicy, handle: object) -> Callable[[], None]:
    return lambda: policy.end(handle)  # type: ignore[arg-type]


def decision_us(members: int = 16, tokens: int = 8_192) -> tuple[float, float]:
    """Microseconds of one choice among members that know the prompt, and of hashing it."""
    rules = PoolRules(shard_share=1.0)
    router = Router([Member(str(place), rules) for place in range(members)], rules)
    body = b'{"messages":[{"role":"user","content":"' + b"abcdefg " * (tokens // 2) + b'"}]}'
    prompt = prompt_of(b"tenant", body, 4.0)
    best = best_hash = float("inf")
    for _ in range(200):
        began_s = time.perf_counter()
        prompt = prompt_of(b"tenant", body, 4.0)
        best_hash = min(best_hash, time.perf_counter() - began_s)
        began_s = time.perf_counter()
        load = router.choose(prompt, 144.0, 0.0, tenant="tenant")
        best = min(best, time.perf_counter() - began_s)
        load.member.end(load)
    assert len(prompt.blocks) >= tokens * 4 // BLOCK_BYTES
    return 1e6 * best, 1e6 * best_hash


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a tenth of the trace")
    trace = make_trace(4_000 if parser.parse_args().quick else 40_000)
    names = ("round robin", "least calls", "hash of the first block")
    results = [simulate(PoolPolicy(), trace), *(simulate(BlindPolicy(n), trace) for n in names)]
    print(f"{len(trace)} requests, {REPLICAS} replicas, load {LOAD:.0%}")
    print(f"{'router':26} {'hits':>6} {'TTFT p50':>9} {'p90':>8} {'max/mean':>9} {'refused':>8}")
    for each in results:
        times = f"{each.p50_first_s:8.3f}s {each.p90_first_s:7.3f}s"
        shares = f"{each.hit_share:6.1%} {times} {each.busiest:9.2f} {each.refused:8}"
        print(f"{each.name:26} {shares}")
    choice, hashing = decision_us()
    print(f"decision at 16 members, 8k tokens: {choice:.1f} us; hashing it: {hashing:.1f} us")


if __name__ == "__main__":
    main()
