"""The door of the data plane: one model call over HTTP, from bytes in to bytes out.

The outermost of the three named borders with a broad `except`: whatever goes wrong behind it, the
caller gets an error in its own dialect, with a request id and nothing internal in it.
"""

import asyncio
import secrets
from collections.abc import Mapping
from functools import partial

from litestar.types import Receive, Scope, Send

from gateway.admission.trace_context import trace_context
from gateway.api.azure import Address
from gateway.api.deadlines import Deadlines
from gateway.api.exchange import Bounds, Exchange
from gateway.api.room import Room
from gateway.clock import Clock
from gateway.configuration.settings import Limits
from gateway.dispatch.attempts import is_stopped
from gateway.errors import (
    Exhausted,
    GatewrightError,
    MethodRefused,
    Unavailable,
    WorkerStopped,
)
from gateway.metrics import Metrics
from gateway.pacing.pings import Write
from gateway.pacing.turns import Turns
from gateway.passage import Arrival
from gateway.pipeline import Pipeline, StreamedAnswer, WholeAnswer
from gateway.ports import Dialect, Standing
from gateway.snapshot import SnapshotKeeper
from gateway.telemetry import Event, logger, raised_at


JSON_HEADERS = {"content-type": "application/json"}
STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}
READING_S = 3.0
"""How long after the work's deadline a caller may still be reading the answer."""
ID_BYTES = 8
IDS_DRAWN = 64
_STOPPED = "This worker is being ended; try again."
OVERLOADED = "Too many requests are being served by this worker; try again shortly."


def bounds_of(limits: Limits) -> Bounds:
    """The limits that all doors of a worker share."""
    return Bounds(
        body_bytes_max=limits.body_bytes_max,
        values_max=limits.keys_max,
        body_receive_s=limits.body_receive_s,
        room=Room(limits.held_body_bytes_max),
        deadlines=Deadlines(limits.request_deadline_s + READING_S),
    )


class Door:
    """Receives calls of one dialect at one endpoint."""

    def __init__(
        self,
        endpoint: str,
        dialect: Dialect,
        *,
        pipeline: Pipeline,
        snapshots: SnapshotKeeper,
        clock: Clock,
        metrics: Metrics,
        bounds: Bounds,
        load: "Load",
    ) -> None:
        self.endpoint = endpoint
        self._dialect = dialect
        self._pipeline = pipeline
        self._snapshots = snapshots
        self._clock = clock
        self._metrics = metrics
        self._bounds = bounds
        self._load = load
        self._log = logger()

    async def call(
        self, scope: Scope, receive: Receive, send: Send, address: Address | None = None
    ) -> None:
        """Serve one ASGI call; `address` is set if it came by another vendor's path."""
        exchange = Exchange(scope, receive, send, self._bounds)
        arrived_us = self._clock.utc_us()
        request_id = new_request_id(arrived_us)
        try:
            if exchange.method != "POST":
                raise MethodRefused("Send a POST request.", allowed="POST")
            with self._load:
                begin = partial(_begin, exchange, request_id)
                read = partial(address.body, exchange.read_body) if address else exchange.read_body
                arrival = self._arrival(exchange, request_id, arrived_us)
                answer = await self._pipeline.serve(arrival, read, begin)
                await _send(exchange, request_id, answer)
        except GatewrightError as error:
            await self._refuse(exchange, request_id, error)
        except asyncio.CancelledError as error:
            # The caller left: the exchange is over and uvicorn drops the connection.
            if not exchange.caller_left:
                if is_stopped(error):
                    await self._refuse(exchange, request_id, WorkerStopped(_STOPPED))
                raise
        except Exception as error:  # noqa: BLE001 - the ASGI edge
            self._log.error(
                Event.REQUEST_CRASHED,
                request_id=request_id,
                endpoint=self.endpoint,
                error_class=type(error).__name__,
                where=raised_at(error),
            )
            crash = GatewrightError("The gateway failed to serve this request.")
            await self._refuse(exchange, request_id, crash)
        finally:
            exchange.close()

    def _arrival(self, exchange: Exchange, request_id: str, arrived_us: int) -> Arrival:
        return Arrival(
            request_id=request_id,
            endpoint=self.endpoint,
            dialect=self._dialect,
            headers=exchange.headers,
            arrived_us=arrived_us,
            snapshot=self._snapshots.current(),
            trace=trace_context(exchange.headers),
        )

    async def _refuse(self, exchange: Exchange, request_id: str, error: GatewrightError) -> None:
        """Send an error; if the answer has begun, it can only be cut off."""
        if exchange.started:
            return
        self._metrics.count_refusal(error.code)
        status, body = self._dialect.encode_error(error, request_id)
        headers = {
            **error.rate_limits,
            **error.headers,
            **error.evidence,
            **JSON_HEADERS,
            **id_headers(request_id),
        }
        if isinstance(error, Exhausted) and isinstance(error.standing, Standing):
            headers |= self._dialect.encode_standing(error.standing, self._clock.utc_us())
        if error.retry_after_s is not None:
            headers["retry-after"] = str(max(1, round(error.retry_after_s)))
        if not error.retryable:
            # Both SDKs would retry a 429 that no retry can help.
            headers["x-should-retry"] = "false"
        await exchange.answer(status, headers, body)


def _begin(exchange: Exchange, request_id: str, headers: Mapping[str, str]) -> Write:
    """Prepare a stream; its head is sent with its first piece."""
    exchange.begin_stream({**STREAM_HEADERS, **id_headers(request_id), **headers})
    return exchange.write


async def _send(exchange: Exchange, request_id: str, answer: WholeAnswer | StreamedAnswer) -> None:
    if isinstance(answer, WholeAnswer):
        headers = {**JSON_HEADERS, **id_headers(request_id), **answer.headers}
        await exchange.answer(200, headers, answer.body)
        return
    if not exchange.started:
        _begin(exchange, request_id, answer.headers)
    if await answer.relay(exchange.write, exchange.direct):
        await exchange.end_stream()
    else:
        await exchange.cut_stream()


def new_request_id(utc_us: int) -> str:
    """A request id of ours, never the caller's: no two requests may share one in the evidence.

    It begins with the time in milliseconds, so that the index over request ids grows at one end:
    with unordered ids, most of the projection's time went into pages all over the table.
    """
    if not _fresh_ids:
        # Drawn for many at once: each draw is a system call that releases the interpreter.
        drawn = secrets.token_hex(ID_BYTES * IDS_DRAWN)
        step = 2 * ID_BYTES
        _fresh_ids.extend(drawn[at : at + step] for at in range(0, len(drawn), step))
    return f"req_{utc_us // 1000:012x}{_fresh_ids.pop()}"


_fresh_ids: list[str] = []


def id_headers(request_id: str) -> dict[str, str]:
    """A request's id under two names: OpenAI's SDK reads the first, Anthropic's the second."""
    return {"x-request-id": request_id, "request-id": request_id}


class Load:
    """Limits how many requests a worker serves at once; more are refused before any is read."""

    def __init__(self, concurrent_requests_max: int, metrics: Metrics, turns: Turns) -> None:
        self._max = concurrent_requests_max
        self._turns = turns
        metrics.in_flight.set_function(lambda: turns.present)

    def __enter__(self) -> None:
        if self._turns.present >= self._max:
            raise Unavailable(OVERLOADED, retry_after_s=1.0)
        self._turns.present += 1

    def __exit__(self, *_: object) -> None:
        self._turns.present -= 1
