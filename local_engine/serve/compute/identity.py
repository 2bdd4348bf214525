"""Decides which requests may share cached prefixes and compiled grammars of others."""

import hmac
import secrets
from dataclasses import dataclass

from local_engine.core.prefix_cache import group_salt


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """What a group's salt is made of beside its names."""

    server_key: bytes
    model_digest: str
    shares_nameless: bool = False
    """Whether requests without a tenant are one group: right where there is only one tenant."""

    def has_group(self, tenant: str) -> bool:
        """Whether others may meet what a request leaves; not if nobody says whose it is."""
        return bool(tenant) or self.shares_nameless

    def salt(
        self, tenant: str, data_class: str, request_id: str = "", cache_salt: str = ""
    ) -> bytes:
        """Where a request's prefixes may be met again.

        If it has no group only by the sequences of the same request, and nowhere if that has one.
        A caller's `cache_salt` parts a group further: it never leads into another one.
        """
        if not self.has_group(tenant):
            if not request_id:
                return secrets.token_bytes(32)
            return group_salt(self.server_key, "", self.model_digest, request_id)
        salt = group_salt(self.server_key, tenant, self.model_digest, data_class)
        return hmac.digest(salt, cache_salt.encode(), "sha256") if cache_salt else salt
