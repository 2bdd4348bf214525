"""Configuration of an adapter: one provider's settings, with its credential resolved."""

from typing import Protocol

from msgspec import Struct

from gateway.providers.egress.way_out import WayOut


class Revealable(Protocol):
    """A secret whose text must be asked for, like `gateway.secrets.secret.Secret[str]`."""

    def reveal(self) -> str: ...


class ProviderConfig(Struct, frozen=True):
    """One upstream; see `ProviderSettings`, which names the credential's place."""

    name: str
    kind: str
    jurisdiction: str
    base_url: str = ""
    """Empty if the kind has a public address of its own."""
    credential: Revealable | None = None
    credential_is_named: bool = False
    """Whether the settings name one: without it nothing is called, whatever the kind."""
    credential_may_come: bool = False
    """Whether its source is read again and again: a missing credential may still come."""
    allow_plain_http: bool = False
    connect_timeout_s: float = 5.0
    probe_timeout_s: float = 5.0
    way_out: WayOut | None = None
    """Its own proxy, trust and certificate; None if its connections need nothing special."""
    engine: str = "gatewright"
    priorities: bool = False
    events: str = ""
    events_replay: str = ""

    credential_header: str = "authorization"
    """The header it is sent in; in this one as a bearer token, in others unchanged."""
    region: str = ""
    """For a cloud's provider: where its endpoint is, and the region in signatures."""
    project: str = ""
    identity: str = "credential"
    """How the cloud knows us: the credential itself, an access key, or the surroundings."""
    service: str = ""
    cross_region: bool = False
    token_url: str = ""

    @property
    def revealed_credential(self) -> str:
        """The credential's text; empty without one."""
        return self.credential.reveal() if self.credential is not None else ""
