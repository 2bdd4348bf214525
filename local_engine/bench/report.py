"""Runs the measurements and prints them; says what was not measured and why."""

import argparse
import sys

import torch

from local_engine.bench.cpu import (
    Row,
    decode_rows,
    flood_row,
    prefix_row,
    scheduler_row,
    stall_row,
)
from local_engine.bench.peers import has_transformers, transformers_us
from local_engine.bench.subject import Subject, cpu_us, new_decoder, random_prompt


_GPU_ROWS = (
    "8 B bf16 decode, paged decode attention alone, prefill 8 B, nano-vllm workload,"
    " prefix hits saturated, transformers on the GPU"
)


def main(arguments: list[str]) -> int:
    """Print the report; about two minutes on one quiet core."""
    parser = argparse.ArgumentParser(prog="local_engine bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="the best of so many counts")
    parser.add_argument("--no-peers", action="store_true", help="leave transformers out")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    _print("engine bench: 41.6 M-parameter Qwen3, float32, one thread, CPU time, one run")
    decoder = new_decoder()
    peers = _peer_rows_needed(options)
    state = {name: tensor.clone() for name, tensor in decoder.state_dict().items()}
    subject = Subject(decoder)
    for row in decode_rows(subject, options.rounds):
        _show(row)
    if peers:
        fresh = new_decoder()
        fresh.load_state_dict(state)
        for batch in (12, 32):
            ours = _workload_us(subject, batch, options.rounds)
            theirs = transformers_us(fresh, batch, options.rounds)
            measured = f"{ours:,.0f} us per output token, theirs {theirs:,.0f}"
            name = f"against transformers, batch {batch}"
            _show(Row(name, measured, theirs / ours, ">= 3"))
    for row in (stall_row(subject), flood_row(subject), prefix_row(subject)):
        _show(row)
    _show(scheduler_row(options.rounds))
    if not torch.cuda.is_available():
        _print(f"not measured, no GPU here: {_GPU_ROWS}")
    else:
        _print(f"not measured by this command: {_GPU_ROWS}")
    return 0


def _peer_rows_needed(options: argparse.Namespace) -> bool:
    if options.no_peers:
        return False
    if not has_transformers():
        _print("not measured, transformers is not installed: the peer rows")
        return False
    return True


def _workload_us(subject: Subject, batch: int, max_tokens: int) -> float:
    """CPU time per output token of `batch` requests, their prompts included."""
    subject.restart(token_budget=4096, is_caching=False)
    started = cpu_us()
    for number in range(batch):
        subject.add(random_prompt(96, number), max_tokens)
    subject.run()
    return (cpu_us() - started) / (batch * max_tokens)


def _show(row: Row) -> None:
    _print(f"{row.name:<52} {row.ratio:7.2f}x  (reach {row.reach})  {row.measured}")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
