"""Certificates made at test time: an authority for each test, and the ones it signs."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from msgspec import Struct


HOUR = dt.timedelta(hours=1)
_default_context = ssl.create_default_context
_SIGNS = x509.KeyUsage(
    **dict.fromkeys(("key_cert_sign", "crl_sign", "digital_signature"), True),
    **dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment"), False),
    **dict.fromkeys(("key_agreement", "encipher_only", "decipher_only"), False),
)


def newer_default_context(purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, **files: Any) -> Any:
    """`ssl.create_default_context` as it is from Python 3.13 on, under any version."""
    context = _default_context(purpose, **files)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


class Hours:
    """The wall clock, some hours ahead."""

    def __init__(self) -> None:
        self.later_us = 0

    def utc_us(self) -> int:
        return round(dt.datetime.now(dt.UTC).timestamp() * 1e6) + self.later_us

    def monotonic_s(self) -> float:
        return self.later_us / 1e6


class Pair(Struct, frozen=True):
    """The files of a certificate."""

    chain: Path
    key: Path

    def settings(self, client_ca: Path | None = None, client_crl: Path | None = None) -> str:
        """As lines of a listener's table."""
        lines = f'tls_certificate_file = "{self.chain}"\ntls_key_file = "{self.key}"\n'
        if client_ca:
            lines += f'tls_client_ca_file = "{client_ca}"\n'
        return lines + (f'tls_client_crl_file = "{client_crl}"\n' if client_crl else "")


class Authority:
    """`file` is what a client that trusts it needs."""

    def __init__(
        self,
        folder: Path,
        name: str = "authority",
        *,
        ends: dt.timedelta = HOUR * 24,
        below: "Authority | None" = None,
        tells_use: bool = True,
    ) -> None:
        """Without `tells_use` its key usage is not stated, as with those of `openssl req`."""
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        above = below or self
        own = above._begun(self._name, self._key, HOUR * -1, ends).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        if tells_use:
            own = own.add_extension(_SIGNS, critical=True)
        self.file.write_bytes(own.sign(above._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def trusting(self, caller: Pair | None = None) -> ssl.SSLContext:
        """The context of a caller that trusts it, and may show a certificate of its own."""
        context = ssl.create_default_context(cafile=self.file)
        if caller is not None:
            context.load_cert_chain(caller.chain, caller.key)
        return context

    def issue(
        self,
        name: str = "listener",
        *,
        hosts: tuple[str, ...] = ("127.0.0.1", "localhost"),
        begins: dt.timedelta = HOUR * -1,
        ends: dt.timedelta = HOUR,
        passphrase: str = "",
    ) -> Pair:
        """A new certificate and its key, in files of that name, replacing older ones."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName(list(map(_general, hosts)))
        leaf = self._begun(subject, key, begins, ends).add_extension(names, critical=False)
        locked = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        _replace(pair.chain, leaf.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        _replace(pair.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
        return pair

    def revoke(
        self,
        *files: Path,
        made: dt.timedelta = HOUR * -1,
        ends: dt.timedelta = HOUR,
        signed_by: "Authority | None" = None,
        is_delta: bool = False,
    ) -> bytes:
        """A list of its revoked certificates, in PEM."""
        now = dt.datetime.now(dt.UTC)
        built = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._name)
            .last_update(now + made)
            .next_update(now + ends)
        )
        if is_delta:
            built = built.add_extension(x509.DeltaCRLIndicator(1), critical=True)
        for file in files:
            revoked = x509.load_pem_x509_certificates(file.read_bytes())[0]
            built = built.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(revoked.serial_number)
                .revocation_date(now + made)
                .build()
            )
        key = (signed_by or self)._key
        return built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def server(self, *hosts: str, wants_from: "Authority | None" = None) -> ssl.SSLContext:
        """TLS of a server with these names, which may require a certificate of an authority's."""
        issued = self.issue("server", hosts=hosts)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(issued.chain, issued.key)
        if wants_from is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(wants_from.file)
        return context

    def _begun(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        begins: dt.timedelta,
        ends: dt.timedelta,
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(own, critical=False)
            .add_extension(authority, critical=False)
        )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _replace(file: Path, content: bytes) -> None:
    """As programs that renew certificates do: another file takes its place."""
    new = file.with_suffix(f"{file.suffix}.new")
    new.touch(mode=0o600)
    new.write_bytes(content)
    new.replace(file)
