"""Runs an application on its listener until it is told to stop, or says why it cannot start."""

import asyncio
import gc
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from msgspec import Struct, structs
from uvicorn.server import ServerState

from gateway.api.encrypted import encrypted_protocol, end_connections
from gateway.api.probes import Application, Message, Receive, Send, probe_config
from gateway.api.protocol import bounded_protocol
from gateway.cli.options import Refused
from gateway.configuration.settings import Listener, Settings
from gateway.errors import GatewrightError
from gateway.pacing.moments import rung, until_moment_s
from gateway.pacing.rhythm import CERTIFICATES_S
from gateway.pacing.upkeep import Duty, Upkeep
from gateway.secrets.certificates import KeptCertificate
from gateway.telemetry import Event, ServerLines


SHUTDOWN_S = 10
DIGITS_MAX = 640
"""Of an integer; the least that CPython accepts, and twice as many as a float has."""
FILES_LEAST = 128
"""With fewer there is no room for callers besides the database, the log and upstreams."""
TICK_S = 1.0
"""How often the server renews the date in its answers' headers."""
SERVERS_LOG = "uvicorn.error"
"""The name of its logger for everything, errors or not."""

SayStarted = Callable[[str], None]
"""Gets the address at which callers are answered from now on."""


class _Watched:
    """An application whose refusal to start is reported in a line instead of a traceback."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self.refusal: GatewrightError | None = None

    def __call__(self, scope: Message, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "lifespan":
            return self._live(scope, receive, send)
        return self._application(scope, receive, send)

    async def _live(self, scope: Message, receive: Receive, send: Send) -> None:
        held: list[Message] = []

        async def hold_failure(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed":
                held.append(message)
            else:
                await send(message)

        try:
            await self._application(scope, receive, hold_failure)
        except BaseException as error:
            self.refusal = _expected_in(error)
            # The server would report that the start failed, but not why.
            logging.getLogger(SERVERS_LOG).disabled = self.refusal is not None
            for message in held:
                await send({**message, "message": ""} if self.refusal else message)
            raise


class _ProbePort(Struct, frozen=True):
    """A listener's second port, for probes alone."""

    config: uvicorn.Config
    sockets: tuple[socket.socket, ...]
    state: ServerState
    """Its connections are not callers': they are neither counted nor waited for at the end."""

    async def open(self, app_state: dict[str, Any]) -> list[asyncio.Server]:
        protocol: Any = self.config.http_protocol_class
        make = partial(
            protocol,
            config=self.config,
            server_state=self.state,
            app_state=app_state,
        )
        loop = asyncio.get_running_loop()
        return [await loop.create_server(make, sock=each) for each in self.sockets]


class _Server(uvicorn.Server):
    """Says where it listens once it does: before that nobody is answered."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: Listener,
        says: SayStarted,
        certificate: KeptCertificate | None,
        probes: _ProbePort | None,
        leaves: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._listener, self._probes, self._leaves = listener, probes, leaves
        if certificate is not None:
            certificate.when_fewer_may_come(partial(end_connections, self.server_state))
        self._says = says
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._upkeep = Upkeep(
            (Duty("certificate", CERTIFICATES_S, certificate.tend, Event.UPKEEP_FAILED),)
            if certificate is not None
            else ()
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A closed terminal ends it as SIGTERM does, unless `nohup` says otherwise.

        If it were killed in the middle of requests, it would leave behind what a crash does.
        """
        with super().capture_signals():
            is_main = threading.current_thread() is threading.main_thread()
            if not is_main or signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
                yield
                return
            signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, signal.SIG_DFL)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        if self.should_exit:  # The signal came before there was a loop to wake.
            self._told.set()
        this = asyncio.current_task()
        assert this is not None
        watching = asyncio.ensure_future(self._cancel_when_told(this))
        try:
            await super().startup(sockets)
        except asyncio.CancelledError:
            if not self.should_exit:
                raise
            # It was waiting, as for a database that was put back, and is told to end.
            this.uncancel()
            return
        finally:
            watching.cancel()
        self._upkeep.start()
        if self._probes is not None:
            self.servers += await self._probes.open(self.lifespan.state)
        # Port 0 takes a free one, which only the socket knows.
        port = sockets[0].getsockname()[1] if sockets else self._listener.port
        self._says(structs.replace(self._listener, port=port).url)

    async def main_loop(self) -> None:
        """Like the server's own loop, which checks ten times a second whether it is told to end."""
        while not await self.on_tick(0):
            await rung(self._told, until_moment_s(TICK_S))
            self._told.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._loop is not None:  # A signal may come between any two bytecodes.
            self._loop.call_soon_threadsafe(self._told.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._leaves()
        await self._upkeep.close()
        if self._probes is not None:
            end_connections(self._probes.state)
        await super().shutdown(sockets)

    async def _cancel_when_told(self, starting: asyncio.Task[Any]) -> None:
        await self._told.wait()
        starting.cancel()


class ListenerTaken(Refused):
    """A listener that cannot be opened."""

    exit_code = 3


def bound_sockets(listener: Listener) -> list[socket.socket]:
    """A socket for each address of a listener, not open to callers yet.

    Opened before anything starts; a later error would be lost among the lines of a start and an
    end.

    Raises:
        ListenerTaken
    """
    place = f"{listener.host}:{listener.port}"
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            bound = _made(family, kind, protocol)
            if bound is None:
                continue
            sockets.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind(address)
    except OSError as error:
        for each in sockets:
            each.close()
        why = (error.strerror or "no such address").lower()
        raise ListenerTaken(f"{place} cannot be listened on: {why}") from error
    if not sockets:
        raise ListenerTaken(f"{place} cannot be listened on: the machine has no such addresses")
    return sockets


def _probe_sockets(listener: Listener) -> tuple[socket.socket, ...]:
    """None if probes have no port of their own; raises like `bound_sockets`."""
    if not listener.probe_port:
        return ()
    return tuple(bound_sockets(Listener(host=listener.probe_host, port=listener.probe_port)))


def _made(family: int, kind: int, protocol: int) -> socket.socket | None:
    """A socket; None for a family that the machine lacks, as IPv6 is often switched off."""
    try:
        return socket.socket(family, kind, protocol)
    except OSError:
        return None


def _expected_in(error: BaseException) -> GatewrightError | None:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, GatewrightError) else None


