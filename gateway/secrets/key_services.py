"""Key services (KMS) that can wrap the master key in its file.

The file then holds text that only the service can unwrap. The process for which the service
unwrapped it holds the master key in memory from then on, so an outage of the service is felt at the
next start.
"""

import base64
import binascii
from typing import Protocol


class KeyServiceFailed(Exception):
    """The service does not answer, or refuses; the message says which, and repeats no request."""


class KeyService(Protocol):
    """Wraps and unwraps one key; blocks, and raises KeyServiceFailed."""

    def wrap(self, key: bytes) -> str:
        """Printable text that begins with the kind of the service."""
        ...

    def unwrap(self, wrapped: str) -> bytes: ...


def is_wrapped(text: str) -> bool:
    """Whether a master key's file holds text from a key service, which begins with its kind."""
    return text.startswith(("vault:", "aws-kms:"))


def decoded(text: str) -> bytes:
    """The bytes of a service's base64 answer; raises KeyServiceFailed."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise KeyServiceFailed("the key service answered what is no key") from None
