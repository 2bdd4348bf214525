"""Origins of kept answers: digests that tell upstreams apart by their configuration. Pure."""

import hashlib
from collections.abc import Mapping

import msgspec

from gateway.configuration.settings import ProviderSettings


_LENGTH = 32


def origin_of(name: str, providers: Mapping[str, ProviderSettings]) -> str:
    """A digest of the server that a provider asks, and as what; for a pool, of all members.

    A kept answer is not used for another server, whatever its target is called. How a server is
    reached (credential, proxy, certificates, timeouts) does not affect its answers.
    """
    members = [each for each in providers[name].members if each in providers]
    told = [_told(each, providers[each]) for each in (name, *members)]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:_LENGTH]


def _told(name: str, provider: ProviderSettings) -> tuple[object, ...]:
    return (
        name,
        provider.kind,
        provider.base_url,
        provider.engine,
        provider.region,
        provider.project,
        provider.service,
        provider.cross_region,
    )
