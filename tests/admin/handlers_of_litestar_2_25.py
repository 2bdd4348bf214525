"""What Litestar 2.25 works out about the admin handlers, worked out once for all of a run.

It takes the place of private parts of Litestar: only `handlers_known` imports it, and only beside
the version that it was written for. A listener is built for each of some 1,500 tests, and its 360
handlers are the same each time but for what they close over. Four fifths of that time went into
reading their annotations anew, and into going over all routes after each one; and half of the rest
into making ready what no request of that test comes for, so that waits for the first that does.
Nothing that a request meets is another than in product.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from inspect import CO_COROUTINE
from threading import RLock
from types import CellType, FunctionType, GenericAlias, UnionType
from typing import Any, cast
from unittest.mock import patch

import litestar._asgi.routing_trie.mapping as trie
import litestar.handlers.http_handlers.base
import litestar.utils.sync
from litestar import Litestar, Router
from litestar._asgi.asgi_router import ASGIRouter
from litestar._asgi.routing_trie.types import ASGIHandlerTuple
from litestar._kwargs import KwargsModel
from litestar._signature import SignatureModel
from litestar.handlers import HTTPRouteHandler
from litestar.params import ParameterKwarg
from litestar.routes import HTTPRoute
from litestar.utils.signature import ParsedSignature


_READ = ParsedSignature.from_fn
_MODELLED = SignatureModel.create
_BUILD_TRIE = ASGIRouter.construct_routing_trie
_EXPECTED = KwargsModel.create_for_signature_model
_ASYNC = litestar.utils.sync.is_async_callable
_OPTIONS = HTTPRoute.create_options_handler
_IN_TRIE = trie.configure_node
_signatures: dict[tuple[Any, ...], ParsedSignature] = {}
_models: dict[tuple[Any, ...], type[SignatureModel]] = {}
_expected_of: dict[tuple[Any, ...], KwargsModel] = {}
_held: dict[int, object] = {}
"""What is known by its identity below: as long as it is held, nothing else can have that."""
_options_handlers: list[HTTPRouteHandler] = []
"""One that belongs to no route; all others are copies of it."""
_replacing = RLock()
"""One test's thread may build a listener while the one before still answers its first request."""


def built(build: Callable[[], Litestar]) -> Litestar:
    """What `build` gives, sooner."""
    with _quickly():
        application = build()
        with patch.object(ASGIRouter, "construct_routing_trie", _BUILD_TRIE):
            application.asgi_router.construct_routing_trie()
    return application


@contextmanager
def _quickly() -> Iterator[None]:
    with (
        _replacing,
        patch.object(ParsedSignature, "from_fn", _signature),
        patch.object(SignatureModel, "create", _model),
        patch.object(KwargsModel, "create_for_signature_model", _expected),
        patch.object(Litestar, "register", _register),
        patch.object(HTTPRoute, "create_options_handler", _options_handler),
        patch.object(trie, "configure_node", _put_into_trie),
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


class _Ready(dict[Any, Any]):
    """A route's handlers by method, made ready when the first request comes for one of them."""

    def __init__(self, application: Litestar, route: HTTPRoute) -> None:
        self._application = application
        self._route = route

    def __missing__(self, method: str) -> Any:
        with _quickly():
            for handler in self._route.route_handlers:
                handler.on_registration(self._application)
            self._route.create_handler_map()  # It fills this.
        return dict(self)[method]


def _register(application: Litestar, value: Any) -> None:
    for route in Router.register(application, value):
        assert isinstance(route, HTTPRoute)
        route.route_handler_map = _Ready(application, route)


def _put_into_trie(app: Litestar, route: Any, node: Any) -> None:
    """With nothing before a handler; where something stands there, as Litestar does it."""
    handlers = route.route_handlers
    before = (app.csrf_config, app.compression_config, app.allowed_hosts, app.middleware)
    if any(before) or any(handler.middleware or handler.cache for handler in handlers):
        assert route.route_handler_map["OPTIONS"]  # Now they are ready.
    if route.route_handler_map:
        _IN_TRIE(app, route, node)
        return
    node.path_template = route.path_format
    parameters = tuple(route.path_parameters.values())
    for handler in handlers:
        for method in handler.http_methods:
            node.asgi_handlers[method] = ASGIHandlerTuple(route.handle, handler)
            node.path_parameters[method] = parameters


def _options_handler(route: HTTPRoute, path: str) -> HTTPRouteHandler:
    """Litestar's own function, which closes over nothing but the route."""
    if not _options_handlers:
        _options_handlers.append(_OPTIONS(cast("HTTPRoute", None), path))
    handler = copy(_options_handlers[0])
    told: Any = handler.fn
    assert told.__code__.co_freevars == ("self",)
    says = FunctionType(told.__code__, told.__globals__, told.__name__, None, (CellType(route),))
    says.__annotations__ = told.__annotations__
    says.__qualname__ = told.__qualname__
    handler.paths = {path}
    return handler(says)


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
