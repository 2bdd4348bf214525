"""Authorities made for one test, and the certificates that they sign: for servers and clients."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec import Struct


class Issued(Struct, frozen=True):
    """A certificate and its key, each in a PEM file of its own."""

    certificate: Path
    key: Path


class Authority:
    """One authority; `file` is what somebody trusts who trusts it."""

    def __init__(self, folder: Path, name: str = "house") -> None:
        self._folder, self._name, self._count = folder, name, 0
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _named(f"authority {name}")
        extension = x509.BasicConstraints(ca=True, path_length=None)
        builder = _begun(self._subject, self._subject, self._key.public_key(), hours=(-1, 1))
        self._certificate = builder.add_extension(extension, critical=True).sign(
            self._key, hashes.SHA256()
        )
        self.file = folder / f"{name}.ca.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, *hosts: str, hours: tuple[float, float] = (-1, 1)) -> Issued:
        """A certificate for names or addresses, valid from and to so many hours from now."""
        self._count += 1
        stem = f"{self._name}-{self._count}"
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _begun(_named(f"holder {stem}"), self._subject, key.public_key(), hours)
        if hosts:
            names = x509.SubjectAlternativeName([_general(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        issued = Issued(self._folder / f"{stem}.crt", self._folder / f"{stem}.key")
        issued.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        issued.key.touch(mode=0o600)
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return issued

    def server(self, *hosts: str, wants_from: "Authority | None" = None) -> ssl.SSLContext:
        """TLS of a server with these names, which may want a certificate of an authority's."""
        issued = self.issue(*hosts)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.certificate, issued.key)
        if wants_from is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(wants_from.file)
        return context

    def client(self, shown: Issued | None = None) -> ssl.SSLContext:
        """TLS of a client that trusts this authority, and shows a certificate if it has one."""
        context = ssl.create_default_context(cafile=str(self.file))
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.key)
        return context


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    hours: tuple[float, float],
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    first, last = hours
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + dt.timedelta(hours=first))
        .not_valid_after(now + dt.timedelta(hours=last))
    )
