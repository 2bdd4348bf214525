"""Addresses that an OpenID provider names for itself, and which of them are called.

They come in an answer from outside. If we believed them as they are, this process would send our
client's secret, and requests, to whatever address somebody could write there, internal ones too.
"""

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit


_PLAIN: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?:[/?][!-\[\]-~]*)?",
    re.ASCII | re.IGNORECASE,
)
"""Nothing that two readers of addresses could read in two ways."""
_PORT_MAX: Final = 65535


def is_of_provider(url: str, issuer: str, hosts: Collection[str]) -> bool:
    """Whether an address may be called: of the issuer's own host, or of `hosts`, and over TLS.

    An issuer that was configured without TLS is on this machine, and so is what it names there.
    """
    found = _PLAIN.fullmatch(url)
    if found is None or int(found["port"] or 1) not in range(1, _PORT_MAX + 1):
        return False
    own = urlsplit(issuer)
    host = found["host"].lower().strip("[]")
    is_own = host == own.hostname
    if found["scheme"].lower() == "http":
        return is_own and own.scheme == "http"
    return is_own or host in map(str.lower, hosts)
