"""Certificate revocation lists (RFC 5280): complete, signed and up to date, or not used at all.

OpenSSL looks callers up in them during the TLS handshake. A fault in a list, which OpenSSL would
find only then, and answer by refusing everybody, is found here when the list is read.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from msgspec import Struct

from gateway.errors import ConfigurationInvalid
from gateway.secrets.bundles import read_text
from gateway.secrets.validity import Term, day, microseconds


if TYPE_CHECKING:
    from cryptography import x509

LISTS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Some 400,000 revoked certificates."""
_LIST: Final = re.compile(r"-----BEGIN X509 CRL-----[A-Za-z0-9+/=\s]+-----END X509 CRL-----")
_BEGIN: Final = "-----BEGIN "
_DELTA: Final = "2.5.29.27"
"""The extension of delta lists, which OpenSSL does not process (RFC 5280, 5.2.4)."""


class Revocations(Struct, frozen=True):
    """The contents of one file of lists."""

    terms: tuple[Term, ...]
    """From when each list was made until when the next has to be there."""
    digest: bytes
    """A digest of the revoked certificates: another list that revokes the same has the same."""


def read_revocations(
    file: Path, key: str, authorities: "Sequence[x509.Certificate]", now_us: int
) -> Revocations:
    """The lists of a file: at least one of each authority, all of them valid today.

    Raises:
        ConfigurationInvalid: it cannot be used; it names the file, the key and the reason.
    """

    def refused(reason: str) -> ConfigurationInvalid:
        return ConfigurationInvalid(str(file), key, reason)

    text = read_text(file, key, LISTS_BYTES_MAX)
    found = _LIST.findall(text)
    if not found or text.count(_BEGIN) != len(found):
        # OpenSSL would accept a certificate among them as an authority for callers.
        raise refused("must hold lists of revoked certificates (X509 CRL) in PEM, and nothing else")
    reader: Any = import_module("cryptography.x509")
    try:
        lists: list[x509.CertificateRevocationList] = [
            reader.load_pem_x509_crl(each.encode()) for each in found
        ]
        faults = [_fault(each, authorities, now_us) for each in lists]
    except ValueError as error:
        raise refused("is no PEM of lists of revoked certificates") from error
    if reason := next(filter(None, faults), ""):
        raise refused(reason)
    issuers = {each.issuer for each in lists}
    for authority in authorities:
        if authority.subject not in issuers:
            raise refused(f"holds no list of {authority.subject.rfc4514_string()}")
    return Revocations(tuple(map(_term, lists)), _digest(lists))


def _fault(
    each: "x509.CertificateRevocationList", authorities: "Sequence[x509.Certificate]", now_us: int
) -> str:
    """Why a list cannot be used; empty if it can."""
    whose = each.issuer.rfc4514_string()
    if each.next_update_utc is None:
        return f"the list of {whose} does not say until when it is good"
    if any(extension.oid.dotted_string == _DELTA for extension in each.extensions):
        return f"the list of {whose} holds only what changed since another one"
    term = _term(each)
    if now_us >= term.ends_us:
        return f"the list of {whose} was good until {day(term.ends_us)}"
    if now_us < term.begins_us:
        return f"the list of {whose} is not good before {day(term.begins_us)}"
    named = [one for one in authorities if one.subject == each.issuer]
    # An authority below them is known only when a caller shows it: OpenSSL checks that one.
    if named and not any(_is_signed_by(each, one) for one in named):
        return f"the list of {whose} was not signed by the authority of that name"
    return ""


def _is_signed_by(each: "x509.CertificateRevocationList", authority: "x509.Certificate") -> bool:
    try:
        key: Any = authority.public_key()
        return each.is_signature_valid(key)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return False


def _term(each: "x509.CertificateRevocationList") -> Term:
    assert each.next_update_utc is not None
    return Term(microseconds(each.last_update_utc), microseconds(each.next_update_utc))


def _digest(lists: "Sequence[x509.CertificateRevocationList]") -> bytes:
    revoked = {(each.issuer.public_bytes(), one.serial_number) for each in lists for one in each}
    return sha256(repr(sorted(revoked)).encode()).digest()
