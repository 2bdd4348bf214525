"""What every context for TLS has in common, whoever connects to whom and under whichever Python."""

import ssl


def context_for(purpose: ssl.Purpose, authorities: bytes = b"") -> ssl.SSLContext:
    """A context that believes these authorities, in DER, or else what `ssl` does for that purpose.

    Raises:
        ssl.SSLError: they are none.
    """
    context = ssl.create_default_context(purpose, cadata=authorities or None)
    # Distributions build Python with whatever their OpenSSL allows.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # From 3.13 on Python refuses authorities that do not say what their key is for, as most private
    # ones that `openssl req` made: a newer Python would cut off who was connected under an older.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
