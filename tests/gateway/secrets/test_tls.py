"""Contexts for TLS: the same certificates are believed under every Python."""

import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from gateway.secrets.tls import context_for
from tests.certificates import Authority


ROUNDS_MAX = 10


def shake_hands(caller: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Raises ssl.SSLError where one does not believe the other."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        caller.wrap_bio(back, there, server_hostname=name),
        server.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(ROUNDS_MAX):
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)
    assert not sides


def test_an_authority_that_does_not_say_what_its_key_is_for_is_believed_by_both_sides(
    tmp_path: Path,
) -> None:
    house = Authority(tmp_path, tells_use=False)
    shown, own = house.issue("listener"), house.issue("caller")
    server = context_for(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(shown.chain, shown.key)
    server.load_verify_locations(house.file)
    server.verify_mode = ssl.CERT_REQUIRED
    believed = x509.load_pem_x509_certificate(house.file.read_bytes())
    caller = context_for(ssl.Purpose.SERVER_AUTH, believed.public_bytes(Encoding.DER))
    caller.load_cert_chain(own.chain, own.key)

    shake_hands(caller, server, "localhost")

    assert caller.minimum_version == server.minimum_version == ssl.TLSVersion.TLSv1_2
    assert caller.verify_mode == ssl.CERT_REQUIRED
    assert caller.check_hostname
