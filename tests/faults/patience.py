"""A gateway that waits for silent upstreams as its settings say, and long for all others.

Settings of half a second end a test of silence quickly. On a busy machine a good answer sometimes
takes longer, and the test would then see another fault.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec import structs

from gateway.providers.egress.client import Route
from gateway.providers.egress.reply import EgressReply
from tests.running_gateway import RunningGateway, Upstreams


PATIENCE_S: Final = 60.0


def wait_for_answers(gateway: RunningGateway, upstreams: Upstreams) -> None:
    """From now on; what an upstream does next is asked when a call begins."""
    egress = gateway.plane._egress
    send: Callable[..., Coroutine[Any, Any, EgressReply]] = egress._send
    by_port = {each.port: each for each in (upstreams.engine, *upstreams.managed)}

    def sending(
        method: bytes, route: Route, *given: Any, **named: Any
    ) -> Coroutine[Any, Any, EgressReply]:
        upstream = by_port.get(route.endpoint.port)
        # Probes have deadlines of their own, and say them.
        if upstream is not None and not upstream.is_silent and "limits" not in named:
            named["limits"] = structs.replace(
                egress.limits, first_byte_s=PATIENCE_S, idle_s=PATIENCE_S
            )
        return send(method, route, *given, **named)

    vars(egress)["_send"] = sending
