"""`gatewright serve` and `gatewright admin serve`: the two listeners, each its own process."""

import gc
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import uvicorn

from gateway.api.protocol import bounded_protocol
from gateway.app import DataPlane
from gateway.cli.options import config_option
from gateway.cli.setup import print_setup_link, setup_link_command
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Listener, Settings
from gateway.errors import GatewrightError
from gateway.telemetry import configure_logging


SHUTDOWN_S = 10

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class _Watched:
    """An application whose refusal to start is kept: said in a line, not in a trace of frames."""

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
            for message in held:
                await send({**message, "message": ""} if self.refusal else message)
            raise


def _expected_in(error: BaseException) -> GatewrightError | None:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, GatewrightError) else None


@click.command()
@config_option
def serve(config_file: Path) -> None:
    """Serve the data plane: the one endpoint that application teams call."""
    settings = load_settings(config_file)
    log = configure_logging(settings.log_level, buffered=True)
    assert log is not None
    application = DataPlane(settings, drain_log=log.drain).application()
    _tune_interpreter()
    run_server(application, settings, settings.data_plane)


@click.group()
def admin() -> None:
    """The control plane, on a listener of its own."""


admin.add_command(setup_link_command)


@admin.command("serve")
@config_option
@click.option(
    "--setup-link/--no-setup-link",
    "says_link",
    default=True,
    help="Print a link that makes the first person, on a terminal and while nobody exists.",
)
def admin_serve(config_file: Path, *, says_link: bool) -> None:
    """Serve the admin listener."""
    # The admin package lies above the gateway: it is named here and imported when asked for.
    from importlib import import_module  # noqa: PLC0415

    settings = load_settings(config_file)
    configure_logging(settings.log_level)
    if sys.stdout.isatty() and says_link:
        # To a terminal only: what is written to a file or a collector is read by others.
        print_setup_link(settings)
    application = import_module("admin.app").build_application(settings)
    run_server(application, settings, settings.admin)


def _tune_interpreter() -> None:
    """The cycle collector of CPython, set for a measured reason (benchmarks/README.md).

    What was built at the start lives as long as the process: frozen, the cycle collector does not
    walk over it again. A request leaves hardly any cycles, so the collector looks for them once in
    20,000 new containers instead of 700; that was a tenth of the time of a request.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def run_server(application: Any, settings: Settings, listener: Listener) -> None:
    """Run one ASGI application until it is told to stop; one process, one event loop.

    Raises:
        GatewrightError: the application refused to start; its message says why.
    """
    watched = _Watched(application)
    server = uvicorn.Server(
        uvicorn.Config(
            watched,
            host=listener.host,
            port=listener.port,
            interface="asgi3",
            loop="uvloop",
            http=bounded_protocol(settings.limits),
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=SHUTDOWN_S,
            backlog=settings.limits.concurrent_requests_max,
        )
    )
    try:
        with suppress(KeyboardInterrupt):
            server.run()
    except SystemExit:
        # uvicorn has said only that the start failed.
        if watched.refusal is not None:
            raise watched.refusal from None
        raise
