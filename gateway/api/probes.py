"""Health and metrics in plain HTTP on a port of their own, for probes that have no certificate.

Nothing else is served there: whoever reaches the port learns what `/health` and `/metrics` say, and
can ask for nothing else (decision 0064).
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import uvicorn

from gateway.api.protocol import bounded_protocol
from gateway.configuration.settings import Limits


PATHS: Final = frozenset({b"/health/live", b"/health/ready", b"/metrics"})
METHODS: Final = frozenset({"GET", "HEAD"})
CONNECTIONS_MAX: Final = 64
"""A kubelet and some collectors keep one each; a newcomer beyond them ends an idle one."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class Probes:
    """The part of a listener's application that probes may see; it lives as long as that."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def __call__(self, scope: Message, receive: Receive, send: Send) -> Awaitable[None]:
        is_probe = scope["method"] in METHODS and scope["raw_path"] in PATHS
        return self._application(scope, receive, send) if is_probe else _refuse(send)


async def _refuse(send: Send) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": 404,
            "headers": [(b"content-length", b"0")],
        }
    )
    await send({"type": "http.response.body", "body": b""})


def probe_config(application: Application, limits: Limits) -> uvicorn.Config:
    """How connections of probes are served: unencrypted, with the same bounds as any caller's."""
    config = uvicorn.Config(
        Probes(application),
        interface="asgi3",
        http=bounded_protocol(limits, CONNECTIONS_MAX),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    config.load()
    return config
