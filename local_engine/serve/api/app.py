"""The engine's ASGI application: routes, access, readiness, and the place where errors end."""

import asyncio
import functools
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import msgspec

from local_engine.serve.api.cache_api import answer_cache_chain, answer_cache_events
from local_engine.serve.api.caller import read_caller
from local_engine.serve.api.chat import answer_chat
from local_engine.serve.api.chat_response import as_event
from local_engine.serve.api.completions import answer_completion
from local_engine.serve.api.errors import (
    ApiError,
    EngineFailed,
    MethodNotAllowed,
    NotFound,
    Unauthorized,
    Unavailable,
    unknown_model,
)
from local_engine.serve.api.http import (
    EVENT_STREAM,
    ClientGone,
    Receive,
    Scope,
    Send,
    read_body,
    send_body,
    send_error,
    send_part,
    unless_client_gone,
)
from local_engine.serve.api.room import Room
from local_engine.serve.api.texts import answer_detokenize, answer_embeddings, answer_tokenize
from local_engine.serve.clock import unix_time_s
from local_engine.serve.engine import Engine
from local_engine.serve.log import log_event
from local_engine.serve.metrics import Counts
from local_engine.serve.options import ConnectionBounds
from local_engine.text.output_parser import ToolFormat


DEFAULT_MAX_BODY_BYTES = 4 << 20
DEFAULT_MAX_HELD_BODY_BYTES = 256 << 20
# `/health` is what vLLM and SGLang call it: whether a request would be accepted now. The open paths
# are what supervisors and scrapers may read without a key; everything else shows the model's
# answers.
_MODELS = "/v1/models/"
_DRAIN = "/drain"
_OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready", "/metrics"})
_Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """An engine under the name that clients ask for."""

    name: str
    engine: Engine
    loaded_at: int


def _capabilities(engine: Engine) -> list[str]:
    """What not every model can do: if this one's template knows tools, it calls them."""
    return ["tools"] if engine.tokenizer.tool_format is not ToolFormat.NONE else []


