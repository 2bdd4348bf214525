"""The engine process: binds, answers while it loads the model, serves until SIGTERM."""

import asyncio
import contextlib
import functools
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import FrameType
from typing import Any

import uvicorn
import uvloop

from local_engine.serve.api.app import EngineApp
from local_engine.serve.clock import monotonic_s
from local_engine.serve.connections.crowd import Crowd, connections_permitted
from local_engine.serve.connections.http import bounded_http
from local_engine.serve.encryption import CertificateRefused, Encryption
from local_engine.serve.engine import Engine
from local_engine.serve.link import WorkerRefused
from local_engine.serve.log import log_event
from local_engine.serve.metrics import Counts
from local_engine.serve.options import ConnectionBounds, ServeOptions
from local_engine.serve.supervisor import WORKER_ENDS_WITHIN_S, Supervisor


EXIT_REFUSED, EXIT_NO_LISTENER = 2, 3
_GRACE_S = 1
_LAST_WORDS_S = 0.2
# After a signal: the grace, the worker's own bound, and a second for the rest.
_END_WITHIN_S = _GRACE_S + WORKER_ENDS_WITHIN_S + 1


class Listener(uvicorn.Server):
    """An application on bounded connections, over TLS where there is a certificate.

    Ends with status 0 on SIGTERM and SIGINT instead of dying of the re-raised signal.
    """

    def __init__(
        self,
        app: Any,
        bounds: ConnectionBounds,
        crowd: Crowd,
        max_body_bytes: int,
        encryption: Encryption | None,
    ) -> None:
        http: Any = bounded_http(bounds, crowd, max_body_bytes)
        if encryption is not None:
            http = encryption.over(http, crowd, bounds.header_receive_s)
        config = uvicorn.Config(
            app,
            http=http,
            ws="none",
            lifespan="off",
            access_log=False,
            server_header=False,
            log_level="error",
            timeout_graceful_shutdown=_GRACE_S,
        )
        super().__init__(config)
        self._crowd = crowd

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            # Reading a prompt may take longer than anybody waits, and a thread cannot be stopped.
            last = threading.Timer(_END_WITHIN_S, _end_now)
            last.daemon = True
            last.start()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._crowd.end_unheard()
        await super().shutdown(sockets)

    async def close(self) -> None:
        """Drop connections that something still waits for: the loop would not end with them."""
        if self.server_state.tasks:
            # They were cancelled, and send a last message about it.
            await asyncio.wait(self.server_state.tasks, timeout=_LAST_WORDS_S)
        self._crowd.end_all()
        await asyncio.sleep(0)


def serve(options: ServeOptions) -> int:
    """Run until stopped; returns the exit status."""
    try:
        encryption = Encryption(options.certificate) if options.certificate else None
    except CertificateRefused as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    place = (options.host, options.port)
    try:
        listener = socket.create_server(place, backlog=256)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]  # Python adds the address again.
        sys.stderr.write(f"cannot listen on {options.host}:{options.port}: {why}\n")
        return EXIT_NO_LISTENER
    with listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(options, listener, encryption))


async def _serve(
    options: ServeOptions, listener: socket.socket, encryption: Encryption | None
) -> int:
    # Prompts are read on as many threads as can run: more would only hold up the loop.
    readers = ThreadPoolExecutor(max(2, min(32, os.cpu_count() or 2)), "prompt")
    asyncio.get_running_loop().set_default_executor(readers)
    bounds = _permitted(options.bounds)
    crowd = Crowd(bounds.connections_max)
    counts = Counts()
    app = EngineApp(
        counts=counts,
        api_key=options.api_key,
        max_body_bytes=options.max_body_bytes,
        max_held_body_bytes=options.max_held_body_bytes,
        requests_max=bounds.requests_max,
        more_metrics=lambda: crowd.metrics.render() + (encryption.metrics() if encryption else b""),
    )
    server = Listener(app, bounds, crowd, options.max_body_bytes, encryption)
    announce = _Announcement(app, options, listener)
    supervisor = Supervisor(options.worker, announce, counts)
    supervising = asyncio.create_task(supervisor.run())
    supervising.add_done_callback(functools.partial(_exit_with, server))
    async with _looked_after(encryption):
        await server.serve(sockets=[listener])
    await supervisor.stop()
    await asyncio.wait({supervising})
    await server.close()
    try:
        await supervising
    except WorkerRefused:
        return EXIT_REFUSED
    log_event("engine.stopped")
    return 0


def _permitted(bounds: ConnectionBounds) -> ConnectionBounds:
    return replace(bounds, connections_max=connections_permitted(bounds.connections_max))


@contextlib.asynccontextmanager
async def _looked_after(encryption: Encryption | None) -> AsyncIterator[None]:
    if encryption is None:
        yield
        return
    looking = asyncio.create_task(encryption.look_after())
    try:
        yield
    finally:
        looking.cancel()


def _end_now() -> None:
    log_event("engine.stopped_by_force")
    os._exit(0)


def _exit_with(server: uvicorn.Server, supervising: "asyncio.Task[None]") -> None:
    """A process that never becomes ready must not linger; the supervisor has said why."""
    if supervising.cancelled() or supervising.exception() is not None:
        server.should_exit = True


class _Announcement:
    """Tells the application and the log what the worker has loaded."""

    def __init__(self, app: EngineApp, options: ServeOptions, listener: socket.socket) -> None:
        self._app = app
        self._options = options
        self._address = listener.getsockname()[:2]
        self._scheme = "https" if options.certificate else "http"
        self._started_s = monotonic_s()

    def __call__(self, engine: Engine | None) -> None:
        if engine is None:
            self._app.detach()
            return
        name = self._options.served_name or engine.name
        self._app.attach(name, engine)
        host, port = self._address
        ready = engine.ready
        log_event(
            "engine.ready",
            model=name,
            digest=engine.digest,
            scheme=self._scheme,
            host=host,
            port=port,
            pid=os.getpid(),
            device=ready.device,
            dtype=ready.dtype,
            load_s=round(monotonic_s() - self._started_s, 3),
            **ready.description,
            **ready.memory,
        )
