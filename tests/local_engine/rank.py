"""One rank of two, started by `test_parallel`: `python -m tests.local_engine.rank RANK STORE`."""

import json
import sys

import torch
import torch.distributed as dist

from local_engine.runner import parallel
from local_engine.runner.share import ShareOptions
from tests.local_engine.engine_loop import CPU, EngineLoop, greedy
from tests.local_engine.models import random_decoder
from tests.local_engine.test_equalities import SPECS, prompt


def main(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    for name in ("native", "moe"):
        decoder = random_decoder(SPECS[name])
        parallel.shard(decoder, rank, 2)
        if rank:
            parallel.Follower(decoder, CPU, ShareOptions(num_blocks=256)).run()
            continue
        leader = parallel.Leader()
        loop = EngineLoop(decoder, ranks=leader, token_budget=20)
        sequences = [loop.add(prompt(30, seed=n), greedy(10)) for n in range(3)]
        loop.run()
        leader.end()
        print(json.dumps([list(each.output_token_ids) for each in sequences]))  # noqa: T201
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
