"""Contexts for TLS: the same certificates are believed under every Python."""

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from gateway.secrets.tls import context_for
from tests.certificates import Authority, Pair, newer_default_context


ROUNDS_MAX = 10


@pytest.fixture(autouse=True)
def _under_a_newer_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "create_default_context", newer_default_context)


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


class Chain:
    """A root, an authority below it, and a caller whom that one vouches for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.root = Authority(folder, "root")
        self.middle = Authority(folder, "middle", below=self.root)
        self._listener, self.caller = self.root.issue("listener"), self.middle.issue("caller")

    def lets_in(self, *believed: Path, lists: tuple[bytes, ...] = ()) -> None:
        """Raises ssl.SSLError where a listener that believes these files does not let it in."""
        server = context_for(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(self._listener.chain, self._listener.key)
        server.load_verify_locations(
            self._joined("believed", *(each.read_bytes() for each in believed))
        )
        server.verify_mode = ssl.CERT_REQUIRED
        if lists:
            server.load_verify_locations(self._joined("lists", *lists))
            server.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
        sent = self._joined("sent", self.caller.chain.read_bytes(), self.middle.file.read_bytes())
        caller = self.root.trusting(Pair(sent, self.caller.key))
        shake_hands(caller, server, "localhost")

    def _joined(self, name: str, *parts: bytes) -> Path:
        file = self._folder / f"{name}.pem"
        file.write_bytes(b"".join(parts))
        return file


@pytest.mark.parametrize("of", ["itself", "the authority above it, which is no root"])
def test_who_is_named_in_a_file_of_authorities_without_a_root_is_not_believed(
    of: str, tmp_path: Path
) -> None:
    chain = Chain(tmp_path)
    named = chain.caller.chain if of == "itself" else chain.middle.file

    with pytest.raises(ssl.SSLError, match=r"unable to get (local )?issuer"):
        chain.lets_in(named)

    chain.lets_in(named, chain.root.file)


def test_an_authority_in_the_file_beside_its_root_is_looked_up_in_the_list_of_the_root(
    tmp_path: Path,
) -> None:
    chain = Chain(tmp_path)
    believed = chain.root.file, chain.middle.file
    of_middle = chain.middle.revoke()

    chain.lets_in(*believed, lists=(chain.root.revoke(), of_middle))
    with pytest.raises(ssl.SSLError, match="certificate revoked"):
        chain.lets_in(*believed, lists=(chain.root.revoke(chain.middle.file), of_middle))
