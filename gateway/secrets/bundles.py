"""Reads PEM files with several certificates, such as bundles of authorities."""

import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.errors import ConfigurationInvalid
from gateway.secrets.validity import Term, microseconds


if TYPE_CHECKING:
    from cryptography import x509

BUNDLE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A system's complete bundle of authorities is a tenth of it."""
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----"
)


def certificates_in(text: str) -> tuple[bytes, ...]:
    """Certificates in DER; any text may stand around them, and what is not one is left out."""
    found = []
    for each in _CERTIFICATE.findall(text):
        with suppress(ValueError):
            found.append(ssl.PEM_cert_to_DER_cert(each))
    return tuple(found)


def read_text(file: Path, key: str, bytes_max: int) -> str:
    """A file within its size limit; bytes that are not ASCII do not matter.

    Raises:
        ConfigurationInvalid: it cannot be read, or is longer.
    """
    try:
        with file.open("rb") as opened:
            raw = opened.read(bytes_max + 1)
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise ConfigurationInvalid(str(file), key, reason) from error
    if len(raw) > bytes_max:
        raise ConfigurationInvalid(str(file), key, f"is larger than {bytes_max} bytes")
    return raw.decode("ascii", "replace")


def parsed(bundle: Sequence[bytes]) -> "tuple[x509.Certificate, ...]":
    """The certificates that can be parsed: OpenSSL trusts some that are not in proper DER."""
    # Loaded only if there are certificates: 15 modules and 0.6 MiB of a worker.
    reader: Any = import_module("cryptography.x509")
    found = []
    for each in bundle:
        with suppress(ValueError):
            found.append(reader.load_der_x509_certificate(each))
    return tuple(found)


def term_of(certificate: "x509.Certificate") -> Term:
    return Term(
        microseconds(certificate.not_valid_before_utc),
        microseconds(certificate.not_valid_after_utc),
    )
