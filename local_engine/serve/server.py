"""The engine process: binds, loads the model while already alive, serves until SIGTERM."""

import asyncio
import contextlib
import functools
import os
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import uvicorn
import uvloop

from local_engine.model.errors import ModelRefused
from local_engine.model.loader import describe
from local_engine.serve.app import EngineApp
from local_engine.serve.clock import monotonic_s
from local_engine.serve.engine import Engine, load_engine
from local_engine.serve.log import log_event


EXIT_MODEL_REFUSED = 2
_GRACE_S = 1


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What the command line decides."""

    model: Path
    host: str = "127.0.0.1"
    port: int = 8100
    served_name: str | None = None
    device: str = "auto"
    threads: int = 1
    max_waiting: int = 64
    max_body_bytes: int = 4 << 20
    api_key: str | None = None


class _Server(uvicorn.Server):
    """Ends with status 0 on SIGTERM and SIGINT instead of dying of the re-raised signal."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def serve(options: ServeOptions) -> int:
    """Run until stopped; returns the exit status."""
    torch.set_num_threads(options.threads)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(options))


async def _serve(options: ServeOptions) -> int:
    app = EngineApp(api_key=options.api_key, max_body_bytes=options.max_body_bytes)
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        server_header=False,
        log_level="error",
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config)
    with socket.create_server((options.host, options.port), backlog=256) as listener:
        loading = asyncio.create_task(_load(app, options, listener))
        loading.add_done_callback(functools.partial(_exit_unless_loaded, server))
        await server.serve(sockets=[listener])
        engine = await loading
    if engine is None:
        return EXIT_MODEL_REFUSED
    engine.stop()
    log_event("engine.stopped")
    return 0


def _exit_unless_loaded(server: uvicorn.Server, loading: "asyncio.Task[Engine | None]") -> None:
    """A process that never becomes ready must not linger; the task itself says why."""
    if loading.cancelled() or loading.exception() is not None or loading.result() is None:
        server.should_exit = True


async def _load(app: EngineApp, options: ServeOptions, listener: socket.socket) -> Engine | None:
    """Load off the loop, then announce readiness; `None` if the model is refused."""
    started_s = monotonic_s()
    try:
        engine = await asyncio.to_thread(
            load_engine, options.model, device=options.device, max_waiting=options.max_waiting
        )
    except ModelRefused as error:
        log_event("engine.model_refused", reason=str(error))
        return None
    name = options.served_name or engine.name
    app.attach(name, engine)
    host, port = listener.getsockname()[:2]
    log_event(
        "engine.ready",
        model=name,
        digest=engine.digest,
        host=host,
        port=port,
        pid=os.getpid(),
        load_s=round(monotonic_s() - started_s, 3),
        **describe(engine.spec),
    )
    return engine
