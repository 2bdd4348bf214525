"""Runs a rank beyond the first as a process: loads, keeps a share, computes as rank 0 says.

Started by `ranks` as `python -m local_engine.serve.compute.rank_process RANK STORE` with the
worker's options as one JSON line on standard input; when that input ends, the rank ends too.
"""

import os
import signal
import sys
from pathlib import Path
from threading import Event
from typing import NoReturn

import msgspec
import torch
import torch.distributed as dist

from local_engine.model.errors import ModelRefused
from local_engine.model.loader import load_decoder
from local_engine.model.manifest import open_model, public_key_of
from local_engine.runner.parallel import Follower, shard
from local_engine.serve.compute.ranks import (
    END_WITHIN_S,
    EXIT_RANK_LOST,
    end_with_parent,
    join_group,
)
from local_engine.serve.compute.sharing import agreed, budget_of, dtype_of, share_options
from local_engine.serve.log import log_event
from local_engine.serve.options import WorkerOptions


def main() -> int:
    # Ctrl-C, and what ends a service, reach the whole group: rank 0 decides when this ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    rank, store = int(sys.argv[1]), sys.argv[2]
    options = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerOptions)
    end_with_parent()
    torch.set_num_threads(options.threads)
    device = join_group(options, rank, store)
    options = options.on(device.type)
    key = public_key_of(options.model_public_key)
    with open_model(Path(options.model), key) as files:
        decoder = load_decoder(files, dtype=dtype_of(options))
    try:
        shard(decoder, rank, options.tensor_parallel)
        budget = budget_of(decoder, device, options)
    except ModelRefused as error:
        _refuse(rank, error)
    Follower(decoder, device, share_options(options, agreed(budget))).run()
    dist.destroy_process_group()
    return 0


def _refuse(rank: int, error: ModelRefused) -> NoReturn:
    """End without a word where rank 0 comes to the same, says so and ends; in a line where not."""
    Event().wait(END_WITHIN_S)
    log_event("engine.rank_refused", rank=rank, reason=str(error))
    os._exit(EXIT_RANK_LOST)


if __name__ == "__main__":
    sys.exit(main())
