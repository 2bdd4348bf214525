"""A listener's certificate: refused in a line that names file, key and reason, and renewed."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog.testing
from prometheus_client import CollectorRegistry

from gateway.clock import DAY_US
from gateway.configuration.reading import parse_settings
from gateway.errors import ConfigurationInvalid
from gateway.metrics import CertificateSeries
from gateway.secrets.certificates import KeptCertificate, kept_certificate, read_certificate
from tests.certificates import HOUR, Authority, Hours, Pair


pytestmark = pytest.mark.anyio

DAY = dt.timedelta(days=1)
Spoil = Callable[[Authority, Path], Pair]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def _kept(pair: Pair, clock: Hours | None = None, authority: Path | None = None) -> KeptCertificate:
    text = f"[admin]\n{pair.settings(authority)}"
    settings = parse_settings(text, "x.toml", Path("/"), {})
    assert settings.admin.url == "https://127.0.0.1:8081"
    found = kept_certificate(settings, "admin", clock or Hours())
    assert found is not None
    return found


def _of(**files: bytes | int | None) -> Spoil:
    """What becomes of a good pair's files: other content, another mode, or none."""

    def spoil(authority: Authority, folder: Path) -> Pair:
        del folder
        pair = authority.issue()
        for name, what in files.items():
            file: Path = getattr(pair, name)
            if isinstance(what, bytes):
                file.write_bytes(what)
            elif what is None:
                file.unlink()
            else:
                file.chmod(what)
        return pair

    return spoil


def _crossed(authority: Authority, folder: Path) -> Pair:
    del folder
    return Pair(authority.issue("one").chain, authority.issue("two").key)


WRONG: dict[str, tuple[Spoil, str, str]] = {
    "no chain": (_of(chain=None), "certificate", "cannot be read (No such file or directory)"),
    "no key": (_of(key=None), "key", "cannot be read (No such file or directory)"),
    "an empty chain": (_of(chain=b""), "certificate", "holds no certificate in PEM"),
    "an odd key": (_of(key=b"key"), "key", "holds no private key in PEM"),
    "a public key": (_of(key=0o644), "key", "can be read by others (mode 0644); make it 0600"),
    "a key that its group may write": (_of(key=0o660), "key", "can be read by others"),
    "another's key": (_crossed, "key", "is not the key of the certificate"),
    "a locked key": (
        lambda authority, _: authority.issue(passphrase="open"),
        "key",
        "is locked with a passphrase",
    ),
    "an old one": (
        lambda authority, _: authority.issue(begins=HOUR * -9, ends=HOUR * -1),
        "certificate",
        "the certificate ended at 2",
    ),
    "an early one": (
        lambda authority, _: authority.issue(begins=HOUR, ends=HOUR * 2),
        "certificate",
        "the certificate is not good before 2",
    ),
}


@pytest.mark.parametrize(("spoil", "which", "reason"), WRONG.values(), ids=WRONG)
async def test_what_cannot_be_used_is_refused_by_file_key_and_reason(
    authority: Authority, tmp_path: Path, spoil: Spoil, which: str, reason: str
) -> None:
    pair = spoil(authority, tmp_path)
    file = pair.chain if which == "certificate" else pair.key
    with pytest.raises(ConfigurationInvalid) as refused:
        _kept(pair)

    assert str(refused.value).startswith(f"{file}: admin.tls_{which}_file: {reason}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\n"])
