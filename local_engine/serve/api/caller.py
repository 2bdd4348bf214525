"""On whose behalf a request comes: headers that the gateway sets, and nobody else can reach us.

They decide which cached prefixes a request may meet and who goes first. A request without a tenant
meets none but its own, unless the engine was started for one tenant only; its tier is standard.
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
# The most sensitive class leaves no trace in memory that is given to others.
_ZEROED_CLASSES = frozenset({"S4"})


def read_caller(scope: Scope) -> Caller:
    """The caller that the headers name; raises `InvalidRequest`."""
    headers = dict(scope["headers"])
    tenant, data_class, tier = (
        headers.get(name, b"").decode("latin-1")
        for name in (TENANT_HEADER, DATA_CLASS_HEADER, TIER_HEADER)
    )
    if max(len(tenant), len(data_class)) > _MAX_HEADER_CHARS:
        raise InvalidRequest("A header is too long.", code="invalid_value", param="headers")
    if tier and tier not in _TIERS:
        raise InvalidRequest("The tier is unknown.", code="invalid_value", param="headers")
    return Caller(tenant, data_class, tier or "standard", data_class in _ZEROED_CLASSES)
