"""Configuration of an adapter: one provider's settings, with its credential resolved."""

from typing import Protocol

from msgspec import Struct

from gateway.providers.egress.way_out import WayOut


class Revealable(Protocol):
    """A secret that has to be asked for by name, like `gateway.secrets.secret.Secret[str]`."""

    def reveal(self) -> str: ...


class ProviderConfig(Struct, frozen=True):
    """One upstream; see `ProviderSettings`, which names the credential's place."""

    name: str
    kind: str
    jurisdiction: str
    base_url: str = ""
    """Empty where the kind has a public address of its own."""
    credential: Revealable | None = None
    credential_is_named: bool = False
    """Whether the settings name one: without it nothing is called, of no kind."""
    credential_may_come: bool = False
    """Whether its place is asked again and again: what is not there now may be there later."""
    allow_plain_http: bool = False
    connect_timeout_s: float = 5.0
    probe_timeout_s: float = 5.0
    way_out: WayOut | None = None
    """Its own proxy, trust and certificate; None where it is connected to as everybody is."""
    engine: str = "gatewright"
    priorities: bool = False
    events: str = ""
    events_replay: str = ""

    credential_header: str = "authorization"
    """In which it is sent; there as a bearer token, in others as it is."""
    region: str = ""
    """Of a cloud's provider: where its endpoint is, and what a signature is for."""
    project: str = ""
    identity: str = "credential"
    """What proves it to a cloud: the credential as it is, an access key, or where we run."""
    service: str = ""
    cross_region: bool = False
    token_url: str = ""

    @property
    def revealed_credential(self) -> str:
        """The credential's text; empty when there is none."""
        return self.credential.reveal() if self.credential is not None else ""
