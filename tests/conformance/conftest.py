"""One running gateway per module, as in `tests/faults`."""

from tests.faults.conftest import (
    caller,
    gateway,
    http,
    own_upstreams,
    shared_gateway,
    shared_key,
    shared_upstreams,
    upstreams,
)


__all__ = [
    "caller",
    "gateway",
    "http",
    "own_upstreams",
    "shared_gateway",
    "shared_key",
    "shared_upstreams",
    "upstreams",
]
