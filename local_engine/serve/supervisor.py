"""Starts the worker process, and starts it again when it dies."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable

import msgspec

from local_engine.serve.engine import Engine
from local_engine.serve.link import WorkerLink, WorkerRefused
from local_engine.serve.log import log_event
from local_engine.serve.metrics import Counts
from local_engine.serve.options import WorkerOptions
from local_engine.serve.wire import socket_pair


_RESTART_PAUSE_S = 1.0
WORKER_ENDS_WITHIN_S = 5.0
"""After it was told to: it ends after its current step, or is killed."""


class Supervisor:
    """Runs one worker at a time; `on_change` gets each engine when it is ready, None at its end."""

    def __init__(
        self,
        options: WorkerOptions,
        on_change: Callable[[Engine | None], None],
        counts: Counts | None = None,
    ) -> None:
        self._options = options
        self._on_change = on_change
        self._counts = counts or Counts()
        self._link: WorkerLink | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Keep a worker alive until `stop`; raises `WorkerRefused` if the first one refuses."""
        is_first = True
        while not self._stopping.is_set():
            try:
                await self._serve_once()
            except WorkerRefused as error:
                if self._stopping.is_set():
                    return
                log_event("engine.model_refused", reason=str(error))
                if is_first:
                    raise
            is_first = False
            self._on_change(None)
            if not self._stopping.is_set():
                log_event("engine.worker_lost")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _RESTART_PAUSE_S)

    async def stop(self) -> None:
        """End the worker in good order, or by force if it takes too long."""
        self._stopping.set()
        if self._process is not None:
            await _ended(self._process, self._link)

    async def _serve_once(self) -> None:
        link: WorkerLink | None = None
        self._process, ours = await self._started()
        try:
            self._link = link = await WorkerLink.over(ours)
            if self._stopping.is_set():
                # `stop` came while it started and found no process; it does nothing yet.
                self._process.kill()
                return
            ready = await link.ready()
            self._on_change(Engine(ready, link, self._counts))
            await link.closed()
        finally:
            await _ended(self._process, link)

    async def _started(self) -> tuple[asyncio.subprocess.Process, socket.socket]:
        """A worker that loads, and our end of its socket.

        Raises:
            WorkerRefused: this machine has no process or no descriptors left for it.
        """
        command = (sys.executable, "-m", "local_engine.serve.compute.worker_process")
        with contextlib.ExitStack() as ends:
            try:
                ours, theirs = map(ends.enter_context, socket_pair())
                process = await asyncio.create_subprocess_exec(
                    *command,
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.PIPE,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is for us, and we end it in good order.
                )
            except OSError as error:
                raise WorkerRefused(f"no worker process starts: {error.strerror}") from error
            ends.pop_all()
        theirs.close()
        assert process.stdin is not None, "asked for a pipe above"
        process.stdin.write(msgspec.json.encode(self._options) + b"\n")
        process.stdin.close()
        return process, ours


async def _ended(process: asyncio.subprocess.Process, link: WorkerLink | None = None) -> None:
    try:
        async with asyncio.timeout(WORKER_ENDS_WITHIN_S):
            if link is not None:
                # A worker that reads nothing does not read this message either.
                await link.stop()
            await process.wait()
    except TimeoutError:
        # Two callers may wait for one worker equally long; what has ended cannot be killed.
        if process.returncode is None:
            process.kill()
        await process.wait()
