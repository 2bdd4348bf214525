"""What Litestar 2.25 works out about the admin handlers, worked out once for all of a run.

It takes the place of private parts of Litestar: only `handlers_known` imports it, and only beside
the version that it was written for. A listener is built for each of some 600 tests, and its 350
handlers are the same each time but for what they close over. Four fifths of that time went into
reading their annotations anew, and into going over all routes after each one. Nothing that a
request meets is another than in product.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_COROUTINE
from types import FunctionType, GenericAlias, UnionType
from typing import Any
from unittest.mock import patch

import litestar.handlers.http_handlers.base
import litestar.utils.sync
from litestar import Litestar, Router
from litestar._asgi.asgi_router import ASGIRouter
from litestar._kwargs import KwargsModel
from litestar._signature import SignatureModel
from litestar.handlers import HTTPRouteHandler
from litestar.params import ParameterKwarg
from litestar.routes import HTTPRoute
from litestar.utils.signature import ParsedSignature


_READ = ParsedSignature.from_fn
_MODELLED = SignatureModel.create
_REGISTERED = HTTPRouteHandler.on_registration
_EXPECTED = KwargsModel.create_for_signature_model
_ASYNC = litestar.utils.sync.is_async_callable
_signatures: dict[tuple[Any, ...], ParsedSignature] = {}
_models: dict[tuple[Any, ...], type[SignatureModel]] = {}
_expected_of: dict[tuple[Any, ...], KwargsModel] = {}
_held: dict[int, object] = {}
"""What is known by its identity below: as long as it is held, nothing else can have that."""


def built(build: Callable[[], Litestar]) -> Litestar:
    """What `build` gives, sooner."""
    with _quickly():
        application = build()
    application.asgi_router.construct_routing_trie()
    return application


@contextmanager
def _quickly() -> Iterator[None]:
    with (
        patch.object(ParsedSignature, "from_fn", _signature),
        patch.object(SignatureModel, "create", _model),
        patch.object(KwargsModel, "create_for_signature_model", _expected),
        patch.object(HTTPRouteHandler, "on_registration", _registering_once()),
        patch.object(ParameterKwarg, "__hash__", _hash),
        patch.object(litestar.utils.sync, "is_async_callable", _is_async),
        patch.object(litestar.handlers.http_handlers.base, "is_async_callable", _is_async),
        patch.object(Router, "route_handler_method_map", property(_Handlers)),
        # Once, when all routes are there.
        patch.object(ASGIRouter, "construct_routing_trie", lambda _: None),
    ):
        yield


def _signature(fn: Any, namespace: dict[str, Any]) -> ParsedSignature:
    """The same for two functions of the same code whose annotations and defaults are the same."""
    if not hasattr(fn, "__code__"):
        return _READ(fn, namespace)
    hints = tuple((name, _named(hint)) for name, hint in fn.__annotations__.items())
    defaults = (repr(fn.__defaults__), repr(fn.__kwdefaults__))
    key = (fn.__code__, hints, defaults, *sorted(namespace))
    if key not in _signatures:
        _signatures[key] = _READ(fn, namespace)
        _named(_signatures[key])
    return _signatures[key]


def _named(thing: object) -> object:
    """By what two of them are the same: most are made once, where a module is read."""
    if isinstance(thing, UnionType | GenericAlias):
        return thing
    _held[id(thing)] = thing
    return id(thing)


def _model(
    dependency_name_set: set[str],
    fn: Any,
    parsed_signature: ParsedSignature,
    type_decoders: Any,
    data_dto: Any = None,
) -> type[SignatureModel]:
    if data_dto is not None or id(parsed_signature) not in _held:
        return _MODELLED(dependency_name_set, fn, parsed_signature, type_decoders, data_dto)
    # The decoders are Litestar's own, made anew with each application: we add none.
    known = (id(parsed_signature), len(type_decoders), *sorted(dependency_name_set))
    key = (*known, fn.__name__, fn.__module__)
    if key not in _models:
        _models[key] = _MODELLED(dependency_name_set, fn, parsed_signature, type_decoders)
    return _models[key]


def _expected(
    signature_model: type[SignatureModel],
    parsed_signature: ParsedSignature,
    dependencies: dict[str, Any],
    path_parameters: set[str],
    layered_parameters: dict[str, Any],
    ctx: Any = None,
) -> KwargsModel:
    """What a handler takes of a request; `ctx` is only for what is said of a wrong one."""
    given = (signature_model, parsed_signature, dependencies, path_parameters, layered_parameters)
    if dependencies or layered_parameters or id(parsed_signature) not in _held:
        return _EXPECTED(*given, ctx)
    key = (signature_model, id(parsed_signature), *sorted(path_parameters))
    if key not in _expected_of:
        _expected_of[key] = _EXPECTED(*given, ctx)
    return _expected_of[key]


def _registering_once() -> Callable[[HTTPRouteHandler, Litestar], None]:
    """Litestar does it again for all handlers of a path with each that comes to it."""
    done: dict[int, HTTPRouteHandler] = {}

    def register(handler: HTTPRouteHandler, app: Litestar) -> None:
        if id(handler) not in done:
            done[id(handler)] = handler
            _REGISTERED(handler, app)

    return register


def _hash(parameter: ParameterKwarg) -> int:
    """Equal for equal ones, as it has to be; Litestar copies a parameter to hash it."""
    return hash((parameter.name, parameter.query))


def _is_async(value: Any) -> bool:
    """Of a function, its code says so; a listener asks 5,000 times."""
    if type(value) is FunctionType:
        return bool(value.__code__.co_flags & CO_COROUTINE)
    return _ASYNC(value)


class _Handlers:
    """Those of a router by path and method: looked up, not gathered for each question."""

    def __init__(self, router: Router) -> None:
        self._routes = router.routes

    def get(self, path: str, missing: dict[str, Any]) -> dict[str, Any]:
        for route in self._routes:
            if route.path == path:
                assert isinstance(route, HTTPRoute)
                return {
                    method: handler
                    for handler in route.route_handlers
                    for method in handler.http_methods
                }
        return missing
