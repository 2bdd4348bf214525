"""Settings are shown and compared without anything that could open a door."""

import re
from pathlib import Path

import msgspec
import pytest

from gateway.configuration.disclosing import disclosed, flat, safe_url, settings_digest
from gateway.configuration.reading import parse_settings
from gateway.configuration.settings import Settings


CANARY, PATH = "c4n4ry-5ecret", "p4th-5ecret"
TEXT = f"""
[database]
url = "postgresql+asyncpg://gate:{CANARY}@db.example:5432/gatewright"
[secrets]
pepper = {{ env = "PEPPER" }}
[alerts]
url = "https://hooks.example/services/{PATH}/x?token={CANARY}"
[sinks.siem]
kind = "http"
url = "https://user:{CANARY}@siem.example/in/{PATH}#{CANARY}"
[sinks."a.b"]
kind = "http"
url = "https://siem.example:8443/{PATH}"
[providers.claude]
kind = "anthropic"
jurisdiction = "us"
base_url = "https://{CANARY}@proxy.example/anthropic?key={CANARY}"
credential = {{ file = "var/claude.key" }}
[retention]
classes = {{ short = 30 }}
"""


def settings(text: str = TEXT, **environment: str) -> Settings:
    return parse_settings(text, "gatewright.toml", Path("/srv/gate"), environment)


def test_no_part_of_an_address_that_could_be_a_secret_is_told() -> None:
    told = msgspec.json.encode(disclosed(settings())).decode()

    assert CANARY not in told
    assert PATH not in told
    assert "postgresql+asyncpg://…@db.example:5432/gatewright" in told
    assert "https://…@proxy.example/anthropic?…" in told
    assert "https://hooks.example/…?…" in told
    assert "https://siem.example:8443/…" in told


def test_a_secret_is_told_as_the_place_where_it_is_kept() -> None:
    lines = flat(settings())

    assert lines["secrets.pepper.env"] == "PEPPER"
    assert lines["providers.claude.credential.file"] == "var/claude.key"
    assert lines["retention.classes.short"] == 30


def test_workers_with_the_same_settings_have_the_same_digest() -> None:
    own = {
        "GATEWRIGHT_AUDIT__WORKER": "w7",
        "GATEWRIGHT_AUDIT__DIRECTORY": "/data/w7",
        "GATEWRIGHT_DATA_PLANE__PORT": "9000",
        "GATEWRIGHT_LOG_LEVEL": "debug",
    }
    digest = settings_digest(settings())

    assert re.fullmatch(r"[0-9a-f]{32}", digest)
    assert settings_digest(settings(**own)) == digest
    assert settings_digest(settings(TEXT.replace(CANARY, "an0ther-5ecret"))) == digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("short = 30", "short = 31"),
        ('env = "PEPPER"', 'env = "OTHER"'),
        ("db.example", "db2.example"),
        ('jurisdiction = "us"', 'jurisdiction = "eu"'),
        (PATH, "another"),
    ],
)
def test_any_shared_setting_that_differs_makes_another_digest(old: str, new: str) -> None:
    assert settings_digest(settings(TEXT.replace(old, new))) != settings_digest(settings())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no address", "no address"),
        ("sqlite+aiosqlite:///var/g.db", "sqlite+aiosqlite:///var/g.db"),
        ("sqlite+aiosqlite:////srv/g.db", "sqlite+aiosqlite:////srv/g.db"),
        ("https://[::1]:8443/x", "https://[::1]:8443/x"),
        ("https://host:not-a-port/x", "…"),
        ("postgresql+asyncpg://ann:12/34@host/db", "…"),
        ("postgresql+asyncpg://ann:12#34@host/db", "…"),
        ("postgresql+asyncpg://ann:12?34@host/db", "…"),
        ("postgresql+asyncpg://ann:1@host/db?ssl=require", "postgresql+asyncpg://…@host/db?…"),
        ("https://host/", "https://host/"),
    ],
)
def test_an_address_keeps_what_says_who_is_asked(text: str, shown: str) -> None:
    assert safe_url(text) == shown