class EngineApp:
    """Serves one model; before `attach` it is alive but not ready."""

    def __init__(
        self,
        *,
        counts: Counts | None = None,
        api_key: str | None = None,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
        max_held_body_bytes: int = DEFAULT_MAX_HELD_BODY_BYTES,
        requests_max: int = ConnectionBounds().requests_max,
        more_metrics: Callable[[], bytes] = bytes,
    ) -> None:
        """`requests_max` limits those that wait for a body or a model.

        `max_held_body_bytes` limits the total of all long bodies.

        `more_metrics` gives what others than the engine count, in Prometheus text form.
        """
        self._counts = counts or Counts()
        self._api_key = api_key
        self._max_body_bytes = max_body_bytes
        self._more_metrics = more_metrics
        self._served: ServedModel | None = None
        self._is_draining = False
        self._room = Room(requests_max, max_held_body_bytes)
        self._routes: dict[tuple[str, str], _Handler] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completions,
            ("POST", "/v1/embeddings"): self._embeddings,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/detokenize"): self._detokenize,
            ("POST", "/cache/events"): self._cache_events,
            ("POST", "/cache/chain"): self._cache_chain,
            ("POST", _DRAIN): self._drain,
            ("GET", "/v1/models"): self._models,
            ("GET", _MODELS): self._one_model,
            ("GET", "/health"): self._ready,
            ("GET", "/health/live"): self._live,
            ("GET", "/health/ready"): self._ready,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/version"): self._version,
            ("GET", "/load"): self._load,
        }
        self._paths = {path for _, path in self._routes}

    def attach(self, name: str, engine: Engine) -> None:
        """Serve the model from now on."""
        self._served = ServedModel(name, engine, unix_time_s())
        self._counts = engine.metrics.counts

    def detach(self) -> None:
        """The worker is gone: alive, but not ready until another one has loaded."""
        self._served = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "the server is configured for HTTP only"
        is_started = False
        is_stream = False
        # Health checks ask nothing of the engine, however often the answer is "not yet".
        is_counted = scope["path"] not in _OPEN_PATHS

        async def watched_send(message: dict[str, Any]) -> None:
            nonlocal is_started, is_stream
            if not is_started:
                is_started, is_stream = True, EVENT_STREAM in message["headers"]
            await send(message)

        try:
            await self._handler(scope)(scope, receive, watched_send)  # type: ignore[arg-type]
        except ClientGone:
            return
        except asyncio.CancelledError:
            # The server is stopping and has waited long enough.
            error = Unavailable("The engine is stopping.", code="stopping", retry_after_s=1)
            if is_stream:
                await send_part(send, as_event(error.envelope()), is_last=True)
            else:
                await self._refuse(send, error, is_started=is_started)
        except ApiError as error:
            await self._refuse(send, error, is_started=is_started, is_counted=is_counted)
        except Exception as error:  # noqa: BLE001 - the ASGI edge: the client gets an envelope
            log_event("engine.request_failed", error_type=type(error).__name__)
            failure = EngineFailed("Internal error.", code="internal_error")
            await self._refuse(send, failure, is_started=is_started)

    async def _refuse(
        self, send: Send, error: ApiError, *, is_started: bool, is_counted: bool = True
    ) -> None:
        if is_counted:
            self._counts.count_refusal(error.code)
        # Once a body has begun, breaking off is the only honest signal left.
        if is_started:
            raise error
        await send_error(send, error)

    def _handler(self, scope: Scope) -> _Handler:
        method, path = str(scope["method"]), str(scope["path"])
        if method == "HEAD":
            method = "GET"  # The server leaves the body out.
        if path.startswith(_MODELS):
            path = _MODELS  # A model's name may have slashes of its own.
        if path not in self._paths:
            raise NotFound("Unknown URL.", code="unknown_url")
        if (method, path) not in self._routes:
            raise MethodNotAllowed("POST" if ("POST", path) in self._routes else "GET, HEAD")
        if path not in _OPEN_PATHS:
            self._check_key(scope)
        handler = self._routes[method, path]
        is_at_once = method == "GET" or path == _DRAIN
        return handler if is_at_once else functools.partial(self._in_room, handler)

    async def _in_room(self, handler: _Handler, scope: Scope, receive: Receive, send: Send) -> None:
        with self._room.place() as place:

            async def held_receive() -> MutableMapping[str, Any]:
                message = await receive()
                place.hold(len(message.get("body", b"")))
                return message

            await handler(scope, held_receive, send)

    def _check_key(self, scope: Scope) -> None:
        if self._api_key is None:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        expected = f"Bearer {self._api_key}".encode()
        if not hmac.compare_digest(given, expected):
            raise Unauthorized("The API key is missing or wrong.", code="invalid_api_key")

    def _model(self) -> ServedModel:
        if self._served is None:
            raise Unavailable("The model is loading.", code="model_loading", retry_after_s=1)
        return self._served

    def _open_model(self) -> ServedModel:
        """The model, for work that begins now."""
        if self._is_draining:
            raise Unavailable("This engine is draining.", code="draining", retry_after_s=1)
        return self._model()

    async def _drain(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """From now on nothing new is begun; running requests go on. Answers how many are left."""
        self._is_draining = True
        running = waiting = 0  # While a model loads nothing has begun, and nothing will.
        if self._served is not None:
            stats = self._served.engine.stats()
            running, waiting = stats.num_running, stats.num_waiting
        state = {"status": "draining", "running": running, "waiting": waiting}
        await send_body(send, 200, msgspec.json.encode(state))

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        model = self._open_model()
        caller = read_caller(scope)
        body = await read_body(receive, self._max_body_bytes)
        await unless_client_gone(receive, answer_chat(body, send, model.engine, model.name, caller))

    async def _completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        model = self._open_model()
        caller = read_caller(scope)
        body = await read_body(receive, self._max_body_bytes)
        await unless_client_gone(
            receive, answer_completion(body, send, model.engine, model.name, caller)
        )

    async def _embeddings(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        model = self._open_model()
        body = await read_body(receive, self._max_body_bytes)
        await unless_client_gone(receive, answer_embeddings(body, send, model.engine, model.name))

    async def _tokenize(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        body = await read_body(receive, self._max_body_bytes)
        await answer_tokenize(body, send, self._model().engine)

    async def _detokenize(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        body = await read_body(receive, self._max_body_bytes)
        await answer_detokenize(body, send, self._model().engine)

    async def _cache_events(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        body = await read_body(receive, self._max_body_bytes)
        answer = answer_cache_events(body, send, self._model().engine)
        await unless_client_gone(receive, answer)

    async def _cache_chain(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = read_caller(scope)
        body = await read_body(receive, self._max_body_bytes)
        await answer_cache_chain(body, send, self._model().engine, caller)

    async def _models(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send_body(send, 200, msgspec.json.encode({"object": "list", "data": [self._card()]}))

    async def _one_model(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        if str(scope["path"]).removeprefix(_MODELS) != self._model().name:
            raise unknown_model(self._model().name)
        await send_body(send, 200, msgspec.json.encode(self._card()))

    def _card(self) -> dict[str, Any]:
        model = self._model()
        return {
            "id": model.name,
            "object": "model",
            "created": model.loaded_at,
            "owned_by": "gatewright",
            "digest": model.engine.digest,
            "precision": model.engine.ready.precision,
            "context_window_tokens": model.engine.context_window,
            "max_model_len": model.engine.context_window,  # vLLM's word, for its clients.
            "capabilities": _capabilities(model.engine),
        }

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send_body(send, 200, b'{"status":"live"}')

    async def _ready(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        self._open_model()
        await send_body(send, 200, b'{"status":"ready"}')

    async def _version(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send_body(send, 200, msgspec.json.encode({"version": version("gatewright")}))

    async def _load(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """How many sequences there are, in vLLM's words, which some load balancers read."""
        stats = self._model().engine.stats()
        load = stats.num_running + stats.num_waiting
        await send_body(send, 200, msgspec.json.encode({"server_load": load}))

    async def _metrics(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        text = self._more_metrics()  # Of the connections: also while no model is there.
        if self._served is None:
            text += self._counts.render()
        else:
            engine = self._served.engine
            text += engine.metrics.render(engine.stats())
        await send_body(send, 200, text, content_type=b"text/plain; version=0.0.4; charset=utf-8")
