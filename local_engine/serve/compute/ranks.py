"""The processes of a model that is split: rank 0 is the worker itself and starts the others.

They meet over a file that only this user can open, speak over the loopback interface, and none
outlives another: a lost rank ends the worker, whose supervisor starts all of them anew.
"""

import os
import subprocess
import sys
import tempfile
import threading
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
import torch
import torch.distributed as dist

from local_engine.model.errors import ModelRefused
from local_engine.runner.model_runner import choose_device
from local_engine.runner.parallel import Leader
from local_engine.serve.log import log_event
from local_engine.serve.options import WorkerOptions


END_WITHIN_S: Final = 10.0
EXIT_RANK_LOST: Final = 3
_PATIENCE: Final = timedelta(days=365)
"""An idle engine says nothing to its other ranks; they wait for as long as it takes."""


class RankGroup:
    """Rank 0's hold on the others."""

    def __init__(self, options: WorkerOptions) -> None:
        """Start the other ranks and meet them; raises `ModelRefused` where there cannot be so many.

        The others load while this one does.
        """
        world = options.tensor_parallel
        _require_devices(options)
        self.leader = Leader()
        self._is_ending = False
        self._folder = tempfile.TemporaryDirectory(prefix="gatewright-ranks-")
        store = str(Path(self._folder.name, "store"))
        self._processes = [_start(options, rank, store) for rank in range(1, world)]
        for process in self._processes:
            threading.Thread(target=self._watch, args=[process], daemon=True).start()
        self.device = join_group(options, 0, store)

    def end(self) -> None:
        """Send the other ranks home, and wait until they have gone."""
        self._is_ending = True
        self.leader.end()
        for process in self._processes:
            try:
                process.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
        dist.destroy_process_group()
        self._folder.cleanup()

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        if not self._is_ending:
            log_event("engine.rank_lost", exit_code=code)
            # The step in progress waits for an answer that will not come: nothing else ends it.
            self._folder.cleanup()
            os._exit(EXIT_RANK_LOST)


def join_group(options: WorkerOptions, rank: int, store: str) -> torch.device:
    """Meet the other ranks at the file `store`; the device of this one."""
    device = choose_device(options.device)
    backend = "gloo"
    if device.type == "cuda":
        device, backend = torch.device("cuda", rank), "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(device)
    # Read by the libraries themselves; what ranks say to each other stays on this machine.
    os.putenv("GLOO_SOCKET_IFNAME", "lo")
    os.putenv("NCCL_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=options.tensor_parallel,
        timeout=_PATIENCE,
    )
    return device


def end_with_parent() -> None:
    """From now on this process ends when whoever started it does: its standard input ends."""

    def wait() -> None:
        while sys.stdin.buffer.read(1):
            pass
        os._exit(EXIT_RANK_LOST)

    threading.Thread(target=wait, daemon=True).start()


def _require_devices(options: WorkerOptions) -> None:
    if choose_device(options.device).type != "cuda":
        return
    if options.tensor_parallel > torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise ModelRefused(f"{options.tensor_parallel} ranks need as many GPUs; {found} found")


def _start(options: WorkerOptions, rank: int, store: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "local_engine.serve.compute.rank_process", str(rank), store]
    process = subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None, "asked for a pipe above"
    process.stdin.write(msgspec.json.encode(options) + b"\n")
    process.stdin.flush()
    return process
