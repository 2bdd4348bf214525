"""`GET /v1/decisions/{id}`: why a request was routed as it was, for the project that sent it."""

from typing import Protocol

import msgspec

from gateway.errors import RouteUnknown
from gateway.types import AuditRecord, Principal
from policies.explain import Explanation


class Archive(Protocol):
    """Where recorded decisions are read back from."""

    async def explanation(
        self, request_id: str, asker: Principal
    ) -> tuple[AuditRecord, Explanation] | None:
        """None unless the request was decided for the asker's project."""
        ...


async def explain_decision(archive: Archive, request_id: str, asker: Principal) -> bytes:
    """The decision with every rule and its values, and every target with its fate, as JSON.

    Raises:
        RouteUnknown: no such decision of this project; it may not be projected yet.
    """
    found = await archive.explanation(request_id, asker)
    if found is None:
        raise RouteUnknown("There is no such decision for this key's project.")
    record, explanation = found
    described = {
        "id": record.request_id,
        "object": "decision",
        "decision": record.decision,
        "utc_us": record.utc_us,
        "snapshot": record.snapshot,
        "sentence": explanation.decision.reason,
        "explanation": explanation,
    }
    return msgspec.json.encode(described)
