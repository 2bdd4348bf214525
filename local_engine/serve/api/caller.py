"""Reads on whose behalf a request comes, from headers that the gateway sets.

Nobody but the gateway can reach the engine. The headers decide which cached prefixes a request may
share and which request goes first. A request without a tenant shares no prefixes but its own,
unless the engine was started for one tenant only; its tier is standard.
"""

from local_engine.core.tiers import Tier
from local_engine.serve.api.errors import InvalidRequest
from local_engine.serve.api.http import Scope
from local_engine.serve.generation import Caller


TENANT_HEADER = b"x-gatewright-tenant"
DATA_CLASS_HEADER = b"x-gatewright-data-class"
TIER_HEADER = b"x-gatewright-tier"
_MAX_HEADER_CHARS = 200
_TIERS = frozenset(tier.name.lower() for tier in Tier)
# The most sensitive class leaves no trace in memory that is shared, and any other value counts as
# it. A gateway without a class sends nothing.
_KEPT_CLASSES = frozenset({"", "S0", "S1", "S2", "S3"})


def read_caller(scope: Scope) -> Caller:
    """The caller named by the headers; raises `InvalidRequest`."""
    tenant, data_class, tier = (
        _said(scope, name) for name in (TENANT_HEADER, DATA_CLASS_HEADER, TIER_HEADER)
    )
    if max(len(tenant), len(data_class)) > _MAX_HEADER_CHARS:
        raise InvalidRequest("A header is too long.", code="invalid_value", param="headers")
    if tier and tier not in _TIERS:
        raise InvalidRequest("The tier is unknown.", code="invalid_value", param="headers")
    return Caller(tenant, data_class, tier or "standard", data_class not in _KEPT_CLASSES)


def _said(scope: Scope, wanted: bytes) -> str:
    """The value of a header; empty without one.

    If it comes twice, somebody between the gateway and here has added one: their order does not say
    which is the gateway's.
    """
    values = [value for name, value in scope["headers"] if name == wanted]
    if len(values) > 1:
        message = f"The header {wanted.decode()} comes twice."
        raise InvalidRequest(message, code="invalid_value", param="headers")
    return values[0].decode("latin-1") if values else ""
