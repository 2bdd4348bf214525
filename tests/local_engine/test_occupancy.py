"""What a worker says of its device's memory: where it is asked for, and how often."""

import subprocess
import sys
from pathlib import Path

import torch

from local_engine.runner import occupancy
from local_engine.runner.occupancy import EVERY_S, Gauge
from tests.local_engine.engine_process import EngineProcess
from tests.local_engine.test_server import metric


def test_a_device_is_looked_at_once_a_second_at_most() -> None:
    now = [0.0]
    gauge = Gauge(torch.device("cpu"), lambda: now[0])
    first = gauge.read()
    now[0] += EVERY_S / 2
    assert gauge.read() is first
    now[0] += EVERY_S / 2
    second = gauge.read()
    assert second is not first
    assert second.total_bytes == first.total_bytes
    assert 0 < second.free_bytes < second.total_bytes


HOLDING = """
import torch
from local_engine.runner.occupancy import Gauge
before = Gauge(torch.device("cpu")).read()
held = torch.ones(64 << 20, dtype=torch.uint8)
after = Gauge(torch.device("cpu")).read()
print(before.free_bytes - after.free_bytes, held.numel())
"""


def test_what_a_process_holds_is_not_free() -> None:
    # In a process of its own: here the memory may be some that earlier tests gave back.
    said = subprocess.run([sys.executable, "-c", HOLDING], capture_output=True, check=True)
    less, held = map(int, said.stdout.split())
    assert held // 2 < less < 2 * held


def test_the_narrowest_group_bounds_a_process(tmp_path: Path) -> None:
    own, groups = tmp_path / "own", tmp_path / "groups"
    inner = groups / "pod" / "engine"
    inner.mkdir(parents=True)
    own.mkdir()
    own.joinpath("cgroup").write_text("0::/pod/engine\n")
    inner.joinpath("memory.max").write_text("max\n")
    groups.joinpath("pod", "memory.max").write_text("4096\n")
    assert min(occupancy._limits(own, groups)) == 4096

    own.joinpath("cgroup").write_text("5:cpu:/x\n4:memory:/outside/name\n")
    groups.joinpath("memory").mkdir()
    groups.joinpath("memory", "memory.limit_in_bytes").write_text("2048\n")
    assert min(occupancy._limits(own, groups)) == 2048, "inside, its own group is the top"

    assert len(list(occupancy._limits(tmp_path / "nowhere", groups))) == 1, "the machine is left"


def test_an_engine_nobody_asked_yet_tells_of_its_memory(engine_process: EngineProcess) -> None:
    ready = engine_process.ready
    pool = ready["num_blocks"] * ready["block_size"] * ready["kv_bytes_per_token"]
    assert metric(engine_process, "gatewright_engine_kv_bytes") == pool
    assert metric(engine_process, "gatewright_engine_weight_bytes") == ready["weight_bytes"]
    total = metric(engine_process, "gatewright_engine_device_bytes")
    free = metric(engine_process, "gatewright_engine_device_free_bytes")
    assert total - free > ready["weight_bytes"], "the worker holds its weights"
