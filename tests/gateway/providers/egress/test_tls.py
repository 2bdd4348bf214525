"""Encrypted upstreams: only one whose certificate is vouched for gets a credential."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.errors import UpstreamUnreachable
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import parse_endpoint
from tests.gateway.providers.samples import HOME, make_call
from tests.upstreams import RecordingUpstream


pytestmark = pytest.mark.anyio


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake upstream")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "upstream.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return file


@pytest.fixture
async def upstream(certificate: Path) -> AsyncIterator[RecordingUpstream]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with RecordingUpstream(tls=context) as running:
        yield running


async def call(egress: Egress, upstream: RecordingUpstream) -> bytes:
    endpoint = parse_endpoint("fake", upstream.url, HOME)
    try:
        reply = await egress.open(egress.route(endpoint, "/v1/messages", {}), make_call())
        try:
            return await reply.read()
        finally:
            await reply.close()
    finally:
        await egress.close()


async def test_a_certificate_nobody_vouches_for_gets_no_request(
    upstream: RecordingUpstream,
) -> None:
    with pytest.raises(UpstreamUnreachable):
        await call(Egress(), upstream)
    assert upstream.requests == []


async def test_a_companys_own_authority_can_be_trusted(
    upstream: RecordingUpstream, certificate: Path
) -> None:
    tls = ssl.create_default_context(cafile=str(certificate))
    assert b"Hello" in await call(Egress(tls=tls), upstream)


def test_verification_cannot_be_switched_off() -> None:
    blind = ssl.create_default_context()
    blind.check_hostname = False
    with pytest.raises(ValueError, match="verify"):
        Egress(tls=blind)
    blind.verify_mode = ssl.CERT_NONE
    with pytest.raises(ValueError, match="verify"):
        Egress(tls=blind)
