"""The type of a request to this listener, from a browser or a program, as litestar passes it."""

from typing import Any, TypeAlias

from litestar import Request


Asking: TypeAlias = Request[Any, Any, Any]
