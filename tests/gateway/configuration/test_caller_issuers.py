"""Issuers of callers' tokens in the settings: what is refused, and by which key."""

from pathlib import Path

import pytest

from gateway.app import DataPlane
from gateway.cli.init import prepare
from gateway.configuration.reading import load_settings, parse_settings
from gateway.errors import ConfigurationInvalid


GOOD = {
    "issuer": '"https://issuer.example.com"',
    "audience": '"gatewright"',
    "jwks_url": '"https://issuer.example.com/keys"',
}
pytestmark = pytest.mark.anyio
KEY = "callers.issuers.cluster"


def text(name: str = "cluster", **changes: str) -> str:
    lines = {key: value for key, value in (GOOD | changes).items() if value}
    return f"[callers.issuers.{name}]\n" + "".join(f"{k} = {v}\n" for k, v in lines.items())


def parse(written: str) -> None:
    parse_settings(written, "a test", Path(), {})


def test_what_is_said_is_taken_and_nothing_is_trusted_where_nothing_is_said() -> None:
    settings = parse_settings(text(), "a test", Path(), {})
    assert settings.callers.issuers["cluster"].algorithms == ("RS256", "ES256", "EdDSA")
    assert parse_settings("", "a test", Path(), {}).callers.issuers == {}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"issuer": ""}, "issuer"),
        ({"audience": ""}, "audience"),
        ({"audience": '""'}, "audience"),
        ({"audience": '"a b"'}, "audience"),
        ({"issuer": '"https://\u0456ssuer.example.com"'}, "issuer"),
        ({"jwks_url": ""}, "jwks_url"),
        ({"jwks_file": '"keys.json"'}, "jwks_url"),
        ({"jwks_url": "", "jwks_file": '"k"', "ca_file": '"ca.pem"'}, "ca_file"),
        ({"algorithms": "[]"}, "algorithms"),
        ({"algorithms": '["none"]'}, "algorithms"),
        ({"algorithms": '["RS256", "HS256"]'}, "algorithms"),
        ({"leeway_s": "301.0"}, "leeway_s"),
        ({"leeway_s": "-1.0"}, "leeway_s"),
        ({"token_lifetime_s": "604801.0"}, "token_lifetime_s"),
        ({"token_lifetime_s": "inf"}, "token_lifetime_s"),
        ({"outage_s": "0.0"}, "outage_s"),
        ({"tokens": '"all"'}, "tokens"),
    ],
)
def test_what_cannot_be_trusted_is_refused_by_its_key(changes: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        parse(text(**changes))
    assert caught.value.key == f"{KEY}.{key}"


def test_two_issuers_are_not_the_same_one() -> None:
    with pytest.raises(ConfigurationInvalid, match="is that of `cluster` too"):
        parse(text() + text("other"))
    with pytest.raises(ConfigurationInvalid, match="a name has 1 to 63"):
        parse(text('"Big One"'))


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example.com/keys",
        "https://issuer.example.com",
        "https://user@issuer.example.com/keys",
        "https://issuer.example.com/a/../keys",
        "https://issuer.example.com/%6beys",
        "https://issuer.example.com/keys#a",
        "https://169.254.169.254/keys",
        "https://127.1/keys",
        "file:///etc/keys",
    ],
)
async def test_an_address_that_may_not_be_called_stops_the_start(tmp_path: Path, url: str) -> None:
    await prepare(tmp_path)
    file = tmp_path / "gatewright.toml"
    file.write_text(text(jwks_url=f'"{url}"'))
    with pytest.raises(ConfigurationInvalid) as caught:
        DataPlane(load_settings(file))
    assert caught.value.key == f"{KEY}.jwks_url"


@pytest.mark.parametrize(
    "url",
    [
        "https://login.microsoftonline.com/common/discovery/v2.0/keys?appid=6731de76-14a6",
        "https://issuer.example.com/.well-known/jwks.json",
        "https://issuer.example.com/realms/a/protocol/openid-connect/certs",
        "https://10.96.0.1/openid/v1/jwks",
        "http://127.0.0.1:8089/keys",
    ],
)
async def test_addresses_as_issuers_write_them_may_be_called(tmp_path: Path, url: str) -> None:
    await prepare(tmp_path)
    file = tmp_path / "gatewright.toml"
    file.write_text(text(jwks_url=f'"{url}"'))
    plane = DataPlane(load_settings(file))
    assert plane._callers is not None
    await plane.close()
