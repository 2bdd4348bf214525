"""Lists of revoked certificates: what is wrong with one is said before it shuts everybody out."""

import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509 import Certificate

from gateway.configuration.reading import parse_settings
from gateway.errors import ConfigurationInvalid
from gateway.secrets.bundles import certificates_in, parsed
from gateway.secrets.certificates import read_certificate
from gateway.secrets.revocations import LISTS_BYTES_MAX, read_revocations
from tests.certificates import HOUR, Authority, Hours


Written = Callable[[Authority, Authority], bytes]


def _read(folder: Path, teams: Authority, lists: Path) -> None:
    own = Authority(folder)
    text = f"[data_plane]\n{own.issue().settings(teams.file, lists)}"
    assert read_certificate(parse_settings(text, "x.toml", Path("/"), {}), "data_plane", Hours())


def _endless(pem: bytes) -> bytes:
    """The same list without its nextUpdate, which no tool of ours leaves out."""
    der = bytearray(ssl.PEM_cert_to_DER_cert(pem.decode().replace("X509 CRL", "CERTIFICATE")))
    first = der.index(b"\x17\x0d")  # thisUpdate: a UTCTime of thirteen letters.
    second = first + 15
    assert der[second : second + 2] == b"\x17\x0d"
    del der[second : second + 15]
    outer = _content_at(der, 0)
    for content in (outer, _content_at(der, outer)):
        der[content - 1] -= 15
    return ssl.DER_cert_to_PEM_cert(bytes(der)).replace("CERTIFICATE", "X509 CRL").encode()


def _content_at(der: bytearray, tag: int) -> int:
    """Where what a sequence holds begins; its length in one byte stands before that."""
    assert der[tag] == 0x30
    return tag + 2 + (der[tag + 1] & 0x7F if der[tag + 1] & 0x80 else 0)


WRONG: dict[str, tuple[Written, str]] = {
    "nothing": (lambda teams, _: b"", "must hold lists of revoked certificates"),
    "an authority beside a list": (
        lambda teams, other: teams.revoke() + other.file.read_bytes(),
        "must hold lists of revoked certificates (X509 CRL) in PEM, and nothing else",
    ),
    "what is no list": (
        lambda teams, _: b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
        "is no PEM of lists of revoked certificates",
    ),
    "one out of date": (
        lambda teams, _: teams.revoke(made=HOUR * -2, ends=HOUR * -1),
        "the list of CN=teams was good until 2",
    ),
    "one to come": (
        lambda teams, _: teams.revoke(made=HOUR, ends=HOUR * 2),
        "the list of CN=teams is not good before 2",
    ),
    "another authority's": (lambda teams, other: other.revoke(), "holds no list of CN=teams"),
    "one that somebody else signed": (
        lambda teams, other: teams.revoke(signed_by=other),
        "the list of CN=teams was not signed by the authority of that name",
    ),
    "one that says no end": (
        lambda teams, _: _endless(teams.revoke()),
        "the list of CN=teams does not say until when it is good",
    ),
    "only a part": (
        lambda teams, _: teams.revoke(is_delta=True),
        "the list of CN=teams holds only what changed since another one",
    ),
    "too much": (lambda teams, _: b" " * (LISTS_BYTES_MAX + 1), "is larger than 16777216 bytes"),
}


@pytest.mark.parametrize(("written", "reason"), WRONG.values(), ids=WRONG)
def test_a_list_that_cannot_be_used_is_refused_by_file_key_and_reason(
    tmp_path: Path, written: Written, reason: str
) -> None:
    teams, other = Authority(tmp_path, "teams"), Authority(tmp_path, "other")
    lists = tmp_path / "lists.pem"
    lists.write_bytes(written(teams, other))
    with pytest.raises(ConfigurationInvalid) as refused:
        _read(tmp_path, teams, lists)

    said = str(refused.value)
    assert said.startswith(f"{lists}: data_plane.tls_client_crl_file: {reason}")
    assert "\n" not in said


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationInvalid, match=r"tls_client_crl_file: cannot be read \(No"):
        _read(tmp_path, Authority(tmp_path, "teams"), tmp_path / "none.pem")


def test_lists_of_several_authorities_are_read(tmp_path: Path) -> None:
    teams, other = Authority(tmp_path, "teams"), Authority(tmp_path, "other")
    lists = tmp_path / "lists.pem"
    lists.write_bytes(other.revoke() + teams.revoke(teams.issue("gone").chain))
    _read(tmp_path, teams, lists)


def test_a_list_of_others_is_another_and_one_made_anew_of_the_same_is_not(tmp_path: Path) -> None:
    """By its digest it is told whether somebody who is connected has to go."""
    teams, lists = Authority(tmp_path, "teams"), tmp_path / "lists.pem"
    one, other = teams.issue("one").chain, teams.issue("other").chain
    authorities = parsed(certificates_in(teams.file.read_text()))

    def digest(*revoked: Path, **more: Any) -> bytes:
        lists.write_bytes(teams.revoke(*revoked, **more))
        return read_revocations(lists, "x", authorities, Hours().utc_us()).digest

    digests = [digest(), digest(one), digest(other), digest(one, other)]
    assert len({*digests}) == len(digests)
    assert digest(other, one, ends=HOUR * 9) == digests[-1]


def test_an_authority_and_the_one_that_it_was_renewed_by_have_a_list_each(tmp_path: Path) -> None:
    (tmp_path / "renewed").mkdir()
    both = Authority(tmp_path, "teams"), Authority(tmp_path / "renewed", "teams")
    lists = tmp_path / "lists.pem"
    lists.write_bytes(b"".join(each.revoke() for each in both))
    authorities = parsed(certificates_in("".join(each.file.read_text() for each in both)))
    assert len(read_revocations(lists, "x", authorities, Hours().utc_us()).terms) == 2


def test_a_list_whose_proof_nobody_can_look_at_is_not_used(tmp_path: Path) -> None:
    def refuse(*_: object) -> object:
        raise UnsupportedAlgorithm("a kind of key that is not known here")

    teams, lists = Authority(tmp_path, "teams"), tmp_path / "lists.pem"
    lists.write_bytes(teams.revoke())
    (authority,) = parsed(certificates_in(teams.file.read_text()))
    unknown = SimpleNamespace(subject=authority.subject, public_key=refuse)
    with pytest.raises(ConfigurationInvalid, match="was not signed by the authority of that name"):
        read_revocations(lists, "x", [cast(Certificate, unknown)], Hours().utc_us())


def test_a_list_without_authorities_means_nothing(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue()
    text = f"[admin]\n{pair.settings()}tls_client_crl_file = 'x.pem'\n"
    with pytest.raises(ConfigurationInvalid, match="means nothing without tls_client_ca_file"):
        parse_settings(text, "x.toml", Path("/"), {})
