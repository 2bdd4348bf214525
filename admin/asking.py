"""A request to this listener, of a browser or of a program, as litestar hands it to a route."""

from typing import Any, TypeAlias

from litestar import Request


Asking: TypeAlias = Request[Any, Any, Any]
