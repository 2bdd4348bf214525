"""Builds TLS contexts, with the same defaults for every use and every version of Python."""

import ssl
from typing import Final


ONLY_NEWER: Final = (ssl.VERIFY_X509_STRICT, ssl.VERIFY_X509_PARTIAL_CHAIN)
"""What a default context asks for from Python 3.13 on, and under older ones does not.

The first refuses authorities that do not say what their key is for, as most private ones that
`openssl req` made: who was connected would be cut off. The second believes whatever lies in a
file of authorities, be it a caller's own certificate. And it ends a chain at the first of them, so
that the list of a root which revokes what stands below it is read as one of somebody else's.
"""


def context_for(purpose: ssl.Purpose, authorities: bytes = b"") -> ssl.SSLContext:
    """A context that believes these authorities, in DER, or else what `ssl` does for that purpose.

    Raises:
        ssl.SSLError: they are none.
    """
    context = ssl.create_default_context(purpose, cadata=authorities or None)
    # Distributions build Python with whatever their OpenSSL allows.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for flag in ONLY_NEWER:
        context.verify_flags &= ~flag
    return context