def tune_interpreter() -> None:
    """Tune CPython: the cycle collector for a measured reason (benchmarks/README.md).

    What was built at the start lives as long as the process: frozen, the cycle collector does not
    walk over it again, which held up an admin page of 50 ms for 140 more. A request leaves hardly
    any cycles, so the collector looks for them once in 20,000 new containers instead of 700; that
    was a tenth of the time of a request.

    Reading digits takes a time that grows with the square of their number: ten megabytes of numbers
    of CPython's own maximal length held up a worker for a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    sys.set_int_max_str_digits(DIGITS_MAX)


def permit_files() -> None:
    """Raise the limit of open files as far as this process may.

    Machines begin with 1024, for programs that count their files in bits; each caller and each
    connection to an upstream is one, and so are the files that the gateway writes.
    """
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != most:
        with suppress(OSError, ValueError):  # Some machines call that unlimited and have a limit.
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < FILES_LEAST:
        raise Refused(
            f"may open {allowed} files and needs {FILES_LEAST}:"
            " raise LimitNOFILE of its unit, or `ulimit -n`"
        )


def run_server(
    application: Any,
    settings: Settings,
    listener: Listener,
    says: SayStarted,
    certificate: KeptCertificate | None = None,
    *,
    leaves: Callable[[], None] = lambda: None,
) -> None:
    """Run one ASGI application until it is told to stop; one process, one event loop.

    With a certificate it speaks TLS, and only TLS. `leaves` is called when it is told to stop,
    before callers who are being answered are waited for.

    Raises:
        GatewrightError: the application refused to start; its message says why.
        ListenerTaken
    """
    permit_files()
    sockets = bound_sockets(listener)
    for_probes = _probe_sockets(listener)
    tune_interpreter()
    said = logging.getLogger(SERVERS_LOG)
    said.addHandler(ServerLines())
    said.propagate = False
    watched = _Watched(application)
    probes = None
    if for_probes:
        probes = _ProbePort(probe_config(watched, settings.limits), for_probes, ServerState())
    config = _config(watched, settings, listener, certificate)
    server = _Server(config, listener, says, certificate, probes, leaves)
    try:
        with suppress(KeyboardInterrupt):
            server.run(sockets)
    except SystemExit:
        if watched.refusal is not None:
            raise watched.refusal from watched.refusal.__cause__
        raise


def _config(
    application: Application,
    settings: Settings,
    listener: Listener,
    certificate: KeptCertificate | None,
) -> uvicorn.Config:
    plain = bounded_protocol(settings.limits)
    protocol: Any = plain if certificate is None else encrypted_protocol(plain, certificate)
    return uvicorn.Config(
        application,
        host=listener.host,
        port=listener.port,
        interface="asgi3",
        loop="uvloop",
        http=protocol,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
        backlog=settings.limits.concurrent_requests_max,
    )
