"""Two ranks over gloo write what one rank writes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from local_engine.model.decoder import Block, Decoder
from local_engine.model.errors import ModelRefused
from local_engine.runner.parallel import local_spec, shard
from tests.local_engine.engine_loop import greedy_tokens
from tests.local_engine.models import random_decoder, tiny_spec
from tests.local_engine.test_equalities import SPECS, prompt


def test_two_ranks_write_what_one_writes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.local_engine.rank"]
    store = str(tmp_path / "store")
    follower = subprocess.Popen([*command, "1", store])
    leader = subprocess.run(
        [*command, "0", store], capture_output=True, text=True, timeout=100, check=False
    )
    assert leader.returncode == 0, leader.stderr
    assert follower.wait(timeout=20) == 0
    found = [json.loads(line) for line in leader.stdout.splitlines()]
    for name, texts in zip(("native", "moe"), found, strict=True):
        for number, text in enumerate(texts):
            alone = greedy_tokens(random_decoder(SPECS[name]), prompt(30, seed=number), 10)
            assert text == alone


def feed(decoder: Decoder, x: torch.Tensor) -> torch.Tensor:
    block = decoder.model.layers[0]
    assert isinstance(block, Block)
    out: torch.Tensor = block.mlp(x)
    return out


def test_the_shares_of_two_ranks_add_up_to_the_whole() -> None:
    spec = tiny_spec(attention_bias=True, output_bias=True, mlp_bias=True)
    x = torch.randn(5, spec.hidden_size)
    whole = feed(random_decoder(spec), x)
    shares = []
    for rank in range(2):
        decoder = random_decoder(spec)
        shard(decoder, rank, 2, reduce=lambda part: part)
        shares.append(feed(decoder, x))
    assert torch.allclose(shares[0] + shares[1], whole, atol=1e-5)


def test_heads_that_cannot_be_shared_are_refused() -> None:
    with pytest.raises(ModelRefused, match="key/value heads"):
        local_spec(tiny_spec(num_kv_heads=1), 2)
