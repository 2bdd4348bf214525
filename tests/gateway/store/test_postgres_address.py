"""What the address of a PostgreSQL may say, and what is said of a wrong one."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from sqlalchemy.engine import make_url

from gateway.errors import ConfigurationInvalid, NotReady, driver_words
from gateway.store import postgres_driver
from gateway.store.engine import open_database
from tests.databases import PostgresServer


pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


@pytest.fixture
def direct_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_migrated()
    yield url
    postgres_server.drop(url)


SAID = [
    ("sslmode=require&sslrootcert={file}", "sslmode=require&sslrootcert={file}", 5.0),
    ("ssl=verify-full", "sslmode=verify-full", 5.0),
    ("connect_timeout=20&application_name=gate%20one", "application_name=gate+one", 20.0),
    ("target_session_attrs=read-write", "target_session_attrs=read-write", 5.0),
]


@pytest.mark.parametrize(("said", "told", "timeout_s"), SAID)
def test_an_address_may_say_what_other_programs_take(
    said: str, told: str, timeout_s: float, tmp_path: Path
) -> None:
    file = tmp_path / "root.crt"
    file.touch()
    url = make_url(f"postgresql://db/name?host=other&{said.format(file=file)}")
    address, arguments = postgres_driver.arguments(url, pooled=True)
    assert dict(address.query) == {"host": "other"}
    assert unquote(arguments["dsn"]) == f"postgresql://?{told.format(file=file)}"
    assert arguments["timeout"] == timeout_s


async def test_what_an_address_says_wrong_is_said_to_who_wrote_it(direct_url: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="sslrootcert: /none cannot be read"):
        open_database("postgresql://db/name?sslrootcert=/none")
    for wrong, said in (
        ("sslmode=sometimes", "`sslmode` parameter must be one of"),
        ("sslmod=require", 'unrecognized configuration parameter "sslmod"'),
    ):
        more = "&" if "?" in direct_url else "?"
        database = open_database(f"{direct_url}{more}{wrong}", pooled=False)
        with pytest.raises(NotReady) as refused:
            await database.peek("SELECT 1")
        assert said in driver_words(refused.value)
        await database.close()
