"""What tests of erasure have at hand."""

import base64
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.configuration.reading import load_settings
from gateway.store.engine import open_database
from tests.gateway.store.erasure.kept_archive import CONFIG, Archive


@pytest.fixture
async def archive(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Archive]:
    monkeypatch.setenv("GATEWRIGHT_TEST_PEPPER", secrets.token_hex(32))
    key_file = tmp_path / "master.key"
    key_file.touch(mode=0o600)
    key_file.write_text(base64.b64encode(secrets.token_bytes(32)).decode())
    config = tmp_path / "gatewright.toml"
    config.write_text(CONFIG.format(url=database_url))
    settings = load_settings(config)
    database = open_database(settings.database_url)
    yield Archive(settings, database)
    await database.close()
