"""A cache of compiled SQL statements, shared by all databases that a run's tests open.

An engine keeps its compiled statements to itself, and almost every test opens engines of its own: a
twentieth of the time of an admin room's tests was spent compiling the same statements anew.
"""

from collections.abc import Hashable
from typing import Any, Final, cast

from sqlalchemy.engine import Dialect
from sqlalchemy.util import LRUCache


STATEMENTS_MAX: Final = 5_000
"""More than our statements: a test that makes up hundreds should not displace them."""


class CompiledStatements(LRUCache[Hashable, Any]):
    """Given to engines as their `compiled_cache`; databases of one kind share its content."""

    def __init__(self) -> None:
        super().__init__(STATEMENTS_MAX)

    def get(self, key: Hashable, default: Any = None) -> Any:
        return super().get(_shared(key), default)

    def __setitem__(self, key: Hashable, compiled: Any) -> None:
        super().__setitem__(_shared(key), compiled)


def _shared(key: Hashable) -> Hashable:
    """SQLAlchemy's key, which begins with the dialect of one engine; here with any of its kind."""
    dialect, *statement = cast("tuple[Any, ...]", key)
    assert isinstance(dialect, Dialect)
    return (type(dialect), dialect.server_version_info, *statement)
