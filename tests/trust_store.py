"""A pytest plugin that makes the vendors' clients read the machine's authorities only once.

Each client reads them all, for 45 ms of processor time; here they speak to loopback without TLS.
"""

import os
import ssl
from collections.abc import Callable, Iterator

import httpx._transports.default
import httpx2._transports.default
import pytest


@pytest.fixture(scope="session", autouse=True)
def _one_trust_store() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (httpx._transports.default, httpx2._transports.default):
            patch.setattr(module, "create_ssl_context", shared(vars(module)["create_ssl_context"]))
        yield


def shared(make: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    """The same context for all callers that need nothing special."""
    kept: dict[tuple[object, ...], ssl.SSLContext] = {}

    def made(verify: object = True, cert: object = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is not True or cert is not None:
            return make(verify=verify, cert=cert, trust_env=trust_env)
        known = (trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
        if known not in kept:
            kept[known] = make(trust_env=trust_env)
        return kept[known]

    return made
