"""Builds TLS contexts, with the same defaults for every use and every version of Python."""

import ssl
from typing import Final


ONLY_NEWER: Final = (ssl.VERIFY_X509_STRICT, ssl.VERIFY_X509_PARTIAL_CHAIN)
"""Flags that a default context has from Python 3.13 on, but not before.

The first refuses authorities that do not say what their key is for, like most private ones made by
`openssl req`: existing connections would fail. The second trusts whatever is in a file of
authorities, even a caller's own certificate. It also ends a chain at the first match, so that a
root's list that revokes a certificate below it is read as some other authority's list.
"""


def context_for(purpose: ssl.Purpose, authorities: bytes = b"") -> ssl.SSLContext:
    """A context that trusts these authorities, in DER, or by default those that `ssl` trusts.

    Raises:
        ssl.SSLError: they are not certificates.
    """
    context = ssl.create_default_context(purpose, cadata=authorities or None)
    # Distributions build Python with whatever their OpenSSL allows.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for flag in ONLY_NEWER:
        context.verify_flags &= ~flag
    return context