async def test_authorities_that_cannot_be_read_are_refused(
    authority: Authority, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "teams.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationInvalid, match=r"admin\.tls_client_ca_file: cannot be"):
        _kept(authority.issue(), authority=file)


async def test_a_group_may_read_a_key_as_secret_volumes_have_it(authority: Authority) -> None:
    pair = authority.issue()
    pair.key.chmod(0o440)

    assert _kept(pair).left_s() > 0


async def test_without_a_certificate_a_listener_speaks_plain_http() -> None:
    settings = parse_settings("", "x.toml", Path("/"), {})

    assert read_certificate(settings, "data_plane", Hours()) is None
    assert kept_certificate(settings, "admin", Hours()) is None
    assert settings.data_plane.url == "http://127.0.0.1:8080"


async def test_a_new_pair_is_taken_once_both_files_of_it_are_there(authority: Authority) -> None:
    pair = authority.issue()
    kept, other = _kept(pair), authority.issue("other", ends=HOUR * 5)
    first = kept.context
    with structlog.testing.capture_logs() as lines:
        await kept.tend()
        other.chain.replace(pair.chain)
        await kept.tend()  # Between the two files; nothing is said of it.
        other.key.replace(pair.key)
        await kept.tend()
        assert (kept.context, lines) == (first, [])
        for _ in range(3):
            await kept.tend()

    assert kept.context is not first
    assert 4.9 * 3600 < kept.left_s() < 5 * 3600
    assert [line["event"] for line in lines] == ["certificate:renewed"]
    assert lines[0]["component"] == "admin"


async def test_a_broken_pair_leaves_the_one_before_and_is_told_of_once(
    authority: Authority,
) -> None:
    pair = authority.issue()
    kept = _kept(pair)
    first, good = kept.context, pair.key.read_bytes()
    with structlog.testing.capture_logs() as lines:
        authority.issue("other").key.replace(pair.key)
        for _ in range(5):
            await kept.tend()
        assert kept.context is first
        assert [line["event"] for line in lines] == ["certificate:refused"]
        assert "is not the key of the certificate" in lines[0]["reason"]
        pair.key.write_bytes(good)
        for _ in range(2):
            await kept.tend()

    assert kept.context is not first
    assert lines[-1]["event"] == "certificate:renewed"


@pytest.mark.parametrize(
    ("life", "told_before"),
    [(DAY * 90, DAY * 7), (DAY * 10, DAY * 2), (DAY, DAY / 5)],
    ids=["three months", "ten days", "a day"],
)
async def test_an_end_is_told_in_time_once_a_day_and_also_when_it_is_over(
    authority: Authority, life: dt.timedelta, told_before: dt.timedelta
) -> None:
    clock = Hours()
    kept = _kept(authority.issue(begins=HOUR * 0, ends=life), clock)
    told_us = round((life - told_before).total_seconds() * 1e6)
    with structlog.testing.capture_logs() as lines:
        clock.later_us = told_us - 60_000_000
        await kept.tend()
        assert lines == []
        for after_us in (60_000_000, 120_000_000, DAY_US * 8):
            clock.later_us = told_us + after_us
            await kept.tend()

    assert [line["event"] for line in lines] == ["certificate:ends"] * 2
    assert lines[0]["reason"].startswith("ends at ")
    assert lines[1]["reason"].startswith("has ended at ")
    assert kept.left_s() < 0


async def test_a_short_life_is_told_of_again_as_soon_as_it_is_over(authority: Authority) -> None:
    clock = Hours()
    kept = _kept(authority.issue(begins=HOUR * 0, ends=DAY), clock)
    with structlog.testing.capture_logs() as lines:
        for hour in (20, 25, 26):
            clock.later_us = hour * 3600 * 1_000_000
            await kept.tend()

    assert [line["reason"].partition(" at ")[0] for line in lines] == ["ends", "has ended"]


async def test_what_is_good_only_later_is_taken_when_its_time_has_come(
    authority: Authority,
) -> None:
    """An authority's clock may go before ours."""
    clock, pair = Hours(), authority.issue()
    kept = _kept(pair, clock)
    first = kept.context
    authority.issue(begins=HOUR / 4, ends=HOUR * 5)
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            await kept.tend()
        assert kept.context is first
        clock.later_us = 1800 * 1_000_000
        await kept.tend()

    assert kept.context is not first
    said = [line["event"] for line in lines]
    assert said == ["certificate:refused", "certificate:renewed"]


async def test_an_authority_of_callers_and_their_list_are_told_of_before_they_end(
    authority: Authority, tmp_path: Path
) -> None:
    clock = Hours()
    teams, next_teams = Authority(tmp_path, "teams"), Authority(tmp_path, "later", ends=DAY * 90)
    callers, lists = tmp_path / "callers.pem", tmp_path / "lists.pem"
    callers.write_bytes(next_teams.file.read_bytes() + teams.file.read_bytes())
    lists.write_bytes(teams.revoke(ends=HOUR * 9) + next_teams.revoke(ends=HOUR * 19))
    pair = authority.issue(ends=DAY * 90)
    text = f"[admin]\n{pair.settings(callers, lists)}"
    kept = kept_certificate(parse_settings(text, "x.toml", Path("/"), {}), "admin", clock)
    assert kept is not None
    registry = CollectorRegistry()
    kept.counted_in(CertificateSeries(registry))
    assert _left(registry, "client_ca") == pytest.approx(24 * 3600, abs=60)
    assert _left(registry, "client_crl") == pytest.approx(9 * 3600, abs=60)
    assert _left(registry, "certificate") == pytest.approx(90 * 24 * 3600, abs=60)
    with structlog.testing.capture_logs() as lines:
        for hour in (0, 8, 21):
            clock.later_us = hour * 3600 * 1_000_000
            await kept.tend()

    assert [(line["event"], line["reason"].partition(" at ")[0]) for line in lines] == [
        ("certificate:list_ends", "tls_client_crl_file ends"),
        ("certificate:ends", "tls_client_ca_file ends"),
        ("certificate:list_ends", "tls_client_crl_file has ended"),
    ]
    assert _left(registry, "client_crl") < 0


def _left(registry: CollectorRegistry, what: str) -> float:
    found = registry.get_sample_value(f"gatewright_{what}_seconds_left", {"listener": "admin"})
    assert found is not None
    return found
