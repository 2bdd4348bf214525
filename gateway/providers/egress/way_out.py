"""How one provider's connections leave: through which proxy, with which trusted authorities.

A provider without any such settings has no way out of its own: it is reached directly, under the
system's authorities.
"""

import ssl
from collections.abc import Mapping

from msgspec import Struct

from gateway.secrets.secret import Secret
from gateway.secrets.sources import FileState
from gateway.secrets.tls import context_for
from gateway.secrets.validity import Term


class Proxy(Struct, frozen=True):
    """An HTTP forward proxy, which is used only for tunnels."""

    host: str
    port: int
    authorization: Secret[str] | None = None
    """The value of `Proxy-Authorization`; it goes to the proxy, and never through the tunnel."""


class WayOut(Struct, frozen=True, eq=False):
    """One provider's own way out, at one moment; when its files change it gets a new one.

    It equals only itself, and connections are kept by it: no connection made with other trust,
    another certificate or another proxy is ever given out, even if the settings are alike.
    """

    proxy: Proxy | None = None
    tls: ssl.SSLContext | None = None
    """None for the system's authorities and no certificate of ours."""
    files: tuple[FileState, ...] = ()
    """The states of the files it was made of, noted just before they were read."""
    terms: Mapping[str, tuple[Term, ...]] = {}
    """Until when the certificates of each of its files are valid, by the setting that names it."""

    def __post_init__(self) -> None:
        """Raises ValueError unless certificates and names are verified."""
        require_verifying(self.tls)


def verifying(authorities: bytes = b"") -> ssl.SSLContext:
    """A context that trusts only these authorities, in DER, or only the system's.

    Raises:
        ssl.SSLError: they are not certificates.
    """
    return context_for(ssl.Purpose.SERVER_AUTH, authorities)


def require_verifying(tls: ssl.SSLContext | None) -> None:
    """Raises ValueError if a context would trust anybody."""
    if tls is not None and (tls.verify_mode != ssl.CERT_REQUIRED or not tls.check_hostname):
        raise ValueError("the egress must verify certificates and host names")
