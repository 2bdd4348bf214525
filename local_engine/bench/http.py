"""Benchmarks over HTTP: our server and vLLM's CPU server, same weights, same prompts, in turn."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from local_engine.bench.cpu import Row, gemm_floor_us
from local_engine.bench.model_directory import write_directory
from local_engine.bench.servers import Server, free_port, our_command, started, vllm_command
from local_engine.bench.streams import Stream, read_stream, read_streams
from local_engine.bench.subject import random_prompt
from local_engine.model.decoder import Decoder


_PROMPT_TOKENS = 32
# Of two runs that differ in length only, the difference is decoding and nothing else.
_FEW, _MANY = 8, 72
_DECODERS, _QUIET_EVENTS = 8, 40


@dataclass(frozen=True)
class Cost:
    """CPU time of a server's processes, of all of them together, per output token."""

    decode_us: float
    whole_us: float
    """Prompts, connections and everything else included."""
    texts: tuple[str, ...]


def http_rows(decoder: Decoder, python: Path, rounds: int) -> Iterator[Row]:
    """Rows of both servers; raises `ServerFailed` if one of them does not come up."""
    with tempfile.TemporaryDirectory(prefix="engine-bench-") as folder, ExitStack() as stack:
        directory = Path(folder) / "model"
        directory.mkdir()
        write_directory(directory, decoder)

        def start(name: str, command: Callable[[int], list[str]]) -> Server:
            port = free_port()
            log = Path(folder) / f"{name}.log"
            return stack.enter_context(started(name, command(port), port, log))

        ours = start("ours", lambda port: our_command(directory, port))
        theirs = start("vllm", lambda port: vllm_command(python, directory, port))
        for num_streams in (12, 32):
            yield from _cost_rows(ours, theirs, num_streams, rounds)
        for server, reach in ((ours, "<= 6"), (theirs, "none, a peer")):
            yield _stall_row(server, rounds, reach)
        for server, reach in ((ours, ">= 6"), (theirs, "none, a peer")):
            yield _prefix_row(server, rounds, reach)


def _cost_rows(ours: Server, theirs: Server, num_streams: int, rounds: int) -> Iterator[Row]:
    floor = gemm_floor_us(num_streams, 10)
    found: dict[str, list[Cost]] = {ours.name: [], theirs.name: []}
    for number in range(rounds + 1):
        for server in (ours, theirs):
            cost = _cost(server, num_streams)
            # The first round warms both up: caches, compiled code, memory.
            if number:
                found[server.name].append(cost)
        floor = min(floor, gemm_floor_us(num_streams, 10))
    mine, other = (_best(found[server.name]) for server in (ours, theirs))
    same = sum(a == b for a, b in zip(mine.texts, other.texts, strict=True))
    whole = f"whole requests {mine.whole_us:,.0f} and {other.whole_us:,.0f}"
    yield Row(
        f"over HTTP, {num_streams} streams, against the floor",
        f"{mine.decode_us:,.0f} us per token, packed products {floor:,.0f}",
        mine.decode_us / floor,
        "<= 1.5",
    )
    yield Row(
        f"over HTTP, {num_streams} streams, vllm against ours",
        f"theirs {other.decode_us:,.0f} us, {whole}, {same} of {num_streams} answers the same",
        other.decode_us / mine.decode_us,
        "> 1",
    )


def _best(costs: list[Cost]) -> Cost:
    """The cheapest of each: whatever makes a round dearer is somebody else."""
    return Cost(
        min(cost.decode_us for cost in costs),
        min(cost.whole_us for cost in costs),
        costs[-1].texts,
    )


def _cost(server: Server, num_streams: int) -> Cost:
    prompts = [random_prompt(_PROMPT_TOKENS, number) for number in range(num_streams)]

    def spent_us(max_tokens: int) -> tuple[float, list[Stream]]:
        since_us = server.cpu_us()
        streams = asyncio.run(read_streams(server, prompts, max_tokens))
        return server.cpu_us() - since_us, streams

    few_us, _ = spent_us(_FEW)
    many_us, streams = spent_us(_MANY)
    return Cost(
        (many_us - few_us) / (num_streams * (_MANY - _FEW)),
        many_us / (num_streams * _MANY),
        tuple(stream.text for stream in streams),
    )


def _stall_row(server: Server, rounds: int, reach: str) -> Row:
    """Gaps between eight decoders' tokens, quiet and while somebody's 1,800 tokens are read."""
    found = [asyncio.run(_stall(server, number)) for number in range(rounds)]
    longest_us, quiet_us = min(found, key=lambda pair: pair[0] / pair[1])
    measured = f"{longest_us / 1000:.1f} ms, quiet {quiet_us / 1000:.1f} ms"
    name = f"over HTTP, longest gap beside 1,800 tokens, {server.name}"
    return Row(name, measured, longest_us / quiet_us, reach)


async def _stall(server: Server, number: int) -> tuple[float, float]:
    """The longest gap after the long prompt came, and the usual one before."""
    is_quiet_over = asyncio.Event()

    def count(stream: Stream) -> None:
        if len(stream.event_us) == _QUIET_EVENTS:
            is_quiet_over.set()

    decoders = [
        asyncio.create_task(
            read_stream(server, random_prompt(40, 100 * number + each), 110, on_event=count)
        )
        for each in range(_DECODERS)
    ]
    await is_quiet_over.wait()
    long = await read_stream(server, random_prompt(1800, 9000 + number), 2)
    streams = await asyncio.gather(*decoders)
    before = [gap for each in streams for gap in each.gaps_us(until_us=long.started_us)[_FEW:]]
    after = [max(each.gaps_us(since_us=long.started_us)) for each in streams]
    return max(after), median(before)


def _prefix_row(server: Server, rounds: int, reach: str) -> Row:
    """Time to the first token of 800, none of them known and 720 of them known."""

    def first_us(prompt: list[int]) -> float:
        return asyncio.run(read_stream(server, prompt, 1)).first_us

    cold_us = min(first_us(random_prompt(800, 5000 + each)) for each in range(rounds + 1))
    shared = random_prompt(720, 4999)
    first_us([*shared, *random_prompt(80, 4998)])
    warm_us = min(
        first_us([*shared, *random_prompt(80, 6000 + each)]) for each in range(rounds + 1)
    )
    measured = f"{warm_us / 1000:.1f} ms, cold {cold_us / 1000:.1f} ms"
    return Row(
        f"over HTTP, TTFT gain at 90 % shared, {server.name}", measured, cold_us / warm_us, reach
    )
